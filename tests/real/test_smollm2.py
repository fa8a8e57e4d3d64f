"""The fetched model matches its record and answers a question:  make test-real"""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.shape import PUBLISHED, ModelShape
from contrastive_reasoning.tasks.base import Problem
from experiments.config.known_models import known_models
from tests.real.conftest import NAME, drawn

pytestmark = pytest.mark.real


def test_fetched_model_matches_recorded_checksum_and_shape(model: Path) -> None:
    config, origin = (json.loads((model / name).read_text()) for name in ("config.json", "origin.json"))
    assert origin["sha256"] == known_models()[NAME].sha256
    assert ModelShape.of(config) == PUBLISHED[NAME]


def test_model_answers_question_and_ends_turn(policy: CausalLMPolicy) -> None:
    problems = [Problem(id="France", prompt="What is the capital of France?", answer="Paris")]
    rollouts = drawn(policy, problems, group_size=1, temperature=0.0, max_tokens=16)
    assert "Paris" in rollouts.texts[0]
    assert rollouts.finish_reasons == ["stop"]
    ids = rollouts.completion_ids[0][rollouts.mask[0]]
    assert policy.tokenizer.convert_ids_to_tokens(int(ids[-1])) == "<|im_end|>"
