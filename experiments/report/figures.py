"""The pictures that the runs logged: of each kind the newest of every arm in turn, equal ones once, made small."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from experiments.analysis.arms import Arm, value_of
from experiments.report.choose import Logged, chosen, grid, told
from experiments.report.gathered import Gathered, identity
from experiments.report.markup import Html, element, section
from experiments.tracking.tracked_run import TrackedRun

Kind = tuple[str, str]
"""Stage and name of the picture."""
Steps = Mapping[str, Sequence[tuple[int, str]]]
"""Name of a picture → its steps and files, the first first."""
Listed = tuple[TrackedRun, Steps]
"""A stage whose files were listed."""
FOLDER = "figures"
FIRST = "similarity"
"""What is shown before other pictures of its stage, in the name."""
START_TOO = ("clipo/completions",)
"""Of these the first step is shown beside the last: what training did to the space is seen from both."""
STAGES = ("critic", "grpo", "warm_start")
"""In this order; those of other stages follow."""
ABOUT = (
    f"Of each arm its newest run that logged the picture, at the last step; {', '.join(START_TOO)} at the first step "
    "too. Equal ones once, under the first arm. Other steps and seeds are in MLflow, under figures/ of a stage's run."
)


def figures(found: Gathered) -> Html:
    """The section."""
    by_kind = logged_by_kind(found)
    if not by_kind:
        return Html("")
    picked = chosen(found.tracker.artifacts, by_kind)
    note = element("p", ABOUT, class_="note")
    return section("Figures of the runs", grid(picked), note, told(picked, where="under figures/ of the stage's run"))


def logged_by_kind(found: Gathered) -> dict[str, list[Logged]]:
    """``<stage> <name>`` → what each arm has of it; what arms share, as a critic, under the first of them."""
    by_kind: dict[Kind, dict[tuple[str, str], Logged]] = {}
    listed: dict[tuple[str, str], Listed] = {}
    for arm in found.arms:
        for kind, (run, same) in _newest(found, arm, listed).items():
            stage, steps = listed[same]
            by_kind.setdefault(kind, {}).setdefault(same, _logged(arm, run, stage, kind[1], steps[kind[1]]))
    return {" ".join(kind): list(by_kind[kind].values()) for kind in sorted(by_kind, key=_order)}


def _newest(
    found: Gathered, arm: Arm, listed: dict[tuple[str, str], Listed]
) -> dict[Kind, tuple[TrackedRun, tuple[str, str]]]:
    """Kind → the newest run of the arm that logged it, and what its stage is listed under; each is listed once."""
    newest: dict[Kind, tuple[TrackedRun, tuple[str, str]]] = {}
    for run in sorted(arm.runs.values(), key=lambda run: -run.start):
        for name, stage in found.stages.get(run.run_id, {}).items():
            same = identity(stage)
            if same not in listed:
                listed[same] = stage, steps_of(found.tracker.artifacts.files(stage.run_id, FOLDER))
            for picture in listed[same][1]:
                newest.setdefault((name, picture), (run, same))
    return newest


def _logged(arm: Arm, run: TrackedRun, stage: TrackedRun, picture: str, steps: Sequence[tuple[int, str]]) -> Logged:
    told = dict.fromkeys((steps[0], steps[-1]) if picture in START_TOO else steps[-1:])
    of = f"of {stage.tags['stage']}: {arm.label}, seed {value_of(run, 'seed')}"
    captions = {path: f"{picture} at step {step} {of}" for step, path in told}
    return Logged(owner=arm.label, run_id=stage.run_id, captions=captions)


def steps_of(files: Sequence[str]) -> Steps:
    """Of ``figures/<name>/<step>.png`` the steps of each name, the lowest first."""
    found: dict[str, list[tuple[int, str]]] = {}
    for path in files:
        name, _, step = path.removeprefix(f"{FOLDER}/").removesuffix(".png").rpartition("/")
        if path.endswith(".png") and step.isdigit():
            found.setdefault(name, []).append((int(step), path))
    return {name: sorted(steps) for name, steps in found.items()}


def _order(kind: Kind) -> tuple[int, str, bool, str]:
    stage, name = kind
    return (STAGES.index(stage) if stage in STAGES else len(STAGES), stage, FIRST not in name, name)
