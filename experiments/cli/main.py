"""The console command ``contrastive-reasoning``: the Makefile's targets, from any folder, after an install.

A command replaces this process by the one that ``make`` would start, so that signals, exit codes and messages are the
same. Only the standard library is imported before that, so help and errors appear at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version
from textwrap import fill

from experiments.cli.commands import COMMANDS, Command
from experiments.config.hints import did_you_mean
from experiments.system.terminal import protect_output

PROGRAM = "contrastive-reasoning"
USAGE_ERROR = 2
HELP, VERSION = ("help", "-h", "--help"), "--version"


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints help or an error and returns the exit code; else replaces this process by that of the command."""
    protect_output()
    first, *given = (sys.argv[1:] if arguments is None else arguments) or [""]
    if first in HELP or not first:
        print(overview())
        return 0 if first else USAGE_ERROR
    if first == VERSION:
        print(version(PROGRAM))
        return 0
    if first not in COMMANDS:
        return refuse(f"no command {first!r}; {did_you_mean(first, COMMANDS)}")
    command = COMMANDS[first]
    if {"-h", "--help"} & set(given):
        print(help_of(first, command))
        return 0
    # -m searches the working folder first, which may have another project's callbacks/ or experiments/
    os.environ["PYTHONSAFEPATH"] = "1"
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", command.module, *command.arguments(given)])


def overview() -> str:
    """Returns the help text with one line for each command."""
    rows = [f"  {name:<11} {command.summary}" for name, command in COMMANDS.items()]
    lines = [f"Usage: {PROGRAM} COMMAND [NAME] [key=value …]", "", *rows, ""]
    return "\n".join([*lines, f"{PROGRAM} COMMAND --help shows all options; {PROGRAM} {COMMANDS['exp'].example}"])


def help_of(name: str, command: Command) -> str:
    """Returns the help text of one command."""
    usage = fill(f"Usage: {PROGRAM} {name} {command.usage}".rstrip(), 100, subsequent_indent=" " * 4)
    lines = [usage, "", f"{command.summary[0].upper()}{command.summary[1:]}.", f"Example: {PROGRAM} {command.example}"]
    if command.names:
        plural = {"experiment": "experiments", "study": "studies"}[command.names]
        lines.append(f"NAME is one of the {plural} that {PROGRAM} list names.")
    if command.overrides:
        lines.append("key=value is any key of the configuration, or one of its groups with another choice.")
    return "\n".join(lines)


def refuse(sentence: str) -> int:
    print(f"{PROGRAM}: {sentence}", file=sys.stderr)
    return USAGE_ERROR


if __name__ == "__main__":
    sys.exit(main())
