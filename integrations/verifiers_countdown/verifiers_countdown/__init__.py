"""Countdown with an exact oracle of steps, as an environment of the library verifiers."""

from verifiers_countdown.taskset import CountdownTaskset

__all__ = ["CountdownTaskset"]
