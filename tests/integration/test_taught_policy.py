"""``warm_start.train=true`` trains a pretrained policy with its own tokenizer and template; GRPO continues from it."""

from __future__ import annotations

import json
import signal
from copy import deepcopy
from pathlib import Path
from typing import Any

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.policies.load import resolve
from experiments.config.contradictions import contradiction
from experiments.stages.experiment import Interrupted, run_experiment
from lightning_modules.warm_start import WarmStart
from tests import config_kit

TEMPLATE = (
    "{% for m in messages %}<{{ m.role }}>{{ m.content }}{% endfor %}{% if add_generation_prompt %}<answer>{% endif %}"
)
SMALL = ["experiment=llama_baseline", "debug=fast", "logger.mirror=false", "warm_start.train=true"]
TAUGHT = ["policy.chat_template=null", "policy.compute_dtype=float32"]
SIZES = ["budget.warm_start.steps=12", "budget.warm_start.unaimed_steps=0", "budget.warm_start.evaluate_every=12"]
LORA = ["adapter=lora", "policy.lora.rank=4"]


@pytest.fixture(scope="module")
def pretrained(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A bundled policy as a folder in Hugging Face format, with a chat template that it was not trained with."""
    folder, bundled = tmp_path_factory.mktemp("pretrained"), resolve("embedded:llama_countdown")
    AutoModelForCausalLM.from_pretrained(bundled).save_pretrained(folder)
    tokenizer = AutoTokenizer.from_pretrained(bundled)
    tokenizer.chat_template = TEMPLATE
    tokenizer.save_pretrained(folder)
    return folder


def run(pretrained: Path, output: Path, *overrides: str) -> dict[str, Path]:
    """The folder of each stage."""
    words = [*SMALL, *TAUGHT, *SIZES, f"policy.pretrained={pretrained}", f"output_dir={output}", *overrides]
    config = deepcopy(config_kit.composed(*words))
    assert contradiction(config) is None
    entries = json.loads((run_experiment(config) / "stages.json").read_text())
    return {stage: Path(entry["folder"]) for stage, entry in entries.items()}


def weights(folder: Path) -> torch.Tensor:
    """All of a saved model in one vector."""
    model = AutoModelForCausalLM.from_pretrained(folder)
    return torch.cat([parameter.detach().flatten() for parameter in model.parameters()])


def losses(folder: Path) -> list[float]:
    lines = map(json.loads, (folder / "metrics.jsonl").read_text().splitlines())
    return [line["value"] for line in lines if line["name"] == "val/warm_start/loss"]


@pytest.fixture(scope="module", params=[[], pytest.param(LORA, marks=pytest.mark.whole)], ids=["weights", "lora"])
def stages(
    request: pytest.FixtureRequest, pretrained: Path, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, Path]:
    """The folder of each stage of an uninterrupted run."""
    only = ["stages=[warm_start,grpo]", "budget.grpo.learning_rate=1e-6", *request.param]
    return run(pretrained, tmp_path_factory.mktemp("outputs"), *only)


def test_warm_start_trains_pretrained_policy_and_grpo_continues_from_it(
    pretrained: Path, stages: dict[str, Path]
) -> None:
    before, *_, after = losses(stages["warm_start"])
    assert after < 0.9 * before
    original, trained = weights(pretrained), weights(stages["warm_start"] / "policy")
    by_grpo = weights(stages["grpo"] / "policy")
    assert trained.shape == original.shape, "adapters are merged"
    # all groups of two batches may have equal rewards, which leaves the weights unchanged
    assert (by_grpo - trained).norm() < 0.1 * (trained - original).norm()
    assert AutoTokenizer.from_pretrained(stages["warm_start"] / "policy").chat_template == TEMPLATE
    result = json.loads((stages["grpo"] / "result.json").read_text())
    assert result["parents"] == {"warm_start": stages["warm_start"].name}


@pytest.mark.whole
@pytest.mark.usefixtures("ctrl_c")
@pytest.mark.parametrize("stages", [LORA], ids=["lora"], indirect=True)  # unit tests resume all weights
def test_interrupted_warm_start_resumes_to_same_weights(
    pretrained: Path, stages: dict[str, Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    only = ["stages=[warm_start]", *LORA]
    training_step = WarmStart.training_step

    def stop_in_the_sixth(module: WarmStart, batch: Any, batch_idx: int) -> torch.Tensor:
        if module.global_step == 5:
            signal.raise_signal(signal.SIGINT)
        return training_step(module, batch, batch_idx)

    monkeypatch.setattr(WarmStart, "training_step", stop_in_the_sixth)
    with pytest.raises(Interrupted, match=r"warm_start: .*Ctrl-C .*step 6"):
        run(pretrained, tmp_path, *only)
    monkeypatch.undo()
    resumed = run(pretrained, tmp_path, *only)["warm_start"]
    assert torch.equal(weights(resumed / "policy"), weights(stages["warm_start"] / "policy"))
