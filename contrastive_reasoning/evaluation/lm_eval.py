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
from functools import cache
from pathlib import Path
from statistics import mean
from tempfile import TemporaryDirectory
from typing import Any

from contrastive_reasoning.distributed import from_first, this_rank
from contrastive_reasoning.evaluation.evaluator import Evaluation
from contrastive_reasoning.evaluation.intervals import mean_interval
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.prompting import DEFAULT_SYSTEM, NO_SYSTEM
from contrastive_reasoning.rollout.spans import readable

NEEDED, BELOW = "0.4.13", "0.5"
"""The oldest version of the harness whose files are read, and the first that may have others."""
PREFIX = "lm_eval/"
LOG = "log.txt"
UNKNOWN_TASKS = """
import json, sys
from difflib import get_close_matches
from lm_eval.tasks import TaskManager
manager = TaskManager(include_path=sys.argv[1] or None)
unknown = [name for name in sys.argv[2:] if not manager.match_tasks([name])]
print(json.dumps({name: get_close_matches(name, manager.all_tasks) for name in unknown}))
"""
"""A program for the harness's interpreter."""
SECONDS = 30.0
"""Between two signs that the harness is running. Other ranks wait this long at a time."""
SHOWN_LINES = 20
"""The last lines of a harness that failed, which the error shows."""


class HarnessFailed(RuntimeError):
    """Raised if the harness ends with an error; the message has its last lines."""


@dataclass(frozen=True, kw_only=True)
class LMEval:
    """Runs tasks of the harness on a policy.

    Raises ValueError if no task is named or the harness does not know one, and ModuleNotFoundError if ``python`` has no
    harness, or another version of it.
    """

    tasks: Sequence[str]
    """Names of the harness's tasks, groups or tags, or patterns of them."""
    python: str | None
    """The interpreter of the environment that has the harness; None: this one."""
    include_path: str | None
    """A folder with task files of one's own."""
    limit: int | None
    """The first so many problems of each task; None: all."""
    num_fewshot: int | None
    """Examples in a prompt; None: as many as the task says."""
    batch_size: int | str
    """Prompts at a time, or ``auto``."""
    arguments: Sequence[str]
    """More arguments of ``lm_eval run``."""

    def __post_init__(self) -> None:
        if not self.tasks:
            raise ValueError("tasks is empty: name tasks of lm_eval, such as tasks=[gsm8k]")
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
            policy: saved for the harness, which computes in ``policy.compute_dtype``.
            seed: of the harness and of the intervals.
            alive: called every half minute.

        Raises:
            HarnessFailed: if the process fails.
        """
        with TemporaryDirectory(prefix="lm_eval-") as name:
            folder = Path(name)
            process = self._start(policy, folder, seed=seed) if this_rank() == 0 else None
            while (code := from_first(process and _exit_code(process))) is None:
                alive()
            if code:
                raise HarnessFailed(f"lm_eval ended with exit code {code}:\n{from_first(_last_lines(folder / LOG))}")
            nothing = Evaluation(metrics={}, reasons={}, rows=[])
            return from_first(read_results(folder, seed=seed) if process else nothing)

    def columns(self, metrics: Mapping[str, float]) -> dict[str, str]:
        """The columns of a table, each with its metric: the shares among the metrics of the named tasks.

        A tag or pattern is not the name of a task. If no named task has a metric, the shares of all tasks are shown.
        """
        shares = [
            name
            for name, value in metrics.items()
            if name.startswith(PREFIX) and not name.endswith(("_low", "_high")) and 0 <= value <= 1
        ]
        named = tuple(f"{PREFIX}{task}/" for task in self.tasks)
        return {name: name for name in [name for name in shares if name.startswith(named)] or shares}

    def _start(self, policy: CausalLMPolicy, folder: Path, *, seed: int) -> subprocess.Popen[bytes]:
        policy.save(folder / "policy")
        command = [self.interpreter, "-m", "lm_eval", "run", "--model", "hf", "--tasks", *self.tasks]
        dtype = str(policy.compute_dtype).removeprefix("torch.")
        command += ["--model_args", f"pretrained={folder / 'policy'}", f"dtype={dtype}"]
        command += ["--device", str(policy.device), "--batch_size", str(self.batch_size), "--seed", str(seed)]
        command += ["--output_path", str(folder / "results"), "--log_samples"]
        for option in ("include_path", "limit", "num_fewshot"):
            if (value := getattr(self, option)) is not None:
                command += [f"--{option}", str(value)]
        if policy.chat_template is not False and policy.tokenizer.chat_template:
            command += ["--apply_chat_template"]
            if policy.system not in (NO_SYSTEM, DEFAULT_SYSTEM):
                command += ["--system_instruction", policy.system]
        with (folder / LOG).open("wb") as log:
            return subprocess.Popen(
                [*command, *self.arguments], stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT
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


def read_results(folder: Path, *, seed: int) -> Evaluation:
    """Reads the files that the harness has written below ``folder``: the figures, and every problem's completion."""
    (path,) = folder.rglob("results_*.json")
    results: Mapping[str, Mapping[str, Any]] = json.loads(path.read_text(encoding="utf-8"))["results"]
    made = path.stem.removeprefix("results_")
    metrics: dict[str, float] = {}
    rows: list[Mapping[str, Any]] = []
    for task, figures in results.items():
        file = path.with_name(f"samples_{task}_{made}.jsonl")  # a group has none
        lines = file.read_bytes().splitlines() if file.is_file() else []
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
    except BaseException:  # such as Ctrl-C
        process.kill()
        raise


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
