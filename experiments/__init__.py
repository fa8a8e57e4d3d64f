"""Everything that runs: the entry, the stages, the run folder, MLflow. See ``conf/`` for what there is to run."""

import sys
from importlib.machinery import ModuleSpec, PathFinder
from pathlib import Path

PACKAGES = ("contrastive_reasoning", "lightning_modules", "datamodules", "callbacks", "benchmarks", "conf")


class OwnPackages:
    """Finds the packages beside this one before a ``callbacks.py`` or ``conf/`` of the working folder or PYTHONPATH."""

    @staticmethod
    def find_spec(name: str, path: object = None, target: object = None) -> ModuleSpec | None:
        return PathFinder.find_spec(name, [str(Path(__file__).resolve().parents[1])]) if name in PACKAGES else None


sys.meta_path.insert(0, OwnPackages)  # pyright: ignore[reportArgumentType]
if sys.flags.safe_path and not sys.flags.isolated:
    sys.path.append("")  # behind all else: code of one's own lies in the working folder
