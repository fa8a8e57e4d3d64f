"""The goal-conditioned reward model, trained on verified completions with a tiny Llama under the real Trainer."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import lightning as L
import pytest
import torch
from torch.testing import assert_close

from contrastive_reasoning.critics import FullTraining, NumericV2, PreferenceCritic, load_critic_weights, save_critic
from contrastive_reasoning.critics.base import Critic
from contrastive_reasoning.critics.encoder import TextEncoder
from contrastive_reasoning.losses import cosine, dot
from contrastive_reasoning.policies.pooling import last_pool
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.tasks.base import Split, Step
from contrastive_reasoning.tasks.countdown.generator import ProblemSpace
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from datamodules.preference_pairs import PreferencePair, PreferencePairs
from lightning_modules.preference import PreferencePretraining
from tests.quiet import quiet_trainer
from tests.tiny_models import tiny_llama
from tests.tiny_tasks import countdown
from tests.unit.lightning_modules.automatic_kit import assert_resumes_with_dropout
from tests.unit.lightning_modules.grpo_kit import optimizer

SPACE = {"counts": [3], "number_range": [1, 9], "target_range": [1, 9]}
STEPS = 40


def encoder() -> TextEncoder:
    tokenizer = train_tokenizer(["Numbers: [21, 16], target: 37\n21+16=37;4*5-1/2"], vocab_size=280)
    tokenizer.padding_side = "right"
    backbone: Any = tiny_llama(tokenizer, hidden_size=32, layers=1).model
    FullTraining()(backbone)
    return TextEncoder(backbone=backbone, tokenizer=tokenizer, width=32)


def critic() -> PreferenceCritic:
    return PreferenceCritic(encoder=encoder(), pooling=last_pool, max_length=96, seed=0)


class ByHeart(PreferencePairs):
    """The same 16 pairs in every batch of every split."""

    def pairs(self, number: int, *, split: Split) -> list[PreferencePair]:
        return super().pairs(0, split="train")


def pairs(kind: type[PreferencePairs] = PreferencePairs) -> PreferencePairs:
    task = countdown(train_problems=0, validation_problems=0, test_problems=0, **SPACE)
    space = ProblemSpace(max_search_lines=None, **SPACE)
    return kind(task=task, space=space, batch_size=16, validation_batches=2, workers=0, seed=0)


def module(trained: PreferenceCritic | None = None, **changes: Any) -> PreferencePretraining:
    adamw = optimizer(3e-3, betas=(0.9, 0.999), warmup_steps=5, schedule="cosine", total_steps=STEPS)
    settings = {"contrast_weight": 0.5, "goal_batches": 2, "seed": 0, "gradient_clip": None, "max_skipped_steps": 0}
    return PreferencePretraining(critic=trained or critic(), optimizer=adamw, **(settings | changes))


def trainer(folder: Path, steps: int = STEPS) -> L.Trainer:
    return quiet_trainer(max_steps=steps, val_check_interval=steps, log_every_n_steps=1, default_root_dir=folder)


def test_critic_learns_and_rewards_steps_towards_goal(tmp_path: Path) -> None:
    trained, fit = critic(), trainer(tmp_path)
    fit.fit(module(trained), datamodule=pairs(ByHeart))
    assert fit.callback_metrics["val/critic/preference_accuracy"] > 0.9
    assert fit.callback_metrics["val/critic/categorical_accuracy"] > 0.9
    assert isinstance(trained, Critic)

    problem, completion = CountdownProblem((4, 5, 1), 8, style="direct"), "5+4=9;9-1=8"
    steps = [Step(start=0, end=5, state=(9, 1), legal=True), Step(start=6, end=11, state=(8,), legal=True)]
    state_actions, goals = trained.encode_steps(problem, completion, steps)
    texts = [problem.prompt + completion[:end] for end in (0, 5, 11)]
    near = [cosine(trained.embed(trained.tokenize([text])), trained.goal[None]).item() for text in texts]
    with torch.no_grad():
        values = trained.pairs(state_actions, goals)
        assert_close(values, torch.tensor([near[1] - near[0], near[2] - near[1]]), rtol=1e-3, atol=1e-5)
        assert_close(trained(state_actions, goals).diagonal(), values)

    save_critic(trained, tmp_path / "critic", {})
    loaded = critic()
    load_critic_weights(loaded, tmp_path / "critic")
    assert_close(loaded.goal, trained.goal)
    assert_close(loaded.pairs(state_actions, goals), values)


def test_goal_is_mean_embedding_of_training_successes(tmp_path: Path) -> None:
    trained, data, fit = critic(), pairs(), trainer(tmp_path, steps=2)
    fit.fit(module(trained), datamodule=data)
    assert 0 <= fit.callback_metrics["val/critic/preference_accuracy"] <= 1
    expected = torch.cat([trained.embed(data.batch(number).chosen) for number in (0, 1)]).mean(dim=0)
    assert_close(trained.goal, expected)


def test_fit_resumed_after_last_step_sets_goal(tmp_path: Path) -> None:
    done, again = critic(), critic()
    first = trainer(tmp_path, steps=2)
    first.fit(module(done), datamodule=pairs())
    first.save_checkpoint(tmp_path / "last.ckpt")
    again.set_goal([again.tokenize(["1+2=3"])])
    trainer(tmp_path, steps=2).fit(
        module(again), datamodule=pairs(), ckpt_path=tmp_path / "last.ckpt", weights_only=True
    )
    assert torch.equal(again.goal, done.goal)


def test_resume_with_dropout_is_bitwise_equal(tmp_path: Path) -> None:
    assert_resumes_with_dropout(module, lambda: {"datamodule": pairs()}, tmp_path)


def test_critic_without_goal_raises() -> None:
    step = Step(start=0, end=1, state=(1,), legal=True)
    with pytest.raises(ValueError, match="goal"):
        critic().encode_steps(CountdownProblem((1, 2), 3, style="direct"), "1", [step])
    with pytest.raises(ValueError, match="successful"):
        critic().set_goal([])


@pytest.mark.parametrize(("name", "value"), [("contrast_weight", -1.0), ("goal_batches", 0)])
def test_invalid_settings_raise(name: str, value: float) -> None:
    with pytest.raises(ValueError, match=f"{name}.*{value}"):
        module(**{name: value})


def test_preference_pairs_without_text_critic_raise() -> None:
    class Silent(L.LightningModule):
        critic = NumericV2(digit_dimension=1, hidden_dimension=1, hidden_layers=0, dimension=1, similarity=dot, seed=0)

    data = pairs()
    data.trainer = quiet_trainer()
    data.trainer.strategy._lightning_module = Silent()
    with pytest.raises(ValueError, match="NumericV2"):
        data.setup()
