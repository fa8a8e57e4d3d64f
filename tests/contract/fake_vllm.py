"""A fake vLLM server, built from our worker extension and our own engine."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http import HTTPStatus
from types import SimpleNamespace
from typing import Any
from urllib.parse import parse_qs, urlsplit

import torch
from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout import Engine, RolloutBatch, Sampling
from contrastive_reasoning.rollout.vllm_server.weight_sync import WeightSync
from contrastive_reasoning.tasks.base import Problem
from tests.contract.recording import Answer


class TokenIn(CausalLMPolicy):
    """A policy whose prompts are JSON lists of token ids."""

    def prompt_ids(self, prompt: str) -> list[int]:
        return json.loads(prompt)


class FakeWorker(WeightSync):
    """The parts of vLLM's worker that the extension uses, with the model of one of our policies."""

    def __init__(self, policy: TokenIn, *, logprobs_mode: str) -> None:
        self.policy, self.device = policy, policy.device
        head = self.get_model().lm_head
        head.cpu_linear = head.forward
        head.quant_method = SimpleNamespace(process_weights_after_loading=self._pack)
        self._pack(head)
        model = SimpleNamespace(
            logprobs_mode=logprobs_mode, hf_text_config=policy.model.config, max_model_len=policy.max_length
        )
        self.vllm_config = SimpleNamespace(model_config=model)

    def get_model(self) -> Any:
        return self.policy.model

    def _pack(self, head: Any) -> None:
        """The head is tied to the embeddings, but multiplies by a packed copy of them."""
        head.weight = torch.nn.Parameter(self.get_model().get_input_embeddings().weight.detach().clone())

    def reload_weights(self, *, weights_iterator: Iterator[tuple[str, Tensor]]) -> None:
        """Keeps weights that the iterator lacks. Raises ValueError for a tensor that the model does not have."""
        _, unexpected = self.policy.model.load_state_dict(dict(weights_iterator), strict=False)
        if unexpected:
            raise ValueError(f"There is no module or parameter named '{unexpected[0]}'")


@dataclass
class FakeVLLM:
    """The endpoints of ``vllm serve`` that we use, with its request and response formats."""

    worker: FakeWorker
    closeness: float = 1e-5
    lock: threading.Lock = field(default_factory=threading.Lock)

    def answer(self, path: str, body: dict[str, Any]) -> Answer:
        place, query = urlsplit(path).path, parse_qs(urlsplit(path).query)
        with self.lock:  # one forward pass at a time, because the engine switches the model's mode
            if place == "/v1/completions":
                refused = refusal(body)
                return (HTTPStatus.BAD_REQUEST, refused) if refused else (HTTPStatus.OK, self.complete(body))
            if place == "/collective_rpc":
                return self.call(body["method"], body["args"])
        known = {
            "/reset_prefix_cache": {"success": True},
            "/sleep": {"status": "sleeping", "level": int(query.get("level", ["1"])[0])},
            "/wake_up": {"status": "awake", "tags": query.get("tags")},
        }
        if place in known:
            return HTTPStatus.OK, known[place]
        return HTTPStatus.NOT_FOUND, {"detail": "Not Found"}

    def call(self, method: str, arguments: list[str]) -> Answer:
        try:
            return HTTPStatus.OK, {"results": [getattr(self.worker, method)(*arguments)]}
        except Exception as error:
            return HTTPStatus.INTERNAL_SERVER_ERROR, {"error": {"message": str(error), "code": 500}}

    def complete(self, body: dict[str, Any]) -> dict[str, Any]:
        sampling = Sampling(
            temperature=body["temperature"],
            top_k=body["top_k"] or None,
            top_p=body["top_p"],
            max_tokens=body["max_tokens"],
            stop=body["stop"],
        )
        problem = Problem(id="request", prompt=json.dumps(body["prompt"]), answer="")
        engine = Engine(max_batch_tokens=10_000)
        rollouts = engine.generate(
            self.worker.policy, [problem], group_size=body["n"], sampling=sampling, seed=(body["seed"],)
        )
        log_probs = self.recorded(rollouts)
        choices = []
        for row, reason in enumerate(rollouts.finish_reasons):
            ids = rollouts.completion_ids[row][rollouts.mask[row]].tolist()
            choices.append(
                {
                    "index": row,
                    "text": rollouts.texts[row].encode("utf-8", "replace").decode(),
                    "logprobs": {"token_logprobs": log_probs[row][: len(ids)].tolist(), "tokens": ["?"] * len(ids)},
                    "finish_reason": reason,
                    "prompt_token_ids": body["prompt"],
                    "token_ids": ids,
                }
            )
        return {"id": "cmpl-0", "object": "text_completion", "choices": choices}

    def recorded(self, rollouts: RolloutBatch) -> Tensor:
        """Returns log-probs before the temperature, as vLLM does by default, or after it in the processed mode."""
        if self.worker.vllm_config.model_config.logprobs_mode == "processed_logprobs":
            return rollouts.old_log_probs
        ids, mask = (part.expand(len(rollouts), -1) for part in (rollouts.prompt_ids, rollouts.prompt_mask))
        with torch.no_grad():
            return self.worker.policy.log_probs(ids, mask, rollouts.completion_ids, rollouts.mask)


def refusal(body: dict[str, Any]) -> dict[str, Any] | None:
    """Returns vLLM's error for a request that it rejects, else None."""
    message = None
    if "prompt" not in body:
        message = "1 validation error: prompt: Field required"
    elif body["temperature"] == 0.0 and body["n"] > 1:
        message = f"n must be 1 when using greedy sampling, got {body['n']}."
    elif len(body["stop"]) > 4:
        message = f"List should have at most 4 items after validation, not {len(body['stop'])}"
    return None if message is None else {"error": {"message": message, "type": "BadRequestError", "code": 400}}
