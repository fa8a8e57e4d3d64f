"""Reading problems: errors name file and place. LongProc's scores: range and work on hostile completions."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.countdown.longproc import longproc_scores, read_longproc, read_problem_lines
from contrastive_reasoning.tasks.countdown.problem import CountdownProblem
from contrastive_reasoning.tasks.countdown.states import LARGEST, encode_state
from contrastive_reasoning.tasks.countdown.trace import search_trace
from tests.pace import assert_bounded_work

FOLDER = Path(__file__).resolve().parents[5] / "shared" / "data" / "longproc"
needs_longproc_files = pytest.mark.skipif(not FOLDER.is_dir(), reason="LongProc's files are not at hand")

GOOD = {"nums": [21, 16, 17, 26], "target": 46}
OTHER = {"nums": [3, 4], "target": 12}
BAD = {
    '{"nums": [1, 1], "target": 5}': "do not reach the target 5",
    '{"nums": [1, 1.0], "target": 2}': "integers from 0 to",
    '{"nums": [true, 1], "target": 2}': "integers from 0 to",
    '{"nums": [1, -1], "target": 0}': "integers from 0 to",
    '{"nums": [1, 10000], "target": 10001}': "integers from 0 to 9999",
    '{"nums": [1, 1e9], "target": 0}': "integers from 0 to",
    '{"nums": [1, 10000000000000000000000], "target": 0}': "integers from 0 to",
    "\ufeff{}": "not valid JSON",
    '{"nums": [5], "target": 5}': "list of 2 to 6",
    '{"nums": [1, 1], "target": "2"}': "target must be an integer",
    '{"target": 2}': "needs the keys nums and target",
    "[1, 2]": "needs the keys nums and target",
    '{"nums": [1': "not valid JSON",
    "[" * 100_000: "not valid JSON",
    '{"nums": [21, 16, 17, 26], "target": NaN}': "target must be an integer, got nan",
    '{"nums": [21, 16, 17, Infinity], "target": 46}': "nums must be integers from 0 to",
    '{"nums": [21, 16, 17, 26], "target": ' + "9" * 5_000 + "}": "not valid JSON",
    '{"nums": [21, 16, 17, 26], "target": ' + "9" * 4_000 + "}": "do not reach the target",
    "\x80\x04\x95": "not valid JSON",
}


def read(folder: Path, *lines: str | dict, on_bad: str) -> list[tuple]:
    path = folder / "mine.jsonl"
    path.write_text(
        "\n".join([line if isinstance(line, str) else json.dumps(line) for line in lines]), encoding="utf-8"
    )
    return [tuple(row) for row in read_problem_lines(path, on_bad=on_bad)]


def test_problem_lines_are_read_in_order_with_any_bom_and_line_ends(tmp_path: Path) -> None:
    expected = [((21, 16, 17, 26), 46, "mine"), ((3, 4), 12, "mine")]
    assert read(tmp_path, GOOD, "", OTHER, on_bad="refuse") == expected
    assert read(tmp_path, f"\ufeff{json.dumps(GOOD)}\r", "\r", f"{json.dumps(OTHER)}\r", on_bad="refuse") == expected
    (tmp_path / "countdown_x.json").write_bytes(f"\ufeff[{json.dumps(GOOD)}]".encode())
    assert len(read_longproc([tmp_path / "countdown_x.json"], on_bad="refuse")) == 1
    largest = {"nums": [LARGEST, LARGEST - 1], "target": 1}
    assert encode_state(read(tmp_path, largest, on_bad="refuse")[0][0])[0] == LARGEST, "what critics read"


def test_duplicate_problem_error_names_both_lines(tmp_path: Path) -> None:
    rows = GOOD, OTHER, {"nums": [26, 17, 16, 21], "target": 46}
    with pytest.raises(ValueError, match=r"mine\.jsonl, line 3: .*mine\.jsonl, line 1"):
        read(tmp_path, *rows, on_bad="refuse")
    assert len(read(tmp_path, *rows, on_bad="leave_out")) == 2


@pytest.mark.parametrize(("line", "reason"), BAD.items(), ids=range(len(BAD)))
def test_bad_lines_are_rejected_or_left_out_according_to_on_bad(
    tmp_path: Path, line: str, reason: str, caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(ValueError, match=f"line 2: .*{reason}"):
        read(tmp_path, GOOD, line, on_bad="refuse")
    assert len(read(tmp_path, GOOD, line, on_bad="leave_out")) == 1
    assert "1 bad problems are left out:\nmine.jsonl, line 2: " in caplog.text


def test_bad_line_error_lists_20_lines_and_counts_the_rest(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match=r"(?s)30 .*line 20.* 10 "):
        read(tmp_path, *["{}"] * 30, on_bad="refuse")
    with pytest.raises(ValueError, match=r"on_bad.*'skip'"):
        read(tmp_path, on_bad="skip")


@pytest.mark.parametrize(
    ("text", "named"),
    [
        ("{", "JSON"),
        ("{}", "list"),
        ("[" * 100_000, "JSON"),
        (json.dumps([GOOD, {"nums": [1, 1], "target": 5}]), r"item 1: .*\[1, 1\]"),
    ],
)
def test_read_longproc_rejects_file_without_list_of_valid_problems(tmp_path: Path, text: str, named: str) -> None:
    (tmp_path / "countdown_x.json").write_text(text)
    with pytest.raises(ValueError, match=rf"countdown_x\.json.*{named}"):
        read_longproc([tmp_path / "countdown_x.json"], on_bad="refuse")


def test_missing_problem_file_raises(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"none\.jsonl"):
        read_problem_lines(tmp_path / "none.jsonl", on_bad="refuse")


@needs_longproc_files
def test_search_trace_equals_stored_traces_after_header_swap() -> None:
    files = sorted(FOLDER.glob("countdown_*.json"))
    rows = [row for file in files for row in json.loads(file.read_text())]
    assert len(rows) == len(read_longproc(files, on_bad="refuse")) >= 400
    for row in rows:
        trace = search_trace(row["nums"], row["target"])
        stored = row["demonstration"].replace("<Search Procedure>\n", "# Search Procedure\n", 1)
        assert trace.text == stored.replace("\n</Search Procedure>\n\n", "\n\n", 1)
        assert "\n".join(trace.solution) == row["solution_text"]


PROBLEM = CountdownProblem((21, 16, 17, 26), 46)
TEXT = search_trace(PROBLEM.numbers, PROBLEM.target).text
SEARCH = TEXT.split("\n\n")[0].split("\n")
"""The header, the first line, and the ten lines that are scored."""
SOLUTION = TEXT[TEXT.index("<Solution>") :]


def scores(completion: str) -> tuple[float, float, float]:
    found = longproc_scores(PROBLEM, completion)
    return found["accuracy"], found["partial_accuracy"], found["extraction_rate"]


def test_longproc_scores_of_random_text_stay_in_range() -> None:
    draw = random.Random(2)
    tags = ["<Solution>", "</Solution>", "# Search Procedure"]
    fragments = [*SEARCH, SOLUTION, *tags, "\n", "\n\n", "=", "\ud800", "\x00", "'", "\\d"]
    for _ in range(3000):
        accuracy, partial, extraction = scores("\n".join(draw.choices(fragments, k=draw.randint(0, 12))))
        assert accuracy in (0, 1)
        assert extraction in (0, 1)
        assert -1 / 10 <= partial <= 1


@pytest.mark.parametrize(
    "piece", ["(", "9**", "lambda:", "[", "\n", " ", "<Solution>", "# Search Procedure\n", "|- Try   ", "\ud800"]
)
def test_longproc_scores_take_bounded_work_on_megabyte_text(piece: str) -> None:
    hostile = (piece * 1_000_000)[:1_000_000]
    with assert_bounded_work():
        assert scores(f"<Solution>\n{hostile}=1\n1=1\n1=1</Solution>")[0] == 0
        assert scores(f"<Solution>\n{hostile[:3000]}=1\n1=1\n1=1</Solution>")[0] == 0
        assert scores("\n".join([*SEARCH[:2], hostile]))[0] == 0
