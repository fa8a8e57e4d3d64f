"""``python -m benchmarks``: quiet before the libraries are imported, then the command."""

from __future__ import annotations

from experiments.system.terminal import be_quiet, protect_output


def main() -> None:
    be_quiet()
    protect_output()
    from benchmarks.command import main as command

    command()


if __name__ == "__main__":
    main()
