"""A signal wherever it strikes, then the same command again: bitwise the run that nobody stopped."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.run_folder import METRICS_FILE, complete_lines, read_metrics
from experiments.stages.checkpoints import newest_sound, path_of
from experiments.system.launch import INTERRUPTED
from tests.integration.forking import Forks
from tests.integration.killing import runs
from tests.unit.experiments.stages.test_checkpoints import flip

KILLED, TERMINATED = -signal.SIGKILL, -signal.SIGTERM
WHOLE = [
    "experiment=llama_critic_calibrated",  # curves, an online critic and AdamW: as much state as there is
    "online=refresh",
    "debug=fast",
    "logger.mirror=false",
    "stages=[critic,grpo]",
    "online.learn_every=1",
    "online.refresh_every=2",
    "online.lessons.steps=2",
    "budget.grpo.steps=4",
    "budget.grpo.evaluate_every=2",
    "budget.grpo.microbatch_tokens=96",  # several micro-batches
    "policy.compute_dtype=float32",  # the same rollouts on every processor
]
"""Two batches that warm the reward up, four that the policy learns from; a checkpoint after each."""
OF_A_HEAD = [
    "experiment=clipo_laptop",
    "debug=fast",
    "logger.mirror=false",
    "stages=[grpo]",
    "policy.pretrained=embedded:llama_arithmetic",  # which solves a few, so that there is something to pull together
    "budget.clipo.warmup_steps=1",
    "budget.grpo.steps=4",
    "budget.grpo.evaluate_every=2",
    "budget.grpo.group_size=8",
    "budget.grpo.max_completion_tokens=96",
]
"""One batch that the head alone learns from, four that the policy learns from too."""
CLOCK = ("system/", "train/throughput/", "train/spent/seconds", "train/online_critic/seconds", "train/sharding/")
"""Metrics that measure seconds and memory; the last ones are of the second step of each process."""
DEATHS = [
    ("critic", "critic's step", 3, 2),
    ("grpo", "rollout", 1, None),
    ("grpo", "reward", 2, 1),
    ("grpo", "writing a checkpoint", 2, 1),
    ("grpo", "backward", 3, 2),
    ("grpo", "after the optimizer's step", 3, 2),
    ("grpo", "checkpoint beside", 3, 2),
    ("grpo", "validation", 4, 3),
    ("grpo", "checkpoint in place", 4, 3),
    ("grpo", "logging", 5, 4),  # the next run is killed after this step: nobody writes it a third time
    ("grpo", "checkpoint sealed", 5, 5),
    ("grpo", "last step done", 6, 6),
    ("grpo", "no result yet", 0, 6),
]
"""Stage, place and step of each kill, and the step that the next run goes on from; what has trained to its end has no
step under way."""


DEATHS_OF_A_HEAD = [
    ("head's step", 1, None),
    ("rollout", 2, 1),
    ("head's step", 3, 2),
    ("backward", 4, 3),
    ("checkpoint in place", 5, 4),
    ("checkpoint sealed", 5, 5),  # the last: training has ended and does not again
]
"""Place and step of each kill, and the step that the next run goes on from."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with runs(WHOLE, tmp_path_factory.mktemp("said") / "log") as started:
        yield started


