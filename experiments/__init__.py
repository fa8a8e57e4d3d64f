"""The commands: training stages, sweeps, studies, run folders, MLflow and analysis. ``conf/`` holds what they run."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

PACKAGES = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "conf")


class OwnPackages:
    """Import hook: the packages next to this one win over a ``callbacks.py`` or ``conf/`` in the working folder."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(Path(__file__).resolve().parents[1])]) if name in PACKAGES else None


sys.meta_path.insert(0, OwnPackages)  # pyright: ignore[reportArgumentType]
if sys.flags.safe_path and not sys.flags.isolated:
    sys.path.append("")  # last on the path: the user's own code is in the working folder
