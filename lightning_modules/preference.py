"""Training of a goal-conditioned reward model on preference pairs:  L = L_R + λ L_C, arXiv:2407.13887."""

from __future__ import annotations

from torch import Tensor

from contrastive_reasoning.critics import PreferenceBatch, PreferenceCritic, rows_of, take
from contrastive_reasoning.distributed import all_rows, own_rows
from contrastive_reasoning.losses import cosine, goal_contrast, of_pairs, preference_loss
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.ranges import at_least
from lightning_modules.optim import AdamW, FiniteSteps, nan_unless_finite


class PreferencePretraining(FiniteSteps):
    """Trains ``critic`` by automatic optimization; sets its goal after the last step.

    The other arguments are those of ``FiniteSteps``.

    Args:
        critic: the reward model; the only part that is trained.
        contrast_weight: λ ≥ 0.
        goal_batches: batches of successful completions that form the goal, from the data module's ``successes``.

    Raises:
        ValueError: if ``contrast_weight`` is negative or ``goal_batches`` is below 1.
    """

    def __init__(
        self,
        *,
        critic: PreferenceCritic,
        optimizer: AdamW,
        contrast_weight: float,
        goal_batches: int,
        seed: int,
        gradient_clip: float | None,
        max_skipped_steps: int,
    ) -> None:
        super().__init__(
            optimizer=optimizer, seed=seed, gradient_clip=gradient_clip, max_skipped_steps=max_skipped_steps
        )
        at_least(0, contrast_weight=contrast_weight)
        at_least(1, goal_batches=goal_batches)
        self.critic = critic
        self.contrast_weight = contrast_weight
        self.goal_batches = goal_batches

    def training_step(self, batch: PreferenceBatch, batch_idx: int) -> Tensor:
        with self.dropout("critic dropout"):
            loss, metrics = self._loss_and_metrics(batch)
        if loss.isfinite():
            self._log("train", metrics, batch)
        return nan_unless_finite(loss)

    def validation_step(self, batch: PreferenceBatch, batch_idx: int) -> None:
        with gathered(self.critic):
            self._log("val", self._loss_and_metrics(batch)[1], batch)

    def on_fit_end(self) -> None:
        """Sets the goal: the mean embedding of successful trajectories under the trained weights.

        This is not in ``on_train_end``, which is skipped if a fit resumes from the checkpoint of its last step.
        """
        self.to(self.trainer.strategy.root_device)  # Lightning leaves the trained module on the CPU
        self.critic.eval()
        successes = self.trainer.datamodule.successes(self.goal_batches)  # pyright: ignore[reportAttributeAccessIssue]
        on_device = ({name: part.to(self.device) for name, part in tokens.items()} for tokens in successes)
        with gathered(self.critic):
            self.critic.set_goal(on_device)

    def _loss_and_metrics(self, batch: PreferenceBatch) -> tuple[Tensor, dict[str, Tensor]]:
        parts, pairs = (batch.chosen, batch.rejected, batch.prefix), rows_of(batch.chosen)
        own = own_rows(pairs).to(self.device)
        chosen, rejected, prefix = (all_rows(self.critic.embed(take(part, own)), pairs) for part in parts)
        good, bad = self.critic.reward(chosen), self.critic.reward(rejected)
        reached, missed = of_pairs(cosine, prefix, chosen), of_pairs(cosine, prefix, rejected)
        preference, contrast = preference_loss(good, bad).mean(), goal_contrast(reached, missed).mean()
        loss = preference + self.contrast_weight * contrast
        return loss, {
            "loss": loss.detach(),
            "preference_loss": preference.detach(),
            "contrast_loss": contrast.detach(),
            "preference_accuracy": (good > bad).float().mean(),
            "categorical_accuracy": (reached > missed).float().mean(),
        }

    def _log(self, split: str, metrics: dict[str, Tensor], batch: PreferenceBatch) -> None:
        named = {f"{split}/critic/{name}": value for name, value in metrics.items()}
        self.log_dict(named, batch_size=rows_of(batch.chosen))
