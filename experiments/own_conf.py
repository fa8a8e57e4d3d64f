"""A folder of YAML files of one's own beside the house's: ``--config-dir FOLDER``, whose groups add to those of conf/.

The processes that a run starts (ranks, jobs of a sweep) find it by a variable, which may as well be set by hand: then
every command reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.singleton import Singleton
from hydra.version import setbase

VARIABLE = "CONTRASTIVE_REASONING_CONF"


def remember(folder: str | None) -> str | None:
    """Keep the folder for this process and those that it starts; what is wrong with it, in one sentence."""
    folder = folder or os.environ.get(VARIABLE)
    if folder is None:
        return None
    if not Path(folder).is_dir():
        return f"--config-dir {folder}: no such folder"
    os.environ[VARIABLE] = str(Path(folder).resolve())
    return None


def hydra_arguments() -> list[str]:
    """What tells Hydra's own command line of the folder."""
    return ["--config-dir", os.environ[VARIABLE]] if VARIABLE in os.environ else []


@contextmanager
def every_conf() -> Iterator[None]:
    """Within it ``hydra.compose`` finds the house's configuration and one's own, in the order of ``--config-dir``."""
    before = Singleton.get_state()
    setbase("1.3")
    path = create_automatic_config_search_path(None, "conf.app", None)
    if VARIABLE in os.environ:
        path.prepend("command-line", f"file://{os.environ[VARIABLE]}", anchor=SearchPathQuery(provider="schema"))
    try:
        Hydra.create_main_hydra2("app", path)
        yield
    finally:
        Singleton.set_state(before)
