"""The folder of an experiment, and how it gets to a tracker; the tracker itself is ``experiments.track``."""
