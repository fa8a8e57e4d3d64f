"""``Engine`` for a policy without padding: a Mamba, which ``transformers``' own ``generate`` writes."""

from __future__ import annotations

from typing import Any

import pytest
import torch
from torch.testing import assert_close
from transformers import GenerationConfig, MambaConfig, PreTrainedTokenizerFast
from transformers.models.mamba import MambaForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.rollout import Engine, Sampling
from tests.tiny_models import tiny_policy
from tests.unit.rollout.rollout_kit import Problems, row_by_row, with_spread

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=24, stop=["7"])


@pytest.fixture(scope="module")
def mamba(byte_level: PreTrainedTokenizerFast) -> CausalLMPolicy:
    config = MambaConfig(vocab_size=len(byte_level), hidden_size=32, num_hidden_layers=2, state_size=4)
    return tiny_policy(byte_level, with_spread(lambda: MambaForCausalLM(config)), unpadded=True)


def test_log_probs_and_states_are_those_of_a_pass_over_each_row(mamba: CausalLMPolicy, problems: Problems) -> None:
    rollouts = Engine(max_batch_tokens=10_000).generate(
        mamba, problems, group_size=3, sampling=SAMPLED, seed=(0,), pooled=True
    )
    assert set(rollouts.finish_reasons) == {"stop", "length"}
    assert all(text.count("7") <= 1 and "7" not in text[:-1] for text in rollouts.texts)
    log_probs, states = row_by_row(mamba, rollouts)
    assert_close(rollouts.old_log_probs, log_probs, atol=1e-5, rtol=0)
    assert_close(rollouts.pooled, states, atol=1e-5, rtol=1e-4)


def test_draws_depend_neither_on_other_rows_nor_on_the_budget(mamba: CausalLMPolicy, problems: Problems) -> None:
    whole, split = (
        Engine(max_batch_tokens=budget).generate(mamba, problems, group_size=3, sampling=SAMPLED, seed=(1,))
        for budget in (10_000, 70)
    )
    first = Engine(max_batch_tokens=10_000).generate(mamba, problems[:1], group_size=3, sampling=SAMPLED, seed=(1,))
    assert whole.texts == split.texts
    assert whole.texts[:3] == first.texts
    assert len(set(whole.texts)) > len(problems)


def test_generation_config_of_the_model_is_ignored_and_kept(
    mamba: CausalLMPolicy, problems: Problems, monkeypatch: pytest.MonkeyPatch
) -> None:
    given: dict[str, Any] = {"group_size": 2, "sampling": SAMPLED, "seed": (0,)}
    engine = Engine(max_batch_tokens=10_000)
    expected = engine.generate(mamba, problems[:2], **given)
    own = GenerationConfig(no_repeat_ngram_size=1, suppress_tokens=expected.completion_ids[0, :3].tolist())
    monkeypatch.setattr(mamba.model, "generation_config", own)
    assert torch.equal(engine.generate(mamba, problems[:2], **given).completion_ids, expected.completion_ids)
    assert mamba.model.generation_config is own


def test_tokens_of_a_pass_are_those_of_the_rows(mamba: CausalLMPolicy) -> None:
    assert mamba.pass_tokens(Lengths(prompts=[5, 2], completions=[3, 1, 4], owner=[0, 0, 1])) == 8 + 6 + 6
