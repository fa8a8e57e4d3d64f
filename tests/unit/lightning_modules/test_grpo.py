"""GRPO in a real Trainer: a tiny Llama, our own engine, Countdown."""

from __future__ import annotations

import json
from pathlib import Path
from string import ascii_lowercase
from typing import Any

import pytest
import torch
from lightning import Callback, Trainer
from lightning.pytorch.callbacks import ModelCheckpoint
from torch import Tensor
from torch.testing import assert_close

from callbacks.rollout_generation import RolloutGeneration
from contrastive_reasoning.advantages import GroupRelative, MeanCentred, Process
from contrastive_reasoning.objectives import GRPO as Objective
from contrastive_reasoning.objectives import K3, SeqMeanTokenMean, TokenMean
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import tiny_llama, train_tokenizer
from contrastive_reasoning.rewards import Credit, OracleReward, VerifierReward
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.tasks.countdown import CountdownTask
from datamodules.collate import ProblemBatch
from datamodules.reasoning_prompts import ReasoningPrompts
from experiments.run_folder import RunFolderLogger
from lightning_modules.grpo import GRPO
from lightning_modules.lesson import rows_that_teach
from lightning_modules.optim import AdamW

TASK = CountdownTask(
    style="direct",
    train="generated",
    test="generated",
    longproc_dir=None,
    counts=[3, 4],
    number_range=[1, 20],
    target_range=[10, 50],
    max_search_lines=None,
    train_problems=12,
    validation_problems=6,
    test_problems=2,
    seed=0,
)
CORPUS = [problem.prompt for problem in TASK.problems("train")] + ["21+16=37;37-17=20"]
TOKENIZER = train_tokenizer(CORPUS, vocab_size=280)


