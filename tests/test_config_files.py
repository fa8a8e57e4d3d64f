"""Rules for YAML files: all arguments of the constructor, a description in the first line, no sizes in experiments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest
from hydra.utils import get_object

from experiments.config.folders import OURS
from tests.config_kit import CONF, EXPERIMENTS, composed, content, nodes, whole

FILES = sorted(CONF.glob("*/*.yaml"))
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}


def test_keys_match_constructor_arguments() -> None:
    assert [fault for path in FILES for fault in faults(path)] == []


def faults(path: Path) -> Iterator[str]:
    """Yields keys that the constructors do not take, and arguments of our constructors that the file omits."""
    for where, node in nodes(whole(path)):
        target = node["_target_"]
        given = set(node) - HYDRA_KEYS
        takes = set(inspect.signature(get_object(target)).parameters)
        place = f"{path.parent.name}/{path.stem}{where}: {target}"
        if given - takes:
            yield f"{place} does not take {sorted(given - takes)}"
        in_full = path.parent.name != "experiment"  # an experiment sets only some values of a part that it chooses
        if in_full and target.split(".")[0] in OURS and not node.get("_partial_") and takes - given:
            yield f"{place} also takes {sorted(takes - given)}"


def test_every_file_starts_with_description_comment() -> None:
    """``make list`` and the reference of the configuration show this line."""
    first = {path: next(line for line in path.read_text().splitlines() if line[:3] != "# @") for path in FILES}
    assert [path for path, line in first.items() if not line.startswith("# ")] == []


def test_experiments_set_no_sizes() -> None:
    """Sizes belong to the budget and to the task's files by scale. Of the task an experiment may set the style."""
    sizes = {"budget", "policy", "family", "scale"}
    contents = {name: content(name) for name in EXPERIMENTS}
    assert [name for name, keys in contents.items() if sizes & set(keys)] == []
    assert [name for name, keys in contents.items() if keys.get("task", {}).keys() - {"style"}] == []


@pytest.mark.parametrize(
    ("name", "by_choice"),
    [
        ("qwen_critic", ["experiment=critic", "family=qwen"]),
        ("llama_oracle", ["experiment=oracle"]),
        ("dapo_math", ["experiment=dapo", "task=math", "name=dapo_math"]),
    ],
)
def test_name_of_a_variant_is_its_file_with_choices(name: str, by_choice: list[str]) -> None:
    assert composed(f"experiment={name}") == composed(*by_choice)
