"""What small models really take, by torch's own allocator, in a process of its own:  python measuring.py CASES

Every allocation and every release of the CPU allocator is in a profile, so the largest sum of what is alive is the
peak, to the byte, whatever else the machine does. Prints one JSON object per case.
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
from contrastive_reasoning.rollout.engine import ContinuousDecode, Engine
from contrastive_reasoning.rollout.requests import CompletionNotifier, Completions, encode
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.tasks.base import Problem
from lightning_modules.optim import AdamW

MARK = "forward is over"


def policy_of(case: Mapping[str, Any]) -> CausalLMPolicy:
    torch.manual_seed(0)
    config, model = (Qwen2Config, Qwen2ForCausalLM) if case["kind"] == "qwen2" else (LlamaConfig, LlamaForCausalLM)
    made = model(config(**case["sizes"])).to(getattr(torch, case["weights"]))
    if case["checkpointing"]:
        checkpoint_layers(made)
    lora = LoRA(rank=case["rank"], alpha=1.0, dropout=0.0, target_modules="all-linear") if case["rank"] else None
    return CausalLMPolicy(
        model=made if lora is None else lora.attach(made, seed=0),
        tokenizer=train_tokenizer(["1 2 3"], vocab_size=270),
        compute_dtype=getattr(torch, case["compute"]),
        chat_template=False,
        chunk=case["chunk"],
    )


def ledger(act: Callable[[], object]) -> tuple[int, int]:
    """Bytes alive above those before: when the mark is passed (0 without one), and at most."""
    with profile(activities=[ProfilerActivity.CPU], profile_memory=True) as seen:
        act()
    found = sorted(seen.profiler.kineto_results.events(), key=lambda event: event.start_ns())  # pyright: ignore
    alive = peak = marked = 0
    for event in found:
        if event.name() == "[memory]":
            alive += event.nbytes()
            peak = max(peak, alive)
        elif event.name() == MARK:
            marked = alive
    return marked, peak


def size(tensors: Any) -> int:
    return sum(tensor.numel() * tensor.element_size() for tensor in tensors)


def rows(policy: CausalLMPolicy, case: Mapping[str, Any]) -> tuple[torch.Tensor, ...]:
    """The arguments of ``completion_states`` for a micro-batch of the case."""
    vocabulary = policy.model.config.vocab_size
    prompt_ids = torch.randint(3, vocabulary, (case["prompts"], case["prompt"]))
    ids = torch.randint(3, vocabulary, (case["prompts"] * case["group"], case["completion"]))
    owner = torch.arange(len(ids)) // case["group"]
    return prompt_ids, torch.ones_like(prompt_ids).bool(), ids, torch.ones_like(ids).bool(), owner


def update(policy: CausalLMPolicy, case: Mapping[str, Any]) -> dict[str, int]:
    """A micro-batch when another one has left its gradients, and the states after an optimizer's step."""
    batch = rows(policy, case)
    _, _, ids, mask, _ = batch

    def learn() -> None:
        states = policy.completion_states(*batch)
        with record_function(MARK):
            pass
        found = policy._log_probs(states, ids, mask, 1.0)
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
    kept, peak = ledger(learn)
    moments = [part for state in optimizer.state.values() for part in state.values() if part.ndim]
    return {
        "weights": size(policy.parameters()),
        "gradients": size(p.grad for p in policy.parameters() if p.grad is not None),
        "optimizer": size(moments),
        "kept": kept,
        "peak": peak,
    }


def loss(policy: CausalLMPolicy, case: Mapping[str, Any]) -> int:
    """The peak of the log-probs alone, forward and backward."""
    weight, bias = policy.head
    tokens = case["prompts"] * case["group"] * case["completion"]
    targets = torch.randint(0, len(weight), (tokens,))
    hidden = torch.randn(tokens, weight.shape[1], dtype=weight.dtype).requires_grad_()

    def learn() -> None:
        with policy.autocast():
            found = policy.score(hidden, weight, targets, temperature=1.0, chunk=policy.chunk, bias=bias)
        found.sum().backward()

    return ledger(learn)[1]


def scoring(policy: CausalLMPolicy, case: Mapping[str, Any]) -> int:
    """The peak of a frozen policy that reads the same rows, as a reference does."""
    policy.requires_grad_(False)
    prompt_ids, prompt_mask, ids, mask, owner = rows(policy, case)

    @torch.no_grad()
    def score() -> None:
        policy.log_probs(prompt_ids, prompt_mask, ids, mask, owner=owner)

    return ledger(score)[1]


def rollouts(policy: CausalLMPolicy, case: Mapping[str, Any]) -> dict[str, int]:
    """Keys and values when the first rows have sat down, and the peak of all of it."""
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
    seated, width = len(decode.running), int(requests.prompt_mask.sum(1).max())
    del decode, completions
    engine = Engine(max_batch_tokens=case["max_batch_tokens"])
    _, peak = ledger(lambda: engine.generate(policy, problems, group_size=case["group"], sampling=sampling, seed=(0,)))
    return {"cache": cache, "peak": peak, "rows": seated, "prompt": width}


def measured(case: Mapping[str, Any]) -> dict[str, Any]:
    policy = policy_of(case)
    found: dict[str, Any] = {"shape": policy.model.config.to_dict()}
    if "rollouts" in case:
        return found | rollouts(policy, case)
    return found | update(policy, case) | {"loss": loss(policy, case), "scoring": scoring(policy, case)}


if __name__ == "__main__":
    for one in json.loads(sys.argv[1]):
        print(json.dumps(measured(one)), flush=True)
