"""A run that a signal ends anywhere, started again by the same command, equals an uninterrupted run bitwise."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch

from experiments.run_folder.reader import METRICS_FILE, complete_lines, read_metrics
from experiments.stages.checkpoints import newest_sound, path_of
from experiments.system.launch import INTERRUPTED
from tests.forking import SHORT, Forks
from tests.killing import runs
from tests.unit.experiments.stages.test_checkpoints import flip

KILLED, TERMINATED = -signal.SIGKILL, -signal.SIGTERM
WHOLE = [
    "experiment=llama_critic_calibrated",  # curves, an online critic and AdamW: the most state a run has
    "online=refresh",
    "debug=fast",
    "logger.mirror=false",
    *SHORT,
    "stages=[critic,grpo]",
    "online.learn_every=1",
    "online.refresh_every=2",
    "online.updates.steps=2",
    "budget.grpo.steps=4",
    "budget.grpo.evaluate_every=2",
    "budget.grpo.microbatch_tokens=96",  # several micro-batches
    "policy.compute_dtype=float32",  # the same rollouts on every processor
]
"""Two batches warm up the reward, four train the policy. Each ends with a checkpoint."""
OF_A_HEAD = [
    "experiment=clipo_laptop",
    "debug=fast",
    "logger.mirror=false",
    *SHORT,
    "stages=[grpo]",
    "policy.pretrained=embedded:llama_arithmetic",  # it solves a few problems, so CLIPO has positives
    "budget.clipo.warmup_steps=1",
    "budget.grpo.steps=4",
    "budget.grpo.evaluate_every=2",
    "budget.grpo.group_size=8",
    "budget.grpo.max_completion_tokens=96",
]
"""One batch trains only the head, four train the policy too."""
OF_OUTCOMES = [
    "experiment=llama_critic_outcomes",
    "stages=[grpo]",
    "online.updates.steps=2",
    "online.buffer_batches=2",
    *(line for line in WHOLE if line.startswith(("debug", "logger", "callbacks", "budget", "policy"))),
]
"""A value network learns in all six batches."""
CLOCK = ("system/", "train/throughput/", "train/spent/seconds", "train/online_critic/seconds")
"""Metrics of seconds and memory."""
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
    ("grpo", "logging", 5, 4),  # the next run is killed after this step, so it is written only twice
    ("grpo", "checkpoint sealed", 5, 5),
    ("grpo", "last step done", 6, 6),
    ("grpo", "no result yet", 0, 6),
]
"""Stage, place and step of each kill, and the step from which the next run resumes. A stage that has finished training
is in no step, so its step is 0."""
OTHER_DEATHS = {
    "head": (
        OF_A_HEAD,
        [
            ("grpo", "head's step", 1, None),
            ("grpo", "rollout", 2, 1),
            ("grpo", "head's step", 3, 2),
            ("grpo", "backward", 4, 3),
            ("grpo", "checkpoint in place", 5, 4),
            ("grpo", "checkpoint sealed", 5, 5),  # the last step: training has ended and is not repeated
        ],
    ),
    "outcomes": (
        OF_OUTCOMES,
        [
            ("grpo", "outcomes' step", 1, None),
            ("grpo", "reward", 3, 2),
            ("grpo", "outcomes' step", 4, 3),
            ("grpo", "checkpoint in place", 5, 4),
        ],
    ),
}
"""Part with an optimizer of its own → its run, and the kills."""


@pytest.fixture(scope="module")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with runs(WHOLE, tmp_path_factory.mktemp("said") / "log") as started:
        yield started


@pytest.fixture(scope="module")
def whole(run: Forks, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The outputs of the uninterrupted run."""
    outputs = tmp_path_factory.mktemp("whole")
    assert run(*WHOLE, f"output_dir={outputs}") == 0
    return outputs


def stage(outputs: Path, name: str) -> Path:
    (folder,) = (outputs / "stages" / name).iterdir()
    return folder


def kill_at(run: Forks, words: list[str], outputs: Path, deaths: Iterable[tuple[str, str, int, int | None]]) -> None:
    """Kill one run at each place in turn. A kill costs only the current step."""
    for name, place, step, kept in deaths:
        assert run(*words, f"output_dir={outputs}", place=place, step=step) == KILLED, place
        checkpoints = stage(outputs, name) / "checkpoints"
        assert newest_sound(checkpoints)[0] == (None if kept is None else path_of(checkpoints, kept)), place


