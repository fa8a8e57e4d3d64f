"""Compares published settings with the experiments at ``scale=paper``, and checks that a changed one is detected."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from copy import deepcopy
from dataclasses import dataclass
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import Any

import pytest
import yaml
from omegaconf import DictConfig, OmegaConf

from experiments.config.composition import REFERENCE
from experiments.config.contradictions import contradiction
from tests.config_kit import composed

PUBLISHED: Any = yaml.safe_load(
    (Path(__file__).resolve().parents[3] / "contrastive_reasoning" / "published" / "settings.yaml").read_text("utf-8")
)
LISTS: Mapping[str, list[str]] = PUBLISHED["experiments"]
SECTIONS: Mapping[str, Mapping[str, Mapping[str, Any]]] = PUBLISHED["sections"]
FIELDS = {"values", "key", "plus", "divided_by", "spelled", "ours", "reason"}
ABSENT = "no such key"


@dataclass(frozen=True, kw_only=True)
class Setting:
    """One value of one experiment, and where a composed configuration has it."""

    name: str
    line: str
    key: str
    plus: str | None
    divided_by: str | float | None
    expected: Any

    def held(self, config: DictConfig) -> Any:
        value = select(config, self.key)
        if self.plus is not None:
            value += select(config, self.plus)
        if self.divided_by is not None:
            value /= select(config, self.divided_by) if isinstance(self.divided_by, str) else self.divided_by
        return value

    def differs(self, config: DictConfig) -> bool:
        """Whether the value differs, or only its type: true is not 1."""
        held = self.held(config)
        return held != self.expected or isinstance(held, bool) != isinstance(self.expected, bool)


def select(config: DictConfig, key: str) -> Any:
    value = OmegaConf.select(config, key, default=ABSENT)
    return OmegaConf.to_container(value, resolve=True) if OmegaConf.is_config(value) else value


def rows() -> Iterator[tuple[str, Mapping[str, Any]]]:
    for section, of_section in SECTIONS.items():
        yield from ((f"{section}: {name}", row) for name, row in of_section.items())


def settings() -> Iterator[Setting]:
    for name, row in rows():
        for listed, printed in row["values"].items() if "key" in row else ():
            value = row.get("ours", {}).get(listed, printed)
            by = row.get("divided_by")
            for line in LISTS[listed]:
                yield Setting(
                    name=name,
                    line=line,
                    key=row["key"],
                    plus=row.get("plus"),
                    divided_by=by[listed] if isinstance(by, dict) else by,
                    expected=row["spelled"][value] if "spelled" in row else value,
                )


SETTINGS = sorted(settings(), key=lambda setting: setting.line)
BY_LINE = {line: list(found) for line, found in groupby(SETTINGS, key=lambda setting: setting.line)}


@cache
def config_of(line: str) -> DictConfig:
    return composed(f"experiment={line.split()[0]}", "scale=paper", *line.split()[1:])


def differences(settings: list[Setting], config: DictConfig) -> dict[str, tuple[Any, Any]]:
    """The published and the configured value of each setting that differs."""
    return {one.name: (one.expected, one.held(config)) for one in settings if one.differs(config)}


@pytest.mark.parametrize("line", BY_LINE)
def test_experiment_has_published_settings(line: str) -> None:
    assert differences(BY_LINE[line], config_of(line)) == {}


def source_of(config: DictConfig, key: str) -> str:
    """The key that a user sets, after plain references on the way to this one are followed."""
    above: list[str] = []
    for place, name in enumerate(names := key.split("."), start=1):
        written = str(OmegaConf.select(config, ".".join(above))._get_node(name)._value()) if above else None
        above.append(name)
        if written and REFERENCE.fullmatch(written):
            return source_of(config, ".".join([written[2:-1], *names[place:]]))
    return key


def another(value: Any) -> Any:
    match value:
        case None:
            return "another"
        case bool():
            return not value
        case int() | float():
            return 2 * value + 1
        case list():
            return [*value, 1]
        case _:
            return f"{value}_"


FIRST_OF_EACH = {(one.name, repr(one.expected)): one for one in reversed(SETTINGS)}.values()
"""The first experiment that has each published value."""


@pytest.mark.parametrize("setting", FIRST_OF_EACH, ids=lambda one: f"{one.name}: {one.expected}")
def test_changed_setting_is_detected(setting: Setting) -> None:
    config = config_of(setting.line)
    for key in filter(None, (setting.key, setting.plus)):
        changed, source = deepcopy(config), source_of(config, key)
        above = source.rpartition(".")[0]
        OmegaConf.update(changed, above, select(config, above), merge=False)  # keys of a merge cannot be set
        OmegaConf.update(changed, source, another(select(config, key)), merge=False)
        assert setting.differs(changed), key


@pytest.mark.parametrize(
    ("experiment", "key", "value"),
    [
        ("clipo_dapo_math", "objective.clip_high", 0.30),
        ("clipo_gspo_math", "objective.clip_low", 0.2),
        ("clipo_math", "budget.grpo.learning_rate", 1e-5),
        ("clipo_math", "reward.temperature", 0.5),
        ("clipo_math", "reward.weight", 0.9),
        ("clipo_math", "budget.grpo.group_size", 4),
        ("clipo_gsm8k", "budget.clipo.warmup_steps", 10),
        ("clipo_gsm8k", "budget.clipo.dimension", 64),
        ("clipo_gsm8k", "budget.grpo.problems", 64),
        ("clipo_gsm8k", "budget.grpo.minibatches", 1),
        ("clipo_gsm8k", "budget.grpo.steps", 84),
        ("clipo_gsm8k", "budget.grpo.max_prompt_tokens", None),
        ("clipo_gsm8k", "budget.grpo.max_completion_tokens", 1024),
        ("clipo_gsm8k", "budget.evaluate.samples", 4),
        ("clipo_gsm8k", "suite.sampling.top_p", 1.0),
        ("clipo_gsm8k", "objective.kl_weight", 0.01),
        ("clipo_gsm8k", "module.offload_reference", False),
        ("clipo_gsm8k", "policy.gradient_checkpointing", False),
        ("critic_numeric_v2", "budget.critic.steps", 1500),
        ("critic_numeric_v2", "datamodule.batch_size", 512),
        ("llama_critic_published", "budget.grpo.steps", 240),
        ("llama_critic_published", "budget.grpo.max_completion_tokens", 500),
        ("llama_critic_released", "task.style", "annotated"),
        ("qwen_critic_released", "rollout.sampling.temperature", 1.0),
        ("critic_text", "datamodule.discount", 0.8),
    ],
)
def test_override_of_published_setting_is_detected(experiment: str, key: str, value: object) -> None:
    changed = deepcopy(config_of(experiment))
    OmegaConf.update(changed, key, value, merge=False)
    assert differences(BY_LINE[experiment], changed)


def test_published_settings_have_every_row_of_clipo_tables_8_and_9() -> None:
    """The rows of CLIPO's Tables 8 and 9. A row of Table 8 has a value for both tracks or for neither."""
    assert {
        *("total epochs", "head warm-up, steps", "train batch, prompts", "mini-batch, prompts", "micro-batch per GPU"),
        *("max prompt length", "max response length", "over-long prompts filtered", "truncation"),
        *("actor learning rate", "dynamic batch size", "gradient checkpointing", "rollout backend"),
        *("rollout samples n", "validation rollouts", "validation do_sample", "validation temperature"),
        *("validation top-p", "GPUs per node", "nodes", "tensor parallel", "offload of actor parameters"),
        *("offload of the optimizer", "offload of reference parameters"),
    } <= SECTIONS["CLIPO, Table 8"].keys()
    assert {
        *("loss", "distance", "head", "level of negatives", "output size", "temperature", "learning rate of the head"),
        *("weight decay of the head", "lambda"),
    } <= SECTIONS["CLIPO, Table 9"].keys()
    for row in (row for name, row in rows() if name.startswith("CLIPO, Table 8")):
        assert len({listed.partition("_")[0] for listed in row["values"]} & {"track1", "track2"}) in (0, 2)


