"""A stage is known by what its files hold, not only by their names."""

from __future__ import annotations

from pathlib import Path

import pytest
from hydra import compose, initialize_config_module
from omegaconf import DictConfig

from experiments.assemble import AssemblyError
from experiments.schema import register
from experiments.stages.checkpoints import CheckpointError
from experiments.stages.experiment import run_stage
from experiments.stages.plan import changed_files, plan_stage

register()


def composed(*overrides: str) -> DictConfig:
    with initialize_config_module("conf", version_base="1.3"):
        return compose("config", ["experiment=llama_baseline", *overrides])


def test_another_problem_file_makes_another_stage(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"nums": [1, 2, 3], "target": 6}\n')
    config = composed("task.train=file", f"task.train_file={problems}")
    before = plan_stage("grpo", config, {}).fingerprint
    assert plan_stage("grpo", config, {}).fingerprint == before
    problems.write_text('{"nums": [2, 2, 3], "target": 7}\n')
    assert plan_stage("grpo", config, {}).fingerprint != before


def test_a_file_that_changes_after_it_was_planned_with_is_named_before_the_stage_reads_it(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    problems.write_text('{"nums": [1, 2, 3], "target": 6}\n')
    config = composed("task.train=file", f"task.train_file={problems}", f"output_dir={tmp_path}")
    plan = plan_stage("grpo", config, {})
    assert changed_files(plan) == []
    problems.write_text('{"nums": [2, 2, 3], "target": 7}\n')
    with pytest.raises(CheckpointError, match=rf"^grpo: {problems} has changed since this run began; run it again$"):
        run_stage(plan, config, [plan])
    assert not plan.folder.exists()


def test_one_letter_in_the_midst_of_a_large_problem_file_makes_another_stage(tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    lines = ['{"nums": [1, 2, 3], "target": 6}\n'] * 100_000
    problems.write_text("".join(lines))
    config = composed("task.train=file", f"task.train_file={problems}")
    before = plan_stage("grpo", config, {}).fingerprint
    lines[50_000] = '{"nums": [1, 2, 4], "target": 7}\n'
    problems.write_text("".join(lines))
    assert plan_stage("grpo", config, {}).fingerprint != before


def test_a_text_critic_is_known_by_the_weights_it_reads_with(tmp_path: Path) -> None:
    encoder = tmp_path / "encoder"
    encoder.mkdir()
    (encoder / "config.json").write_text("{}")
    config = composed("experiment=critic_text", f"backbone.pretrained={encoder}")
    before = plan_stage("critic", config, {}).fingerprint
    (encoder / "config.json").write_text('{"hidden_size": 8}')
    assert plan_stage("critic", config, {}).fingerprint != before


def test_an_embedded_policy_that_does_not_exist_is_one_sentence() -> None:
    with pytest.raises(AssemblyError, match="no embedded policy 'nothing'"):
        plan_stage("grpo", composed("policy.pretrained=embedded:nothing"), {})
