"""The single runs that stand for a sweep when its overrides are checked: each value of each sweep occurs once."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from hydra.core.override_parser.types import IntervalSweep, Override


def variants(overrides: Sequence[Override]) -> Iterator[list[str]]:
    """Override lists without sweeps: the first value of every sweep, then each other value beside those first ones."""
    choices = [values(override) for override in overrides]
    first = [options[0] for options in choices]
    yield first
    for position, options in enumerate(choices):
        for option in options[1:]:
            yield [*first[:position], option, *first[position + 1 :]]


def values(override: Override) -> list[str]:
    """``key=value`` for every value that the override takes; one where it is no sweep, the ends of an interval."""
    if not override.is_sweep_override():
        return [override.input_line or ""]
    sweep = override.value()
    if isinstance(sweep, IntervalSweep):
        return [f"{override.get_key_element()}={end}" for end in (sweep.start, sweep.end)]
    return [f"{override.get_key_element()}={value}" for value in override.sweep_string_iterator()]
