"""``python -m experiments.bench``: quiet before the libraries are imported, then the command."""

from __future__ import annotations

from experiments.machine.quiet import be_quiet
from experiments.machine.secret_streams import conceal_output


def main() -> None:
    be_quiet()
    conceal_output()
    from experiments.bench.command import main as command

    command()


if __name__ == "__main__":
    main()
