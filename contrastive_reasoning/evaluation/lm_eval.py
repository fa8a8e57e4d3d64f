"""Tasks of lm-evaluation-harness (EleutherAI), which runs as a process in an environment of its own.

The harness loads the policy from a temporary folder and applies its own prompts, extraction and scores, so its figures
differ from those of a suite on the same problems: docs/lm_eval.md.
"""

from __future__ import annotations

import json
import math
import os
import re
import subprocess
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

import torch
from transformers import GenerationConfig

from contrastive_reasoning.distributed import from_first, this_rank
from contrastive_reasoning.errors import EndsRun
from contrastive_reasoning.evaluation.evaluator import Evaluation
from contrastive_reasoning.evaluation.intervals import mean_interval
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.prompting import DEFAULT_SYSTEM, NO_SYSTEM
from contrastive_reasoning.ranges import at_least
from contrastive_reasoning.rollout.spans import readable

NEEDED, BELOW = "0.4.13", "0.5"
"""The oldest version of the harness whose files are read, and the first that may have others."""
PREFIX = "lm_eval/"
LOG = "log.txt"
RUN = """
import ctypes, runpy, sys
if sys.platform == "linux":
    ctypes.CDLL(None).prctl(1, 9)  # PR_SET_PDEATHSIG, SIGKILL: it ends with the process that started it
runpy.run_module("lm_eval", run_name="__main__", alter_sys=True)
"""
"""A program for the harness's interpreter: ``python -m lm_eval``."""
UNKNOWN_TASKS = """
import json, sys
from difflib import get_close_matches
from lm_eval.tasks import TaskManager
manager = TaskManager(include_path=sys.argv[1] or None)
unknown = [name for name in sys.argv[2:] if not manager.match_tasks([name])]
print(json.dumps({name: get_close_matches(name, manager.all_tasks) for name in unknown}))
"""
"""A program for the harness's interpreter: unknown names, with the nearest ones."""
SECONDS = 30.0
"""Between two signs that the harness is running. Other ranks wait this long at a time."""
SHOWN_LINES = 20
"""The last lines of a harness that failed, which the error shows."""
FEWSHOT_SEED = 1234
"""The harness's own: the examples of a prompt are then those of published figures, whatever the run's seed."""
OF_RANKS = re.compile(r"(LOCAL_|GROUP_|ROLE_)?(RANK|WORLD_SIZE)|(MASTER|TORCHELASTIC|PMI|OMPI|MV2)_.*")
"""Variables of a launcher. A harness that inherited them would wait for the other ranks."""
NO_SHARES = ("bits_per_byte", "brier_score", "perplexity")
"""Endings of metrics that are no shares, even below 1."""


class HarnessFailed(EndsRun):
    """Raised if the harness ends with an error; the message has its last lines."""


