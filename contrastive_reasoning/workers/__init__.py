"""Guarded worker processes for a user's function and for symbolic answers, which may hang, crash or exhaust memory."""
