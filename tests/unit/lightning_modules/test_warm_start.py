from __future__ import annotations

from copy import deepcopy
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from datamodules.plays import PlayCorpus, Plays
from lightning_modules.warm_start import WarmStart
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_llama, tiny_policy
from tests.tiny_tasks import countdown
from tests.unit.lightning_modules.automatic_kit import assert_resumes_with_dropout
from tests.unit.lightning_modules.grpo_kit import optimizer

TASK = countdown(counts=[3], number_range=[1, 9], train_problems=10, validation_problems=10, test_problems=10)


TOKENIZER = train_tokenizer(PlayCorpus(task=TASK, plays=50, seed=0)(), vocab_size=300)
OPTIMIZER = optimizer(3e-3, betas=(0.9, 0.95), weight_decay=0.1, schedule="cosine", total_steps=40)


def module(max_skipped_steps: int = 0, seed: int = 0, policy: CausalLMPolicy | None = None) -> WarmStart:
    trained = policy or tiny_policy(TOKENIZER, tiny_llama(TOKENIZER, seed=seed))
    return WarmStart(
        policy=trained, optimizer=OPTIMIZER, seed=0, gradient_clip=1.0, max_skipped_steps=max_skipped_steps
    )


def data() -> Plays:
    return Plays(task=TASK, batch_size=8, unaimed_steps=0, validation_batches=1, workers=0, seed=0)


def loss_by_loops(trained: WarmStart, start: list[int], completion: list[int]) -> float:
    """The sum of the negative log-probs of a completion's tokens after the prompt ``start``."""
    logits = trained.policy.model(torch.tensor([start + completion])).logits[0].log_softmax(-1)
    return -sum(float(logits[len(start) - 1 + t, token]) for t, token in enumerate(completion))


def test_loss_is_mean_over_completion_tokens() -> None:
    trained = module()
    pairs = [("9 3 2 = 10\n", "9+3=12;12-2=10"), ("4 5 1 = 20\n", "5*4=20;20*1=20")]
    starts = [trained.policy.prompt_ids(prompt) for prompt, _ in pairs]
    ids = [trained.policy.encode_completions([completion])[0][0].tolist() for _, completion in pairs]
    total = sum(loss_by_loops(trained, start, own) for start, own in zip(starts, ids, strict=True))
    loss, tokens = trained.loss(pairs)
    assert tokens == sum(map(len, ids))
    assert_close(loss.item(), total / tokens, rtol=1e-5, atol=1e-5)


def test_loss_with_chat_template_covers_completion_and_turn_end() -> None:
    """The input is the policy's prompt with its system message, the completion, and the token that ends a rollout."""
    tokenizer = deepcopy(TOKENIZER)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}"
    trained = module(policy=tiny_policy(tokenizer, tiny_llama(tokenizer), chat_template=None, system="Play."))
    prompt, completion = "9 3 2 = 10\n", "9+3=12;12-2=10"
    start, ids, end = (
        tokenizer(text, add_special_tokens=False)["input_ids"]
        for text in (f"<system>Play.<|end|><user>{prompt}<|end|>", completion, "<|end|>")
    )
    assert set(end) <= set(trained.policy.eos_token_ids)
    loss, tokens = trained.loss([(prompt, completion)])
    assert tokens == len(ids) + len(end) == len(ids) + 1
    assert_close(loss.item(), loss_by_loops(trained, start, ids + end) / tokens, rtol=1e-5, atol=1e-5)


def test_training_reduces_validation_loss() -> None:
    trained, held_out = module(), next(iter(data().val_dataloader()))
    before = trained.loss(held_out)[0].item()
    trainer = quiet_trainer(max_steps=40, val_check_interval=40)
    trainer.fit(trained, datamodule=data())
    after = trained.loss(held_out)[0].item()
    assert after < 0.6 * before
    assert trainer.callback_metrics["val/warm_start/loss"].item() == pytest.approx(after)


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    assert_resumes_with_dropout(module, lambda: {"datamodule": data()}, tmp_path)


def test_example_longer_than_context_raises_with_lengths() -> None:
    trained = module()
    with pytest.raises(ValueError, match=rf"\d+ tokens.* {trained.policy.max_length}"):
        trained.loss([("1 + 2 = " * trained.policy.max_length, "3")])
