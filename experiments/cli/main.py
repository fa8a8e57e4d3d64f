"""The console command ``contrastive-reasoning``: the Makefile's targets, from any folder, after an install.

A command replaces this process by the one that ``make`` would start, so that signals, exit codes and messages are the
same. Only the standard library is imported before that, so help and errors appear at once.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Sequence
from importlib.metadata import version

from experiments.cli.commands import COMMANDS, PROGRAM
from experiments.config.hints import did_you_mean
from experiments.system.terminal import USAGE_ERROR, protect_output


def main(arguments: Sequence[str] | None = None) -> int:
    """Prints help or an error and returns the exit code; else replaces this process by that of the command."""
    protect_output()
    first, *given = (sys.argv[1:] if arguments is None else arguments) or [""]
    if first in ("", "help", "-h", "--help"):
        print(overview())
        return 0 if first else USAGE_ERROR
    if first == "--version":
        print(version(PROGRAM))
        return 0
    if first not in COMMANDS:
        print(f"{PROGRAM}: no command {first!r}; {did_you_mean(first, COMMANDS)}", file=sys.stderr)
        return USAGE_ERROR
    command = COMMANDS[first]
    if {"-h", "--help"} & set(given):
        print(command.format_help(), end="")
        return 0
    # -m searches the working folder first, which may have another project's callbacks/ or experiments/
    os.environ["PYTHONSAFEPATH"] = "1"
    os.execv(sys.executable, [sys.executable, "-m", command.module, *command.convert(given)])


def overview() -> str:
    """Returns the help text with one line for each command."""
    rows = [f"  {name:<11} {command.summary}" for name, command in COMMANDS.items()]
    lines = [f"Usage: {PROGRAM} COMMAND [NAME] [key=value …]", "", *rows, ""]
    return "\n".join([*lines, f"{PROGRAM} COMMAND --help shows all options; {PROGRAM} exp {COMMANDS['exp'].example}"])


if __name__ == "__main__":
    sys.exit(main())
