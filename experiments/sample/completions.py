"""Samples completions of one problem, judges each step by rules, oracle and critic, and prints them.

Colours only repeat the text; outside a terminal there are none. Invisible characters of a model's text are escaped.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from omegaconf import DictConfig, OmegaConf
from rich.console import Console, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from contrastive_reasoning.critics.checkpoint import DESCRIPTION, read_description
from contrastive_reasoning.rewards import CriticReward, VerifierReward
from contrastive_reasoning.rewards.critic import probabilities
from contrastive_reasoning.rewards.oracle import in_reach
from contrastive_reasoning.rollout import RolloutBatch
from contrastive_reasoning.rollout.requests import ServerError
from contrastive_reasoning.tasks.base import Problem, Step, Verdict
from contrastive_reasoning.tasks.countdown import reachable
from experiments.assemble import build
from experiments.run_folder.reader import CRITIC, read_config, stage_folders
from experiments.stages.plan import with_compute_dtype
from experiments.stages.train import device_of
from experiments.system.terminal import visible

if TYPE_CHECKING:
    from experiments.sample.__main__ import GivenProblem

PART = re.compile(r"contrastive_reasoning\.(critics\.([A-Z]\w*|load_encoder)|(losses|policies\.pooling)\.[a-z]\w*)")
"""Matches what a saved critic may be built from. Other functions of ``critics`` write folders."""
PAIRS = 16384
"""Pairs in one forward pass."""
GOOD, BAD, UNSURE, QUIET = "bold cyan", "bold red", "yellow", "dim"


@dataclass(frozen=True, kw_only=True)
class JudgedStep:
    """One step with its judgements."""

    step: Step
    reachable: bool | None
    """Whether the target can still be reached after it, computed exactly; None if illegal or outside Countdown."""
    value: float | None
    """The critic's value σ(f/τ); None for an illegal step and without a critic."""


@dataclass(frozen=True, kw_only=True)
class Reading:
    """One completion with its judged steps and verdict."""

    text: str
    tokens: int
    finished: bool
    """False if the length limit ended it."""
    steps: Sequence[JudgedStep]
    verdict: Verdict | None
    """None if no answer is known."""


def draw_and_show(config: DictConfig, given: GivenProblem, *, critic: str | None, count: int) -> None:
    """Samples ``count`` completions and prints them; the critic in that folder gives the values of their steps.

    Raises:
        ValueError: for a model or a critic that is missing or does not fit, a prompt that leaves no tokens for a
            completion, or a vLLM server that fails.
    """
    valued_by = None if critic is None else trained_critic(Path(critic).expanduser(), config)
    engine, sampling = build(config, "rollout.engine"), build(config, "rollout.sampling")
    device, seed = device_of(config), (config.seed, "sample")
    policy = build(with_compute_dtype(config), "policy").eval().to(device)
    try:
        rollouts = engine.generate(policy, [given.problem], group_size=count, sampling=sampling, seed=seed)
    except ServerError as error:
        raise ValueError(str(error)) from error
    logits = None if valued_by is None else valued_by.state_logits(rollouts, [[] for _ in rollouts.texts])[1]
    start = None if logits is None else probabilities([logits])[0][0]
    show(Console(highlight=False), given.problem, readings(given, rollouts, valued_by), start=start)


def readings(given: GivenProblem, rollouts: RolloutBatch, critic: CriticReward | None) -> list[Reading]:
    """Returns a reading of every completion of ``rollouts``, which have one problem."""
    steps = [given.steps(text) for text in rollouts.texts]
    valued = [dict[int, float]() for _ in steps]
    if critic is not None:
        legal = [[step for step in row if step.legal] for row in steps]
        # by identity: step_values returns the steps themselves
        valued = [{id(step): value for step, value in row} for row in critic.step_values(rollouts, legal)]
    return [
        Reading(
            text=text,
            tokens=int(rollouts.mask[row].sum()),
            finished=rollouts.finish_reasons[row] == "stop",
            steps=[
                JudgedStep(step=step, reachable=in_reach(given.problem, step), value=valued[row].get(id(step)))
                for step in steps[row]
            ],
            verdict=None if given.verify is None else given.verify(text),
        )
        for row, text in enumerate(rollouts.texts)
    ]


def trained_critic(folder: Path, config: DictConfig) -> CriticReward:
    """Returns a reward with the critic in ``folder``, which may also be the folder of its stage or run.

    The folder is untrusted data: its description may only name parts of this package. τ is that of the critic's stage,
    else that of ``config``, which also gives the task.

    Raises:
        ValueError: if there is no critic, it names anything but critic parts, or its files are damaged, do not fit each
            other or are rejected by its class.
    """
    stages = (place / CRITIC for stage, place, _ in stage_folders(folder) if stage == CRITIC)
    place = next((path for path in (folder, folder / CRITIC, *stages) if (path / DESCRIPTION).is_file()), None)
    if place is None:
        raise ValueError(f"critic={folder}: no critic there ({DESCRIPTION} is missing)")
    described = read_description(place).get("config")
    if foreign := next(foreign_parts(described), None):
        raise ValueError(f"critic={folder}: {DESCRIPTION} names {foreign}, which is not part of a critic")
    loss, task = read_config(place.parent).get("loss", config.loss), build(config, "task")
    return CriticReward(
        outcome=VerifierReward(task=task),
        task=task,
        critic=build(OmegaConf.create({"critic": described}), "critic"),
        checkpoint=str(place),
        weight=0.0,
        temperature=float(loss["temperature"]),
        batch_size=PAIRS,
    )


