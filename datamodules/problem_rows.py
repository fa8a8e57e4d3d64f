"""The rows of a problem set as plain dictionaries: from the hub by name or URL, or from a local file or folder."""

from __future__ import annotations

import csv
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from errno import EDQUOT, ENOSPC
from pathlib import Path
from typing import Any

from yaml import YAMLError

from contrastive_reasoning.tasks.rows import PlacedRow, WrittenFloat

JSON_ENDINGS = (".jsonl", ".json")
DELIMITERS = {".csv": ",", ".tsv": "\t"}
BUILDERS = {".parquet": "parquet", ".jsonl": "json", ".json": "json", ".csv": "csv", ".tsv": "csv"}
REMOTE = ("https://", "hf://")
"""Prefixes of the URL of a single file."""
INSTEAD = "name a local file or folder as path"
_BOM = b"\xef\xbb\xbf"


@dataclass(frozen=True, kw_only=True)
class ProblemRows:
    """The source of a set's rows. Nothing is read before it is called; local files need no network."""

    path: str | None
    """A set's name on the hub, a file's URL, or a local file or folder. None: it must be given with :meth:`at`."""
    subset: str | None
    """The subset of a set on the hub; None if the set has no subsets."""
    revision: str | None
    """The revision of a set given by its name on the hub: a branch, a tag or a commit. None: its main branch at
    download time."""
    split: str
    """The split of a set on the hub, or of a folder whose files are named by split."""
    file: str | None
    """The file to read from a local folder, if it exists. Otherwise, and with None: the files named by split."""

    @property
    def source(self) -> str:
        return self.path or "no path"

    def at(self, path: str) -> ProblemRows:
        """The same split of the same set, read from ``path``; a ``*`` in the file name matches any text."""
        return replace(self, path=path)

    def __call__(self) -> Iterator[PlacedRow]:
        """Yields every row in file order. A line of a local JSON file that is not a row has a flaw instead.

        Raises:
            FileNotFoundError: if a given file is missing, or the set can be neither found locally nor downloaded.
            ValueError: if the split does not exist, or a file does not have the format of its suffix. Also if a
                folder's description names files outside it, or a revision is given for a source without revisions.
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
            raise FileNotFoundError(f"{self.path}: {first_line(error)}") from error
        except (ValueError, RuntimeError) as error:  # RuntimeError: a loading script, which is not run
            raise ValueError(f"{self.path}: {first_line(error)}") from error

    def _found(self, here: Path) -> Path | None:
        """The local file or folder; None for a name on the hub or a URL.

        Raises:
            FileNotFoundError: if ``path`` looks like a local path but does not exist, or a folder has no rows of this
                split.
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
        """Yields the rows of a local file or folder, streamed, so that nothing is copied into a cache."""
        if here.is_dir():
            yield from self._from_folder(here)
        elif here.suffix in JSON_ENDINGS:
            yield from json_rows(here)
        elif here.suffix in DELIMITERS:
            yield from csv_rows(here, delimiter=DELIMITERS[here.suffix])
        elif here.suffix == ".parquet":
            from datasets import load_dataset

            yield from _number_rows(load_dataset("parquet", data_files=str(here), split="train", streaming=True))
        else:
            raise ValueError(f"a file of problems ends in {', '.join(BUILDERS)}")

    def _from_folder(self, folder: Path, subset: str | None = None) -> Iterator[PlacedRow]:
        """Yields the rows of the files that the folder's description or their names assign to this split."""
        from datasets import load_dataset_builder

        try:
            builder: Any = load_dataset_builder(str(folder), subset)
        except YAMLError as error:
            raise ValueError(f"the header of README.md is not plain YAML ({first_line(error)})") from error
        splits: Mapping[str, Sequence[str]] = builder.config.data_files
        if self.split not in splits:
            raise ValueError(f"Bad split: {self.split}. Available splits: {list(splits)}")
        files = [Path(os.path.normpath(file)) for file in splits[self.split]]
        outside = [file for file in files if not file.is_relative_to(os.path.abspath(folder))]
        if outside:
            raise ValueError(f"its README.md names a file outside of the folder: {outside[0]}")
        if any(file.suffix not in (*JSON_ENDINGS, *DELIMITERS) for file in files):
            yield from _number_rows(builder.as_streaming_dataset(split=self.split))
            return
        for file in files:
            rows = json_rows(file) if file.suffix in JSON_ENDINGS else csv_rows(file, delimiter=builder.config.sep)
            for place, row, flaw in rows:
                yield PlacedRow(place if len(files) == 1 else f"{file.name}, {place}", row, flaw)

    def _downloaded(self, name: str) -> Iterator[PlacedRow]:
        """Yields the rows of a set on the hub. The libraries cache it and can then read it without a network."""
        with download_errors(name, revision=self.revision, instead=INSTEAD):
            yield from self._from_hub(name)

    def _from_hub(self, name: str) -> Iterator[PlacedRow]:
        from huggingface_hub import snapshot_download

        if name.startswith(REMOTE):
            address, suffix = name.replace("*", "%2A"), Path(name).suffix
            sep = {"sep": DELIMITERS[suffix]} if suffix in DELIMITERS else {}
            yield from _number_rows(_loaded(BUILDERS.get(suffix, "json"), data_files=address, split="train", **sep))
        elif self.revision is None:
            yield from _number_rows(_loaded(name, self.subset, split=self.split))
        else:
            # without a network, load_dataset ignores the revision and uses the newest version in its cache
            folder = snapshot_download(name, repo_type="dataset", revision=self.revision)
            yield from self._from_folder(Path(folder), self.subset)