def test_rows_are_complete_and_deviations_have_a_reason() -> None:
    for name, row in rows():
        assert row.keys() <= FIELDS, name
        assert row["values"].keys() >= row.get("ours", {}).keys(), name
        assert row["values"].keys() <= LISTS.keys(), name
        assert ("reason" in row) == ("key" not in row or "ours" in row), name


def test_epoch_has_whole_batches() -> None:
    table = SECTIONS["CLIPO, Table 8"]
    problems, batch = (table[name]["values"] for name in ("training problems", "train batch, prompts"))
    steps = {track: problems[track] // batch[track] for track in problems}
    assert table["epochs that train the policy"]["divided_by"] == steps
    assert table["total epochs"]["divided_by"] == {f"{track}_trained_head": number for track, number in steps.items()}


PAGE = Path(__file__).resolve().parents[3] / "docs" / "released_code.md"
PRESETS = ("", "preset=paper", "preset=released")


def differences_on_the_page() -> list[list[str]]:
    """Cells of each line with an experiment: key, experiment, and values of ours, the paper and the released code."""
    lines = [line.strip("|").split(" | ") for line in PAGE.read_text("utf-8").splitlines() if line.startswith("| ")]
    return [[cell.strip() for cell in line[1:]] for line in lines if line[2].strip().startswith("`")]


@pytest.mark.parametrize("preset", PRESETS[1:])
@pytest.mark.parametrize("experiment", ["clipo_dapo_math", "clipo_l2", "dapo_math rollout=vllm", "llama_critic"])
def test_preset_composes_with_any_experiment(experiment: str, preset: str) -> None:
    assert contradiction(config_of(f"{experiment} {preset}")) is None


@pytest.mark.parametrize("line", differences_on_the_page(), ids=lambda line: f"{line[1]} {line[0]}")
def test_preset_sets_values_of_released_code_page(line: list[str]) -> None:
    """A cell in words means that the preset keeps our value."""
    key, experiment, *documented = (cell.split("`")[1] if cell.startswith("`") else None for cell in line)
    held = [str(select(config_of(f"{experiment} {preset}"), str(key))) for preset in PRESETS]
    assert [value.rpartition(".")[2] if "_target_" in str(key) else value for value in held] == [
        documented[0] if value is None else value for value in documented
    ]
    assert len(set(held)) > 1, "no difference"
