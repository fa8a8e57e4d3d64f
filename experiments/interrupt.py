"""A stage stopped by its person: what is said, and that nothing is lost but the steps since the last checkpoint."""

from __future__ import annotations


class Interrupted(Exception):
    """Ctrl-C while a stage ran. The message names the stage and the step of the checkpoint that is left."""