@dataclass(frozen=True, kw_only=True)
class Download:
    """Returns the local copy of a file at a URL, which is downloaded once and kept in the cache of ``datasets``."""

    instead: str
    """Advice for the error message if the URL cannot be reached."""

    def __call__(self, address: str) -> Path:
        """
        Raises:
            FileNotFoundError: if the file is not in the cache and cannot be downloaded.
        """
        from datasets import DownloadConfig, DownloadManager

        # without an etag a cached file needs no network; a URL is assumed to refer to one version of a file
        settings = DownloadConfig(use_etag=False, disable_tqdm=True)
        with download_errors(address, revision=None, instead=self.instead):
            return Path(str(DownloadManager(download_config=settings).download(address)))


@contextmanager
def download_errors(name: str, *, revision: str | None, instead: str) -> Iterator[None]:
    """Converts exceptions of a download to a one-sentence FileNotFoundError or ValueError, except for a full disk."""
    from datasets.exceptions import DatasetNotFoundError, DatasetsError
    from huggingface_hub.errors import RepositoryNotFoundError, RevisionNotFoundError

    try:
        yield
    except (DatasetNotFoundError, RepositoryNotFoundError, RevisionNotFoundError) as error:
        which = name if revision is None else f"{name} at revision {revision}"
        raise FileNotFoundError(f"{which} is not on the hub for you ({first_line(error)}); {instead}") from error
    except OSError as error:
        if error.errno in (ENOSPC, EDQUOT):
            raise
        offline = f"cannot be reached and was not downloaded before ({first_line(error)}); {instead}"
        raise FileNotFoundError(f"{name}: {offline}") from error
    except (ValueError, RuntimeError, DatasetsError) as error:  # RuntimeError: a loading script, which is not run
        raise ValueError(f"{name}: {first_line(error)}") from error


def _loaded(*where: Any, **settings: Any) -> Any:
    """Calls ``load_dataset``; every column of a CSV set is text, as in ``csv_rows``."""
    from datasets import Features, Value, load_dataset

    rows: Any = load_dataset(*where, **settings)
    if getattr(rows, "builder_name", None) != "csv":
        return rows
    texts = Features({column: Value("string") for column in rows.column_names})
    return load_dataset(*where, **settings, features=texts, keep_default_na=False, na_filter=False)


