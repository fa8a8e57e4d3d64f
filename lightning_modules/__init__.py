VERSION = 1
"""Increment it when the same configuration would give another result: finished stages are then computed anew."""