class Digits:
    """A reward that a random policy can collect: the share of digits in what was written."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        shares = [sum(c.isdigit() for c in text) / max(len(text), 1) for text in rollouts.texts]
        outcome = rollouts.old_log_probs.new_tensor(shares)
        return Credit(outcome=outcome, parts={"digits": outcome})


def policy(dtype: torch.dtype = torch.float32, seed: int = 1) -> CausalLMPolicy:
    """Weights drawn wide, so that completions differ and some of them end by themselves."""
    model = tiny_llama(TOKENIZER, hidden_size=32)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        for parameter in model.parameters():
            if parameter.ndim == 2:
                parameter.normal_(std=0.15, generator=generator)
    return CausalLMPolicy(model=model.to(dtype), tokenizer=TOKENIZER, compute_dtype=torch.float32, chat_template=False)


def module(**changes: Any) -> GRPO:
    parts: dict[str, Any] = {
        "policy": policy(),
        "reference": None,
        "task": TASK,
        "reward": Digits(),
        "advantage": GroupRelative(normalise_std=True, epsilon=1e-6),
        "objective": objective(),
        "optimizer": optimizer(),
        "updates_per_rollout": 1,
        "microbatch_tokens": 300,
        "gradient_clip": 1.0,
    }
    return GRPO(**parts | changes)


def objective(kl_weight: float = 0.0, aggregation: Any = None) -> Objective:
    return Objective(
        clip_low=0.2,
        clip_high=0.2,
        dual_clip=None,
        kl_weight=kl_weight,
        kl=K3(max_log_ratio=20.0, max_value=10.0),
        aggregation=aggregation or TokenMean(),
    )


def optimizer(learning_rate: float = 1e-3) -> AdamW:
    return AdamW(
        learning_rate=learning_rate,
        betas=[0.9, 0.99],
        epsilon=1e-8,
        weight_decay=0.0,
        warmup_steps=2,
        schedule="linear",
        total_steps=100,
    )


def sampling(temperature: float) -> Sampling:
    """A letter ends a completion, so that lengths differ."""
    return Sampling(temperature=temperature, top_k=None, top_p=1.0, max_tokens=12, stop=tuple(ascii_lowercase))


def generation(validation_samples: int = 0) -> RolloutGeneration:
    return RolloutGeneration(
        engine=Engine(max_batch_tokens=100_000),
        group_size=4,
        sampling=sampling(0.9),
        greedy=sampling(0.0),
        validation_samples=validation_samples,
        seed=3,
    )


def fit(
    trained: GRPO,
    steps: int,
    *callbacks: Callback,
    logger: Any = False,
    stop_after: int | None = None,
    resume: Path | None = None,
    validate_every: int | None = None,
) -> Trainer:
    """``stop_after`` steps of a run of ``steps``."""
    trainer = Trainer(
        accelerator="cpu",
        max_epochs=1,
        limit_train_batches=steps,
        max_steps=-1 if stop_after is None else stop_after * trained.updates_per_rollout,
        limit_val_batches=0 if validate_every is None else None,
        val_check_interval=validate_every,
        num_sanity_val_steps=0,
        log_every_n_steps=1,
        logger=logger,
        callbacks=[generation(2 if validate_every else 0), *callbacks],
        enable_checkpointing=any(isinstance(callback, ModelCheckpoint) for callback in callbacks),
        enable_progress_bar=False,
        enable_model_summary=False,
        inference_mode=False,
    )
    data = ReasoningPrompts(task=TASK, problems_per_step=3, validation_problems=5, steps=steps, seed=0)
    trainer.fit(trained, datamodule=data, ckpt_path=resume, weights_only=None if resume is None else True)
    return trainer


class Gradients(Callback):
    """The gradient of every update."""

    def __init__(self) -> None:
        self.updates: list[Tensor] = []

    def on_before_optimizer_step(self, trainer: Any, pl_module: Any, optimizer: Any) -> None:
        flat = [parameter.grad.flatten() for parameter in pl_module.policy.parameters()]
        self.updates.append(torch.cat(flat).clone())


class Metrics(Callback):
    """What was logged in every training step."""

    def __init__(self) -> None:
        self.steps: list[dict[str, float]] = []

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        self.steps.append({name: value.item() for name, value in trainer.callback_metrics.items()})


def weights(trained: GRPO) -> Tensor:
    return torch.cat([parameter.detach().flatten() for parameter in trained.policy.parameters()])


def gradients(tokens: int, dtype: torch.dtype, aggregation: Any, updates: int) -> list[Tensor]:
    captured, metrics = Gradients(), Metrics()
    trained = module(
        policy=policy(dtype),
        reference=policy(dtype, seed=2),
        objective=objective(0.1, aggregation),
        microbatch_tokens=tokens,
        updates_per_rollout=updates,
        gradient_clip=None,
    )
    fit(trained, 1, captured, metrics)
    assert 0.2 < metrics.steps[0]["train/rollout/truncated"] < 0.9, "completions of many lengths"
    return captured.updates


@pytest.mark.parametrize("aggregation", [TokenMean(), SeqMeanTokenMean()], ids=lambda part: type(part).__name__)
@pytest.mark.parametrize(
    ("dtype", "tolerance", "updates"), [(torch.float32, 1e-5, 1), (torch.float64, 1e-9, 2)], ids=["fp32", "fp64"]
)
def test_no_split_changes_the_gradient(dtype: torch.dtype, tolerance: float, updates: int, aggregation: Any) -> None:
    whole = gradients(1_000_000, dtype, aggregation, updates)
    assert whole[0].norm() > 1e-3
    for tokens in (1, 150):
        for split, expected in zip(gradients(tokens, dtype, aggregation, updates), whole, strict=True):
            assert ((split - expected).norm() / expected.norm()).item() < tolerance


def test_a_resumed_run_is_bitwise_the_uninterrupted_one(tmp_path: Path) -> None:
    def saving(folder: str) -> ModelCheckpoint:
        return ModelCheckpoint(dirpath=tmp_path / folder, filename="last", every_n_train_steps=1, save_top_k=1)

    whole, all_steps = module(), Metrics()
    fit(whole, 4, saving("whole"), all_steps)
    fit(module(), 4, saving("stopped"), stop_after=2)
    resumed, later_steps = module(policy=policy(seed=7)), Metrics()
    fit(resumed, 4, saving("resumed"), later_steps, resume=tmp_path / "stopped" / "last.ckpt")
    assert resumed.rollout_step == whole.rollout_step == 4
    assert torch.equal(weights(resumed), weights(whole))
    assert not torch.equal(weights(whole), weights(module()))
    for ours, theirs in zip(later_steps.steps, all_steps.steps[2:], strict=True):
        assert without_clock(ours) == without_clock(theirs)
    states = [torch.load(tmp_path / run / "last.ckpt", weights_only=True) for run in ("whole", "resumed")]
    first, second = (state["optimizer_states"][0]["state"] for state in states)
    assert all(torch.equal(first[i][name], second[i][name]) for i in first for name in first[i])


def without_clock(metrics: dict[str, float]) -> dict[str, float]:
    return {name: value for name, value in metrics.items() if "throughput" not in name}


def test_ratio_is_exactly_one_in_the_first_update_only() -> None:
    first, second = Metrics(), Metrics()
    fit(module(updates_per_rollout=1), 1, first)
    assert first.steps[0]["train/objective/ratio_max"] == 1.0
    assert first.steps[0]["train/objective/approx_kl"] == 0.0
    assert first.steps[0]["train/rollout/log_prob_gap"] <= 1e-5
    fit(module(updates_per_rollout=3), 1, second)
    assert second.steps[0]["train/objective/ratio_max"] > 1.0


def test_updates_are_optimizer_steps_but_rollout_batches_are_counted() -> None:
    trained = module(updates_per_rollout=3)
    assert fit(trained, 2).global_step == 6
    assert trained.rollout_step == 2


def test_it_collects_more_reward() -> None:
    metrics = Metrics()
    fit(module(optimizer=optimizer(5e-3)), 16, metrics)
    rewards = [step["train/reward/digits"] for step in metrics.steps]
    assert sum(rewards[-4:]) > 1.5 * sum(rewards[:4])


def test_equal_rewards_leave_the_policy_bitwise_alone() -> None:
    trained = module(reward=VerifierReward(task=TASK))
    metrics = Metrics()
    fit(trained, 2, metrics)
    assert metrics.steps[-1]["train/advantage/informative_groups"] == 0.0
    assert torch.equal(weights(trained), weights(module()))


def test_only_the_policy_is_registered() -> None:
    trained = module(reference=policy(seed=2))
    assert all(name.startswith("policy.") for name in trained.state_dict())
    assert len(list(trained.parameters())) == len(list(trained.policy.parameters()))


def test_the_reference_stays_as_it_is() -> None:
    reference, metrics = policy(), Metrics()
    before = {name: value.clone() for name, value in reference.state_dict().items()}
    fit(module(reference=reference, objective=objective(kl_weight=0.1)), 2, metrics)
    assert metrics.steps[0]["train/objective/kl"] == pytest.approx(0.0, abs=1e-6)
    assert metrics.steps[1]["train/objective/kl"] > 1e-6
    assert_close(dict(reference.state_dict()), before, rtol=0, atol=0)


def test_step_credit_reaches_the_policy() -> None:
    """Random text holds no legal move; the chain from reward to update still runs, and is finite."""
    reward = OracleReward(outcome=VerifierReward(task=TASK), task=TASK, weight=0.5)
    metrics = Metrics()
    fit(module(reward=reward, advantage=Process(outcome=MeanCentred(), weight=1.0, epsilon=1e-6)), 1, metrics)
    assert {"train/reward/verifier", "train/reward/oracle", "train/reward/outcome"} <= metrics.steps[0].keys()
    assert metrics.steps[0]["train/verdict/unparsed"] + metrics.steps[0]["train/verdict/wrong"] == 1.0


def test_what_is_logged_and_where(tmp_path: Path) -> None:
    logger = RunFolderLogger(folder=tmp_path)
    fit(module(updates_per_rollout=2), 4, logger=logger, validate_every=2)
    logger.finalize("success")
    rows = [json.loads(line) for line in (tmp_path / "metrics.jsonl").read_text().splitlines()]
    steps: dict[str, list[int]] = {}
    for row in rows:
        steps.setdefault(row["name"], []).append(row["step"])
    for name in ("reward/digits", "objective/clip_fraction", "optimizer/learning_rate", "rollout/completion_tokens"):
        assert steps[f"train/{name}"] == [1, 2, 3, 4]
    names = ("accuracy", "accuracy_sampled", "pass_at_2")
    for name in (*[f"verifier/{name}" for name in names], "longproc/partial_accuracy", "verdict/unparsed"):
        assert steps[f"val/{name}"] == [2, 4]
    rates = [row["value"] for row in rows if row["name"] == "train/optimizer/learning_rate"]
    assert rates == pytest.approx([5e-4, 1e-3, 1e-3, 1e-3 * (1 - 1 / 98)])


def test_a_batch_without_rollouts_is_named() -> None:
    for step in (module().training_step, module().validation_step):
        with pytest.raises(RuntimeError, match="the batch holds no rollouts: add the RolloutGeneration callback"):
            step(ProblemBatch(TASK.problems("train")[:2]), 0)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"updates_per_rollout": 0}, "updates_per_rollout must be at least 1, got 0"),
        ({"microbatch_tokens": 0}, "microbatch_tokens must be at least 1, got 0"),
        ({"gradient_clip": 0.0}, r"gradient_clip must be positive \(or null\), got 0.0"),
    ],
)
def test_settings_are_checked(change: dict[str, Any], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        module(**change)


class FirstGroupOnly(Digits):
    """All rollouts of the other groups are worth the same."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = super().__call__(rollouts).outcome.clone()
        outcome[rollouts.group_size :] = 1.0
        return Credit(outcome=outcome, parts={"digits": outcome})


