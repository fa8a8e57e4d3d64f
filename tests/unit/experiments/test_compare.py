from __future__ import annotations

import csv
import re
from collections.abc import Mapping
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from experiments import compare as module
from experiments.analysis.arms import arms_by
from experiments.analysis.curves import Curve, draw_curves
from experiments.analysis.seeds import Estimate
from experiments.analysis.table import as_latex, rows_of
from experiments.compare import CURVE, METRIC, Refused, compare, main
from experiments.track import Tracker
from experiments.tracking.carry import Carrier
from tests.unit.experiments.comparison_kit import PLAIN, record


@pytest.mark.parametrize("name", ["../x", "/tmp/x", "a/b"])
def test_a_name_that_leaves_the_folder_is_refused(tracker: Tracker, tmp_path: Path, name: str) -> None:
    """Whoever shares the tracker may have named an experiment so."""
    with pytest.raises(Refused, match=f"^'{name}' .*: a comparison is written under its names$"):
        compare(tracker, [name], **PLAIN, output=tmp_path / "compare")
    assert not (tmp_path / "compare").exists()


def test_who_was_named_and_has_not_the_metric_is_told(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    sampled, greedy = "left_in", "left_out"
    for seed in (0, 1):
        outputs.stage("evaluate", f"{greedy}{seed}0.5000000.2", {"test/verifier/accuracy": {0: 0.5}})
        for name in (sampled, greedy):
            Carrier(outputs.run(name, seed=seed, final=0.5), tracker).carry(live=False)
    lines = compare(tracker, [sampled, greedy], **PLAIN | {"metric": None}, output=tmp_path)
    assert f"Without {METRIC}, and so in no table: left_out (2 runs)." in lines


def test_two_arms_that_could_be_the_baseline_are_named(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    for name in ("no_delta_grpo", "no_delta_dapo"):
        Carrier(outputs.run(name, seed=0, final=0.5, reward="verifier"), tracker).carry(live=False)
    names = ["no_delta_grpo", "no_delta_dapo"]
    said = compare(tracker, names, **PLAIN, output=tmp_path / "compare")
    (line,) = [line for line in said if line.startswith("No Δ")]
    assert re.fullmatch(r"No Δ: 2 arms could be the baseline \((.*), (.*)\); say baseline=LABEL\.", line)
    label = line.split("(")[1].split(",")[0]
    wished = compare(tracker, names, **{**PLAIN, "baseline": label}, output=tmp_path / "compare")
    assert not [line for line in wished if line.startswith("No Δ")]


def test_latex_is_escaped() -> None:
    runs = [record("my_arm", seed=s, value=0.25 * (s + 1)) for s in (0, 1)]
    arms = arms_by(runs, ["experiment"])
    lines = as_latex(rows_of(arms, METRIC, {}), METRIC).splitlines()
    assert lines[1] == r"\begin{tabular}{lrrr}"
    assert lines[5] == r"my\_arm & 2 & 0.375 $\pm$ 1.588 &  \\"


def test_a_curve_is_taken_where_every_seed_has_a_point() -> None:
    curve = Curve(label="a", seeds=[{0: 0.1, 10: 0.3, 20: 0.5}, {0: 0.3, 10: 0.5}])
    assert curve.steps == [0, 10]
    assert [e.value for e in curve.estimates()] == pytest.approx([0.2, 0.4])
    assert isinstance(curve.estimates()[0], Estimate)


def test_the_picture_says_what_it_shows() -> None:
    two = Curve(label="a", seeds=[{0: 0.1, 10: 0.3}, {0: 0.2, 10: 0.4}])
    one = Curve(label="b", seeds=[{0: 0.1, 10: 0.2}])
    figure = draw_curves([two, one], metric=CURVE, steps="rollout batches")
    (axes,) = figure.axes
    assert (axes.get_xlabel(), axes.get_ylabel()) == ("rollout batches", CURVE)
    assert [text.get_text() for text in figure.legends[0].get_texts()] == ["a (2 seeds)", "b (1 seed)"]
    assert len(axes.collections) == 1, "one band: a single seed has none"
    assert "95% t-interval" in figure.get_supxlabel()


def test_a_name_is_no_formula() -> None:
    figure = draw_curves([Curve(label=r"$\frac$", seeds=[{0: 0.1, 1: 0.2}])], metric=CURVE, steps="steps")
    figure.savefig(BytesIO())
    assert [text.get_text() for text in figure.legends[0].get_texts()] == [r"\$\frac\$ (1 seed)"]


@pytest.fixture
def compared(tracker: Tracker, outputs: Any, request: pytest.FixtureRequest) -> Mapping[str, str]:
    """Two experiments of two seeds each, named after the test that asks."""
    prefix = request.node.name
    names = {"baseline": f"{prefix}_baseline", "critic": f"{prefix}_critic"}
    for seed in (0, 1):
        for name, final, reward in ((names["baseline"], 0.30, "verifier"), (names["critic"], 0.40, "critic")):
            folder = outputs.run(name, seed=seed, final=final + 0.02 * seed, reward=reward)
            Carrier(folder, tracker).carry(live=False)
    return names


@pytest.mark.parametrize("label", ["arm {}", "an arm whose label is too long for two of them in a line, {}"])
def test_the_labels_of_many_arms_leave_the_curves_their_room(label: str) -> None:
    heights = []
    for arms in (4, 26):
        curves = [Curve(label=label.format(arm), seeds=[{0: 0.1, 1: 0.2}]) for arm in range(arms)]
        figure = draw_curves(curves, metric=CURVE, steps="steps")
        figure.savefig(BytesIO())
        heights.append(figure.axes[0].get_window_extent().height)
    assert heights[1] > 0.9 * heights[0]


def test_from_mlflow_to_files(tracker: Tracker, compared: Mapping[str, str], tmp_path: Path) -> None:
    names = [compared["critic"], compared["baseline"]]
    for _ in range(2):
        notes = compare(tracker, names, **PLAIN, output=tmp_path)
    assert len(notes) == 1, "nothing to warn of"
    (table,) = tmp_path.rglob("*.csv")
    baseline, critic = csv.DictReader(table.open())
    assert (baseline["arm"], critic["arm"]) == (compared["baseline"], compared["critic"]), "the baseline comes first"
    assert float(baseline["mean"]) == pytest.approx(0.31)
    assert float(baseline["start_mean"]) == pytest.approx(0.2)
    assert baseline["delta"] == ""
    assert float(critic["delta"]) == pytest.approx(0.10)
    assert float(critic["delta_half_95"]) == pytest.approx(0.0, abs=1e-9), "paired: both rise by 0.02 from seed to seed"
    assert table.with_suffix(".png").read_bytes().startswith(b"\x89PNG")
    (logged,) = tracker.runs(names, kind="comparison")
    files = {file.path for file in tracker._client.list_artifacts(logged.run_id)}
    assert files == {f"{table.stem}{ending}" for ending in (".csv", ".md", ".tex", ".png", "-gains.png")}


def test_more_names_than_a_folder_could_bear(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    names = [f"cmp_{letter * 90}" for letter in "abc"]
    for name in names:
        Carrier(outputs.run(name, seed=0, final=0.4), tracker).carry(live=False)
    *_, written_at = compare(tracker, names, **PLAIN, output=tmp_path / "compare")
    (table,) = tmp_path.rglob("*.csv")
    assert written_at == f"Written: {table.with_suffix('')}.*"
    assert {row["arm"] for row in csv.DictReader(table.open())} == set(names)


def test_a_run_counts_when_it_has_finished(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    folder = outputs.run("cmp_unfinished", seed=0, final=0.4)
    (folder / "summary.json").unlink()
    Carrier(folder, tracker).carry(live=False)
    with pytest.raises(Refused, match="None of the runs of cmp_unfinished has finished"):
        compare(tracker, ["cmp_unfinished"], **PLAIN, output=tmp_path)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["{critic}x"], "No experiment '{critic}x' in MLflow at .*; did you mean {critic}\\? There are: .*{baseline}"),
        (
            ["{critic}", "metric=test/verifier/accuracy_sample"],
            "No finished run has the metric 'test/verifier/accuracy_sample'; did you mean "
            "test/verifier/accuracy_sampled\\? There are: start/verifier/accuracy_sampled, test/",
        ),
        (["{critic}", "by=rewar"], "No run has a tag or parameter 'rewar' to group by; did you mean reward\\? There "),
        (
            ["{critic}", "{baseline}", "--baseline=nobody"],
            "The baseline 'nobody' is none of the arms; there are: ({baseline}|{critic}); ({baseline}|{critic})",
        ),
    ],
)
def test_a_wrong_wish_is_answered_in_a_sentence(
    tracker: Tracker,
    outputs: Any,
    arguments: list[str],
    sentence: str,
    capsys: pytest.CaptureFixture,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    names = {"baseline": "wish_baseline", "critic": "wish_critic"}
    for name in names.values():
        if name not in tracker.experiments():
            Carrier(outputs.run(name, seed=0, final=0.4), tracker).carry(live=False)
    monkeypatch.setattr(module, "connect", lambda: tracker)
    assert main([argument.format(**names) for argument in arguments]) == 2
    said = capsys.readouterr().err
    assert re.match(sentence.format(**names), said)
    assert said.count("\n") == 1
