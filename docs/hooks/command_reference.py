"""The reference of commands, generated from the Makefile and ``experiments/cli/commands.py`` when the site is built."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from experiments.cli.commands import COMMANDS, Command

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"
TARGET = re.compile(r"^([a-z-]+):.*?## (.*?)(?::  (.*))?$", re.M)
TAKES = re.compile(r"^([a-z-]+)_takes := (.+)$", re.M)
PAGE = "commands.md"
HEAD = """\
# Commands

Each command is a target of `make` in a clone. After `pip install .` those with a section below are also commands of
`contrastive-reasoning`, in any folder. There the name comes first, and all other arguments follow. `make` takes the
variables of the table, and all other arguments in `over='…'`. `make bench over=--help` and `make gpu-check over=--help`
list the options of these two.

## Exit codes

| code | meaning |
|---|---|
| 0 | success |
| 1 | a run, a job of a sweep or study, a download, a part of `make gpu-check` or `make dashboard` failed |
| 2 | nothing ran: an invalid command, a missing device, an unreachable MLflow; standard error has one sentence |
| 130 | stopped by Ctrl-C or SIGTERM; the same command resumes a run, sweep or study |

These are the codes of the Python commands and of `contrastive-reasoning`. `make` itself ends with 2 after any failure.

## Targets of make

| target | purpose | variables |
|---|---|---|
"""
ARGUMENTS = {
    "answer": "the answer of `prompt`, by which completions are judged",
    "baseline": "the arm with which the others are compared, or a value that only one arm has",
    "by": "settings that define an arm, with commas",
    "completion_tokens": "mean length of a completion, for tokens and hours",
    "critic": "folder of a critic, whose values of the steps are shown",
    "curve": "the metric of the large picture",
    "first": "the first seed to run, else the study's",
    "gpu_memory": "GiB of each GPU",
    "gpus": "number of GPUs",
    "launcher": "a launcher of Hydra; default: the jobs run on this machine",
    "max_tokens": "longest completion, in tokens",
    "metric": "the metric that is compared, by its name for the main set",
    "mfu": "share of the peak that a step uses",
    "model": "name on the hub, or a folder",
    "n": "number of completions",
    "only": "arms to run, with commas",
    "output": "the file to write",
    "output_dir": "the model is written to its folder `models/`",
    "parallel": "jobs at once; default: the value in the study's file",
    "progress": "format of the jobs' progress: `lines`, `json` or `quiet`",
    "prompt": "the problem; for Countdown its numbers and target",
    "prompt_tokens": "length of a prompt",
    "revision": "branch, tag or commit of a model on the hub",
    "seeds": "number of seeds of each arm, from the first; else all",
    "sets": "evaluation sets, with commas; `main` is the suite's main one",
    "temperature": "sampling temperature",
    "tflops": "peak of each device, TFLOP/s",
}
"""Every argument of a command that is not a key of the configuration."""


def page(makefile: str) -> str:
    """The page: exit codes, the targets of ``makefile`` with their variables, and a section for each command."""
    takes = {target: variables.split() for target, variables in TAKES.findall(makefile)}
    rows = [
        f"| {f'[`{target}`](#{target})' if target in COMMANDS else f'`{target}`'} | {summary} "
        f"| {' '.join(f'`{variable}`' for variable in takes.get(target, []))} |"
        for target, summary, _ in TARGET.findall(makefile)
    ]
    examples = {target: example for target, _, example in TARGET.findall(makefile)}
    sections = [section(name, command, examples[name]) for name, command in COMMANDS.items()]
    return HEAD + "\n".join([*rows, "", *sections])


def section(name: str, command: Command, example: str) -> str:
    """The section of one command; ``example``: the arguments that the Makefile shows."""
    rows = [f"| `{key}=` | {ARGUMENTS[key]} |" for key in command.own_keys]
    shown = [
        f"make {name} {example.partition(', ')[0]}".rstrip(),
        f"contrastive-reasoning {name} {command.usage}".rstrip(),
        f"contrastive-reasoning {command.example}",
    ]
    return "\n".join(
        [
            f"## {name} {{ #{name} }}",
            "",
            f"{command.summary[0].upper()}{command.summary[1:]}.",
            "",
            "```",
            *dict.fromkeys(shown),
            "```",
            "",
            *(["| argument | meaning |", "|---|---|", *rows, ""] if rows else []),
            *(["All other arguments are [keys of the configuration](configuration/index.md).", ""] * command.overrides),
        ]
    )


def on_files(files: Files, config: Any) -> Files:
    """Adds the page.

    Raises:
        ValueError: if ``ARGUMENTS`` and the arguments of the commands differ.
    """
    differing = {key for command in COMMANDS.values() for key in command.own_keys} ^ set(ARGUMENTS)
    if differing:
        raise ValueError(f"ARGUMENTS must describe the arguments of all commands: {', '.join(sorted(differing))}")
    files.append(File.generated(config, PAGE, content=page(MAKEFILE.read_text(encoding="utf-8"))))
    return files
