"""The policy's weights on a vLLM server: brought there when they changed, and checked before anything is drawn.

trainer                              folder that both see             each worker of the server
weights changed? ── save ──────────► *.safetensors ── load_policy ──► model
      fingerprint of the files  ═══════════ equal? ═══════════  fingerprint of what it loaded
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from torch import Tensor

from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.rollout.vllm_http import JSONServer, ServerError
from contrastive_reasoning.rollout.vllm_server.weight_sync import fingerprint, stored_tensors


@dataclass(frozen=True, kw_only=True)
class Report:
    """What every worker of a server says of itself."""

    fingerprint: str | None
    logprobs_mode: str | None


class ServedPolicy:
    """Keeps the weights of a server those of a policy.

    Args:
        server: vLLM with our worker extension, see docs/vllm.md.
        folder: where weights are written for the time of a transfer; the server reads the same path.
    """

    def __init__(self, server: JSONServer, folder: Path) -> None:
        self.server = server
        self.folder = folder.resolve()
        self._content: str | None = None
        self._served: str | None = None

    def bring(self, policy: CausalLMPolicy) -> Report:
        """Bring the weights if they are not those brought last, and check what the server holds.

        Raises:
            ServerError: where the server holds other weights, or cannot say.
        """
        # The weights themselves, not the counters of their changes: what is written through `.data` (DeepSpeed does)
        # moves no counter.
        content = fingerprint(_tensors(policy))
        if content != self._content:
            self.forget()
            self._served = self._transfer(policy, self.folder / content)
            self._content = content
        return self.check()

    def check(self) -> Report:
        """What the server says of itself.

        Raises:
            ServerError: where its weights are not those brought last.
        """
        report = self._ask("policy_report")
        if report.fingerprint != self._served:
            raise ServerError(
                f"{self.server.url} holds other weights ({report.fingerprint}) than it was given ({self._served}): "
                "it was started again, or another run uses it"
            )
        return report

    def forget(self) -> None:
        """Bring the weights next time, changed or not."""
        self._content = self._served = None

    def _transfer(self, policy: CausalLMPolicy, folder: Path) -> str:
        try:
            policy.save(folder)
            ours = fingerprint(stored_tensors(folder, str(policy.device)))
            theirs = self._ask("load_policy", str(folder)).fingerprint
        finally:
            shutil.rmtree(folder, ignore_errors=True)
        if theirs != ours:
            raise ServerError(f"{self.server.url} loaded other weights ({theirs}) than were written ({ours})")
        # keys and values of prompts that the old weights read must not serve the new ones
        self.server.post("/reset_prefix_cache")
        return ours

    def _ask(self, method: str, *arguments: str) -> Report:
        """Call a method of the worker extension on all workers, which must agree."""
        answer = self.server.post("/collective_rpc", {"method": method, "args": list(arguments)})
        results: Any = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or not results or not all(isinstance(result, dict) for result in results):
            raise ServerError(f"{self.server.url} has no {method}: start it as docs/vllm.md says, got {answer!r}")
        reports = {(result.get("fingerprint"), result.get("logprobs_mode")) for result in results}
        if len(reports) > 1:
            raise ServerError(f"the workers of {self.server.url} do not agree: {sorted(map(str, reports))}")
        held, mode = reports.pop()
        return Report(fingerprint=held, logprobs_mode=mode)


def check_log_probs(mode: str | None, sampling: Sampling) -> None:
    """Refuse a server whose log-probs are not those under the full softmax at ``sampling.scoring_temperature``.

    vLLM takes ``raw_logprobs`` (its default) before the temperature, ``processed_logprobs`` after temperature, top-k
    and top-p, over what is left. A greedy completion has the same in both.

    Raises:
        ServerError: naming what to change.
    """
    cut = not sampling.greedy and (sampling.top_k is not None or sampling.top_p < 1.0)
    fitting = {"raw_logprobs": sampling.scoring_temperature == 1.0, "processed_logprobs": not cut}
    if fitting.get(str(mode), False):
        return
    possible = [name for name, fits in fitting.items() if fits]
    remedy = f"start it with --logprobs-mode {possible[0]}" if possible else "set top_k: null and top_p: 1.0"
    raise ServerError(
        f"the server's log-probs are {mode}, not those at temperature {sampling.temperature} "
        f"before top_k={sampling.top_k} and top_p={sampling.top_p}: {remedy}"
    )


def _tensors(policy: CausalLMPolicy) -> Iterator[tuple[str, Tensor]]:
    return chain(policy.model.named_parameters(), policy.model.named_buffers())