def _number_rows(rows: Any) -> Iterator[PlacedRow]:
    return (PlacedRow(f"row {index}", row) for index, row in enumerate(rows))


def first_line(error: BaseException) -> str:
    """The first line of an error's message; its class name if the message is empty."""
    return next(iter(str(error).splitlines()), type(error).__name__)


class _Twice(ValueError):
    """Raised for a JSON object with a duplicate key, whose value is ambiguous."""


def json_rows(path: Path) -> Iterator[PlacedRow]:
    """Yields every row of a JSON-lines file, or of one JSON list (only in ``.json`` files); empty lines are skipped.

    A byte order mark and line ends are ignored. A line that is not UTF-8, not JSON, not an object, or that has a
    duplicate key yields a row without columns, with the reason as its flaw.

    Raises:
        ValueError: if a JSON list cannot be read; its rows cannot be separated in that case.
    """
    with path.open("rb") as file:
        head = file.read(4096).removeprefix(_BOM).lstrip()
        file.seek(0)
        if path.suffix == ".json" and head.startswith(b"["):
            items, flaw = _decode(file.read())
            if flaw or not isinstance(items, list):
                raise ValueError(flaw or "no JSON list")
            yield from [_row(f"row {index}", item) for index, item in enumerate(items)]
            return
        for number, line in enumerate(file, start=1):
            if content := (line.removeprefix(_BOM) if number == 1 else line).strip():
                yield _row(f"line {number}", *_decode(content))


def csv_rows(path: Path, *, delimiter: str) -> Iterator[PlacedRow]:
    """Yields every row of a CSV or TSV file with a header; empty lines are skipped.

    Every value is the text of its cell: a number keeps its spelling (007, 2.50), and no word stands for a missing
    value. Cells that a row lacks at its end are empty. A row with more cells than the header has a flaw.

    Raises:
        ValueError: if the file is not UTF-8, has an open quote, or names a column twice.
    """
    csv.field_size_limit(2**31 - 1)  # by default a long cell would reject the whole file
    with path.open(encoding="utf-8-sig", newline="") as file:
        lines = filter(None, csv.reader(file, delimiter=delimiter, strict=True))
        try:
            header = next(lines, [])
            if len(set(header)) < len(header):
                raise ValueError(f"names column {next(one for one in header if header.count(one) > 1)!r} twice")
            for index, cells in enumerate(lines):
                more = len(cells) > len(header)
                flaw = f"{len(cells)} cells in {len(header)} columns" if more else ""
                cells += [""] * (len(header) - len(cells))
                yield PlacedRow(f"row {index}", {} if flaw else dict(zip(header, cells, strict=True)), flaw)
        except csv.Error as error:
            raise ValueError(f"not valid CSV ({error})") from error


def _row(place: str, value: Any, flaw: str = "") -> PlacedRow:
    if not flaw and not isinstance(value, dict):
        flaw = f"no object of columns but {type(value).__name__}"
    return PlacedRow(place, {} if flaw else value, flaw)


def _decode(content: bytes) -> tuple[Any, str]:
    """Returns the value of a JSON text and "", or None and the reason why it cannot be read."""
    try:
        text = content.removeprefix(_BOM).decode("utf-8")
        return json.loads(text, object_pairs_hook=_once, parse_float=WrittenFloat), ""
    except UnicodeDecodeError:
        return None, "not UTF-8"
    except _Twice as error:
        return None, str(error)
    except json.JSONDecodeError as error:
        return None, f"not valid JSON ({error.msg})"
    except (ValueError, RecursionError):  # a number with more digits than Python reads, or too deep nesting
        return None, "not valid JSON (too deep, or a number of too many digits)"


def _once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(f"names {next(name for name in names if names.count(name) > 1)!r} twice")
    return found
