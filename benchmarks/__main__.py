"""``python -m benchmarks``: quiet before the libraries are imported, then the command."""

from __future__ import annotations

from experiments.system.quiet import be_quiet
from experiments.system.secret_streams import conceal_output


def main() -> None:
    be_quiet()
    conceal_output()
    from benchmarks.command import main as command

    command()


if __name__ == "__main__":
    main()
