"""Every YAML as a file: it spells its constructor's arguments, says what it is, and sets only what is its own."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

from hydra.utils import get_object

from experiments.import_paths import OURS
from tests.config_kit import CONF, EXPERIMENTS, nodes, raw, whole

FILES = sorted(CONF.glob("*/*.yaml"))
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}


def test_keys_are_the_constructors_arguments() -> None:
    assert [fault for path in FILES for fault in faults(path)] == []


def faults(path: Path) -> Iterator[str]:
    """The keys of a file that its constructors do not take, and the arguments of ours that it does not spell."""
    for where, node in nodes(whole(path)):
        target = node["_target_"]
        given = set(node) - HYDRA_KEYS
        takes = set(inspect.signature(get_object(target)).parameters)
        place = f"{path.parent.name}/{path.stem}{where}: {target}"
        if given - takes:
            yield f"{place} does not take {sorted(given - takes)}"
        in_full = path.parent.name != "experiment"  # an experiment sets some values of a part that it chooses
        if in_full and target.split(".")[0] in OURS and not node.get("_partial_") and takes - given:
            yield f"{place} also takes {sorted(takes - given)}"


def test_every_file_begins_with_a_line_that_says_what_it_is() -> None:
    """Which ``make list`` and the reference of the configuration show."""
    first = {path: next(line for line in path.read_text().splitlines() if line[:3] != "# @") for path in FILES}
    assert [path for path, line in first.items() if not line.startswith("# ")] == []


def test_an_experiment_sets_no_size() -> None:
    """Sizes are the budget's, which sets some of the task's too: no key is set by both."""
    sizes = {"budget", "task", "policy", "family", "scale"}
    assert [name for name in EXPERIMENTS if sizes & set(raw(CONF / "experiment" / f"{name}.yaml"))] == []