def test_run_killed_in_every_phase_equals_uninterrupted_run(run: Forks, whole: Path, tmp_path: Path) -> None:
    """One run, killed once in each phase; at the end its newest checkpoint is damaged, which costs a step, too."""
    kill_at(run, WHOLE, tmp_path, DEATHS)
    newest = path_of(stage(tmp_path, "grpo") / "checkpoints", 6)
    flip(newest, newest.stat().st_size // 2)
    assert run(*WHOLE, f"output_dir={tmp_path}") == 0
    damaged = f"checkpoint {newest} is damaged: not what was written (sha256 differs)"
    assert f"{damaged}: resuming from {path_of(newest.parent, 5)}" in run.log.read_text()
    for name in ("critic", "grpo"):
        assert_same(stage(tmp_path, name), stage(whole, name))


@pytest.mark.whole
@pytest.mark.parametrize("part", OTHER_DEATHS)
def test_run_with_another_optimizer_killed_beside_its_steps_equals_uninterrupted_run(
    run: Forks, tmp_path: Path, part: str
) -> None:
    """CLIPO's head: killed in its warm-up, between its step and the policy's, and after both. And a value network."""
    words, deaths = OTHER_DEATHS[part]
    undisturbed, killed = tmp_path / "undisturbed", tmp_path / "killed"
    assert run(*words, f"output_dir={undisturbed}") == 0
    expected = stage(undisturbed, "grpo")
    if part == "head":
        groups = {
            step: value for (name, step), value in numbers(expected).items() if name == "train/clipo/valid_groups"
        }
        assert sorted(step for step, value in groups.items() if value) == [1, 2, 3, 4, 5], "all can be compared"
    kill_at(run, words, killed, deaths)
    assert run(*words, f"output_dir={killed}") == 0
    assert_same(stage(killed, "grpo"), expected)


@pytest.mark.whole
def test_sigterm_saves_current_step_and_second_sigterm_stops_at_once(run: Forks, whole: Path, tmp_path: Path) -> None:
    """The run first repeats a finished stage, because a bit of its output is flipped."""
    shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    weights = stage(tmp_path, "critic") / "critic" / "critic.safetensors"
    flip(weights, weights.stat().st_size // 2)
    here, term = f"output_dir={tmp_path}", int(signal.SIGTERM)
    assert run(*WHOLE, here, place="backward", step=3, signals=[term, term]) == TERMINATED
    assert f"critic: file {weights} is damaged: not what was written (sha256 differs); rest" in run.log.read_text()
    checkpoints = stage(tmp_path, "grpo") / "checkpoints"
    assert newest_sound(checkpoints)[0] == path_of(checkpoints, 2), "the step under way is lost"
    assert run(*WHOLE, here, place="backward", step=4, signals=[term]) == INTERRUPTED == 130
    left = path_of(checkpoints, 4)
    assert newest_sound(checkpoints)[0] == left
    message = run.log.read_text().splitlines()[-1]
    assert message.startswith(f"grpo: stopped by SIGTERM at step 4 (checkpoint {left}); run the same")
    assert run(*WHOLE, here) == 0
    for name in ("critic", "grpo"):
        assert_same(stage(tmp_path, name), stage(whole, name))


@pytest.mark.whole
def test_killed_stage_resumes_with_changed_code_only_if_option_is_set(run: Forks, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    here = f"output_dir={tmp_path}"
    assert run(*WHOLE, here, place="rollout", step=2) == KILLED
    begun = stage(tmp_path, "grpo") / "begun.json"
    record = json.loads(begun.read_text())
    record["code"]["contrastive_reasoning.rewards.critic"] = "other"
    begun.write_text(json.dumps(record))
    left = stage(tmp_path, "grpo")
    left.rename(left.with_name("of_other_code"))  # a stage of other code has another fingerprint
    before = files(left.with_name("of_other_code"))
    assert run(*WHOLE, here, place="rollout", step=1) == KILLED
    line = f"grpo: begins anew; {left.with_name('of_other_code')} stopped at checkpoint "
    assert line in run.log.read_text()
    assert "checkpoints.resume_changed_code=true takes it" in run.log.read_text()
    assert files(left.with_name("of_other_code")) == before
    shutil.rmtree(left)
    assert run(*WHOLE, here, "checkpoints.resume_changed_code=true", place="reward", step=2) == KILLED
    assert f"grpo: resuming in {left.with_name('of_other_code')}" in run.log.read_text()


@pytest.mark.whole
def test_killed_stage_of_other_settings_is_kept_and_named(run: Forks, whole: Path, tmp_path: Path) -> None:
    shutil.copytree(whole / "stages" / "critic", tmp_path / "stages" / "critic")
    here, other = f"output_dir={tmp_path}", "advantage.scale=2.0"
    assert run(*WHOLE, here, other, place="rollout", step=2) == KILLED
    before = files(left := stage(tmp_path, "grpo"))
    assert run(*WHOLE, here, place="rollout", step=1) == KILLED
    assert "and differs in advantage.scale 2.0 (now 3.0)" in run.log.read_text()
    assert files(left) == before
    assert run(*WHOLE, here, other, place="reward", step=2) == KILLED
    assert f"grpo: resuming in {left}" in run.log.read_text()


@pytest.mark.slow
@pytest.mark.parametrize("number", range(20))
def test_run_killed_at_random_moment_equals_uninterrupted_run(
    run: Forks, whole: Path, tmp_path: Path, number: int
) -> None:
    """The kill comes from outside, a random time after a random log line, in the critic stage or in GRPO."""
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
    """Compare parameters, optimizer, completions and metrics: each number, each tensor, each file."""
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
    """Each metric of each step except those of ``CLOCK``. NaN becomes a string, because it equals nothing."""
    return {
        (metric.name, metric.step): metric.value if metric.value == metric.value else "nan"
        for metric in read_metrics(folder)
        if not metric.name.startswith(CLOCK)
    }


def differences(one: Any, other: Any, at: str = "") -> Iterator[str]:
    """The keys at which two checkpoints differ."""
    if isinstance(one, dict) and isinstance(other, dict):
        for key in one.keys() | other.keys():
            if key not in one or key not in other:
                yield f"{at}/{key} is missing"
            elif key not in ("seconds", "validate_loop"):  # a resumed run does not begin its curves again
                yield from differences(one[key], other[key], f"{at}/{key}")
    elif isinstance(one, list | tuple) and len(one) == len(other):
        for number, pair in enumerate(zip(one, other, strict=True)):
            yield from differences(*pair, f"{at}/{number}")
    elif isinstance(one, torch.Tensor):
        if one.dtype != other.dtype or not torch.equal(one, other):
            yield f"{at} differs"
    elif one != other:
        yield f"{at}: {one} is not {other}"
