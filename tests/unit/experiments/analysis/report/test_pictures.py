"""The page shows every kind of picture that runs, comparisons and sweeps log, and lists the omitted ones."""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from html import unescape
from itertools import count
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from experiments.analysis.report.pictures import Logged, choose
from experiments.analysis.runs import log_comparison
from experiments.mlflow_sync import Tracker
from experiments.mlflow_sync.sync import FolderSync, sync
from experiments.report import main

SWEEP = "2026-01-01T00-00-00"
CRITIC = ("critic/similarity", "critic/goals", "critic/states", "critic/calibration", "further")
GRPO = ("further", "train/step_credit", "clipo/completions")
COMPARED = ("study_over_tokens", "study_over_seconds", "test-verifier-accuracy_sampled-gains")
SWEPT = ("reward.temperature", "reward.temperature.positive_cosine", "rollout.group_size")
CRITIC_CURVES = ("train/critic/loss", "val/oracle/auroc_depth1", "val/oracle/ece", "val/probe/positive_cosine")
GRPO_CURVES = (
    *("train/reward/oracle", "train/reward/critic", "train/clipo/positive_cosine", "train/clipo/loss"),
    *("train/rollout/completion_tokens", "train/rollout/surprisal"),
)


def png(shade: int) -> bytes:
    """A small picture; different shades give different pictures."""
    file = io.BytesIO()
    Image.fromarray(np.full((20, 30, 3), (shade % 256, shade // 256, 0), dtype=np.uint8)).save(file, format="PNG")
    return file.getvalue()


SHADES = count(1)


def draw(path: Path) -> Path:
    """Writes a picture that differs from all earlier ones."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(png(next(SHADES)))
    return path


def add_run(outputs: Any, tracker: Tracker, arm: str, seed: int, *, sweep: str | None = None) -> None:
    """Adds a run with all pictures at three steps. Runs of arms b and c share one critic; each run of a has its own."""
    final = {"a": 0.3, "b": 0.4, "c": 0.5}[arm] + 0.01 * seed
    run: Path = outputs.run("all_kinds", seed=seed, final=final, reward=arm, sweep=sweep, time=f"t-{arm}")
    fingerprint = f"critic-{seed}" if arm == "a" else "critic-shared"
    fresh = not (outputs.root / "stages/critic" / fingerprint).exists()
    curves = {name: {0: 0.1 * seed, 10: 0.9 + place} for place, name in enumerate(CRITIC_CURVES)}
    critic = outputs.stage("critic", fingerprint, curves)
    stages = json.loads((run / "stages.json").read_text())
    stages["critic"] = {"folder": str(critic), "fingerprint": fingerprint, "reused": not fresh}
    (run / "stages.json").write_text(json.dumps(stages))
    grpo = Path(stages["grpo"]["folder"])
    for place, name in enumerate(GRPO_CURVES):
        outputs.log(grpo, name, {step: place + seed + step / 10 for step in range(4)})
    for folder, names in ((critic, CRITIC if fresh else ()), (grpo, GRPO)):
        for name in names:
            for step in (1, 30, 200):
                draw(folder / f"figures/{name}/{step}.png")
    FolderSync(run, tracker).send(live=False)


@pytest.fixture(scope="module")
def page(tmp_path_factory: pytest.TempPathFactory) -> str:
    from tests.unit.experiments.conftest import Outputs

    folder = tmp_path_factory.mktemp("kinds")
    address = f"sqlite:///{folder / 'mlruns' / 'mlflow.db'}"
    tracker, outputs = Tracker(address), Outputs(folder / "outputs")
    for arm in "abc":
        for seed in (0, 1):
            add_run(outputs, tracker, arm, seed, sweep=SWEEP if arm == "c" else None)
    log_comparison(tracker, "all_kinds", [draw(folder / f"all_kinds/{name}.png") for name in COMPARED])
    for name in SWEPT:
        draw(outputs.root / "sweeps" / SWEEP / f"{name}.png")
    (outputs.root / "sweeps" / SWEEP / "summary.csv").write_text("mean\n0.4\n")
    assert sync([outputs.root], lambda: tracker)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", address)
        patch.chdir(folder)
        assert main(["all_kinds", "--by=reward", "--output=page.html"]) == 0
    return (folder / "page.html").read_text(encoding="utf-8")


def alts(page: str) -> list[str]:
    return [unescape(alt) for alt in re.findall(r'<img [^>]*alt="([^"]*)"', page)]


def test_page_shows_every_kind_of_picture_with_alt_text(page: str) -> None:
    for beginning in (
        *(f"{name} at step 200 of critic: " for name in CRITIC),
        *(f"{name} at step 200 of grpo: " for name in GRPO),
        "clipo/completions at step 1 of grpo: ",
        *(f"{name}: comparison all_kinds/" for name in COMPARED),
        *(f"{name}: sweep {SWEEP} of all_kinds, seed=0,1" for name in SWEPT),
    ):
        assert any(alt.startswith(beginning) for alt in alts(page)), beginning


def test_pictures_of_runs_name_arm_and_seed_and_show_last_step(page: str) -> None:
    of_runs = [alt for alt in alts(page) if " at step " in alt]
    assert all(re.search(r": reward=[abc], seed [01]$", alt) for alt in of_runs)
    assert not [alt for alt in of_runs if " step 30 " in alt]
    assert {alt.partition(" at ")[0] for alt in of_runs if " step 1 " in alt} == {"clipo/completions"}
    steps = re.findall(r"clipo/completions at step (\d+)", "\n".join(of_runs))
    assert steps == ["1", "200"] * (len(steps) // 2), "a start is followed by its later step"
    similar = [alt for alt in of_runs if alt.startswith("critic/similarity")]
    assert [alt.rpartition(":")[2] for alt in similar] == [" reward=a, seed 1", " reward=b, seed 1"], "shared: once"


def test_page_lists_omitted_pictures_of_shown_kinds(page: str) -> None:
    """The turns take nine, nine and two pictures. Then two kinds still have a picture of the third arm."""
    assert len([alt for alt in alts(page) if " at step " in alt]) == 20
    assert "<summary>2 left out here, in MLflow under figures/ of the stage&#39;s run</summary>" in page
    assert "<li>grpo further: reward=c</li><li>grpo train/step_credit: reward=c</li>" in page


def test_page_draws_every_metric_over_training_steps(page: str) -> None:
    for metric in (*CRITIC_CURVES, *GRPO_CURVES):
        assert f"<figcaption>{metric}<span> ({'critic' if metric in CRITIC_CURVES else 'grpo'})</span>" in page
        (label,) = re.findall(rf'aria-label="{metric} over training steps: ([^"]*)"', page)
        of_arms = {"a", "b"} if metric in CRITIC_CURVES else {"a", "b", "c"}
        assert set(re.findall("reward=(.)", label)) == of_arms, "a critic that arms share is drawn once"


def test_choose_takes_kinds_in_turn_and_shows_every_kind(tracker: Tracker, tmp_path: Path) -> None:
    by_kind = log_pictures(tracker, tmp_path, {f"kind {n}": "AB" for n in range(5)} | {"late": "C"})
    few = choose(tracker.artifacts, by_kind, most=3)
    assert [len(few.shown[kind]) for kind in by_kind] == [1] * 6
    assert [*few.shown["kind 0"][0]] == ["kind 0 of A"]
    assert dict(few.left_out) == {f"kind {n}": ["B"] for n in range(5)}
    more = choose(tracker.artifacts, log_pictures(tracker, tmp_path, {"x": "ABCD", "y": "AB"}), most=5)
    assert {kind: len(groups) for kind, groups in more.shown.items()} == {"x": 3, "y": 2}


def test_choose_lists_broken_picture_and_shows_the_next(tracker: Tracker, tmp_path: Path) -> None:
    picked = choose(tracker.artifacts, log_pictures(tracker, tmp_path, {"x": "AB"}, broken="A"), most=0)
    assert len(picked.shown["x"]) == 1
    assert picked.left_out == {"x": ["A (too large, or no PNG)"]}


def log_pictures(tracker: Tracker, folder: Path, kinds: Mapping[str, Sequence[str]], *, broken: str = "") -> Any:
    """Logs pictures by kind and owner to a run of the tracker; files of owners in ``broken`` are truncated."""
    run_id = tracker.create_run("choosing", name="x", start=0.0, tags={"kind": "stage"}, parent=None)
    by_kind: dict[str, list[Logged]] = {}
    for shade, (kind, owner) in enumerate((kind, owner) for kind, owners in kinds.items() for owner in owners):
        path = folder / f"{kind} {owner}.png"
        path.write_bytes(png(shade)[: 40 if owner in broken and broken else None])
        tracker.log_file(run_id, path, "")
        one = Logged(owner=owner, run_id=run_id, captions={path.name: f"{kind} of {owner}"})
        by_kind.setdefault(kind, []).append(one)
    return by_kind
