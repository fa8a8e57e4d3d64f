"""The cost of a stage: tokens and seconds so far, steps per second, and utilisation of the device.

    utilisation = (reading_flops(drawn) + learning_flops(update)) / (seconds of the step · peak)

The formulas are those of ``policies.pass_cost``: each true token counts once, so padding and repetition lower it. The
work of rewards, critics and a reference does not count.
"""

from __future__ import annotations

from collections.abc import Mapping
from time import perf_counter
from typing import Any

import lightning as L
import torch

from callbacks.phases import WHOLE_BATCH, PhaseClock, PhaseListener, finished_now
from callbacks.system_metrics import memory_in_use, peak_memory
from contrastive_reasoning.distributed import total
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.pass_cost import NO_WORK, Work, decoder_size, learning_flops, reading_flops
from contrastive_reasoning.progress import Pace, step_is_logged, steps_done, steps_in_all

SPENT, THROUGHPUT = "train/spent/", "train/throughput/"
MATRIX_SIZES = {"cpu": 1024, "cuda": 8192}
REPEATS = 5


class Cost(L.Callback):
    """Logs ``train/spent/seconds`` of each step and, with rollouts, ``train/spent/tokens``. Only watches.

    Both only grow. A resumed stage continues from the values of its checkpoint: lost steps are not counted twice.

    - tokens: all tokens that the policy generated for training, on all ranks, including refills and continuations.
    - seconds: since this callback was built, so data preparation counts; validation does not, since it only measures.
      This callback should be the last of a stage, so that figures drawn after a validation do not count either.
    """

    def __init__(self) -> None:
        self.tokens = 0
        self.seconds = 0.0
        self._since = finished_now()

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._count()

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._since = finished_now()  # excludes the time in which callbacks measured the machine

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._count()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._since = finished_now()

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Adds the step that ended."""
        self._count()
        logged = step_is_logged(trainer)
        if logged:
            pl_module.log(f"{SPENT}seconds", self.seconds, batch_size=1)
        if getattr(batch, "rollouts", None) is not None:
            self.tokens += int(total(float(batch.generated.projected)))
            if logged:
                pl_module.log(f"{SPENT}tokens", float(self.tokens), batch_size=1)

    def state_dict(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "seconds": self.seconds}

    def load_state_dict(self, state_dict: dict[str, Any]) -> None:
        self.tokens, self.seconds = int(state_dict["tokens"]), float(state_dict["seconds"])
        self._since = finished_now()

    def _count(self) -> None:
        now = finished_now()
        self.seconds, self._since = self.seconds + now - self._since, now


class Throughput(L.Callback):
    """Logs the metrics of ``train/throughput/`` after every step that is logged, of this rank. Only watches.

    - ``steps_per_second``, ``seconds_left``, ``tokens_per_second``: over the last steps, including validation.
    - ``step_seconds`` without validation, and its parts ``rollout_seconds``, ``reward_seconds`` (with advantages),
      ``update_seconds`` and ``rest_seconds`` (data, logging, figures, checkpoints). See ``phases``.
    - ``update_tokens_per_second`` and ``padding_share``, of what passed forward and backward (the module's ``work``).
    - ``rollout_utilisation``, ``update_utilisation``, ``step_utilisation`` and ``peak_teraflops``.
    - ``memory_megabytes`` and ``peak_memory_megabytes``.

    Metrics of values that module and batch do not report (``work``, ``generated``) are omitted.

    Args:
        window: steps over which rates are taken.
        tokens: the logged metric that counts the tokens of one step, of all ranks; None: the module logs its own rates.
        peak_flops: floating-point operations per second that count as full use of one device; None: measured once.

    Raises:
        ValueError: for a ``window`` below 1 or a peak that is not positive.
    """

    def __init__(self, *, window: int, tokens: str | None, peak_flops: float | None) -> None:
        if peak_flops is not None and peak_flops <= 0:
            raise ValueError(f"callbacks.throughput.peak_flops must be positive (or null), got {peak_flops}")
        self._pace = Pace(window)
        self._token_pace = Pace(window)
        self._tokens_seen = 0
        self.tokens = tokens
        self.peak_flops = peak_flops
        self._listener: PhaseListener | None = None

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._clock = PhaseClock()
        self._listener = PhaseListener(trainer, begin=self._clock.begin, end=self._clock.end, whole_batch=WHOLE_BATCH)

    def on_train_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._measure_device(getattr(pl_module, "policy", None))
        self._step_began = perf_counter()
        self._validating = 0.0
        self._mark(trainer, pl_module)

    def on_validation_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validation_began = perf_counter()

    def on_validation_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._validating = perf_counter() - self._validation_began

    def on_train_batch_end(self, trainer: L.Trainer, pl_module: Any, outputs: Any, batch: Any, batch_idx: int) -> None:
        """Logs the step that ended."""
        if self.tokens is not None and self.tokens in trainer.callback_metrics:
            self._tokens_seen += int(trainer.callback_metrics[self.tokens])
        self._mark(trainer, pl_module)
        now = perf_counter()
        step = now - self._step_began - self._validating
        self._step_began, self._validating = now, 0.0
        taken, self._clock.seconds = self._clock.seconds, {}
        if WHOLE_BATCH in taken and not taken.keys() & {"reward", "update"}:  # the module names neither phase
            taken["update"] = taken[WHOLE_BATCH]
        phases = {phase: taken[phase] for phase in ("rollout", "reward", "update") if phase in taken}
        seconds = {"step": step, **phases, "rest": step - sum(phases.values())}
        if not step_is_logged(trainer):
            return
        steps = steps_in_all(trainer, pl_module)
        values = {
            "steps_per_second": self._pace.rate,
            "seconds_left": None if steps is None else self._pace.seconds_left(steps),
            "tokens_per_second": self._token_pace.rate if self._tokens_seen else None,
            **{f"{phase}_seconds": value for phase, value in seconds.items()},
            **self._utilisation(pl_module, batch, seconds),
            "memory_megabytes": memory_in_use(pl_module.device),
            "peak_memory_megabytes": peak_memory(pl_module.device),
        }
        for name, value in values.items():
            if value is not None:
                pl_module.log(THROUGHPUT + name, value, batch_size=1)

    def teardown(self, trainer: L.Trainer, pl_module: L.LightningModule, stage: str) -> None:
        if self._listener is not None:
            self._listener.stop_listening()
        self._listener = None

    def on_exception(self, trainer: L.Trainer, pl_module: L.LightningModule, exception: BaseException) -> None:
        self.teardown(trainer, pl_module, "fit")  # after an error Lightning does not call teardown

    def _mark(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        now = perf_counter()
        self._pace.mark(steps_done(trainer, pl_module), now)
        self._token_pace.mark(self._tokens_seen, now)

    def _measure_device(self, policy: Any) -> None:
        """Determines the policy's size and its device's peak, once; no size if the formulas do not cover its layers."""
        size = decoder_size(policy.model) if isinstance(policy, CausalLMPolicy) else None
        self._size = size if size is not None and size.layers.total else None
        if self._size is not None:
            self._peak = self.peak_flops or measured_peak(policy.device, policy.compute_dtype)

    def _utilisation(self, pl_module: Any, batch: Any, seconds: Mapping[str, float]) -> dict[str, float]:
        """Tokens per second, padding share and utilisation of the phases that occurred."""
        if self._size is None:
            return {}
        values: dict[str, float] = {}
        flops: dict[str, float] = {}
        drawn = getattr(batch, "generated", NO_WORK)
        if drawn != NO_WORK:
            flops["rollout"] = reading_flops(self._size, drawn)
        if hasattr(pl_module, "result"):
            update: Work = pl_module.result.work
            flops["update"] = learning_flops(self._size, update)
            flops["step"] = sum(flops.values())
            values["padding_share"] = update.padding_share
            if "update" in seconds:
                values["update_tokens_per_second"] = update.projected / seconds["update"]
        if not flops:
            return {}
        used = {phase: count / (seconds[phase] * self._peak) for phase, count in flops.items() if phase in seconds}
        return {
            **values,
            **{f"{phase}_utilisation": share for phase, share in used.items()},
            "peak_teraflops": self._peak / 1e12,
        }


def measured_peak(device: torch.device, dtype: torch.dtype) -> float:
    """Operations per second in the best of a few square matrix products. Takes a fraction of a second.

    It is below the peak of a data sheet and above what a model reaches. The numbers are random, since a GPU multiplies
    constants faster. They come from a generator of their own, so later draws of the run do not change.
    """
    side = MATRIX_SIZES.get(device.type, 2048)
    generator = torch.Generator(device).manual_seed(0)
    matrix = torch.rand(side, side, generator=generator, device=device).to(dtype)
    seconds = []
    with torch.no_grad():
        for _ in range(1 + REPEATS):  # the first one is a warm-up
            start = finished_now()
            torch.mm(matrix, matrix)
            seconds.append(finished_now() - start)
    return 2 * side**3 / min(seconds[1:])
