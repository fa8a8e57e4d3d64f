"""``ProblemRows`` reads all supported files without a network; what cannot be read raises a one-line error."""

from __future__ import annotations

import csv
import json
from collections.abc import Mapping
from dataclasses import replace
from errno import ENOSPC
from pathlib import Path
from typing import Any
from unittest.mock import Mock, call

import datasets
import huggingface_hub.constants
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from datasets.exceptions import DatasetGenerationError, DatasetNotFoundError
from datasets.utils.file_utils import hash_url_to_filename

from contrastive_reasoning.tasks.rows import Rows
from datamodules.problem_rows import Download, ProblemRows, _loaded, json_rows
from tests.hostile.trap import module, pickled

CHAT = [
    {"prompt": [{"role": "user", "content": f"What is {n}+1?"}], "reward_model": {"ground_truth": str(n + 1)}}
    for n in range(3)
]
PLACE: dict[str, Any] = {"subset": None, "revision": None, "split": "train", "file": None}


@pytest.fixture(autouse=True)
def no_network(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("socket.getaddrinfo", Mock(side_effect=AssertionError("a local file needs no network")))


def read(path: Path | str, *, split: str = "train", file: str | None = None) -> list[Mapping[str, Any]]:
    """Reads the rows, without their places."""
    return [found.row for found in ProblemRows(path=str(path), **PLACE | {"split": split, "file": file})()]


def lines(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return path


def test_nested_rows_are_read_in_order(tmp_path: Path) -> None:
    pq.write_table(pa.Table.from_pylist(CHAT), tmp_path / "set.parquet")
    (tmp_path / "set.json").write_text(json.dumps(CHAT))
    lines(tmp_path / "set.jsonl", CHAT)
    assert [read(path, split="any") for path in tmp_path.iterdir()] == [CHAT] * 3


TEXTS = ["007", "2.50", "1e2", "None", "NA", "nan", "null", "true", "1" * 23, "-0", "", ' "', "a,b", "x\ty", "1\n2"]


@pytest.mark.parametrize(("ending", "delimiter"), [(".csv", ","), (".tsv", "\t")])
@pytest.mark.parametrize("in_folder", [False, True])
def test_cells_of_a_table_of_text_keep_their_text(tmp_path: Path, ending: str, delimiter: str, in_folder: bool) -> None:
    path = tmp_path / f"train{ending}"
    with path.open("w", newline="") as file:
        csv.writer(file, delimiter=delimiter).writerows([["n", "answer"], *enumerate(TEXTS)])
    rows = read(tmp_path if in_folder else path)
    assert rows == [{"n": str(n), "answer": text} for n, text in enumerate(TEXTS)]
    loaded = _loaded("csv", data_files=str(path), split="train", sep=delimiter, cache_dir=str(tmp_path / "cache"))
    assert [dict(row) for row in loaded] == rows


def test_rows_of_other_lengths_and_double_columns_are_reported(tmp_path: Path) -> None:
    path = tmp_path / "set.csv"
    path.write_text("question,answer\n\nHow many?\nHow many?,4,5\nHow many?,4\n")
    rows = list(ProblemRows(path=str(path), **PLACE)())
    assert [(row.place, dict(row.row), bool(row.flaw)) for row in rows] == [
        ("row 0", {"question": "How many?", "answer": ""}, False),
        ("row 1", {}, True),
        ("row 2", {"question": "How many?", "answer": "4"}, False),
    ]
    for content in ("answer,answer\n4,5\n", 'question,answer\n"How many?,4\n'):
        path.write_text(content)
        with pytest.raises(ValueError, match=r"set\.csv: "):
            read(path)


def test_split_selects_files_of_a_folder_by_name(tmp_path: Path) -> None:
    for name in ("train-0", "train-1", "test"):
        lines(tmp_path / f"{name}.jsonl", CHAT[2:] if name == "test" else CHAT[:1])
    rows = list(ProblemRows(path=str(tmp_path), **PLACE)())
    assert [row.place for row in rows] == ["train-0.jsonl, line 1", "train-1.jsonl, line 1"]
    assert [row.row for row in rows] == CHAT[:1] * 2
    assert read(tmp_path, split="test") == CHAT[2:]
    with pytest.raises(ValueError, match="validation"):
        read(tmp_path, split="validation")


def test_file_option_selects_one_file_of_a_folder(tmp_path: Path) -> None:
    lines(tmp_path / "train" / "one.jsonl", CHAT[:1])
    lines(tmp_path / "train" / "two.jsonl", CHAT[1:])
    assert read(tmp_path, file="train/two.jsonl") == CHAT[1:]
    with pytest.raises(FileNotFoundError, match=r"train/absent\.jsonl"):
        read(tmp_path, file="train/absent.jsonl")  # all of train/ would mix two sets
    lines(tmp_path / "train.jsonl", CHAT)
    assert read(tmp_path, file="absent.jsonl") == CHAT


def test_star_in_path_matches_one_file(tmp_path: Path) -> None:
    lines(tmp_path / "set_x2.jsonl", CHAT)
    assert read(tmp_path / "set*2.jsonl") == CHAT
    (tmp_path / "set_x2.jsonl").rename(tmp_path / "set*2.jsonl")  # a file name that contains a star
    assert read(tmp_path / "set*2.jsonl") == CHAT
    lines(tmp_path / "other.jsonl", CHAT)
    with pytest.raises(FileNotFoundError, match=r"\*\.jsonl"):
        read(tmp_path / "*.jsonl")


def test_problem_rows_reads_nothing_before_the_call() -> None:
    assert isinstance(ProblemRows(path="nowhere", **PLACE), Rows)
    with pytest.raises(FileNotFoundError, match="path"):
        list(ProblemRows(path=None, **PLACE)())


@pytest.mark.parametrize("path", ["no/such/file.parquet", "./absent", "/absent", "absent.jsonl", "a/b/c"])
def test_missing_path_raises_without_hub_access(path: str) -> None:
    with pytest.raises(FileNotFoundError, match=f"'{path}'"):
        read(path)


def test_unreadable_files_raise(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=str(tmp_path)):
        read(tmp_path)
    (tmp_path / "set.txt").write_text("one\n")
    with pytest.raises(ValueError, match=r"set\.txt.*\.parquet, \.jsonl, \.json, \.csv"):
        read(tmp_path / "set.txt")
    (tmp_path / "torn.json").write_text('[{"question": "How many?"}, {"quest')
    with pytest.raises(ValueError, match=r"torn\.json.*JSON"):
        read(tmp_path / "torn.json")


@pytest.mark.parametrize("name", ["set.pkl", "set.parquet", "set.csv", "lines.json", "lines.jsonl"])
def test_pickle_is_not_loaded_under_any_file_name(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(pickled(tmp_path / "canary"))
    if name.startswith("lines"):
        rows = list(ProblemRows(path=str(tmp_path / name), **PLACE)())
        assert {row.flaw for row in rows} == {"not UTF-8"}
    else:
        with pytest.raises(ValueError, match=name):
            read(tmp_path / name)
    assert not (tmp_path / "canary").exists()


@pytest.mark.parametrize("with_data", [False, True])
def test_loading_script_is_rejected_and_not_run(tmp_path: Path, with_data: bool) -> None:
    folder = tmp_path / "some_set"
    folder.mkdir()
    (folder / "some_set.py").write_text(module(tmp_path / "canary", "Builder"))
    if with_data:
        lines(folder / "train.jsonl", CHAT)
    with pytest.raises(ValueError, match=r"some_set\.py"):
        read(folder)
    assert not (tmp_path / "canary").exists()


def read_with_header(folder: Path, header: str) -> None:
    """Reads a folder whose README.md has ``header`` as its YAML header."""
    lines(folder / "train.jsonl", CHAT)
    (folder / "README.md").write_text(f"---\n{header}\n---\n")
    read(folder)


@pytest.mark.parametrize("outside", ["../private.jsonl", "{root}/private.jsonl"])
def test_readme_with_a_file_outside_the_folder_is_rejected(tmp_path: Path, outside: str) -> None:
    lines(tmp_path / "private.jsonl", CHAT)
    path = outside.format(root=tmp_path)
    header = f"configs:\n- config_name: default\n  data_files:\n  - split: train\n    path: '{path}'"
    with pytest.raises(ValueError, match=rf"README\.md.*{tmp_path}/private\.jsonl"):
        read_with_header(tmp_path / "set", header)


def test_readme_header_with_python_tag_is_rejected_and_not_run(tmp_path: Path) -> None:
    canary = tmp_path / "canary"
    with pytest.raises(ValueError, match=r"README\.md.*YAML"):
        read_with_header(tmp_path / "set", f"x: !!python/object/apply:os.system ['touch {canary}']")
    assert not canary.exists()


def test_hub_name_and_file_url_are_passed_to_load_dataset(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets, "load_dataset", load := Mock(return_value=CHAT))
    rows = ProblemRows(path="someone/some-set", subset="main", revision=None, split="test", file="train/two.jsonl")
    assert [found.row for found in rows()] == read("https://example.org/data/set*2.parquet", split="test") == CHAT
    assert load.call_args_list == [
        call("someone/some-set", "main", split="test"),
        call("parquet", data_files="https://example.org/data/set%2A2.parquet", split="train"),
    ]


@pytest.fixture
def offline(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The hub's cache without a network, with two versions of one set: the tag ``v1`` and the newer ``main``."""
    cached = tmp_path / "datasets--someone--some-set"
    for commit, (revision, questions) in enumerate({"v1": ["old"], "main": ["old", "new"]}.items(), start=1):
        sha = f"{commit:040x}"
        (cached / "refs").mkdir(parents=True, exist_ok=True)
        (cached / "refs" / revision).write_text(sha)
        for subset in ("easy", "hard"):
            file = cached / "snapshots" / sha / subset / "test.jsonl"
            file.parent.mkdir(parents=True)
            file.write_text("".join(json.dumps({"question": f"{subset} {question}"}) + "\n" for question in questions))
        header = "".join(f"- config_name: {subset}\n  data_dir: {subset}\n" for subset in ("easy", "hard"))
        (cached / "snapshots" / sha / "README.md").write_text(f"---\nconfigs:\n{header}---\n")
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_CACHE", str(tmp_path))
    monkeypatch.setattr(huggingface_hub.constants, "HF_HUB_OFFLINE", True)
    return cached


@pytest.mark.usefixtures("offline")
@pytest.mark.parametrize(("revision", "questions"), [("v1", ["hard old"]), (f"{2:040x}", ["hard old", "hard new"])])
def test_revision_is_read_from_the_hub_cache_without_network(revision: str, questions: list[str]) -> None:
    rows = ProblemRows(path="someone/some-set", subset="hard", revision=revision, split="test", file=None)
    assert [found.row["question"] for found in rows()] == questions
    absent = replace(rows, revision="v2")  # is not replaced by another revision
    with pytest.raises(FileNotFoundError, match="someone/some-set"):
        list(absent())


@pytest.mark.parametrize("path", ["https://example.org/set.parquet", "hf://datasets/a/b/set.jsonl", "here.jsonl"])
def test_revision_of_url_or_file_is_rejected(path: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "here.jsonl").write_text("{}")
    rows = ProblemRows(path=path, subset=None, revision="v2", split="test", file=None)
    with pytest.raises(ValueError, match=f"revision=v2.*{path}"):
        list(rows())


OFFLINE = r"\(no Hub\); .*path$"


@pytest.mark.parametrize(
    ("error", "kind", "reason"),
    [
        (ConnectionError("no Hub\nand more"), FileNotFoundError, OFFLINE),
        (FileNotFoundError("no Hub"), FileNotFoundError, OFFLINE),
        (OSError("no Hub"), FileNotFoundError, OFFLINE),
        (DatasetNotFoundError("gated"), FileNotFoundError, r"\(gated\)"),
        (DatasetGenerationError("torn"), ValueError, r": torn$"),
        (RuntimeError("Dataset scripts are no longer supported"), ValueError, "Dataset scripts"),
        (ValueError("Unknown split. Should be one of ['train']."), ValueError, "Unknown split"),
        (OSError(ENOSPC, "No space left on device"), OSError, r"No space left on device$"),
    ],
)
def test_hub_errors_are_converted_to_one_line(
    error: Exception, kind: type[Exception], reason: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(datasets, "load_dataset", Mock(side_effect=error))
    for path in ("a/set", "https://example.org/set.parquet"):
        with pytest.raises(kind, match=reason) as raised:
            read(path)
        assert (isinstance(error, OSError) and error.errno == ENOSPC) or str(raised.value).startswith(path)


def test_download_reads_a_cached_file_without_network(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("datasets.config.DOWNLOADED_DATASETS_PATH", tmp_path)
    address, fetch = "https://example.org/data/a.json", Download(instead="name a folder")
    cached_file = tmp_path / hash_url_to_filename(address)
    cached_file.write_text("[]")
    assert fetch(address) == cached_file
    message = r"^https://example\.org/data/b\.json.*; name a folder$"
    monkeypatch.setattr("datasets.utils.file_utils.fsspec_head", Mock(side_effect=ConnectionError("no network")))
    with pytest.raises(FileNotFoundError, match=message):
        fetch("https://example.org/data/b.json")


PLAIN = {"question": "How many?", "answer": 4}
LINE = b'{"question": "How many?", "answer": 4}'


def read_json_rows(path: Path, content: bytes) -> list[tuple[str, dict, str]]:
    path.write_bytes(content)
    return [(place, dict(row), flaw) for place, row, flaw in json_rows(path)]


@pytest.mark.parametrize("content", [b"%b\n%b\n", b"%b\n%b", b"%b\r\n%b\r\n", b"\xef\xbb\xbf%b\n%b", b"  %b \t\r\n%b"])
def test_json_rows_ignores_byte_order_mark_and_line_ends(tmp_path: Path, content: bytes) -> None:
    rows = read_json_rows(tmp_path / "a.jsonl", content % (LINE, LINE))
    assert rows == [("line 1", PLAIN, ""), ("line 2", PLAIN, "")]


@pytest.mark.parametrize(
    ("line", "flaw"),
    [
        (b'{"question": "How', "not valid JSON (Unterminated string starting at)"),
        (b"{'question': 'How many?'}", "not valid JSON (Expecting property name enclosed in double quotes)"),
        (LINE + LINE, "not valid JSON (Extra data)"),
        (b'["How many?", 4]', "no object of columns but list"),
        (b"null", "no object of columns but NoneType"),
        (b'"{}"', "no object of columns but str"),
        ('{"question": "Combien coûte-t-il?"}'.encode("latin-1"), "not UTF-8"),
        (b"\x80\x04\x95", "not UTF-8"),
        (b"\x00\x00", "not valid JSON (Expecting value)"),
        (b'{"answer": 4, "answer": 5}', "names 'answer' twice"),
        (b'{"reward": {"truth": 4, "truth": 5}}', "names 'truth' twice"),
        (b'{"answer": ' + b"[" * 100_000 + b"}", "not valid JSON (too deep, or a number of too many digits)"),
        (b'{"answer": ' + b"9" * 5_000 + b"}", "not valid JSON (too deep, or a number of too many digits)"),
    ],
)
def test_json_rows_reports_a_flawed_line_and_reads_the_others(tmp_path: Path, line: bytes, flaw: str) -> None:
    rows = read_json_rows(tmp_path / "a.jsonl", LINE + b"\n" + line + b"\n" + LINE + b"\n")
    assert rows == [("line 1", PLAIN, ""), ("line 2", {}, flaw), ("line 3", PLAIN, "")]


def test_json_rows_reads_a_list_item_by_item_and_keeps_the_spelling_of_fractions(tmp_path: Path) -> None:
    rows = read_json_rows(tmp_path / "a.json", b"\xef\xbb\xbf [" + LINE + b",\n 5, " + LINE + b"]")
    assert rows == [("row 0", PLAIN, ""), ("row 1", {}, "no object of columns but int"), ("row 2", PLAIN, "")]
    (fraction,) = read_json_rows(tmp_path / "a.jsonl", b'{"answer": 2.50}')
    assert str(fraction[1]["answer"]) == "2.50"
