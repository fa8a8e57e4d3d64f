"""The same short training by one process and by two, under every strategy, and what came of it as plain tensors."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from copy import deepcopy
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import torch
from lightning import Callback, LightningModule, Trainer
from lightning.pytorch.strategies import DDPStrategy
from torch import Tensor, nn
from torch.nn.utils import parameters_to_vector

from contrastive_reasoning.distributed import over_ranks, ranks, this_rank
from contrastive_reasoning.objectives import GRPO, K3, FullKL, TokenMean
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA
from contrastive_reasoning.policies.sharding import gathered
from contrastive_reasoning.policies.tiny import tiny_llama
from contrastive_reasoning.rewards import CLIPOReward, Credit, RampedCriticReward
from contrastive_reasoning.rollout.batch import RolloutBatch, RolloutTokens
from experiments.stages.stage_checkpoint import Interrupted, StageCheckpoint, StopRequest
from lightning_modules import grpo as grpo_module
from lightning_modules import microbatches
from lightning_modules.optim import FiniteSteps
from lightning_modules.zero import ZeroStrategy
from tests.quiet import quiet_trainer
from tests.unit.lightning_modules import grpo_kit, test_grpo_clipo, test_grpo_ramped_critic

Result = dict[str, Any]
STEPS = 3
WHOLE = 512
"""Numbers in the projections to keys and to values, and more than in norms."""


def strategy(name: str) -> Any:
    """``one``: a single process. At stage 3 nothing stays whole, however small; of ``…_small`` what has ``WHOLE``."""
    if name == "one":
        return "auto"
    if name == "ddp":
        return DDPStrategy()
    return ZeroStrategy(
        stage=int(name[4]),
        offload_optimizer="offload" in name,
        offload_parameters="offload" in name,
        bucket_elements=1_000_000,
        whole_elements=WHOLE if "small" in name else 0,
    )


def trainer(name: str, steps: int, callbacks: Sequence[Callback], **changes: Any) -> Trainer:
    return quiet_trainer(
        devices=1 if name == "one" else 2,
        strategy=strategy(name),
        limit_train_batches=steps,
        val_check_interval=steps,
        log_every_n_steps=1,
        inference_mode=False,
        use_distributed_sampler=False,
        callbacks=list(callbacks),
        **changes,
    )


def whole_weights(module: LightningModule) -> Tensor:
    with gathered(module):
        return torch.cat([parameter.detach().flatten().clone() for parameter in module.parameters()])


class Known(grpo_kit.Metrics):
    """The weights at first, what was logged in the steps, and by the validation after the last one."""

    def __init__(self) -> None:
        super().__init__()
        self.validated: dict[str, float] = {}

    def setup(self, trainer: Trainer, pl_module: LightningModule, stage: str) -> None:
        self.start = whole_weights(pl_module)

    def on_validation_end(self, trainer: Trainer, *_: Any) -> None:
        self.validated = {
            name: value.item() for name, value in trainer.callback_metrics.items() if name.startswith("val/")
        }


def result(module: LightningModule, known: Known) -> Result:
    without_clock = [{k: v for k, v in step.items() if "throughput" not in k} for step in known.steps]
    moved = whole_weights(module) - known.start
    return {"weights": whole_weights(module), "moved": moved, "steps": without_clock, "validated": known.validated}


def lora_policy(dtype: torch.dtype = torch.float32) -> CausalLMPolicy:
    """Adapters in fp32 on weights of ``dtype``, in which is also computed."""
    lora = LoRA(rank=2, alpha=4.0, dropout=0.0, target_modules="all-linear")
    model: Any = grpo_kit.policy().model.to(dtype)
    return CausalLMPolicy(
        model=lora.attach(model, seed=0), tokenizer=grpo_kit.TOKENIZER, compute_dtype=dtype, chat_template=False
    )


def grpo(
    name: str,
    *callbacks: Callback,
    steps: int = STEPS,
    resume: Path | None = None,
    level: str = "group",
    reward: Any = None,
    problems: int = 4,
    **changes: Any,
) -> Result:
    """Two updates on each of two mini-batches, of several micro-batches each; what the reward trains learns beside.

    Without a ``reward`` that is CLIPO's head.
    """
    reward, known = reward or test_grpo_clipo.clipo(level=level), Known()
    module = grpo_kit.module(
        reward=reward, microbatch_tokens=120, updates_per_rollout=2, minibatches_per_rollout=2, **changes
    )
    data = grpo_kit.prompts(problems, steps)
    parts = grpo_kit.saving_first([*callbacks, grpo_kit.generation(validation_samples=2), known])
    trainer(name, steps, parts).fit(module, datamodule=data, ckpt_path=resume, weights_only=True)
    return {**result(module, known), "head": parameters_to_vector(learner_of(reward).parameters()).detach().clone()}


def learner_of(reward: CLIPOReward | RampedCriticReward) -> nn.Module:
    """What it trains: a head, or a critic."""
    learner = reward.head if isinstance(reward, CLIPOReward) else reward.critic
    assert learner is not None
    return learner


def first_gradients(name: str, **changes: Any) -> Result:
    """That of the first update of all, which nothing has clipped: a common factor would be seen in it."""
    gradients = grpo_kit.Gradients()
    found = grpo(name, gradients, gradient_clip=1e9, **changes)
    return {**found, "gradient": gradients.updates[0]}


class Dtypes(Callback):
    """Of the frozen parameters and of the trained ones, after the last step."""

    def on_train_end(self, trainer: Trainer, pl_module: LightningModule) -> None:
        self.found = {
            kind: sorted({str(one.dtype) for one in pl_module.parameters() if one.requires_grad == trained})
            for kind, trained in (("frozen", False), ("trained", True))
        }


def adapters_on_bfloat16(name: str) -> Result:
    """One step: from the second on, rounding has drawn other completions."""
    dtypes = Dtypes()
    found = grpo(name, dtypes, policy=lora_policy(torch.bfloat16), steps=1)
    return {**found, "dtypes": dtypes.found}


class SpoiledOnLastRank(Callback):
    """The second step's loss is no number there, and on no other rank."""

    def setup(self, trainer: Trainer, pl_module: Any, stage: str) -> None:
        if this_rank() < ranks() - 1:
            return
        name = "training_step" if isinstance(pl_module, FiniteSteps) else "loss"
        sound = getattr(pl_module, name)

        def spoiled(*args: Any) -> Tensor:
            step = getattr(pl_module, "rollout_step", trainer.global_step)
            return sound(*args) * float("nan") if step == 1 else sound(*args)

        setattr(pl_module, name, spoiled)


