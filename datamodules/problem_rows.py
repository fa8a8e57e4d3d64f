"""The rows of a problem set as plain dictionaries: from the hub by name, or from a local file or folder of any kind."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

from yaml import YAMLError

from contrastive_reasoning.tasks.rows import PlacedRow

JSON_ENDINGS = (".jsonl", ".json")
BUILDERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv"}
REMOTE = ("https://", "hf://")
"""How the address of a single file begins."""
INSTEAD = "name a local file or folder as path"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class ProblemRows:
    """Where rows come from. Nothing is read before it is called; local files need no network."""

    path: str | None
    """A set's name on the hub, a file's address, or a local file or folder; None: to be named with :meth:`at`."""
    subset: str | None
    """Of a set on the hub; None for one that has none."""
    revision: str | None
    """Of a set on the hub by its name: a branch, a tag or a commit. None: its main branch when downloaded."""
    split: str
    """Of a set on the hub, and of a folder whose files are named by split."""
    file: str | None
    """The file of a local folder that is read where it is there; else, and with None, the files named by split."""

    @property
    def source(self) -> str:
        return self.path or "no path"

    def at(self, path: str) -> ProblemRows:
        """The same split of the same set, read from ``path``; a ``*`` in a file's name stands for anything."""
        return replace(self, path=path)

    def __call__(self) -> Iterator[PlacedRow]:
        """Every row, in the order of the file. A line of a local JSON file that is no row has its flaw instead.

        Raises:
            FileNotFoundError: where a named file is missing, or what is not here cannot be downloaded.
            ValueError: where there is no such split, a file cannot be read as what its name says, or a folder's own
                description names files outside of it, or a revision is named of what has none.
        """
        if self.path is None:
            raise FileNotFoundError(f"no path was named to read problems from: {INSTEAD}")
        here = self._found(Path(self.path).expanduser())
        if self.revision is not None and (here is not None or self.path.startswith(REMOTE)):
            raise ValueError(
                f"revision={self.revision} is of a set on the hub by its name, which {self.path} is not; leave it null "
                "(an address with hf:// holds it itself, as …@revision)"
            )
        if here is None:
            yield from self._downloaded(self.path)
            return
        try:
            yield from self._from_disk(here)
        except OSError as error:
            raise FileNotFoundError(f"{self.path}: {said(error)}") from error
        except (ValueError, RuntimeError) as error:  # RuntimeError: a loading script, which is not run
            raise ValueError(f"{self.path}: {said(error)}") from error

    def _found(self, here: Path) -> Path | None:
        """The local file or folder; None for a name on the hub or an address.

        Raises:
            FileNotFoundError: for what looks like a path and is none, or a folder without the rows of this split.
        """
        if here.is_dir():
            return self._inside(here)
        if here.is_file() or str(self.path).startswith(REMOTE):
            return here if here.is_file() else None
        if "*" in here.name and len(matching := list(here.parent.glob(here.name))) == 1:
            return matching[0]
        if here.suffix in BUILDERS or len(here.parts) > 2 or str(self.path).startswith((".", "~", "/")):
            raise FileNotFoundError(f"no file or folder {self.path!r} to read problems from")
        return None

    def _inside(self, folder: Path) -> Path:
        if self.file is not None and (folder / self.file).is_file():
            return folder / self.file
        by_split = any(entry.name.startswith(self.split) and entry.suffix in BUILDERS for entry in folder.iterdir())
        if self.file is None or by_split:
            return folder
        raise FileNotFoundError(f"the folder {self.path!r} holds neither {self.file} nor files named {self.split}")

    def _from_disk(self, here: Path) -> Iterator[PlacedRow]:
        """Streamed, so that nothing is copied into a cache."""
        from datasets import load_dataset

        if here.is_dir():
            yield from self._from_folder(here)
        elif here.suffix in JSON_ENDINGS:
            yield from json_rows(here)
        elif here.suffix in BUILDERS:
            yield from _numbered(
                load_dataset(BUILDERS[here.suffix], data_files=str(here), split="train", streaming=True)
            )
        else:
            raise ValueError(f"a file of problems ends in {', '.join(BUILDERS)}")

    def _from_folder(self, folder: Path, subset: str | None = None) -> Iterator[PlacedRow]:
        """The files that the folder's own description or their names give to this split."""
        from datasets import load_dataset_builder

        try:
            builder: Any = load_dataset_builder(str(folder), subset)
        except YAMLError as error:
            raise ValueError(f"the header of README.md is no plain YAML ({said(error)})") from error
        splits: Mapping[str, Sequence[str]] = builder.config.data_files
        if self.split not in splits:
            raise ValueError(f"Bad split: {self.split}. Available splits: {list(splits)}")
        files = [Path(os.path.normpath(file)) for file in splits[self.split]]
        outside = [file for file in files if not file.is_relative_to(os.path.abspath(folder))]
        if outside:
            raise ValueError(f"its README.md names a file outside of the folder: {outside[0]}")
        if any(file.suffix not in JSON_ENDINGS for file in files):
            yield from _numbered(builder.as_streaming_dataset(split=self.split))
            return
        for file in files:
            for place, row, flaw in json_rows(file):
                yield PlacedRow(place if len(files) == 1 else f"{file.name}, {place}", row, flaw)

    def _downloaded(self, name: str) -> Iterator[PlacedRow]:
        """Kept in the cache of the libraries below, and read from there without a network."""
        with download_errors(name, revision=self.revision, instead=INSTEAD):
            yield from self._from_hub(name)

    def _from_hub(self, name: str) -> Iterator[PlacedRow]:
        from datasets import load_dataset
        from huggingface_hub import snapshot_download

        if name.startswith(REMOTE):
            address, kind = name.replace("*", "%2A"), BUILDERS.get(Path(name).suffix, "json")
            yield from _numbered(load_dataset(kind, data_files=address, split="train"))
        elif self.revision is None:
            yield from _numbered(load_dataset(name, self.subset, split=self.split))
        else:
            # Without a network load_dataset takes the version of its cache that is newest, whatever the revision says.
            folder = snapshot_download(name, repo_type="dataset", revision=self.revision)
            yield from self._from_folder(Path(folder), self.subset)


