"""The table at the end of an evaluation: published rows, our rows and differences, in folder and terminal."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from math import nan
from pathlib import Path
from types import SimpleNamespace

import pytest

from contrastive_reasoning.published import PublishedArm, PublishedTable
from experiments.run_folder.logger import RunFolderLogger
from experiments.stages.evaluation_table import caption, show, summary_rows, table_of, write

MODEL = "Qwen/Qwen2.5-3B-Instruct"
PUBLISHED = PublishedTable(
    model=MODEL,
    source="A paper, Table 1",
    columns={"one": "ONE", "avg": "Avg."},
    rows={
        "Base Model": {"one": 50.0, "avg": 60.0},
        "GRPO": {"one": 51.0, "avg": 61.5},
        "GRPO+CLIPO": {"one": 52.0, "avg": 61.25},
    },
    base="Base Model",
    deltas={"GRPO+CLIPO": {"one": 1.01, "avg": -0.25}},
    arms=[],
)
TRACK = SimpleNamespace(
    columns={"one": "one/verifier/accuracy", "avg": "average/avg"},
    quantity="verifier/accuracy",
    published_table=PUBLISHED,
    compare_with="GRPO+CLIPO",
)
SUITE = SimpleNamespace(columns={"main": "verifier/accuracy", "other": "other/verifier/accuracy"})


def metrics(one: float, avg: float) -> Mapping[str, float]:
    return {"one/verifier/accuracy": one, "average/avg": avg, "one/verdict/ok": one}


def test_summary_rows_list_published_own_and_difference_rows() -> None:
    rows = summary_rows(TRACK, {"start": metrics(0.495, 0.6), "test": metrics(0.53, 0.625)}, model=MODEL)
    assert [row["model"] for row in rows] == [
        "Base Model (published)",
        "GRPO (published)",
        "GRPO+CLIPO (published)",
        "Δ (published)",
        "ours, before training",
        "ours, trained",
        "Δ by training",
        "Δ to Base Model",
        "Δ to GRPO+CLIPO",
    ]
    assert [list(row) for row in rows] == [["model", "ONE", "Avg."]] * len(rows)
    figures = {row["model"]: (row["ONE"], row["Avg."]) for row in rows}
    assert figures["Δ (published)"] == (1.01, -0.25)
    assert figures["ours, trained"] == pytest.approx((53.0, 62.5))
    assert figures["Δ by training"] == pytest.approx((3.5, 2.5))
    assert figures["Δ to Base Model"] == pytest.approx((-0.5, 0.0))
    assert figures["Δ to GRPO+CLIPO"] == pytest.approx((1.0, 1.25))


@pytest.mark.parametrize(
    ("model", "same"),
    [(f"/data/{MODEL}/", True), ("Qwen/Qwen2.5-7B-Instruct", False), ("outputs/policy", False), (None, False)],
)
def test_summary_rows_have_published_differences_only_for_same_model(model: str | None, same: bool) -> None:
    rows = summary_rows(TRACK, {"test": metrics(0.53, 0.625)}, model=model)
    ours = ["ours", "Δ to Base Model", "Δ to GRPO+CLIPO"] if same else ["ours"]
    assert [row["model"] for row in rows if "published" not in row["model"]] == ours
    assert "Base Model (published)" in {row["model"] for row in rows}, "the caption says of which"


def test_summary_rows_use_published_figures_of_other_model() -> None:
    other = "meta-llama/Llama-3.1-8B-Instruct"
    arm = PublishedArm(
        source="A paper, Table 9",
        method="GRPO+CLIPO",
        model=other,
        settings={"reward": "verifier"},
        figures={"one": 40.0, "avg": 45.0},
        deltas={"one": 1.5},
        plain="GRPO",
    )
    track = SimpleNamespace(**{**vars(TRACK), "published_table": replace(PUBLISHED, arms=[arm])})
    rows = summary_rows(track, {"test": metrics(0.53, 0.625)}, model=f"/data/{other}")
    assert rows == [
        {"model": "GRPO+CLIPO (published)", "ONE": 40.0, "Avg.": 45.0},
        {"model": "Δ (published)", "ONE": 1.5, "Avg.": None},
        {"model": "ours", "ONE": 53.0, "Avg.": 62.5},
        {"model": "Δ to GRPO+CLIPO", "ONE": 13.0, "Avg.": 17.5},
    ]
    assert caption(track, model=other) == f"verifier/accuracy in %; published: A paper, Table 9, of {other}"
    assert caption(track, model=MODEL).endswith(f"A paper, Table 1, of {MODEL}")


def test_custom_suite_has_only_own_row_and_caption_names_problem_limit() -> None:
    rows = summary_rows(SUITE, {"test": {"verifier/accuracy": 0.25, "other/verifier/accuracy": 1.0}}, model=MODEL)
    assert rows == [{"model": "ours", "main": 25.0, "other": 100.0}]
    assert caption(SUITE, model=MODEL) == "verifier/accuracy in %"
    some = SimpleNamespace(**vars(TRACK), problems=50)
    ours = "verifier/accuracy in %; ours on the first 50 problems of each set"
    assert caption(some, model=MODEL) == f"{ours}; published: A paper, Table 1, of {MODEL}"


def test_missing_value_is_empty_in_markdown_table() -> None:
    rows = summary_rows(TRACK, {"test": {"one/verifier/accuracy": 0.53}}, model=MODEL)[2:5]
    lines = table_of(rows, caption(TRACK, model=MODEL)).as_markdown().splitlines()
    assert lines[3:5] == ["| Δ (published) | +1.01 | -0.25 |", "| ours | 53.00 |  |"]
    assert lines[-1] == caption(TRACK, model=MODEL)


def test_table_has_no_negative_zero_or_signed_nan() -> None:
    rows = [{"model": "ours", "main": -0.001, "other": nan}, {"model": "Δ to start", "main": -0.001, "other": nan}]
    assert table_of(rows, "").rows == [["ours", "0.00", "nan"], ["Δ to start", "+0.00", "nan"]]


def test_show_prints_table_of_finished_stage(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    show(tmp_path)
    assert capsys.readouterr().out == ""
    rows = summary_rows(TRACK, {"test": metrics(0.53, 0.625)}, model=MODEL)
    RunFolderLogger(folder=tmp_path).log_table("summary", rows, step=0)
    write(tmp_path, rows, caption(TRACK, model=MODEL))
    show(tmp_path)
    out = capsys.readouterr().out
    for part in ("GRPO+CLIPO (published)", "52.00", "+3.00", "A paper, Table 1", "summary.md"):
        assert part in out
    assert json.loads((tmp_path / "tables" / "summary" / "0.json").read_text()) == rows
