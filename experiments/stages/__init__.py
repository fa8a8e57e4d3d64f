"""The stages of an experiment: planned, resumed or reused, trained, evaluated."""
