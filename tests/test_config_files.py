"""Rules for files and rows of ``conf/``: all arguments of the constructor, a description, no sizes in experiments."""

from __future__ import annotations

import inspect
from collections.abc import Iterator

import pytest
from hydra.utils import get_object

from conf import VARIANTS
from experiments.config.folders import OURS, summaries
from tests.config_kit import CONF, EXPERIMENTS, composed, content, nodes, options, whole

GROUPS = sorted({path.parent.name for path in CONF.glob("*/*.yaml")})
HYDRA_KEYS = {"_target_", "_partial_", "_convert_", "_recursive_", "_args_"}


def test_keys_match_constructor_arguments() -> None:
    assert [fault for group in GROUPS for option in options(group) for fault in faults(group, option)] == []


def faults(group: str, option: str) -> Iterator[str]:
    """Yields keys that the constructors do not take, and arguments of our constructors that the option omits."""
    for where, node in nodes(whole(group, option)):
        target = node["_target_"]
        given = set(node) - HYDRA_KEYS
        parameters = inspect.signature(get_object(target)).parameters
        takes, more = set(parameters), any(one.kind is one.VAR_KEYWORD for one in parameters.values())
        place = f"{group}/{option}{where}: {target}"
        if given - takes and not more:
            yield f"{place} does not take {sorted(given - takes)}"
        in_full = group != "experiment"  # an experiment sets only some values of a part that it chooses
        if in_full and target.split(".")[0] in OURS and not node.get("_partial_") and takes - given:
            yield f"{place} also takes {sorted(takes - given)}"


def test_every_option_has_a_description() -> None:
    """``make list`` and the reference of the configuration show it: the first comment of a file, or a row's summary."""
    first = {path: path.read_text().splitlines() for path in CONF.glob("*/*.yaml")}
    first = {path: next(line for line in lines if line[:3] != "# @") for path, lines in first.items()}
    assert [path for path, line in first.items() if not line.startswith("# ")] == []
    assert [(group, name) for group in GROUPS for name, line in summaries(group).items() if not line] == []


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


def test_no_row_has_the_name_of_a_file() -> None:
    """Hydra would compose the file."""
    rows = [f"{group}/{name}.yaml" for group, variants in VARIANTS.items() for name in variants]
    assert [row for row in rows if (CONF / row).exists()] == []


@pytest.mark.parametrize(
    ("row", "base", "values"),
    [
        ("policy=qwen_3b", "policy=base", ["pretrained=Qwen/Qwen2.5-3B-Instruct", "gradient_checkpointing=true"]),
        (
            "reward=clipo_supcon_in",
            "reward=clipo",
            ["formula._target_=contrastive_reasoning.losses.supcon_in", "positives=all"],
        ),
        ("trainer=zero3", "trainer=zero1", ["strategy.stage=3"]),
    ],
)
def test_row_is_its_base_with_values(row: str, base: str, values: list[str]) -> None:
    group = base.partition("=")[0]
    assert composed("name=any", row) == composed("name=any", base, *(f"{group}.{value}" for value in values))
