"""What is typed to compare runs, in a terminal's table or a page's: names, and wishes as flags or as ``key=value``."""

from __future__ import annotations

import argparse
from typing import TypedDict

from experiments.analysis.comparison import METRIC
from experiments.cli.arguments import KeyValueParser


class Wishes(TypedDict):
    """Arguments of ``comparison_of``."""

    metric: str | None
    sets: list[str] | None
    by: list[str] | None
    baseline: str | None


def comparison_parser(module: str, doc: str | None) -> KeyValueParser:
    """The names and wishes that every comparison takes.

    Args:
        module: run as ``python -m``.
        doc: its docstring, whose first line describes it.
    """
    parser = KeyValueParser(module, doc)
    parser.add_argument("names", nargs="+", help="experiments")
    parser.add_argument("--metric", help=f"by its name for the main set; what published figures are of, else {METRIC}")
    parser.add_argument("--sets", help="the evaluation sets to show, with commas; main is the suite's main one")
    parser.add_argument("--by", help="tags or parameters that make an arm, with commas")
    parser.add_argument("--baseline", help="an arm, or a value that only one arm has")
    parser.add_argument("--curve", help="the metric of the large picture")
    return parser


def wishes(options: argparse.Namespace) -> Wishes:
    """What was wished for, lists taken apart."""
    return Wishes(metric=options.metric, sets=_listed(options.sets), by=_listed(options.by), baseline=options.baseline)


def _listed(wish: str | None) -> list[str] | None:
    """``a,b`` or ``[a,b]`` as a list."""
    return None if wish is None else [one.strip() for one in wish.strip("[]").split(",")]
