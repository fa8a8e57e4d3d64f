"""A folder of YAML files of one's own beside the house's: ``--config-dir FOLDER``, whose groups add to those of conf/.

The processes that a run starts (ranks, jobs of a sweep) find it by a variable, which may as well be set by hand: then
every command reads it.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from hydra._internal.hydra import Hydra
from hydra._internal.utils import create_automatic_config_search_path
from hydra.core.config_search_path import SearchPathQuery
from hydra.core.global_hydra import GlobalHydra
from hydra.version import setbase

VARIABLE = "CONTRASTIVE_REASONING_CONF"


OPTIONS = ("--config-dir", "-cd")


class NoFolder(ValueError):
    """One sentence for the person who asked."""


def remember(arguments: Sequence[str]) -> list[str]:
    """The arguments without the folder, which is kept for this process and those that it starts.

    Raises:
        NoFolder: where there is no such folder, or none is named.
    """
    left, folder = [], os.environ.get(VARIABLE)
    rest = iter(arguments)
    for argument in rest:
        option, equals, value = argument.partition("=")
        if option in OPTIONS:
            folder = value if equals else next(rest, "")
        else:
            left.append(argument)
    if folder is not None:
        if not folder or not Path(folder).is_dir():
            raise NoFolder(f"--config-dir {folder}: no such folder")
        os.environ[VARIABLE] = str(Path(folder).resolve())
    return left


def hydra_arguments() -> list[str]:
    """What tells Hydra's own command line of the folder; after the overrides, which it wants in one piece."""
    return ["--config-dir", os.environ[VARIABLE]] if VARIABLE in os.environ else []


@contextmanager
def every_conf() -> Iterator[None]:
    """Within it ``hydra.compose`` finds the house's configuration and one's own, in the order of ``--config-dir``."""
    before = GlobalHydra.instance().hydra
    setbase("1.3")
    path = create_automatic_config_search_path(None, "conf.app", None)
    if VARIABLE in os.environ:
        path.prepend(
            "command-line", f"file://{Path(os.environ[VARIABLE]).resolve()}", anchor=SearchPathQuery(provider="schema")
        )
    GlobalHydra.instance().clear()
    try:
        Hydra.create_main_hydra2("app", path)
        yield
    finally:
        GlobalHydra.instance().hydra = before
