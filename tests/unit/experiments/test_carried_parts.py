"""What a tracker holds of a stage besides its numbers: the data it read and the policy it made."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import mlflow.data
import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.track import Tracker
from experiments.tracking.carry import Carrier
from experiments.tracking.run_tree import runs_of
from experiments.tracking.sent import MEMORY_FILE
from experiments.tracking.tracked_run import TrackedRun
from tests.unit.lightning_modules.grpo_kit import policy

STAGE = {"prompts": {"task": {"_target_": "a.Task", "path": "problems.jsonl", "counts": [3, 4]}}}


def made(outputs: Any, name: str, *, megabytes: float = 100.0, reused: bool = False) -> Path:
    """An experiment whose GRPO stage read a file of problems and left a policy."""
    folder = outputs.run(name, seed=0, final=0.4)
    with (folder / "config.yaml").open("a") as config:
        config.write(f"logger:\n  model_megabytes: {megabytes}\n")
    (stage,) = (run.folder for run in runs_of(folder) if run.tags.get("stage") == "grpo")
    (stage / "config.yaml").write_text(json.dumps(STAGE))
    (stage / "begun.json").write_text(json.dumps({"files": {"problems.jsonl": "0a1b2c"}}))
    policy().save(stage / "policy")
    entries = json.loads((folder / "stages.json").read_text())
    entries["grpo"]["reused"] = reused
    (folder / "stages.json").write_text(json.dumps(entries))
    choices = json.loads((folder / "choices.json").read_text())
    (folder / "choices.json").write_text(json.dumps({**choices, "task": "countdown", "experiment": "llama_critic"}))
    return folder


def carried(tracker: Tracker, folder: Path) -> TrackedRun:
    Carrier(folder, tracker).carry(live=False)
    (grpo,) = (run for run in tracker.runs([folder.parent.name], kind="stage") if run.tags["stage"] == "grpo")
    return grpo


def test_the_policy_is_there_in_a_form_that_transformers_reads(tracker: Tracker, outputs: Any, tmp_path: Path) -> None:
    run = carried(tracker, made(outputs, "model"))
    assert run.tags["model"] == "policy/"
    fetched = tracker._client.download_artifacts(run.run_id, "policy", str(tmp_path))
    ours, model = policy(), AutoModelForCausalLM.from_pretrained(fetched)
    for name, weight in ours.model.state_dict().items():
        assert torch.equal(model.state_dict()[name], weight), name
    assert AutoTokenizer.from_pretrained(fetched)("21+16=37")["input_ids"] == ours.tokenizer("21+16=37")["input_ids"]


def test_a_large_policy_stays_and_the_run_says_where(tracker: Tracker, outputs: Any) -> None:
    folder = made(outputs, "large", megabytes=0.01)
    run = carried(tracker, folder)
    assert "MB are more than logger.model_megabytes=0.01: " in run.tags["model"]
    assert run.tags["model"].endswith("/policy")
    assert not tracker.artifacts.files(run.run_id, "policy")


@pytest.mark.parametrize("state", ["reused", "unfinished"])
def test_a_policy_goes_once_it_is_whole_and_with_the_run_that_made_it(
    tracker: Tracker, outputs: Any, state: str
) -> None:
    folder = made(outputs, f"model_{state}", reused=state == "reused")
    if state == "unfinished":
        next(run.folder for run in runs_of(folder) if run.tags.get("stage") == "grpo").joinpath("result.json").unlink()
    run = carried(tracker, folder)
    assert "model" not in run.tags
    assert not tracker.artifacts.files(run.run_id, "policy")


@pytest.mark.parametrize("memory", ["kept", "lost"])
def test_data_is_listed_once_with_what_makes_it(tracker: Tracker, outputs: Any, memory: str) -> None:
    folder = made(outputs, f"data_{memory}", megabytes=0)
    carried(tracker, folder)
    if memory == "lost":
        (folder / MEMORY_FILE).unlink()
    run = tracker._client.get_run(carried(tracker, folder).run_id)
    assert run.inputs is not None
    (read,) = run.inputs.dataset_inputs
    assert (read.dataset.name, len(read.dataset.digest)) == ("countdown", 12)
    assert {tag.key: tag.value for tag in read.tags} == {"mlflow.data.context": "training"}
    source = mlflow.data.get_source(read.dataset).to_dict()
    assert source == {"tags": {"_target_": "a.Task", "path": "problems.jsonl", "counts": "[3, 4]"}}
    assert json.loads(read.dataset.profile or "") == {"files": {"problems.jsonl": "0a1b2c"}}


def test_the_method_is_the_experiment_that_was_chosen_whatever_its_name(tracker: Tracker, outputs: Any) -> None:
    tags = carried(tracker, made(outputs, "under_another_name", megabytes=0)).tags
    assert (tags["experiment"], tags["method"]) == ("under_another_name", "llama_critic")
