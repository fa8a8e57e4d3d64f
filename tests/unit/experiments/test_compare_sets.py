"""``make compare`` over evaluation sets, from a real MLflow to its files."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from hydra import compose, initialize_config_module

from experiments import compare as module
from experiments.compare import main
from experiments.schema import register
from experiments.track import Tracker
from experiments.tracking.carry import Carrier

register()
GREEDY, SAMPLED = "verifier/accuracy", "verifier/accuracy_sampled"


@pytest.fixture
def in_folder(tmp_path: Path, tracker: Tracker, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(module, "connect", lambda: tracker)
    monkeypatch.setattr(module, "OUTPUT", tmp_path / "compare")
    return tmp_path / "compare"


def stage_folder(run: Path, stage: str) -> Path:
    return Path(json.loads((run / "stages.json").read_text())[stage]["folder"])


def test_sets_are_columns_in_every_file(
    outputs: Any, tracker: Tracker, in_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name, final in (("sets_baseline", 0.3), ("sets_other", 0.4)):
        for seed in (0, 1):
            run = outputs.run(name, seed=seed, final=final + 0.02 * seed)
            outputs.log(stage_folder(run, "evaluate"), f"test/larger/{SAMPLED}", {0: final / 2})
            Carrier(run, tracker).carry(live=False)
    assert main(["sets_other", "sets_baseline"]) == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "┃ arm ┃ seeds ┃ main ┃ larger ┃" in said
    assert "│ Δ to sets_baseline │ │ +10.0 ± 0.0 │ +5.0 ± 0.0 │" in said
    stem = in_folder / "sets_other+sets_baseline" / f"test-{SAMPLED.replace('/', '-')}"
    assert "| sets_other | 2 | 41.0 ± 12.7 | 20.0 ± 0.0 |" in stem.with_suffix(".md").read_text()
    assert r"sets\_other & 2 & 41.0 $\pm$ 12.7 & 20.0 $\pm$ 0.0 \\" in stem.with_suffix(".tex").read_text()
    with stem.with_suffix(".csv").open() as file:
        rows = [(row["arm"], row["metric"], float(row["mean"])) for row in csv.DictReader(file)]
    assert rows == [
        ("sets_baseline", f"test/{SAMPLED}", pytest.approx(0.31)),
        ("sets_other", f"test/{SAMPLED}", pytest.approx(0.41)),
        ("sets_baseline", f"test/larger/{SAMPLED}", pytest.approx(0.15)),
        ("sets_other", f"test/larger/{SAMPLED}", pytest.approx(0.20)),
    ]
    assert main(["sets_other", "sets_baseline", "sets=main"]) == 0
    assert (
        stem.with_suffix(".md").read_text().startswith("| arm | seeds | trained | before | Δ to sets_baseline | runs |")
    )


def test_a_track_of_greedy_completions_stands_beside_its_paper(outputs: Any, tracker: Tracker, in_folder: Path) -> None:
    """It has no main set and no sampled completions, so that neither has to be asked for."""
    run = outputs.run("track_grpo", seed=0, final=0.4, reward="verifier")
    suite = {"quantity": GREEDY, "published": "clipo_table1"}
    config = {"seed": 0, "suite": suite, "policy": {"pretrained": "Qwen/Qwen2.5-3B-Instruct"}}
    (run / "config.yaml").write_text(json.dumps(config))
    choices = {"task": "gsm8k", "objective": "grpo", "advantage": "group_relative", "reward": "verifier"}
    (run / "choices.json").write_text(json.dumps(choices))
    evaluated = stage_folder(run, "evaluate")
    (evaluated / "metrics.jsonl").unlink()
    for name in (f"gsm8k/{GREEDY}", "average/m_avg"):
        outputs.log(evaluated, f"test/{name}", {0: 0.875})
    Carrier(run, tracker).carry(live=False)
    assert main(["track_grpo"]) == 0
    stem = in_folder / "track_grpo" / f"test-{GREEDY.replace('/', '-')}"
    assert stem.with_suffix(".md").read_text().splitlines()[:4] == [
        "| arm | seeds | GSM8K | M-Avg. |",
        "| --- | ---: | ---: | ---: |",
        "| track_grpo | 1 | 87.5 | 87.5 |",
        "| published: GRPO, Qwen2.5-3B-Instruct |  | 87.79 | 73.94 |",
    ]
    with stem.with_suffix(".csv").open() as file:
        assert [row["published"] for row in csv.DictReader(file)] == ["0.8779", "0.7394"]


def test_without_a_wish_the_metric_is_that_of_the_published_figures(
    outputs: Any, tracker: Tracker, in_folder: Path
) -> None:
    """Those of Countdown are greedy, and its suite samples too."""
    with initialize_config_module("conf", version_base="1.3"):
        paper = compose("config", ["experiment=llama_baseline", "scale=paper"])
    run = outputs.run("published_grpo", seed=0, final=0.4, reward="verifier")
    config = {"seed": 0, "suite": {"published": paper.suite.published}}
    (run / "config.yaml").write_text(json.dumps({**config, "policy": {"pretrained": paper.policy.pretrained}}))
    choices = {"task": "countdown", "objective": "grpo", "advantage": "group_relative", "reward": "verifier"}
    (run / "choices.json").write_text(json.dumps(choices))
    outputs.log(stage_folder(run, "evaluate"), f"test/{GREEDY}", {0: 0.7})
    Carrier(run, tracker).carry(live=False)
    assert main(["published_grpo"]) == 0
    stem = in_folder / "published_grpo" / f"test-{GREEDY.replace('/', '-')}"
    assert stem.with_suffix(".md").read_text().splitlines()[2:4] == [
        "| published_grpo | 1 | 70.0 |",
        "| published: GRPO, Llama-3.1-8B-Instruct |  | 75.00 |",
    ]
    assert main(["published_grpo", f"metric=test/{SAMPLED}"]) == 0
    assert "published:" not in (in_folder / "published_grpo" / f"test-{SAMPLED.replace('/', '-')}.md").read_text()


def test_the_gain_per_loss_of_a_sweep_is_a_table_and_bars(outputs: Any, tracker: Tracker, in_folder: Path) -> None:
    for seed in (0, 1):
        for day, reward, final in ((1, "verifier", 0.3), (2, "clipo", 0.4), (3, "clipo_softnn", 0.35)):
            time = f"2026-01-0{day}T00-00-00"
            run = outputs.run("losses", seed=seed, final=final + 0.02 * seed, reward=reward, sweep="x", time=time)
            Carrier(run, tracker).carry(live=False)
    assert main(["losses", "by=reward", "baseline=verifier"]) == 0
    stem = in_folder / "losses" / f"test-{SAMPLED.replace('/', '-')}"
    rows = [
        [cell.strip() for cell in line.split("|")[1:6]] for line in stem.with_suffix(".md").read_text().splitlines()
    ]
    assert ["reward=clipo", "2", "0.410 ± 0.127", "0.200 ± 0.000", "+0.100 ± 0.000 (paired)"] in rows
    assert ["reward=clipo_softnn", "2", "0.360 ± 0.127", "0.200 ± 0.000", "+0.050 ± 0.000 (paired)"] in rows
    assert list(in_folder.glob("losses/*gains.png"))


def test_neither_comparison_nor_report_waits_for_libraries_of_models() -> None:
    script = (
        "import sys; import experiments.compare, experiments.report.command\n"
        "print([m for m in ('torch', 'transformers', 'peft', 'lightning') if m in sys.modules])"
    )
    assert subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True).stdout == "[]\n"