class StatesSpoiledOnLastRank(CLIPOReward):
    """A pooled state of the second rollout batch is no number there, and on no other rank."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        assert rollouts.pooled is not None
        pooled = rollouts.pooled.clone()
        if self.calls == 1 and this_rank() == ranks() - 1:
            pooled[-1] = float("nan")
        return super().__call__(replace(rollouts, pooled=pooled))


def states_spoiled(name: str) -> Result:
    reward = test_grpo_clipo.clipo(max_skipped_steps=1)
    reward.__class__ = StatesSpoiledOnLastRank
    return grpo(name, reward=reward)


def ramped_critic(name: str) -> Result:
    return grpo(name, reward=test_grpo_ramped_critic.reward())


class Finite(Callback):
    """Whether the weights are numbers, after each step."""

    def __init__(self) -> None:
        self.found: list[bool] = []

    def on_train_batch_end(self, trainer: Trainer, pl_module: LightningModule, *_: Any) -> None:
        self.found.append(bool(whole_weights(pl_module).isfinite().all()))


def spoiled_in_bfloat16(name: str) -> Result:
    """All weights are trained, in half precision, of which optimizers in shards make a case of its own."""
    model: Any = grpo_kit.policy().model.to(torch.bfloat16)
    half = CausalLMPolicy(model=model, tokenizer=grpo_kit.TOKENIZER, compute_dtype=torch.bfloat16, chat_template=False)
    finite = Finite()
    return {**grpo(name, SpoiledOnLastRank(), finite, policy=half), "finite": finite.found}


def means_of_unequal_ranks() -> dict[str, float]:
    """Rank 0 has one thing, worth 1; the other eight, worth nothing."""
    value, count = (1.0, 1.0) if this_rank() == 0 else (0.0, 8.0)
    return over_ranks({"of things": value, "of ranks": value}, counts={"of things": count})


class AskedOnLastRank(Callback):
    """A signal that reaches the last rank alone, while the first step runs."""

    def __init__(self, stop: StopRequest) -> None:
        self.stop = stop

    def on_train_batch_end(self, trainer: Trainer, *_: Any) -> None:
        if trainer.global_rank == trainer.world_size - 1:
            self.stop.asked = "SIGTERM"


def saving(folder: Path, stop: StopRequest | None = None) -> StageCheckpoint:
    """After every step."""
    return StageCheckpoint(folder=folder, every=1, keep=9, best=None, stop=stop or StopRequest())


class SlowOnLastRank(StageCheckpoint):
    """A signal reaches the last rank alone, while it writes."""

    def save(self, trainer: Trainer, *arguments: Any) -> None:
        super().save(trainer, *arguments)
        AskedOnLastRank(self.stop).on_train_batch_end(trainer)


def stopped_while_saving(name: str, folder: Path) -> list[str]:
    """The checkpoints that are left, of a run that saves after every second step."""
    stopping = SlowOnLastRank(folder=folder, every=2, keep=9, best=None, stop=StopRequest())
    with pytest.raises(Interrupted, match="step 2"):
        grpo(name, stopping)
    return sorted(path.name for path in folder.glob("step=*.ckpt"))


def resumed(name: str, folder: Path, begun: Callable[..., Result], gone_on: Callable[..., Result]) -> Result:
    """``begun`` stopped after one step, and its checkpoint taken up by ``gone_on``, whose weights are others."""
    stop = StopRequest()
    with pytest.raises(Interrupted, match="step 1"):
        begun(name, saving(folder, stop), AskedOnLastRank(stop))
    return gone_on(name, saving(folder), resume=folder / "step=000001.ckpt")


def adapters_on_bfloat16_resumed(name: str, folder: Path) -> dict[str, Result]:
    def run(*args: Any, **changes: Any) -> Result:
        return grpo(*args, policy=lora_policy(torch.bfloat16), **changes)

    return {"whole": run(name), "resumed": resumed(name, folder, run, run)}


def grpo_resumed(name: str, folder: Path) -> Result:
    return resumed(name, folder, grpo, partial(grpo, policy=grpo_kit.policy(seed=9)))


GROUP = 2
PROMPTS = [[2, 3, 1, 4], [5, 1, 2, 6]]
"""Of each rank's problems, in tokens."""
COMPLETIONS = [[4, 3, 9, 9, 2, 1, 7, 8], [1, 1, 2, 1, 1, 2, 3, 1]]
TAUGHT = [[True, False, True, True, False, False, True, True], [True, True, False, False, True, True, True, True]]