@dataclass(frozen=True, kw_only=True)
class Download:
    """The local copy of a file at an address, which is downloaded once and then kept in the cache of the data sets."""

    instead: str
    """What to do where the address cannot be reached, for the message."""

    def __call__(self, address: str) -> Path:
        """
        Raises:
            FileNotFoundError: where the file is neither in the cache nor can be downloaded.
        """
        from datasets import DownloadConfig, DownloadManager

        # without an etag what is in the cache needs no network; an address names one version of a file
        settings = DownloadConfig(use_etag=False, disable_tqdm=True)
        with download_errors(address, revision=None, instead=self.instead):
            return Path(str(DownloadManager(download_config=settings).download(address)))


@contextmanager
def download_errors(name: str, *, revision: str | None, instead: str) -> Iterator[None]:
    """What a download may raise, as a FileNotFoundError or a ValueError of one sentence; a full disk as it is."""
    from datasets.exceptions import DatasetNotFoundError, DatasetsError
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except (DatasetNotFoundError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        which = name if revision is None else f"{name} at revision {revision}"
        raise FileNotFoundError(f"{which} is not on the hub for you ({said(error)}); {instead}") from error
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise
        offline = f"cannot be reached and was not downloaded before ({said(error)}); {instead}"
        raise FileNotFoundError(f"{name}: {offline}") from error
    except (ValueError, RuntimeError, DatasetsError) as error:  # RuntimeError: a loading script, which is not run
        raise ValueError(f"{name}: {said(error)}") from error


def _numbered(rows: Any) -> Iterator[PlacedRow]:
    return (PlacedRow(f"row {index}", row) for index, row in enumerate(rows))


def said(error: BaseException) -> str:
    """The first line of what an error says."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class _Twice(ValueError):
    """An object that names a key twice: which of the values is meant?"""


def json_rows(path: Path) -> Iterator[PlacedRow]:
    """Every row of a file of JSON lines, or of one JSON list (``.json`` alone); empty lines are none.

    A byte order mark and any kind of line end are passed over. A line that is not UTF-8, no JSON or no object, or that
    names a key twice, is a row without columns, with that as its flaw.

    Raises:
        ValueError: for a list that cannot be read, of which no row can be told from another.
    """
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(_BOM).lstrip()
        file.seek(0)
        if path.suffix == ".json" and head.startswith(b"["):
            items, flaw = _decoded(file.read())
            if flaw or not isinstance(items, list):
                raise ValueError(flaw or "no JSON list")
            yield from [_row(f"row {index}", item) for index, item in enumerate(items)]
            return
        for number, line in enumerate(file, start=1):
            if content := (line.removeprefix(_BOM) if number == 1 else line).strip():
                yield _row(f"line {number}", *_decoded(content))


def _row(place: str, value: Any, flaw: str = "") -> PlacedRow:
    if not flaw and not isinstance(value, dict):
        flaw = f"no object of columns but {type(value).__name__}"
    return PlacedRow(place, {} if flaw else value, flaw)


def _decoded(content: bytes) -> tuple[Any, str]:
    """What a text of JSON says, or why it says nothing."""
    try:
        return json.loads(content.removeprefix(_BOM).decode("utf-8"), object_pairs_hook=_once), ""
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except _Twice as error:
        return None, str(error)
    except json.JSONDecodeError as error:
        return None, f"not valid JSON ({error.msg})"
    except (ValueError, RecursionError):  # a number of more digits than Python reads, or lists in lists
        return None, "not valid JSON (too deep, or a number of too many digits)"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(f"names {next(name for name in names if names.count(name) > 1)!r} twice")
    return found
