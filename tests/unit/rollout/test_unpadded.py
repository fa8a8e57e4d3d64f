"""``Engine`` for a policy without padding: a Mamba, which ``transformers``' own ``generate`` writes."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import torch
from torch.testing import assert_close
from transformers import MambaConfig, PreTrainedTokenizerFast
from transformers.models.mamba import MambaForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.pass_cost import Lengths
from contrastive_reasoning.rollout import Engine, Sampling
from contrastive_reasoning.tasks.base import Problem

SAMPLED = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=24, stop=["7"])


@pytest.fixture(scope="module")
def mamba(byte_level: PreTrainedTokenizerFast) -> CausalLMPolicy:
    config = MambaConfig(vocab_size=len(byte_level), hidden_size=32, num_hidden_layers=2, state_size=4)
    with torch.random.fork_rng():
        torch.manual_seed(0)
        model = MambaForCausalLM(config)
        for parameter in model.parameters():
            torch.nn.init.normal_(parameter, std=0.15) if parameter.ndim == 2 else None
    return CausalLMPolicy(
        model=model, tokenizer=byte_level, compute_dtype=torch.float32, chat_template=False, unpadded=True
    )


def test_log_probs_and_states_are_those_of_a_pass_over_each_row(
    mamba: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    rollouts = Engine(max_batch_tokens=10_000).generate(
        mamba, problems, group_size=3, sampling=SAMPLED, seed=(0,), pooled=True
    )
    assert set(rollouts.finish_reasons) == {"stop", "length"}
    assert all(text.count("7") <= 1 and "7" not in text[:-1] for text in rollouts.texts)
    for row in range(len(rollouts)):
        prompt, written = row // 3, rollouts.completion_ids[row][rollouts.mask[row]]
        before = rollouts.prompt_ids[prompt][rollouts.prompt_mask[prompt]]
        with torch.no_grad():
            output = mamba.model(torch.cat([before, written])[None], output_hidden_states=True)
        scores = output.logits[0, len(before) - 1 : -1].log_softmax(-1)
        expected = scores.gather(-1, written[:, None])[:, 0]
        assert_close(rollouts.old_log_probs[row, : len(written)], expected, atol=1e-5, rtol=0)
        assert rollouts.pooled is not None
        assert_close(rollouts.pooled[row], output.hidden_states[-1][0, len(before) :].mean(0), atol=1e-5, rtol=1e-4)


def test_draws_depend_neither_on_other_rows_nor_on_the_budget(
    mamba: CausalLMPolicy, problems: Sequence[Problem]
) -> None:
    together, split = (
        Engine(max_batch_tokens=budget).generate(mamba, problems, group_size=3, sampling=SAMPLED, seed=(1,))
        for budget in (10_000, 70)
    )
    alone = Engine(max_batch_tokens=10_000).generate(mamba, problems[:1], group_size=3, sampling=SAMPLED, seed=(1,))
    assert together.texts == split.texts
    assert together.texts[:3] == alone.texts
    assert len(set(together.texts)) > len(problems)


def test_tokens_of_a_pass_are_those_of_the_rows(mamba: CausalLMPolicy) -> None:
    assert mamba.pass_tokens(Lengths(prompts=[5, 2], completions=[3, 1, 4], owner=[0, 0, 1])) == 8 + 6 + 6