def drawn(rank: int) -> tuple[RolloutTokens, Tensor, Tensor]:
    """What a rank drew, as wide as its longest: rollouts, advantages, rows that teach. Ids name rank, row and place."""
    prompts, lengths = torch.tensor(PROMPTS[rank]), torch.tensor(COMPLETIONS[rank])
    width = int(prompts.max())
    mask = torch.arange(int(lengths.max())) < lengths[:, None]
    prompt_mask = torch.arange(width) >= width - prompts[:, None]
    ids = (1000 * (rank + 1) + 100 * torch.arange(len(lengths))[:, None] + torch.arange(mask.shape[1])) * mask
    rollouts = RolloutTokens(
        prompt_ids=(10_000 * (rank + 1) + 100 * torch.arange(len(prompts))[:, None] + torch.arange(width))
        * prompt_mask,
        prompt_mask=prompt_mask,
        completion_ids=ids,
        mask=mask,
        old_log_probs=-ids.float(),
        temperature=0.5,
        group_size=GROUP,
    )
    taught = torch.tensor(TAUGHT[rank])
    return rollouts, (ids * taught[:, None]).float() / 2, taught


def plain(rollouts: RolloutTokens, advantages: Tensor) -> list[Any]:
    """Every group's prompt and, row by row, completion, log-probs and advantages, without padding."""
    groups = []
    for place, (ids, mask) in enumerate(zip(rollouts.prompt_ids, rollouts.prompt_mask, strict=True)):
        rows = range(place * GROUP, (place + 1) * GROUP)
        parts = (rollouts.completion_ids, rollouts.old_log_probs, advantages)
        groups.append(
            [ids[mask].tolist(), [[part[row][rollouts.mask[row]].tolist() for part in parts] for row in rows]]
        )
    return groups


