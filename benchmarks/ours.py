"""Our own arm: the GRPO step of every experiment, in Lightning's loop. It waits for a request before each step.

The parts come from the configuration. Only the reward is replaced, and the batch is the same in every step.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import lightning as L
import torch
from hydra import compose

from benchmarks.arms import TRAINERS
from benchmarks.measures import AT_PEAK
from benchmarks.peers.conversation import Conversation, now, peak_memory, read_work, time_call
from benchmarks.roofline import COPIED, copy_bandwidth, decode_bytes, traffic_of
from benchmarks.workloads import SEED
from callbacks.cost import measured_peak
from contrastive_reasoning.policies.pass_cost import decoder_size, learning_flops
from contrastive_reasoning.rewards.base import Credit
from contrastive_reasoning.rollout.batch import RolloutBatch
from contrastive_reasoning.tasks.base import Problem
from datamodules.reasoning_prompts import ProblemBatch
from experiments.assemble import build
from experiments.schema import composing
from experiments.system.devices import keep_freed_memory
from experiments.system.terminal import be_quiet
from lightning_modules.microbatches import microbatches, score


class EveryOther:
    """Rewards every other completion with 1. So no advantage is zero, and every row is trained on."""

    def __call__(self, rollouts: RolloutBatch) -> Credit:
        outcome = (torch.arange(len(rollouts), device=rollouts.mask.device) % 2).to(rollouts.old_log_probs.dtype)
        return Credit(outcome=outcome, parts={"every_other": outcome})


def same_batch(work: dict[str, Any]) -> Iterator[ProblemBatch]:
    """Yields the same batch, the problems of the work, without end."""
    problems = [Problem(**problem) for problem in work["problems"]]
    while True:
        yield ProblemBatch(problems)


class BeforeStep(L.Callback):
    """Waits for the request for a step. It must precede the callback that samples the rollouts."""

    def __init__(self, conversation: Conversation, max_tokens: int, generation: Any) -> None:
        self.conversation = conversation
        self.generation = generation
        self.max_tokens = max_tokens
        """Token budget of a micro-batch, padding included."""
        self.start = 0.0
        self.rollouts: Any = None
        """Rollouts of the last step."""

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        direct = {
            "scoring": lambda: {"scoring": time_call(lambda: self._score(pl_module.policy))},
            "shared_prefix": lambda: prefix_passes(pl_module, self.rollouts),
            "decode_roofline": lambda: decoding(pl_module.policy, self.generation, self.rollouts),
        }
        self.conversation.until_step(direct)
        self.start = now()

    def _score(self, policy: Any) -> None:
        """Computes the log-probs of the last rollouts, as for old policies and references."""
        score(policy, self.rollouts, list(microbatches(self.rollouts, policy, max_tokens=self.max_tokens)))


class AfterRollouts(L.Callback):
    """Answers with the figures of the step. It must follow the callback that samples the rollouts."""

    def __init__(self, before: BeforeStep) -> None:
        self.before = before
        self.drawn = 0.0

    def on_train_batch_start(self, trainer: L.Trainer, pl_module: Any, batch: Any, batch_idx: int) -> None:
        self.drawn = now()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        end, start = now(), self.before.start
        self.before.rollouts = batch.rollouts
        pl_module.rollout_step = 0  # it seeds the rollouts, so every repeat samples the same completions
        policy = pl_module.policy
        flops = learning_flops(decoder_size(policy.model), pl_module.result.work)
        figures = {
            "generation": self.drawn - start,
            "update": end - self.drawn,
            "whole_step": end - start,
            "peak_memory": peak_memory(),
            AT_PEAK: flops / measured_peak(policy.device, policy.compute_dtype),
        }
        self.before.conversation.answer(figures, tokens_of(batch.rollouts))


def tokens_of(rollouts: RolloutBatch) -> dict[str, Any]:
    """Returns the token counts of the step. Prompts count once per completion, as in the peers."""
    lengths = rollouts.mask.sum(dim=1).tolist()
    prompt = int(rollouts.prompt_mask.sum()) * rollouts.group_size
    return {"prompt": prompt, "completion": sum(lengths), "lengths": lengths}


def prefix_passes(module: Any, rollouts: RolloutBatch) -> dict[str, float]:
    """Times forward and backward of all completions by group, with one shared prompt and with one prompt each."""
    shared, single = (time_call(lambda each=each: _passes(module, rollouts, each)) for each in (False, True))
    return {"shared_prefix": shared, "own_prefix": single}


def _passes(module: Any, rollouts: RolloutBatch, each_its_own: bool) -> None:
    size = rollouts.group_size
    for p in range(len(rollouts.problems)):
        rows = slice(p * size, (p + 1) * size)
        ids, mask = rollouts.prompt_ids[p : p + 1], rollouts.prompt_mask[p : p + 1]
        owner = torch.zeros(size, dtype=torch.long, device=ids.device)
        if each_its_own:
            ids, mask, owner = ids.expand(size, -1), mask.expand(size, -1), None
        completions = (rollouts.completion_ids[rows], rollouts.mask[rows])
        module.policy.log_probs(ids, mask, *completions, temperature=rollouts.temperature, owner=owner).sum().backward()
    module.policy.zero_grad()


def decoding(policy: Any, generation: Any, rollouts: RolloutBatch) -> dict[str, float] | str:
    """Times decoding without each row's first token, which the prefill gives, and computes the time to read its bytes.

    Returns a reason to skip the measure if decoding is too short.
    """

    def draw(sampling: Any) -> None:
        size = rollouts.group_size
        generation.engine.generate(policy, rollouts.problems, group_size=size, sampling=sampling, seed=SEED)

    first = time_call(lambda: draw(replace(generation.sampling, max_tokens=1)))
    whole = time_call(lambda: draw(generation.sampling))
    if whole <= first:
        return "decoding is too short to be measured"
    lengths = rollouts.mask.sum(dim=1).tolist()
    read = decode_bytes(traffic_of(policy), rollouts.prompt_mask.sum(dim=1).tolist(), lengths)
    return {"decode": whole - first, "roofline": read / copy_bandwidth(policy.device, size=COPIED[policy.device.type])}


def main() -> None:
    """Runs the laptop baseline with the policy and the sizes of this work. More overrides may follow as arguments."""
    conversation, work = Conversation(), read_work()
    be_quiet()
    overrides = {
        "experiment": "llama_baseline",
        "module": "grpo",  # no reference, as in the peers
        "objective.kl_weight": 0.0,
        "trainer": TRAINERS[work["device"]],
        "policy.pretrained": work["policy"],
        "policy.compute_dtype": work["compute_dtype"],
        "budget.grpo.group_size": work["group_size"],
        "budget.grpo.max_completion_tokens": work["max_tokens"],
        "budget.grpo.microbatch_tokens": work["microbatch_tokens"],
        "budget.grpo.learning_rate": work["learning_rate"],
        "rollout.engine.max_batch_tokens": work["batch_tokens"],
    }
    with composing():
        config = compose("config", [*(f"{key}={value}" for key, value in overrides.items()), *sys.argv[2:]])
    if config.keep_freed_memory:
        keep_freed_memory()
    module, generation, trainer = (build(config, key) for key in ("module", "rollout", "trainer"))
    module.reward = EveryOther()
    before = BeforeStep(conversation, config.budget.grpo.microbatch_tokens, generation)
    threads = str(torch.get_num_threads())
    conversation.ready(torch=torch.__version__, threads=threads, dtype=work["compute_dtype"])
    trainer(
        max_epochs=1,
        callbacks=[before, generation, AfterRollouts(before)],
        logger=False,
        enable_checkpointing=False,
        enable_progress_bar=False,
    ).fit(module, train_dataloaders=same_batch(work))


if __name__ == "__main__":
    main()
