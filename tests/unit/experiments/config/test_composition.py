from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from hydra import compose
from omegaconf import OmegaConf

from experiments.assemble import build
from experiments.config.composition import (
    compose_lines,
    expand_home,
    forget_compositions,
    parse,
    parts,
    single_runs,
)
from experiments.config.contradictions import contradiction
from experiments.config.folders import VARIABLE
from experiments.config.types import argument_flaws
from experiments.schema import composing

CRITIC = "experiment=llama_critic_level"
FAR = ("experiment=llama_baseline", "suite=countdown_far")
LARGER = "suite.settings.larger.task"


@pytest.mark.parametrize(
    ("overrides", "runs"),
    [
        (["a=1", "b=[1,2]"], [["a=1", "b=[1,2]"]]),
        (["a=range(1,3)"], [["a=1"], ["a=2"]]),
        (
            ["a=1,2", "c=0", "b=x,y,z"],
            [["a=1", "c=0", "b=x"], ["a=2", "c=0", "b=x"], ["a=1", "c=0", "b=y"], ["a=1", "c=0", "b=z"]],
        ),
    ],
)
def test_single_runs_vary_one_sweep_at_a_time(overrides: list[str], runs: list[list[str]]) -> None:
    assert list(single_runs(parse(overrides))) == runs


@pytest.mark.parametrize(
    "lines",
    [
        [CRITIC, "seed=3", "reward.weight=0.25", "policy.pretrained=/some/where", "stages=[critic,grpo]"],
        ["reward.weight=${budget.grpo.learning_rate}", CRITIC, "seed=1", "objective=dapo", "seed=2"],
        [CRITIC, "debug=fast", "budget.grpo={steps: 7}", "rollout.sampling={top_k: 3, stop: ['}', 'a b']}"],
        ["name='a=b, c'", "reward.checkpoint=null", "hydra.job.chdir=false", CRITIC, "+callbacks.further={a: 1}"],
        [CRITIC],
    ],
)
def test_compose_lines_equals_hydra_compose(lines: list[str]) -> None:
    with composing():
        ours, expected = compose_lines(*lines), compose("config", lines)
    assert OmegaConf.to_yaml(ours) == OmegaConf.to_yaml(expected)
    assert OmegaConf.is_struct(ours)


def test_compose_lines_does_not_change_cached_configuration() -> None:
    with composing():
        changed = compose_lines(CRITIC, "reward.weight=0.75")
        assert changed.reward.weight == 0.75 != compose_lines(CRITIC).reward.weight


@pytest.mark.parametrize("lines", [('output_dir="~/x"',), ("experiment=mine",), ("experiment=mine", "seed=3")])
def test_home_folder_is_expanded_where_the_configuration_is_read(
    lines: tuple[str, ...], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the command line and in a user's file; also in what refers to the folder, and in a sweep's own folder."""
    (tmp_path / "experiment").mkdir()
    (tmp_path / "experiment" / "mine.yaml").write_text("# @package _global_\noutput_dir: ~/x\n")
    monkeypatch.setenv(VARIABLE, str(tmp_path))
    monkeypatch.setenv("HOME", "/home/somebody")
    forget_compositions()
    with composing():
        config = compose_lines(*lines, "policy=smollm2")
        hydras = compose("config", list(lines), return_hydra_config=True)
    forget_compositions()
    assert config.output_dir == "/home/somebody/x"
    assert config.policy.pretrained.startswith("/home/somebody/x/models/")
    assert hydras.hydra.sweep.dir.startswith("/home/somebody/x/sweeps/")
    assert expand_home(hydras).output_dir == "/home/somebody/x"


def test_merge_changes_only_the_named_keys() -> None:
    with composing():
        config = compose_lines(*FAR, "task.seed=5", "task.counts=[4]")
    changes = {"number_range": (50, 99), "target_range": (51, 150), "train_problems": 0, "validation_problems": 0}
    assert build(config, LARGER) == replace(build(config, "task"), test="generated", **changes)
    assert dict(parts(config))[LARGER] == OmegaConf.merge(config.task, changes)


@pytest.mark.parametrize(
    ("line", "sentence"),
    [
        (f"{LARGER}='${{merge:${{task}},{{tes: generated}}}}'", "Key 'tes' is not in struct"),
        (
            f"{LARGER}='${{merge:${{task}},{{test: some}}}}'",
            "test must be 'generated' or 'longproc', got the text 'some'",
        ),
        (f"{LARGER}='${{merge:${{task}},{{counts: 3}}}}'", "counts must be a list, got 3"),
        ("task=gsm8k", "Key 'test' is not in struct"),
    ],
)
def test_merge_with_unknown_key_or_invalid_value_is_rejected(line: str, sentence: str) -> None:
    with composing():
        config = compose_lines(*FAR, line)
    found = contradiction(config) or str(next(argument_flaws(config), None))
    assert found.startswith(LARGER)
    assert found.endswith(sentence)
