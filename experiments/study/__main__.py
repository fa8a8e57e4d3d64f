"""``python -m experiments.study NAME``: quiet before the libraries are imported, then the command."""

from __future__ import annotations

import sys

from experiments.system.terminal import be_quiet, protect_output


def main() -> int:
    be_quiet()
    protect_output()
    from experiments.study.command import main as command

    return command(sys.argv[1:])


if __name__ == "__main__":
    sys.exit(main())
