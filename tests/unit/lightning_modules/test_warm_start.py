from __future__ import annotations

from pathlib import Path

import pytest
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from torch.testing import assert_close

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from datamodules.plays import PlayCorpus, Plays
from lightning_modules.warm_start import WarmStart
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_llama, tiny_policy
from tests.tiny_tasks import countdown
from tests.unit.lightning_modules.grpo_kit import optimizer

TASK = countdown(counts=[3], number_range=[1, 9], train_problems=10, validation_problems=10, test_problems=10)


def policy(seed: int = 0) -> CausalLMPolicy:
    tokenizer = train_tokenizer(PlayCorpus(task=TASK, plays=50, seed=0)(), vocab_size=300)
    return tiny_policy(tokenizer, tiny_llama(tokenizer, seed=seed))


OPTIMIZER = optimizer(3e-3, betas=(0.9, 0.95), weight_decay=0.1, schedule="cosine", total_steps=40)


def module(max_skipped_steps: int = 0, seed: int = 0, dropout: float = 0.0) -> WarmStart:
    trained = policy(seed)
    linear = next(part for part in trained.modules() if isinstance(part, torch.nn.Linear))
    linear.register_forward_hook(lambda part, _, output: torch.dropout(output, dropout, part.training))
    return WarmStart(
        policy=trained, optimizer=OPTIMIZER, seed=0, gradient_clip=1.0, max_skipped_steps=max_skipped_steps
    )


def data() -> Plays:
    return Plays(task=TASK, batch_size=8, unaimed_steps=0, validation_batches=1, workers=0, seed=0)


def fit(steps: int, folder: Path, resume: Path | None = None, dropout: float = 0.0) -> WarmStart:
    trained = module(dropout=dropout)
    keep = ModelCheckpoint(
        dirpath=folder, filename="last", every_n_train_steps=steps, save_on_train_epoch_end=False, save_top_k=1
    )
    trainer = quiet_trainer(max_steps=steps, callbacks=[keep], enable_checkpointing=True)
    trainer.fit(trained, datamodule=data(), ckpt_path=resume, weights_only=True)
    return trained


def test_loss_is_mean_over_completion_tokens() -> None:
    trained = module()
    pairs = [("9 3 2 = 10\n", "9+3=12;12-2=10"), ("4 5 1 = 20\n", "5*4=20;20*1=20")]
    total, count = 0.0, 0
    for prompt, completion in pairs:
        start = trained.policy.prompt_ids(prompt)
        ids = trained.policy.encode_completions([completion])[0][0].tolist()
        logits = trained.policy.model(torch.tensor([start + ids])).logits[0].log_softmax(-1)
        total -= sum(float(logits[len(start) - 1 + t, token]) for t, token in enumerate(ids))
        count += len(ids)
    loss, tokens = trained.loss(pairs)
    assert tokens == count
    assert_close(loss.item(), total / count, rtol=1e-5, atol=1e-5)


def test_loss_with_chat_template_covers_completion_and_turn_end() -> None:
    """The input is the policy's prompt with its system message, the completion, and the token that ends a rollout."""
    tokenizer = train_tokenizer(PlayCorpus(task=TASK, plays=50, seed=0)(), vocab_size=300)
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|end|>"]})
    tokenizer.chat_template = "{% for m in messages %}<{{ m.role }}>{{ m.content }}<|end|>{% endfor %}"
    chat_policy = tiny_policy(tokenizer, tiny_llama(tokenizer), chat_template=None, system="Play.")
    trained = WarmStart(policy=chat_policy, optimizer=OPTIMIZER, seed=0, gradient_clip=1.0, max_skipped_steps=0)
    prompt, completion = "9 3 2 = 10\n", "9+3=12;12-2=10"
    end = tokenizer.convert_tokens_to_ids("<|end|>")
    start = tokenizer(f"<system>Play.<|end|><user>{prompt}<|end|>", add_special_tokens=False)["input_ids"]
    completion_ids = tokenizer(completion, add_special_tokens=False)["input_ids"]
    ids = [*completion_ids, end]
    assert end in chat_policy.eos_token_ids
    logits = chat_policy.model(torch.tensor([[*start, *ids]])).logits[0].log_softmax(-1)
    expected = -sum(float(logits[len(start) - 1 + t, token]) for t, token in enumerate(ids)) / len(ids)
    loss, tokens = trained.loss([(prompt, completion)])
    assert tokens == len(ids)
    assert_close(loss.item(), expected, rtol=1e-5, atol=1e-5)


def test_training_reduces_validation_loss(tmp_path: Path) -> None:
    before = module().loss(next(iter(data().val_dataloader())))[0].item()
    after = fit(40, tmp_path).loss(next(iter(data().val_dataloader())))[0].item()
    assert after < 0.6 * before


def test_resumed_run_equals_uninterrupted_run(tmp_path: Path) -> None:
    """Dropout depends only on the step."""
    dropout = 0.3
    whole = fit(6, tmp_path / "whole", dropout=dropout)
    fit(3, tmp_path / "half", dropout=dropout)
    torch.manual_seed(1)
    resumed = fit(6, tmp_path / "rest", resume=tmp_path / "half" / "last.ckpt", dropout=dropout)
    for (name, wanted), (_, got) in zip(whole.named_parameters(), resumed.named_parameters(), strict=True):
        assert torch.equal(wanted, got), name


def test_example_longer_than_context_raises_with_lengths() -> None:
    trained = module()
    with pytest.raises(ValueError, match=rf"\d+ tokens.* {trained.policy.max_length}"):
        trained.loss([("1 + 2 = " * trained.policy.max_length, "3")])
