from __future__ import annotations

from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.cli.sweep_variants import variants


def variants_of(*overrides: str) -> list[list[str]]:
    return list(variants(OverridesParser.create().parse_overrides(list(overrides))))


def test_a_single_run_stands_for_itself() -> None:
    assert variants_of("a=1", "b=[1,2]") == [["a=1", "b=[1,2]"]]


def test_every_value_occurs_once_beside_the_first_values_of_the_others() -> None:
    assert variants_of("a=1,2", "c=0", "b=x,y,z") == [
        ["a=1", "c=0", "b=x"],
        ["a=2", "c=0", "b=x"],
        ["a=1", "c=0", "b=y"],
        ["a=1", "c=0", "b=z"],
    ]


def test_ranges_are_sweeps() -> None:
    assert [variant[0] for variant in variants_of("a=range(1,3)")] == ["a=1", "a=2"]
