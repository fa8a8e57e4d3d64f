"""Completions: their verdicts, their values by a trained critic, and how they are printed."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from functools import partial
from io import StringIO
from pathlib import Path
from typing import Any, cast

import pytest
import torch
from omegaconf import DictConfig, OmegaConf
from rich.console import Console
from torch.testing import assert_close

from contrastive_reasoning.critics import NumericV2
from contrastive_reasoning.critics.checkpoint import DESCRIPTION, WEIGHTS, save_critic
from contrastive_reasoning.losses import dot
from contrastive_reasoning.rewards import CriticReward
from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.rewards.step_values import StepValue
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.tasks.base import Problem, Step, Verdict
from contrastive_reasoning.tasks.countdown import CountdownProblem, parse_steps, verify
from experiments.sample.__main__ import GivenProblem
from experiments.sample.completions import (
    JudgedStep,
    Reading,
    foreign_parts,
    readings,
    show,
    trained_critic,
)
from tests.config_kit import CONF, composed
from tests.rollout_batches import rollout_batch

PROBLEM = CountdownProblem((3, 5, 8), 23, style="direct")
COLOUR = re.compile(r"\x1b\[[0-9;]*m")
RIGHT, AIMLESS, ILLEGAL = "3*5=15;15+8=23", "8*5=40;40-3=37", "3*5=16;9-1=8"
HOSTILE = (
    "\x1b[2J\x1b[31mred\x1b[0m \x1b]8;;http://x\x1b\\link\x1b]8;;\x1b\\ [red]markup[/red] [/] [bold \\[x] :smile: "
    "\r\x9b5A\u202e\x07\x00"
)


def reading(text: str, *, values: Sequence[float | None] = (), problem: Problem = PROBLEM) -> Reading:
    steps = parse_steps(problem, text)
    valued = [*values, *[None] * len(steps)]
    judged = [
        JudgedStep(step=step, reachable=in_reach(problem, step), value=value)
        for step, value in zip(steps, valued, strict=False)
    ]
    return Reading(text=text, tokens=7, finished=True, steps=judged, verdict=verify(problem, text))


def page(*found: Reading, problem: Problem = PROBLEM, start: float | None = None, terminal: bool = False) -> str:
    file = StringIO()
    console = Console(file=file, width=120, force_terminal=terminal, color_system="truecolor" if terminal else None)
    show(console, problem, found, start=start)
    return file.getvalue()


def rows(text: str) -> list[list[str]]:
    """Returns the cells of each row in the tables of steps."""
    return [re.split(r"  +", line.strip()) for line in text.splitlines() if re.match(r" +\d+  ", line)]


def test_show_prints_legality_reach_and_value_of_each_step() -> None:
    text = page(reading(RIGHT, values=[0.81, 0.9]), reading(AIMLESS, values=[0.2]), reading(ILLEGAL), start=0.7)
    assert text.startswith("Problem countdown:3,5,8=23 · the target is within reach · critic 0.70\n")
    assert rows(text) == [
        ["1", "3*5=15", "15, 8", "legal", "within reach", "0.81"],
        ["2", "15+8=23", "23", "legal", "within reach", "0.90"],
        ["1", "8*5=40", "40, 3", "legal", "out of reach", "0.20"],
        ["2", "40-3=37", "37", "legal", "out of reach", "–"],
        ["1", "3*5=16", "3, 5, 8", "illegal"],
        ["2", "9-1=8", "3, 5, 8", "illegal"],
    ]
    verdicts = [line for line in text.splitlines() if line.startswith("Verdict: ")]
    reason = verify(PROBLEM, ILLEGAL).reason
    assert verdicts == ["Verdict: ok", "Verdict: wrong, ends at 37 instead of 23", f"Verdict: wrong, {reason}"]


@pytest.mark.parametrize("terminal", [False, True])
@pytest.mark.parametrize("text", [HOSTILE, f"3*5=15;{HOSTILE}=1;15+8=23", f"{HOSTILE}\n3*5=15;15+8=23"])
def test_show_escapes_control_characters_and_markup(text: str, terminal: bool) -> None:
    problem = Problem(id=HOSTILE, prompt=HOSTILE, answer="", fields=PROBLEM.fields)
    step = JudgedStep(step=Step(start=0, end=len(text), state=(1,), legal=True), reachable=True, value=0.5)
    hostile = Reading(
        text=text, tokens=1, finished=False, steps=[step], verdict=Verdict(status="wrong", reason=f"wrote {text}")
    )
    shown = page(hostile, reading(text), problem=problem, terminal=terminal)
    assert terminal or "\x1b" not in shown
    plain = COLOUR.sub("", shown)
    assert not re.search(r"[\x00-\x08\x0b-\x1f\x7f-\x9f\u202e]", plain)
    joined = re.sub(r"\s+", "", plain)
    assert r"\x1b[2J\x1b[31mred\x1b[0m" in joined
    assert joined.count(r"[red]markup[/red][/][bold\[x]:smile:") >= 5  # id, prompt, completion, step, reason


def test_show_prints_no_verdict_without_answer() -> None:
    problem = Problem(id="given", prompt="Hello", answer="")
    shown = page(Reading(text="World", tokens=1, finished=False, steps=[], verdict=None), problem=problem)
    assert shown == (
        "Problem given\n  Hello\n\nCompletion 1 of 1 1 tokens, cut off at its longest\n  World\n"
        "Verdict: none, the answer is not known (answer=… names it)\n"
    )


TEXTS = ["3*5=15;15+8=23", "3*5=16;8*5=40;40-3=37", "nothing"]


class FirstNumber:
    """A critic whose value of a step is a hundredth of the first number left."""

    def step_values(self, rollouts: RolloutBatch, steps: list[list[Step]]) -> list[list[StepValue]]:
        return [[(step, step.state[0] / 100) for step in row] for row in steps]


LENGTHS = torch.tensor([[5], [9], [2]])
ROLLOUTS = rollout_batch([PROBLEM], torch.arange(9) < LENGTHS, texts=TEXTS, finish_reasons=["stop", "length", "stop"])
GIVEN = GivenProblem(
    problem=PROBLEM, steps=lambda text: parse_steps(PROBLEM, text), verify=lambda text: verify(PROBLEM, text)
)


def test_readings_have_verdict_steps_and_values_of_legal_steps() -> None:
    found = readings(GIVEN, ROLLOUTS, None)
    assert [(reading.text, reading.tokens, reading.finished) for reading in found] == [
        (TEXTS[0], 5, True),
        (TEXTS[1], 9, False),
        (TEXTS[2], 2, True),
    ]
    assert [reading.verdict and reading.verdict.status for reading in found] == ["ok", "unparsed", "unparsed"]
    judged = [[(step.step.legal, step.reachable, step.value) for step in reading.steps] for reading in found]
    assert judged == [[(True, True, None)] * 2, [(False, None, None), *[(True, False, None)] * 2], []]
    valued = readings(GIVEN, ROLLOUTS, cast(CriticReward, FirstNumber()))
    assert [[step.value for step in reading.steps] for reading in valued] == [[0.15, 0.23], [None, 0.4, 0.37], []]


SIMILARITY = {"_target_": "contrastive_reasoning.losses.dot", "_partial_": True}
SIZES = {"dimension": 4, "digit_dimension": 4, "hidden_dimension": 8, "hidden_layers": 1}
CRITIC_CONFIG = {"_target_": "contrastive_reasoning.critics.NumericV2", **SIZES, "seed": 0, "similarity": SIMILARITY}


def save_small_critic(folder: Path) -> NumericV2:
    critic = NumericV2(**SIZES, seed=3, similarity=partial(dot))
    save_critic(critic, folder, CRITIC_CONFIG)
    return critic


def read_critic(folder: Path) -> CriticReward:
    return trained_critic(folder, composed("name=sample", "stages=[evaluate]", "loss.temperature=0.5"))


@pytest.fixture
def stage(tmp_path: Path) -> Path:
    """Returns the folder of a finished critic stage."""
    folder = tmp_path / "stages" / "critic" / "abc"
    save_small_critic(folder / "critic")
    return folder


def weights(critic: Any) -> torch.Tensor:
    return torch.cat([value.flatten() for value in critic.state_dict().values()])


def test_trained_critic_loads_from_critic_stage_or_run_folder(stage: Path, tmp_path: Path) -> None:
    run = tmp_path / "runs" / "critic" / "now-0"
    run.mkdir(parents=True)
    entries = {name: {"folder": f"stages/{name}/abc", "reused": False} for name in ("warm_start", "critic")}
    (run / "stages.json").write_text(json.dumps(entries))
    expected = weights(save_small_critic(tmp_path / "another"))
    for folder in (stage / "critic", stage, run):
        assert_close(weights(read_critic(folder).critic), expected, rtol=0, atol=0)
    assert read_critic(stage).temperature == 0.5
    (stage / "config.yaml").write_text("loss:\n  temperature: 0.1\n")
    assert read_critic(stage).temperature == 0.1


def test_trained_critic_raises_for_missing_or_damaged_critic(stage: Path, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"critic\.json"):
        read_critic(tmp_path)
    for damaged in (WEIGHTS, DESCRIPTION):
        (stage / "critic" / damaged).write_text("no such thing")
        with pytest.raises(ValueError, match=r"^the critic in .*: [^\n]*$"):
            read_critic(stage)


@pytest.mark.parametrize(
    "part",
    [
        {"_target_": "subprocess.run", "args": "true"},
        {"_target_": "contrastive_reasoning.critics.checkpoint.json.loads"},
        {"_target_": "contrastive_reasoning.policies.load.load_policy"},
        {"_target_": "contrastive_reasoning.critics.import_module", "name": "this"},
        {"_target_": "contrastive_reasoning.critics.no_such_critic"},
        {"_target_": "contrastive_reasoning.critics.save_critic"},
        {"_target_": "contrastive_reasoning.losses.__setattr__"},
        {"_target_": "${oc.env:HOME}"},
        {"seed": "${oc.create:{_target_:os.getcwd}}"},
        {"trust_remote_code": True},
    ],
)
def test_trained_critic_rejects_foreign_parts_before_building(
    stage: Path, part: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    (stage / "critic" / DESCRIPTION).write_text(
        json.dumps({"class": "x", "frozen": [], "config": {**CRITIC_CONFIG, "similarity": [part]}})
    )
    monkeypatch.setattr("experiments.sample.completions.build", lambda *_: pytest.fail("something was built"))
    with pytest.raises(ValueError, match="part of a critic"):
        read_critic(stage)


def test_foreign_parts_are_only_references_for_every_critic_in_conf() -> None:
    """References are resolved when a critic is saved."""
    for path in (CONF / "critic").glob("*.yaml"):
        config = OmegaConf.load(path)
        assert isinstance(config, DictConfig)
        found = [*foreign_parts(OmegaConf.to_container(config, resolve=False))]
        assert all(re.fullmatch(r"\$\{[\w.]+\}", one) for one in found), path.name
