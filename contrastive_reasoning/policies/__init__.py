VERSION = 3
"""Raised when the same configuration would give another result; finished stages are then not reused."""
