"""Every YAML as a file: it spells its constructor's arguments, says what it is, and sets only what is its own."""

from __future__ import annotations

import inspect
from pathlib import Path

import pytest
from hydra.utils import get_object

from experiments.import_paths import OURS
from tests.config_kit import CONF, EXPERIMENTS, SCALES, composed, nodes, raw, whole

FILES = sorted(CONF.glob("*/*.yaml"))
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_keys_are_the_constructors_arguments(path: Path) -> None:
    for where, node in nodes(whole(path)):
        target = node["_target_"]
        given = set(node) - HYDRA_KEYS
        takes = set(inspect.signature(get_object(target)).parameters)
        assert given <= takes, f"{where or 'the file'}: {target} does not take {sorted(given - takes)}"
        in_full = path.parent.name != "experiment"  # an experiment sets some values of a part that it chooses
        if in_full and target.split(".")[0] in OURS and not node.get("_partial_"):
            assert given == takes, f"{where or 'the file'}: {target} also takes {sorted(takes - given)}"


@pytest.mark.parametrize("path", FILES, ids=lambda path: f"{path.parent.name}/{path.stem}")
def test_begins_with_a_line_that_says_what_it_is(path: Path) -> None:
    first = next(line for line in path.read_text().splitlines() if not line.startswith("# @"))
    assert first.startswith("# ")
    assert first[2:3].isupper() or first[2:3].isdigit() or not first[2:3].isalpha()


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_is_named_as_its_file(experiment: str) -> None:
    assert composed(f"experiment={experiment}", f"scale={SCALES[0]}").name == experiment


@pytest.mark.parametrize("experiment", EXPERIMENTS)
def test_an_experiment_sets_no_size(experiment: str) -> None:
    """Sizes are the budget's, which sets some of the task's too: no key is set by both."""
    assert not set(raw(CONF / "experiment" / f"{experiment}.yaml")) & {"budget", "task", "policy", "family", "scale"}