def foreign_parts(node: Any) -> Iterator[str]:
    """Yields everything in a node of JSON that would call or load more than ``PART`` when it is built."""
    if isinstance(node, dict):
        if "_target_" in node and not PART.fullmatch(str(node["_target_"])):
            yield str(node["_target_"])
        if node.get("trust_remote_code"):
            yield "trust_remote_code"
    elif isinstance(node, str) and "${" in node:  # could be resolved to a part: ${oc.create:{_target_:os.abort}}
        yield node
    for inner in node.values() if isinstance(node, dict) else node if isinstance(node, list) else ():
        yield from foreign_parts(inner)


def show(console: Console, problem: Problem, found: Sequence[Reading], *, start: float | None) -> None:
    """Prints everything. ``start`` is the critic's value of the problem before any step; None without one."""
    head = Text.assemble(("Problem ", "bold"), visible(problem.id))
    if (target := problem.fields.get("target")) is not None:
        head.append(" · the target is ").append(*_reach(reachable(problem.fields["numbers"], target)))
    if start is not None:
        head.append(" · critic ").append(*_value(start))
    console.print(head)
    console.print(_indent(Text(visible(problem.prompt.rstrip("\n")), style=QUIET)))
    for number, reading in enumerate(found, start=1):
        ending = f"{reading.tokens} tokens, {'ended by itself' if reading.finished else 'cut off at its longest'}"
        console.print()
        console.print(Text(f"Completion {number} of {len(found)}", style="bold"), Text(ending, style=QUIET))
        console.print(_indent(_text(reading)))
        if reading.steps:
            console.print(_indent(_steps(reading)))
        console.print(_verdict(reading.verdict))
    if legend := [*_legend(found)]:
        console.print()
        console.print(*legend, sep="\n")


def _text(reading: Reading) -> Text:
    """Returns the completion with its steps coloured in place."""
    shown, place = Text(), 0
    for judged in reading.steps:
        shown.append(visible(reading.text[place : judged.step.start]), style=QUIET)
        shown.append(visible(reading.text[judged.step.start : judged.step.end]), style=_style(judged))
        place = judged.step.end
    shown.append(visible(reading.text[place:]), style=QUIET if reading.steps else "")
    return shown


def _steps(reading: Reading) -> Table:
    with_oracle = any(judged.reachable is not None for judged in reading.steps)
    with_critic = any(judged.value is not None for judged in reading.steps)
    columns = ["", "step", "state", "rules", *["oracle"] * with_oracle, *["critic"] * with_critic]
    table = Table(*columns, box=None, header_style=QUIET)
    for number, judged in enumerate(reading.steps, start=1):
        written = visible(reading.text[judged.step.start : judged.step.end])
        state = judged.step.state
        left = ", ".join(map(str, state)) if isinstance(state, tuple) else ""
        rules = Text("legal", GOOD) if judged.step.legal else Text("illegal", BAD)
        cells = [Text(str(number), style=QUIET), Text(written, style=_style(judged)), Text(left), rules]
        cells += [Text(*_reach(judged.reachable))] * with_oracle + [Text(*_value(judged.value))] * with_critic
        table.add_row(*cells)
    return table


def _style(judged: JudgedStep) -> str:
    """Returns the style of a step's text: by the rules first, then by the oracle."""
    if not judged.step.legal:
        return BAD
    return UNSURE if judged.reachable is False else GOOD


def _reach(within: bool | None) -> tuple[str, str]:
    return {True: ("within reach", GOOD), False: ("out of reach", UNSURE), None: ("–", QUIET)}[within]


def _value(value: float | None) -> tuple[str, str]:
    return ("–", QUIET) if value is None else (f"{value:.2f}", GOOD if value >= 0.5 else UNSURE)


def _verdict(verdict: Verdict | None) -> Text:
    if verdict is None:
        return Text("Verdict: none, the answer is not known (answer=… names it)", style=QUIET)
    return Text.assemble(
        "Verdict: ",
        (verdict.status, GOOD if verdict.correct else BAD),
        visible(f", {verdict.reason}") if verdict.reason else "",
    )


def _legend(found: Sequence[Reading]) -> Iterator[Text]:
    judged = [step for reading in found for step in reading.steps]
    with_oracle = any(step.reachable is not None for step in judged)
    if judged:
        aimless = [" · ", ("legal, the target out of reach", UNSURE)] if with_oracle else []
        yield Text.assemble(("legal", GOOD), *aimless, " · ", ("illegal", BAD))
    if with_oracle:
        yield Text("oracle: exact, can the target still be reached from the state, the numbers left?", style=QUIET)
    if any(step.value is not None for step in judged):
        yield Text("critic: its value of the step, σ(f/τ) in [0, 1]", style=QUIET)


def _indent(what: RenderableType) -> Padding:
    return Padding(what, (0, 0, 0, 2), expand=False)