@pytest.fixture(scope="module")
def whole(run: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of the run that nobody killed."""
    outputs = tmp_path_factory.mktemp("whole")
    assert run(*WHOLE, f"output_dir={outputs}") == 0
    return outputs


def stage(outputs: Path, name: str) -> Path:
    (folder,) = (outputs / "stages" / name).iterdir()
    return folder


def test_a_run_killed_in_every_phase_is_the_run_that_was_not(run: Forks, whole: Path, tmp_path: Path) -> None:
    """One run, killed as often as there are phases. Each kill costs the step under way, and no more, not even where the
    newest checkpoint is damaged at last."""
    for name, place, step, kept in DEATHS:
        assert run(*WHOLE, f"output_dir={tmp_path}", place=place, step=step) == KILLED, place
        checkpoints = stage(tmp_path, name) / "checkpoints"
        assert newest_sound(checkpoints)[0] == (None if kept is None else path_of(checkpoints, kept)), place
    newest = path_of(stage(tmp_path, "grpo") / "checkpoints", 6)
    flip(newest, newest.stat().st_size // 2)
    assert run(*WHOLE, f"output_dir={tmp_path}") == 0
    damaged = f"checkpoint {newest} is damaged: not what was written (sha256 differs)"
    assert f"{damaged}: going on from {path_of(newest.parent, 5)}" in run.log.read_text()
    for name in ("critic", "grpo"):
        assert_same(stage(tmp_path, name), stage(whole, name))


@pytest.mark.whole
def test_so_is_one_whose_reward_learns_with_an_optimizer_of_its_own(
    run: Forks, tmp_path: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """CLIPO's head: killed while it warms up, between its step and the policy's, and after both."""
    undisturbed = tmp_path_factory.mktemp("undisturbed")
    assert run(*OF_A_HEAD, f"output_dir={undisturbed}") == 0
    expected = stage(undisturbed, "grpo")
    learnt = [step for (name, step), value in numbers(expected).items() if name == "train/clipo/valid_groups" and value]
    assert sorted(learnt) == [1, 2, 3, 4, 5], "in every batch the head had completions to pull together"
    for place, step, kept in DEATHS_OF_A_HEAD:
        assert run(*OF_A_HEAD, f"output_dir={tmp_path}", place=place, step=step) == KILLED, place
        checkpoints = stage(tmp_path, "grpo") / "checkpoints"
        assert newest_sound(checkpoints)[0] == (None if kept is None else path_of(checkpoints, kept)), place
    assert run(*OF_A_HEAD, f"output_dir={tmp_path}") == 0
    assert_same(stage(tmp_path, "grpo"), expected)


@pytest.mark.whole
def test_a_run_asked_to_stop_saves_its_step_and_goes_on_but_one_asked_twice_stops_at_once(
    run: Forks, whole: Path, tmp_path: Path
) -> None:
    """It begins by making again what a finished stage had left it, of which a bit is flipped."""
    shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    weights = stage(tmp_path, "critic") / "critic" / "critic.safetensors"
    flip(weights, weights.stat().st_size // 2)
    here, term = f"output_dir={tmp_path}", int(signal.SIGTERM)
    assert run(*WHOLE, here, place="backward", step=3, signals=[term, term]) == TERMINATED
    assert f"critic: file {weights} is damaged: not what was written (sha256 differs); the" in run.log.read_text()
    checkpoints = stage(tmp_path, "grpo") / "checkpoints"
    assert newest_sound(checkpoints)[0] == path_of(checkpoints, 2), "the step under way is lost"
    assert run(*WHOLE, here, place="backward", step=4, signals=[term]) == INTERRUPTED == 130
    left = path_of(checkpoints, 4)
    assert newest_sound(checkpoints)[0] == left
    told = run.log.read_text().splitlines()[-1]
    assert told.startswith(f"grpo: stopped by SIGTERM at step 4 (checkpoint {left}); to go on from there run the same")
    assert run(*WHOLE, here) == 0
    for name in ("critic", "grpo"):
        assert_same(stage(tmp_path, name), stage(whole, name))


@pytest.mark.whole
def test_a_killed_stage_goes_on_under_changed_code_only_where_that_was_asked_for(
    run: Forks, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    here = f"output_dir={tmp_path}"
    assert run(*WHOLE, here, place="rollout", step=2) == KILLED
    begun = stage(tmp_path, "grpo") / "begun.json"
    record = json.loads(begun.read_text())
    record["code"]["contrastive_reasoning.rewards.critic"] = "other"
    begun.write_text(json.dumps(record))
    before = files(stage(tmp_path, "grpo"))
    assert run(*WHOLE, here) == 1
    told = run.log.read_text().splitlines()[-1]
    assert told.startswith("grpo: code changed since ")
    assert "was begun, in contrastive_reasoning.rewards.critic; to go on" in told
    assert "checkpoints.resume_changed_code=true; to begin anew: checkpoints.begin_anew=true" in told
    assert files(stage(tmp_path, "grpo")) == before
    assert run(*WHOLE, here, "checkpoints.resume_changed_code=true", place="reward", step=2) == KILLED
    assert f"grpo: going on in {stage(tmp_path, 'grpo')}" in run.log.read_text()


@pytest.mark.whole
def test_a_killed_stage_is_left_lying_only_where_another_setting_was_typed(
    run: Forks, whole: Path, tmp_path: Path
) -> None:
    shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    here, other = f"output_dir={tmp_path}", "advantage.scale=2.0"
    assert run(*WHOLE, here, other, place="rollout", step=2) == KILLED
    before = files(stage(tmp_path, "grpo"))
    assert run(*WHOLE, here) == 1
    told = run.log.read_text().splitlines()[-1]
    assert "begun with advantage.scale 2.0 (now 3.0); set that back to go on" in told
    assert files(stage(tmp_path, "grpo")) == before
    assert run(*WHOLE, here, "checkpoints.begin_anew=true", place="rollout", step=1) == KILLED
    assert run(*WHOLE, here, "advantage.scale=1.5", place="rollout", step=1) == KILLED
    assert "is unfinished and stays so, it was begun with advantage.scale " in run.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_a_run_killed_at_any_moment_is_the_run_that_was_not(
    run: Forks, whole: Path, tmp_path: Path, number: int
) -> None:
    """From outside, a random while after a random number of it was logged: in the critic's stage or in GRPO."""
    chance = random.Random(number)
    name = chance.choice(["critic", "grpo", "grpo", "grpo"])
    if name == "grpo":
        shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    logged = [metric for metric, _ in complete_lines(stage(whole, name)) if metric.step <= 4]
    moment = {
        "file": str(tmp_path / stage(whole, name).relative_to(whole) / METRICS_FILE),
        "lines": chance.randrange(len(logged)),
        "seconds": chance.uniform(0, 0.3),
    }
    assert run(*WHOLE, f"output_dir={tmp_path}", **moment) == KILLED
    assert run(*WHOLE, f"output_dir={tmp_path}") == 0
    for name in ("critic", "grpo"):
        assert_same(stage(tmp_path, name), stage(whole, name))


def assert_same(found: Path, expected: Path) -> None:
    """Parameters, optimizer, completions and metrics: each number, each tensor, each file."""
    assert files(found) == files(expected)
    for path in files(expected):
        if path.startswith(("policy/", "critic/", "tables/")):
            assert (found / path).read_bytes() == (expected / path).read_bytes(), path
    assert numbers(found) == numbers(expected)
    for path in files(expected):
        if path.endswith(".ckpt"):
            there, here = (torch.load(folder / path, weights_only=True) for folder in (expected, found))
            assert list(differences(there, here)) == []


def files(folder: Path) -> list[str]:
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def numbers(folder: Path) -> dict[tuple[str, int], float | str]:
    """Each metric of each step but those of the clock; nan is a word, for it equals nothing."""
    return {
        (metric.name, metric.step): metric.value if metric.value == metric.value else "nan"
        for metric in read_metrics(folder)
        if not metric.name.startswith(CLOCK)
    }


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """Where two checkpoints are not the same."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            if key not in one or key not in other:
                yield f"{at}/{key} is missing"
            elif key not in ("seconds", "validate_loop"):  # a run that goes on does not begin its curves again
                yield from differences(one[key], other[key], f"{at}/{key}")
    elif isinstance(one, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{at}/{number}")
    elif isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield f"{at} differs"
    elif one != other:
        yield f"{at}: {one} is not {other}"
