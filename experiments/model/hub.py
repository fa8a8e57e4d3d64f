"""Fetches a model from the Hugging Face hub at the commit of a revision. An interrupted download is resumed."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from httpx2 import HTTPError
from huggingface_hub import HfApi, snapshot_download
from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

from experiments.model.folder import FetchError, finish, partial_of
from experiments.system.checksums import checksums
from experiments.system.terminal import first_line

REVISION = "main"
ENDINGS = (".json", ".safetensors", ".model", ".txt", ".jinja", ".py", ".md")
"""Endings of the top-level files that are fetched. Weights in other formats are not."""
PACKAGES = ("huggingface_hub",)


def fetch(name: str, revision: str | None, folder: Path) -> None:
    """Downloads the model into ``folder``. After a failure the next call resumes the download.

    Raises:
        FetchError: without a network, for a model or revision that this account cannot access, for one without
            safetensors, or for a file that differs from the hub's.
    """
    revision = revision or REVISION
    with _hub_errors(name, revision):
        info = HfApi().model_info(name, revision=revision, files_metadata=True)
    wanted = {
        file.rfilename: file
        for file in info.siblings or []
        if "/" not in file.rfilename and (file.rfilename.endswith(ENDINGS) or file.rfilename == "LICENSE")
    }
    if "config.json" not in wanted or not any(file.endswith(".safetensors") for file in wanted):
        raise FetchError(f"{name}: that repository holds no config.json with weights as safetensors")
    partial = partial_of(folder, str(info.sha))
    partial.mkdir(exist_ok=True)
    with _hub_errors(name, revision):
        snapshot_download(name, revision=info.sha, local_dir=partial, allow_patterns=[*wanted])
    shutil.rmtree(partial / ".cache", ignore_errors=True)  # huggingface_hub's metadata of the download
    _check(name, wanted, partial)
    card = info.card_data
    origin = {"name": name, "revision": revision, "commit": info.sha, "licence": card.get("license") if card else None}
    finish(partial, folder, origin, packages=PACKAGES)


def _check(name: str, wanted: dict[str, Any], partial: Path) -> None:
    """Checks that every file has the hub's size, and its hash if the hub gives one (large files)."""
    found = checksums(partial)
    for file, expected in wanted.items():
        there = found.get(file, {"bytes": 0, "sha256": ""})
        hashed = expected.lfs.sha256 if expected.lfs else there["sha256"]
        if there["bytes"] != expected.size or there["sha256"] != hashed:
            shutil.rmtree(partial)
            raise FetchError(f"{name}: {file} is not the hub's (its size or sha256 differs); nothing was kept")


@contextmanager
def _hub_errors(name: str, revision: str) -> Iterator[None]:
    """Turns errors of the hub and of the network into a FetchError of one sentence."""
    try:
        yield
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise FetchError(
            f"{name} at revision {revision} is not on the hub for you ({first_line(error)}); for a gated model accept "
            "its licence there and set HF_TOKEN"
        ) from error
    except (HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk
            raise
        raise FetchError(f"{name}: the hub cannot be reached ({first_line(error)})") from error
