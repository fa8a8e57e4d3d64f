"""The reference of commands, generated from the Makefile and the commands' own help when the site is built."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

from experiments.cli.commands import COMMANDS

MAKEFILE = Path(__file__).resolve().parents[2] / "Makefile"
TARGET = re.compile(r"^([a-z-]+):.*?## (.*?)(?::  (.*))?$", re.M)
TAKES = re.compile(r"^([a-z-]+)_takes := (.+)$", re.M)
PAGE = "commands.md"
HEAD = """\
# Commands

Each command is a target of `make` in a clone. After `pip install .` those with a section below are also commands of
`contrastive-reasoning`, in any folder. There the name comes first, and all other arguments follow. `make` takes the
variables of the table, and all other arguments in `over='…'`. `make bench over=--help` and `make gpu-check over=--help`
list the options of these two. `key=value` stands for a [key of the configuration](configuration/index.md).

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


def page(makefile: str) -> str:
    """The page: exit codes, the targets of ``makefile`` with their variables, and the help of each command."""
    takes = {target: variables.split() for target, variables in TAKES.findall(makefile)}
    lines, examples = [], {}
    for target, summary, example in TARGET.findall(makefile):
        name = f"[`{target}`](#{target})" if target in COMMANDS else f"`{target}`"
        variables = " ".join(f"`{variable}`" for variable in takes.get(target, []))
        lines.append(f"| {name} | {summary} | {variables} |")
        examples[target] = f"make {target} {example.partition(', ')[0]}".rstrip()
    for name, command in COMMANDS.items():
        lines += ["", f"## {name} {{ #{name} }}", "", "```text", examples[name], "", command.format_help() + "```"]
    return HEAD + "\n".join(lines) + "\n"


def on_files(files: Files, config: Any) -> Files:
    files.append(File.generated(config, PAGE, content=page(MAKEFILE.read_text(encoding="utf-8"))))
    return files
