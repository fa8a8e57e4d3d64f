"""A track from its YAML to its table, in small: generated files, a policy of a few thousand parameters."""

from __future__ import annotations

import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hydra import compose
from omegaconf import DictConfig

from contrastive_reasoning.policies.tiny import train_tokenizer
from experiments.run_folder.logger import RunFolderLogger
from experiments.run_folder.reader import last_values
from experiments.schema import composing
from experiments.stages.evaluate import evaluate
from experiments.stages.evaluation_table import show
from tests.tiny_models import tiny_llama

MODEL = "Qwen2.5-3B-Instruct"
"""Track 1 prints the figures of this model. A folder of that name counts as the model."""


@pytest.fixture
def small(tmp_path: Path) -> list[str]:
    """Overrides that make any track small."""
    tokenizer = train_tokenizer(["What is 1+1? Options: A. one B. two"], vocab_size=270)
    tiny_llama(tokenizer, hidden_size=32).save_pretrained(tmp_path / MODEL)
    tokenizer.save_pretrained(tmp_path / MODEL)
    policy = [f"policy.pretrained={tmp_path / MODEL}", "policy.architecture=null", "policy.corpus=null"]
    decoding = ["suite.greedy.max_tokens=4", "suite.sampling.max_tokens=4"]
    verifier = ["suite.sets.verifier=null"]
    return [*policy, *decoding, *verifier, f"suite.sets.path={tmp_path}", f"output_dir={tmp_path}"]


def composed(*overrides: str) -> DictConfig:
    with composing():
        return compose("config", ["experiment=llama_baseline", *overrides])


def make_files(config: DictConfig, folder: Path) -> int:
    """Write two rows for each set, one of them without a gold answer; the number of sets."""
    golds = dict.fromkeys(config.suite.sets.answers.values(), "2") | dict.fromkeys(
        config.suite.sets.choices.values(), "B"
    )
    for file, gold in golds.items():
        message = [{"role": "user", "content": "What is 1+1?\nOptions:\nA. one\nB. two"}]
        rows = [{"prompt": message, "reward_model": {"ground_truth": answer}} for answer in (gold, "")]
        pq.write_table(pa.Table.from_pylist(rows), folder / file.replace("*", "_x"))
    return len(golds)


SAMPLED = ["track1", "suite.samples=1", "suite.k_values=[1]", "suite.quantity=verifier/accuracy_sampled"]
"""The sampled evaluation of the paper's text."""


@pytest.mark.parametrize(("track", "sets", "averages"), [(["track1"], 8, 3), (SAMPLED, 8, 3), (["track2"], 6, 3)])
def test_track_evaluation_logs_averages_and_prints_table(
    track: list[str], sets: int, averages: int, small: list[str], tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = composed(f"suite={track[0]}", *track[1:], *small)
    assert make_files(config, tmp_path) == sets
    evaluate(config, tmp_path / "stage", {}, [RunFolderLogger(folder=tmp_path / "stage")])
    metrics = last_values(tmp_path / "stage")
    quantity = "verifier/accuracy" if track == ["track1"] else "verifier/accuracy_sampled"
    own = [name for name in metrics if name.count("/") == 3 and name.endswith(f"/{quantity}")]
    assert len(own) == sets
    assert sum(name.startswith("test/average/") for name in metrics) == averages
    assert metrics["test/average/avg"] == pytest.approx(sum(metrics[name] for name in own) / sets)
    left_out = json.loads((tmp_path / "stage" / "tables" / "test" / "left_out" / "0.json").read_text())
    assert [line["row"] for line in left_out] == ["row 1: reward_model.ground_truth is empty"] * sets
    capsys.readouterr()
    show(tmp_path / "stage")
    shown = capsys.readouterr().out
    for text in (shown, (tmp_path / "stage" / "summary.md").read_text()):
        assert "GRPO+CLIPO (published)" in text
        assert ("Δ to Base Model" in text) == (track != ["track2"]), "which is of another model"
        assert "CLIPO, Table" in text


def test_decoding_settings_of_tracks_match_paper() -> None:
    first, second = (composed(f"suite={name}").suite for name in ("track1", "track2"))
    assert (first.samples, first.greedy.temperature, first.greedy.max_tokens) == (0, 0.0, 2048)
    assert (first.sampling.temperature, first.sampling.top_p) == (0.6, 0.95)
    assert (second.samples, second.sampling.temperature, second.sampling.top_p) == (16, 0.6, 0.95)
    assert second.sampling.max_tokens == 4096


def test_evaluation_over_time_limit_warns_and_dumps_stacks(small: list[str], tmp_path: Path) -> None:
    config = composed("suite=track1", "callbacks.every.watchdog.limits.evaluation=0.001", *small)
    make_files(config, tmp_path)
    with pytest.warns(UserWarning, match=r"evaluation of test.*0\.001 s"):
        evaluate(config, tmp_path / "stage", {}, [RunFolderLogger(folder=tmp_path / "stage")])
    assert "Current thread" in (tmp_path / "stage" / "stacks" / "rank0.txt").read_text()
