"""The policy's weights on a vLLM server: transferred when they have changed, and checked before anything is drawn.

trainer                              folder that both see             each worker of the server
weights changed? ── save ──────────► *.safetensors ── load_policy ──► model
      fingerprint of the files  ═══════════ equal? ═══════════  fingerprint of what it loaded
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from http import HTTPStatus
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from itertools import chain
from pathlib import Path
from typing import Any, TypeVar
from urllib.parse import urlsplit

from safetensors import SafetensorError

from contrastive_reasoning.distributed import from_first, gather, this_rank
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.requests import ServerError
from contrastive_reasoning.rollout.sampling import Sampling
from contrastive_reasoning.rollout.vllm_server.weight_sync import architecture, fingerprint, stored_tensors
from contrastive_reasoning.rollout.weights_folder import missing_space, new_folder, shared_folder

SHARD = "1GB"
"""Size of the files of a transfer, and of what a GPU's weights take in main memory while they are written."""


@dataclass(frozen=True, kw_only=True)
class Report:
    """The report of a server's workers on their state."""

    fingerprint: str | None
    logprobs_mode: str | None
    architecture: dict[str, Any]


class ServedPolicy:
    """Keeps the weights of a server equal to those of a policy.

    Args:
        server: vLLM with this project's worker extension, see docs/vllm.md.
        folder: ``weights_folder`` of ``VLLMEngine``.
        disk: its ``disk_folder``.
    """

    def __init__(self, server: JSONServer, folder: Path | None, *, disk: Path) -> None:
        self.server = server
        self.folder = None if folder is None else folder.resolve()
        self.disk = disk.resolve()
        self._explained = False
        self._content: str | None = None
        self._served: str | None = None

    def bring(self, policy: CausalLMPolicy) -> Report:
        """Transfers the weights if they have changed since the last transfer, and checks what the server holds.

        Raises ServerError if the server's model is another one, it holds other weights, or it cannot report them.
        """
        # This compares the weights, not their version counters: writes through `.data` (as in DeepSpeed) do not change
        # those.
        content = fingerprint(chain(policy.model.named_parameters(), policy.model.named_buffers()))
        if content != self._content:
            self.forget()
            self.check_model(architecture(policy.model.config))
            self._served = self._transfer(policy)
            self._content = content
        return self.check()

    def check(self) -> Report:
        """The server's report. Raises ServerError if its weights are not those of the last transfer."""
        report = self._call_worker("policy_report")
        if report.fingerprint != self._served:
            raise ServerError(
                f"{self.server.url} holds other weights ({report.fingerprint}) than were sent ({self._served}): "
                "it was started again, or another run uses it"
            )
        return report

    def forget(self) -> None:
        """Forces a transfer next time, even of unchanged weights."""
        self._content = self._served = None

    def check_model(self, ours: Mapping[str, Any]) -> Report:
        """The server's report, after comparing its model with the ``architecture`` of a policy. No weights are sent.

        Raises ServerError if a field differs, or if the server cannot be reached or cannot report its model.
        """
        report = self._call_worker("policy_report")
        theirs = report.architecture
        different = [name for name in ours if theirs.get(name) != ours[name]]
        if different:
            shown = "; ".join(f"{name} {theirs.get(name)}, not {ours[name]}" for name in different)
            raise ServerError(
                f"{self.server.url} serves another model than the policy's ({shown}): "
                "start it with the policy's own model"
            )
        return report

    def _transfer(self, policy: CausalLMPolicy) -> str:
        try:
            with self._new_folder(policy) as folder:
                policy.save(folder, max_shard_size=SHARD)
                ours = fingerprint(stored_tensors(folder, str(policy.device)))
                theirs = self._call_worker("load_policy", str(folder)).fingerprint
        except (OSError, SafetensorError) as error:
            raise ServerError(
                f"the policy's weights cannot be written for {self.server.url} ({error}): "
                "rollout.engine.weights_folder=FOLDER chooses another folder"
            ) from error
        if theirs != ours:
            raise ServerError(f"{self.server.url} loaded other weights ({theirs}) than were written ({ours})")
        # cached keys and values of prompts read by the old weights must not be used with the new ones
        answer = self.server.post("/reset_prefix_cache")
        if isinstance(answer, dict) and answer.get("success") is False:
            raise ServerError(
                f"{self.server.url} did not reset its prefix cache, because requests are still running: "
                "another run uses it"
            )
        return ours

    @contextmanager
    def _new_folder(self, policy: CausalLMPolicy) -> Iterator[Path]:
        """Yields an empty folder for a transfer, and removes it. The first reason for ``disk`` is printed."""
        folder = self.disk if self.folder is None else self.folder
        if self.folder is None:
            reason = missing_space(sum(part.nbytes for part in chain(policy.parameters(), policy.buffers())))
            if reason is None:
                with shared_folder() as shared:
                    if self._reads(shared):
                        yield shared
                        return
                reason = f"{self.server.url} cannot read {shared.parent}"
            if not self._explained:
                print(f"{reason}: weights are sent through {folder} (rollout.engine.weights_folder)", flush=True)
            self._explained = True
        with new_folder(folder) as made:
            yield made

    def _reads(self, folder: Path) -> bool:
        """Whether all workers of the server can read a folder of this machine; its name must be a new one."""
        try:
            return all(found.get("readable") for found in self._call_workers("can_read", str(folder)))
        except ServerError:  # an extension without this method, or a server whose failure the transfer will report
            return False

    def _call_worker(self, method: str, *arguments: str) -> Report:
        """Calls a method of the worker extension on all workers, which must agree."""
        results = self._call_workers(method, *arguments)
        first = results[0]
        if any(result != first for result in results):
            raise ServerError(f"the workers of {self.server.url} do not agree: {results}")
        return Report(
            fingerprint=first.get("fingerprint"),
            logprobs_mode=first.get("logprobs_mode"),
            architecture=first.get("architecture") or {},
        )

    def _call_workers(self, method: str, *arguments: str) -> list[dict[str, Any]]:
        """Calls a method of the worker extension on all workers."""
        answer = self.server.post("/collective_rpc", {"method": method, "args": list(arguments)})
        results: Any = answer.get("results") if isinstance(answer, dict) else None
        if not isinstance(results, list) or not results or not all(isinstance(result, dict) for result in results):
            raise ServerError(
                f"{self.server.url} has no {method}: start it as described in docs/vllm.md, got {answer!r}"
            )
        return results


