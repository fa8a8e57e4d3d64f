"""The moments of a stage at which memory can be fullest, each with its parts in bytes on one device.

    rollout    the policy, its optimizer, keys and values, logits
    scoring    the policy, its optimizer, the reference's pass
    forward    gradients of earlier micro-batches, what is kept so far, copies of weights
    loss       the same, all that is kept, and the chunks of logits
    backward   the same, all that is kept, and one layer's own work

What lies on the device all the while (weights, optimizer, a reference that stays) is in every one of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from contrastive_reasoning.policies.pass_cost import Lengths
from experiments.plan.activations import activations, reading
from experiments.plan.cache import Seating, cache_bytes, decoder_copies, drawing_bytes
from experiments.plan.learner import Learner
from experiments.plan.loss import loss_workspace, scoring_workspace
from experiments.plan.sharding import Sharding
from experiments.plan.states import states

CONTEXT = int(0.8 * 2**30)
"""Of a GPU, before any tensor: the CUDA context and the libraries' workspaces, 0.5 to 1 GiB on recent cards."""
SLACK = 0.05
"""Of tensors, what the caching allocator holds and cannot use: blocks of other sizes than those asked for."""

Parts = Mapping[str, int]


@dataclass(frozen=True, kw_only=True)
class Moment:
    """Raises no error; parts of 0 bytes are left out when it is shown."""

    stage: str
    name: str
    parts: Parts

    @property
    def tensors(self) -> int:
        return sum(self.parts.values())

    def total(self, *, on_cpu: bool) -> int:
        """Tensors and what a GPU takes besides."""
        return self.tensors if on_cpu else int(self.tensors * (1 + SLACK)) + CONTEXT


@dataclass(frozen=True, kw_only=True)
class Companions:
    """What lies beside the policy while GRPO learns, in bytes."""

    reference: Learner | None
    offloaded: bool
    """Whether the reference is on the device only while it scores."""
    full_kl: bool
    """Whether it is asked in every update too."""
    critic: int
    head: int
    server: int
    """Of a vLLM server on the same card; 0: there is none."""
    server_sleeps: bool


def update_moments(stage: str, learner: Learner, lengths: Lengths, sharding: Sharding, beside: Parts) -> list[Moment]:
    """Of learning from a micro-batch, when an earlier one has left its gradients."""
    own, kept = states(learner, sharding), activations(learner, lengths)
    standing = {
        "weights": own.weights,
        "optimizer": own.optimizer,
        "gradients": own.gradients,
        "gathered": own.gathered,
        "exchange": own.exchange,
        **beside,
        "activations": kept.kept,
    }
    loss = loss_workspace(learner, sum(lengths.completions))
    return [
        Moment(stage=stage, name="forward", parts={**standing, "passing": kept.forward}),
        Moment(stage=stage, name="loss", parts={**standing, "loss": loss}),
        Moment(stage=stage, name="backward", parts={**standing, "passing": kept.backward}),
    ]


def rollout_moment(stage: str, learner: Learner, seats: Seating | None, sharding: Sharding, beside: Parts) -> Moment:
    """Of drawing completions; without seats a server elsewhere draws them."""
    own = states(learner, sharding)
    drawn: dict[str, int] = {}
    if seats is not None:
        drawn = {
            "gathered": own.all_gathered,
            "cache": cache_bytes(learner, seats),
            "logits": drawing_bytes(learner, seats),
            "weight copies": decoder_copies(learner),
        }
    standing = {"weights": own.weights, "optimizer": own.optimizer, "exchange": own.exchange, **beside}
    return Moment(stage=stage, name="rollout", parts=standing | drawn)


def grpo_moments(
    learner: Learner, lengths: Lengths, seats: Seating | None, sharding: Sharding, others: Companions
) -> list[Moment]:
    """All of a GRPO step."""
    held = 0 if others.reference is None else others.reference.weights_in_bytes
    always = 0 if others.offloaded else held
    awake = 0 if others.server_sleeps else others.server
    beside = {"reference": always, "critic": others.critic, "head": others.head, "server": awake}
    moments = [rollout_moment("grpo", learner, seats, sharding, {**beside, "server": others.server})]
    if others.reference is not None:
        own = states(learner, sharding)
        scored = sum(lengths.completions)
        standing = {"weights": own.weights, "optimizer": own.optimizer, "exchange": own.exchange}
        passing, left = reading(others.reference, lengths)
        work = max(passing, left + scoring_workspace(others.reference, scored))
        parts = {**standing, **beside, "reference": held, "passing": work}
        moments.append(Moment(stage="grpo", name="scoring", parts=parts))
    in_update = held if others.full_kl else always
    return moments + update_moments("grpo", learner, lengths, sharding, {**beside, "reference": in_update})