@pytest.mark.parametrize("aggregation", [TokenMean(), SeqMeanTokenMean()], ids=lambda part: type(part).__name__)
def test_groups_of_equals_are_left_out_and_change_no_gradient(
    aggregation: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    def gradient() -> Tensor:
        captured = Gradients()
        trained = module(
            policy=policy(torch.float64),
            reward=FirstGroupOnly(),
            objective=objective(aggregation=aggregation),
            gradient_clip=None,
        )
        fit(trained, 1, captured)
        return captured.updates[0]

    some = gradient()
    monkeypatch.setattr("lightning_modules.grpo.rows_that_teach", lambda a, reference: (a == a).any(dim=1))
    assert_close(some, gradient(), rtol=1e-9, atol=1e-15)


@pytest.mark.parametrize(
    ("advantages", "reference", "expected"),
    [
        ([[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], False, [False, True, True]),
        ([[0.0, 0.0], [0.0, 1.0], [-1.0, 0.0]], True, [True, True, True]),
        ([[0.0, 0.0], [0.0, 0.0]], False, [True, False]),
    ],
)
def test_rows_that_teach(advantages: list[list[float]], reference: bool, expected: list[bool]) -> None:
    assert rows_that_teach(torch.tensor(advantages), reference=reference).tolist() == expected
