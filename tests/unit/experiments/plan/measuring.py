"""Measures the memory of small models by torch's allocator, in a separate process:  python measuring.py CASES

The profile has every allocation and every release of the CPU allocator. So the largest sum of live bytes is the exact
peak, whatever else runs on the machine. Prints one JSON object per case.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Mapping
from typing import Any

import torch
from torch.profiler import ProfilerActivity, profile, record_function
from transformers import LlamaConfig, Qwen2Config
from transformers.models.llama import LlamaForCausalLM
from transformers.models.qwen2 import Qwen2ForCausalLM

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.load import LoRA, checkpoint_layers
from contrastive_reasoning.policies.tiny import train_tokenizer
from contrastive_reasoning.rollout.continuous import ContinuousDecode
from contrastive_reasoning.rollout.engine import Engine
from contrastive_reasoning.rollout.requests import CompletionNotifier, Completions, encode
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem
from lightning_modules.optim import AdamW
from tests.tiny_models import tiny_policy

MARK = "forward is over"


def policy_of(case: Mapping[str, Any]) -> CausalLMPolicy:
    torch.manual_seed(0)
    config, model = (Qwen2Config, Qwen2ForCausalLM) if case["kind"] == "qwen2" else (LlamaConfig, LlamaForCausalLM)
    built = model(config(**case["sizes"])).to(getattr(torch, case["weights"]))
    if case["checkpointing"]:
        checkpoint_layers(built)
    lora = LoRA(rank=case["rank"], alpha=1.0, dropout=0.0, target_modules="all-linear") if case["rank"] else None
    return tiny_policy(
        train_tokenizer(["1 2 3"], vocab_size=270),
        built if lora is None else lora.attach(built, seed=0),
        compute_dtype=getattr(torch, case["compute"]),
        chunk=case["chunk"],
    )


def allocated_bytes(call: Callable[[], object]) -> tuple[int, int]:
    """Returns the bytes allocated and not released since the start: at the mark (0 without one), and at the peak."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as profiler:
        call()
    events = sorted(profiler.profiler.kineto_results.events(), key=lambda event: event.start_ns())  # pyright: ignore
    alive = peak = marked = 0
    for event in events:
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
        elif event.name() == MARK:
            marked = alive
    return marked, peak


def size(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def rows(policy: CausalLMPolicy, case: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """Returns the arguments of ``completion_states`` for a micro-batch of the case."""
    vocabulary = policy.model.config.vocab_size
    prompt_ids = torch.randint(3, vocabulary, (case["prompts"], case["prompt"]))
    ids = torch.randint(3, vocabulary, (case["prompts"] * case["group"], case["completion"]))
    owner = torch.arange(len(ids)) // case["group"]
    return prompt_ids, torch.ones_like(prompt_ids).bool(), ids, torch.ones_like(ids).bool(), owner


def update(policy: CausalLMPolicy, case: Mapping[str, Any]) -> dict[str, int]:
    """Measures a micro-batch while gradients of an earlier one exist, and the states after an optimizer step."""
    batch = rows(policy, case)
    _, _, ids, mask, _ = batch

    def learn() -> None:
        states = policy.completion_states(*batch)
        with record_function(MARK):
            pass
        found = policy.score_states(states.predicting, ids, mask, 1.0)
        del states
        found.sum().backward()

    learn()
    adamw = AdamW(
        learning_rate=1e-3,
        betas=(0.9, 0.999),
        epsilon=1e-8,
        weight_decay=0.0,
        warmup_steps=0,
        schedule="constant",
        total_steps=None,
    )
    optimizer = adamw(policy.parameters())
    optimizer.step()
    kept, peak = allocated_bytes(learn)
    moments = [part for state in optimizer.state.values() for part in state.values() if part.ndim]
    return {
        "weights": size(policy.parameters()),
        "gradients": size(p.grad for p in policy.parameters() if p.grad is not None),
        "optimizer": size(moments),
        "kept": kept,
        "peak": peak,
    }


def loss(policy: CausalLMPolicy, case: Mapping[str, Any]) -> int:
    """Returns the peak of the log-probs alone, forward and backward."""
    weight, bias = policy.head
    tokens = case["prompts"] * case["group"] * case["completion"]
    targets = torch.randint(0, len(weight), (tokens,))
    hidden = torch.randn(tokens, weight.shape[1], dtype=weight.dtype).requires_grad_()

    def learn() -> None:
        with policy.autocast():
            found = policy.score(hidden, weight, targets, temperature=1.0, chunk=policy.chunk, bias=bias)
        found.sum().backward()

    return allocated_bytes(learn)[1]


def scoring(policy: CausalLMPolicy, case: Mapping[str, Any]) -> int:
    """Returns the peak of a frozen policy that scores the same rows, as a reference does."""
    policy.requires_grad_(False)
    prompt_ids, prompt_mask, ids, mask, owner = rows(policy, case)

    @torch.no_grad()
    def score() -> None:
        policy.log_probs(prompt_ids, prompt_mask, ids, mask, owner=owner)

    return allocated_bytes(score)[1]


def rollouts(policy: CausalLMPolicy, case: Mapping[str, Any]) -> dict[str, int]:
    """Measures keys and values once the first rows have joined, and the peak of the whole generation."""
    problems = [Problem(id=str(i), prompt="1" * case["prompt"], answer="", fields={}) for i in range(case["problems"])]
    sampling = Sampling(temperature=1.0, top_k=None, top_p=1.0, max_tokens=case["completion"], stop=())
    requests = encode(policy, problems, case["group"], sampling, None)
    completions = Completions(len(requests), case["completion"], policy.device)
    with torch.no_grad(), policy.autocast():
        decode = ContinuousDecode(
            policy,
            requests,
            completions,
            sampling,
            budget=case["max_batch_tokens"],
            pooled=False,
            notify=CompletionNotifier(completions, policy, None),
        )
        decode._join(None)
        assert decode.cache.shared is not None
        assert decode.cache.own is not None
        cache = size([decode.cache.shared, decode.cache.own])
    joined, width = len(decode.running), int(requests.prompt_mask.sum(1).max())
    del decode, completions
    engine = Engine(max_batch_tokens=case["max_batch_tokens"])
    _, peak = allocated_bytes(
        lambda: engine.generate(policy, problems, group_size=case["group"], sampling=sampling, seed=(0,))
    )
    return {"cache": cache, "peak": peak, "rows": joined, "prompt": width}


def measure(case: Mapping[str, Any]) -> dict[str, Any]:
    policy = policy_of(case)
    found: dict[str, Any] = {"shape": policy.model.config.to_dict()}
    if "rollouts" in case:
        return found | rollouts(policy, case)
    return found | update(policy, case) | {"loss": loss(policy, case), "scoring": scoring(policy, case)}


if __name__ == "__main__":
    for one in json.loads(sys.argv[1]):
        print(json.dumps(measure(one)), flush=True)