def exchanged(policy: CausalLMPolicy, minibatches: int) -> Result:
    """What this rank had and has, and the tokens of its groups in the policy."""
    rollouts, advantages, taught = drawn(this_rank())
    moved, theirs = microbatches.balance_groups(
        rollouts, advantages, trained=taught, policy=policy, minibatches=minibatches
    )
    now = (theirs != 0).any(dim=1)
    return {
        "before": plain(rollouts, advantages),
        "after": plain(moved, theirs),
        "tokens before": list(microbatches.group_tokens(rollouts, taught, policy)),
        "tokens": list(microbatches.group_tokens(moved, now, policy)),
        "temperature": moved.temperature,
    }


def balances() -> Result:
    return {f"{count} mini-batches": exchanged(grpo_kit.policy(), count) for count in (1, 2)}


def moving(name: str) -> Result:
    """GRPO with three groups of each rank in a mini-batch, some of which teach nothing; how often groups moved."""
    moves = []

    def seen(rollouts: Any, *args: Any, **named: Any) -> Any:
        found = microbatches.balance_groups(rollouts, *args, **named)
        moves.append(found[0] is not rollouts)
        return found

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(grpo_module, "balance_groups", seen)
        return {**grpo(name, problems=12, steps=2), "moves": sum(moves)}


def untied(seed: int) -> CausalLMPolicy:
    """As the kit's own policy, but ``lm_head.weight``, which is read outside its module's forward, is no embedding."""
    tied = tiny_llama(grpo_kit.TOKENIZER, hidden_size=32)
    config = deepcopy(tied.config)
    config.tie_word_embeddings = False
    kind: Any = type(tied)
    model = grpo_kit.spread(kind(config), seed)
    assert model.lm_head.weight is not model.model.embed_tokens.weight
    return CausalLMPolicy(
        model=model, tokenizer=grpo_kit.TOKENIZER, compute_dtype=torch.float32, chat_template=False, chunk=16
    )


def objective(kl: K3 | FullKL) -> GRPO:
    """No ratio reaches these bounds: at one that does, rounding decides whether a token has a gradient."""
    return GRPO(clip_low=0.9, clip_high=9.0, dual_clip=None, kl_weight=0.1, kl=kl, aggregation=TokenMean())


def with_reference(name: str, kl: K3 | FullKL, *callbacks: Callback, **changes: Any) -> Result:
    trained: dict[str, Any] = {"policy": untied(seed=1), "reference": untied(seed=2), "objective": objective(kl)}
    return grpo(name, *callbacks, steps=2, **trained, **changes)


def kl(name: str, *callbacks: Callback, level: str, shard: bool = False) -> Result:
    """An estimate from the sampled tokens; the reference waits beside, or lies in shards."""
    kind = K3(max_log_ratio=20.0, max_value=10.0)
    return with_reference(name, kind, *callbacks, level=level, offload_reference=not shard, shard_reference=shard)


def full_kl(name: str, *, level: str) -> Result:
    """Over the whole vocabulary: both projections are read twice, and again in backward."""
    return with_reference(name, FullKL(), level=level, shard_reference=True)
