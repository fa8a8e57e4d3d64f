"""``python -m benchmarks``: silences the libraries before they are imported, then runs the command."""

from __future__ import annotations

from experiments.system.terminal import be_quiet, protect_output

if __name__ == "__main__":
    be_quiet()
    protect_output()
    from benchmarks.command import main

    main()