def check_log_probs(mode: str | None, sampling: Sampling) -> None:
    """Checks that the server's log-probs are those under the full softmax at ``sampling.scoring_temperature``.

    vLLM computes ``raw_logprobs`` (its default) before the temperature, and ``processed_logprobs`` after temperature,
    top-k and top-p, over the remaining tokens. For a greedy completion both are the same.

    Raises ServerError: naming what to change.
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


PAUSE = 0.5
"""Seconds before the first repeat; each further one waits twice as long."""
API_KEY = "VLLM_API_KEY"
"""Environment variable of the key that ``vllm serve --api-key`` asks for; vLLM itself reads it from there, too."""
SHOWN = 300
"""Characters of a server's answer that an error quotes."""


class JSONServer:
    """Posts to the paths below one address, with a new connection for each request, so that any thread may use it.

    Args:
        url: ``http://host:port`` or ``https://…``, without a path.
        timeout: seconds that connecting may take, and each wait for a part of the answer.
        retries: repeats after a connection that was refused or closed. A request is not repeated after a timeout: the
            server is still working on the first one.

    The server's key is read from ``VLLM_API_KEY``, if it has one. Raises ValueError for another kind of address or one
    with a login, a timeout that is not positive or a negative ``retries``.
    """

    def __init__(self, *, url: str, timeout: float, retries: int) -> None:
        parts = urlsplit(url)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.path.strip("/"):
            raise ValueError(f"rollout.engine.url must be http://host:port, got {url!r}")
        if parts.username is not None:
            raise ValueError(f"rollout.engine.url takes no login; the server's key is read from the variable {API_KEY}")
        if timeout <= 0:
            raise ValueError(f"rollout.engine.timeout must be positive, got {timeout}")
        at_least(0, **{"rollout.engine.retries": retries})
        self.url, self.timeout, self.retries = url.rstrip("/"), timeout, retries
        self._connection = HTTPSConnection if parts.scheme == "https" else HTTPConnection
        self._host, self._port = parts.hostname, parts.port

    def post(self, path: str, body: dict[str, Any] | None = None) -> Any:
        """The server's answer, None for an empty one. Raises ``ServerError`` in the cases that its docstring lists."""
        return self._read(path, *self._ask(path, json.dumps(body or {}).encode()))

    def check_key(self) -> None:
        """Raises ServerError if the server asks for another key; the endpoints that change weights ask for none."""
        status, _ = self._ask("/v1/completions", b"{}")  # without a prompt the answer is another error
        if status == HTTPStatus.UNAUTHORIZED:
            raise ServerError(f"{self.url} asks for the key of its --api-key: set the environment variable {API_KEY}")

    def _ask(self, path: str, content: bytes) -> tuple[int, bytes]:
        for attempt in range(self.retries + 1):
            try:
                return self._once(path, content)
            except TimeoutError as error:
                raise ServerError(f"{self.url}{path} did not answer within {self.timeout:g} seconds") from error
            except (OSError, HTTPException) as error:
                if attempt == self.retries:
                    tries = "once" if attempt == 0 else f"{attempt + 1} times"
                    raise ServerError(f"{self.url}{path} cannot be reached (tried {tries}): {error!r}") from error
                time.sleep(PAUSE * 2**attempt)
        raise AssertionError("the last attempt returns or raises")

    def _once(self, path: str, content: bytes) -> tuple[int, bytes]:
        connection = self._connection(self._host, self._port, timeout=self.timeout)
        try:
            headers = {"Content-Type": "application/json"}
            if key := os.environ.get(API_KEY):
                headers["Authorization"] = f"Bearer {key}"
            connection.request("POST", path, content, headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()

    def _read(self, path: str, status: int, content: bytes) -> Any:
        shown = content.decode("utf-8", "replace")[:SHOWN]
        if status != HTTPStatus.OK:
            raise ServerError(f"{self.url}{path} answered with status {status}: {shown}")
        try:
            return json.loads(content) if content else None
        except ValueError as error:
            raise ServerError(f"{self.url}{path} returned text that is not JSON: {shown!r}") from error


Outcome = TypeVar("Outcome")


def on_first_rank(work: Callable[[], Outcome]) -> Outcome:
    """The result of ``work`` in the first process, in every process; an error there is raised in every one."""
    outcome = on_every_rank(lambda: work() if this_rank() == 0 else None)
    return from_first(outcome)  # pyright: ignore[reportReturnType]


def on_every_rank(work: Callable[[], Outcome]) -> Outcome:
    """The result of ``work`` in each process, once all have theirs.

    Raises:
        ServerError: in every process, if the first error of a process is one.
        RuntimeError: if another exception was raised in another process; it names the process and the exception. The
            process itself raises the exception.
    """
    outcome: Outcome | None = None
    error: Exception | None = None
    try:
        outcome = work()
    except Exception as raised:
        error = raised
    described = None if error is None else (isinstance(error, ServerError), type(error).__name__, str(error))
    failed = [(rank, one) for rank, one in enumerate(gather(described)) if one is not None]
    if not failed:
        return outcome  # pyright: ignore[reportReturnType]
    rank, (by_server, kind, message) = failed[0]
    if by_server:
        raise ServerError(message) from error
    raise error or RuntimeError(f"{kind} on rank {rank}: {message}")