@dataclass(frozen=True, kw_only=True)
class LMEval:
    """Runs tasks of the harness on a policy.

    Raises ValueError if no task is named or the harness does not know one, and for a number out of range; and
    ModuleNotFoundError if ``python`` has no harness, or another version of it.
    """

    tasks: Sequence[str]
    """Names of the harness's tasks, groups or tags, or patterns of them."""
    python: str | None
    """The interpreter of the environment that has the harness; None: this one."""
    include_path: str | None
    """A folder with more task files."""
    limit: int | None
    """The first so many problems of each task; None: all."""
    num_fewshot: int | None
    """Examples in a prompt; None: as many as the task says."""
    max_tokens: int | None
    """The longest completion; None: as the task says, 256 if it says nothing."""
    batch_size: int | str
    """Prompts at a time. ``auto`` is what fits if each had the policy's whole context."""
    arguments: Sequence[str | int | float]
    """More arguments of ``lm_eval run``."""

    def __post_init__(self) -> None:
        for name in ("tasks", "arguments"):
            if isinstance(value := getattr(self, name), str):
                raise ValueError(f"{name} must be a list, {name}=[{value}], got {value!r}")
        if not self.tasks:
            raise ValueError("tasks is empty: name tasks of lm_eval, such as tasks=[gsm8k]")
        for name, least in (("limit", 1), ("num_fewshot", 0), ("max_tokens", 1)):
            if (value := getattr(self, name)) is not None:
                at_least(least, **{name: value})
        for name, near in unknown_tasks(self.interpreter, self.include_path or "", tuple(self.tasks)).items():
            raise ValueError(f"tasks: lm_eval has no task {name!r}; nearest are {', '.join(near) or 'none'}")

    @property
    def interpreter(self) -> str:
        return sys.executable if self.python is None else os.path.expanduser(self.python)

    def __call__(self, policy: CausalLMPolicy, *, seed: int, alive: Callable[[], object]) -> Evaluation:
        """Evaluates the policy, in a process that rank 0 starts; all ranks have the results.

        ``lm_eval/TASK/METRIC``, or ``lm_eval/TASK/FILTER/METRIC`` if the task reads answers in several ways, is the
        harness's own figure, with a 95% interval if it is a mean over problems. There is a row for each problem and
        filter.

        Args:
            policy: saved in a temporary folder. The harness loads it in the dtype of its weights, and computes in
                ``policy.compute_dtype``.
            seed: of the harness, but for its choice of examples, and of the intervals.
            alive: called every half minute.

        Raises:
            HarnessFailed: if the process fails or does not write its results.
        """
        with TemporaryDirectory(prefix="lm_eval-") as name:
            folder = Path(name)
            process = self._start(policy, folder, seed=seed) if this_rank() == 0 else None
            try:
                while (code := from_first(process and _exit_code(process))) is None:
                    alive()
            finally:  # before its folder is removed
                if process and process.poll() is None:
                    process.kill()
                    process.wait()
            log = from_first(_last_lines(folder / LOG))
            if code:
                how = f"signal {-code}; is there enough memory?" if code < 0 else f"exit code {code}"
                raise HarnessFailed(f"lm_eval ended with {how}:\n{log}")
            found = read_results(folder, seed=seed) if process else None
            if (found := from_first(found)) is None:
                raise HarnessFailed(f"lm_eval has not written its results:\n{log}")
            return found

    def columns(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """The columns of a table, each with its metric: the shares among the metrics of the named tasks.

        A tag is not the name of a task, so if a name has no metrics, those of all tasks are shown.
        """
        of_tasks: dict[str, list[str]] = {}
        for name, value in metrics.items():
            if name.startswith(PREFIX) and not name.endswith(("_low", "_high", *NO_SHARES)) and 0 <= value <= 1:
                of_tasks.setdefault(name.split("/")[1], []).append(name)
        named = {task for task in of_tasks if any(fnmatchcase(task, each) for each in self.tasks)}
        if any(not any(fnmatchcase(task, each) for task in of_tasks) for each in self.tasks):
            named = {*of_tasks}
        return {name: name for task, names in of_tasks.items() if task in named for name in names}

    def _start(self, policy: CausalLMPolicy, folder: Path, *, seed: int) -> subprocess.Popen[bytes]:
        policy.save(folder / "policy")
        ends = GenerationConfig(eos_token_id=list(policy.eos_token_ids), pad_token_id=policy.tokenizer.pad_token_id)
        ends.save_pretrained(folder / "policy")
        weights = next(policy.model.parameters()).dtype
        model = {"pretrained": str(folder / "policy"), "dtype": str(weights).removeprefix("torch.")}
        if policy.compute_dtype not in (weights, torch.float32):
            model["mixed_precision_dtype"] = str(policy.compute_dtype).removeprefix("torch.")
        command = [self.interpreter, "-c", RUN, "run", "--model", "hf", "--tasks", *self.tasks]
        command += ["--model_args", json.dumps(model), "--device", str(policy.device)]
        command += ["--batch_size", str(self.batch_size), "--seed", f"{seed},{seed},{seed},{FEWSHOT_SEED}"]
        command += ["--output_path", str(folder / "results"), "--log_samples"]
        for option in ("include_path", "limit", "num_fewshot"):
            if (value := getattr(self, option)) is not None:
                command += [f"--{option}", str(value)]
        if self.max_tokens is not None:
            command += ["--gen_kwargs", f"max_gen_toks={self.max_tokens}"]
        if policy.chat_template is not False and policy.tokenizer.chat_template:
            command += ["--apply_chat_template"]
            if policy.system not in (NO_SYSTEM, DEFAULT_SYSTEM):
                command += [f"--system_instruction={policy.system}"]
        with (folder / LOG).open("wb") as log:
            return subprocess.Popen(
                [*command, *map(str, self.arguments)],
                env={name: value for name, value in os.environ.items() if not OF_RANKS.fullmatch(name)},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
            )


@cache
def unknown_tasks(python: str, include_path: str, tasks: tuple[str, ...]) -> Mapping[str, Sequence[str]]:
    """Returns the names that the harness does not know, each with the nearest ones. It reads all of its task files.

    Raises:
        ModuleNotFoundError: if the interpreter cannot be started, or has no harness or another version.
    """
    install = f"{python} -m pip install 'lm_eval[hf]=={NEEDED}'"
    try:
        found = _output(python, "from importlib.metadata import version; print(version('lm_eval'))")
    except (OSError, HarnessFailed) as error:
        raise ModuleNotFoundError(f"python={python}: no lm_eval there ({error}); {install}") from error
    if not _numbers(NEEDED) <= _numbers(found) < _numbers(BELOW):
        raise ModuleNotFoundError(f"python={python}: lm_eval {found} is there, and {NEEDED} is needed; {install}")
    try:
        return json.loads(_output(python, UNKNOWN_TASKS, include_path, *tasks).splitlines()[-1])
    except HarnessFailed as error:
        raise ModuleNotFoundError(f"python={python}: lm_eval cannot read its tasks ({error})") from error


def read_results(folder: Path, *, seed: int) -> Evaluation | None:
    """Reads the files that the harness has written below ``folder``: the figures, and every problem's completion.

    None if a file is missing: the harness ends without an error if it cannot write one.
    """
    path = next(folder.rglob("results_*.json"), None)
    if path is None:
        return None
    written = json.loads(path.read_text(encoding="utf-8"))
    results: Mapping[str, Mapping[str, Any]] = written["results"]
    made = path.stem.removeprefix("results_")
    metrics: dict[str, float] = {}
    rows: list[Mapping[str, Any]] = []
    for task, figures in results.items():
        file = path.with_name(f"samples_{task}_{made}.jsonl")
        if task in written["configs"] and not file.is_file():
            return None
        lines = file.read_bytes().splitlines() if file.is_file() else []  # a group has none
        samples: list[Mapping[str, Any]] = [json.loads(line) for line in lines]
        rows += [_row(task, sample) for sample in samples]
        for key, figure in figures.items():
            quantity, comma, method = key.partition(",")
            if not comma or quantity.endswith("_stderr") or not isinstance(figure, int | float):
                continue
            name = f"{PREFIX}{task}/{'' if method == 'none' else f'{method}/'}{quantity}"
            metrics[name] = float(figure)
            values = [sample.get(quantity) for sample in samples if sample["filter"] == method]
            numbers = [float(value) for value in values if isinstance(value, int | float)]
            if numbers and len(numbers) == len(values) and math.isclose(mean(numbers), figure, abs_tol=1e-12):
                interval = mean_interval(numbers, seed=seed)
                metrics |= {f"{name}_low": interval.low, f"{name}_high": interval.high}
    return Evaluation(metrics=metrics, reasons={}, rows=rows)


def _row(task: str, sample: Mapping[str, Any]) -> dict[str, Any]:
    """One problem and filter; of several requests for a problem, as in multiple choice, the first prompt."""
    return {
        "task": task,
        "filter": sample["filter"],
        "problem": sample["doc_id"],
        "prompt": sample["arguments"]["gen_args_0"]["arg_0"],
        "answer": str(sample["target"]),
        "completion": _text(sample["resps"]),
        "extracted": _text(sample["filtered_resps"]),
        **{name: sample.get(name) for name in sample["metrics"]},
    }


def _text(responses: Any) -> str:
    """A response without the lists around it; several as JSON."""
    while isinstance(responses, list) and len(responses) == 1:
        (responses,) = responses
    return readable(responses if isinstance(responses, str) else json.dumps(responses))


def _exit_code(process: subprocess.Popen[bytes]) -> int | None:
    """The exit code, or None if the process is still running after ``SECONDS``."""
    try:
        return process.wait(SECONDS)
    except subprocess.TimeoutExpired:
        return None


def _last_lines(log: Path) -> str:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.is_file() else []
    return "\n".join(lines[-SHOWN_LINES:])


def _output(python: str, program: str, *arguments: str) -> str:
    """What a program prints. Raises HarnessFailed, with the last line of its errors, if it fails."""
    done = subprocess.run([python, "-c", program, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise HarnessFailed((done.stderr.splitlines() or [f"exit code {done.returncode}"])[-1])
    return done.stdout.strip()


def _numbers(version: str) -> tuple[int, ...]:
    """0.4.9.2 → (0, 4, 9, 2); a part such as 13rc1 counts with its first digits."""
    return tuple(int(found[0]) for part in version.split(".") if (found := re.match(r"\d+", part)))
