"""Reading problems: what is bad is named by file and place; the benchmark's own files where they are at hand."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from contrastive_reasoning.tasks.countdown.encoding import LARGEST, encode_state
from contrastive_reasoning.tasks.countdown.longproc import read_longproc, read_problem_lines, read_template
from contrastive_reasoning.tasks.countdown.trace import search_trace

FOLDER = Path(__file__).resolve().parents[5] / "shared" / "data" / "longproc"
here = pytest.mark.skipif(not FOLDER.is_dir(), reason="LongProc's files are not at hand")

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


def problem_file(folder: Path, lines: list[str]) -> Path:
    path = folder / "mine.jsonl"
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def test_lines_are_read_in_order(tmp_path: Path) -> None:
    read = read_problem_lines(problem_file(tmp_path, [json.dumps(GOOD), "", json.dumps(OTHER)]), on_bad="refuse")
    assert [row.numbers for row in read.problems] == [(21, 16, 17, 26), (3, 4)]
    assert read.problems[0].source == "mine"
    assert read.left_out == ()


def test_marks_and_line_ends_are_no_part_of_a_line(tmp_path: Path) -> None:
    (tmp_path / "mine.jsonl").write_bytes(f"\ufeff{json.dumps(GOOD)}\r\n\r\n{json.dumps(OTHER)}\r\n".encode())
    assert len(read_problem_lines(tmp_path / "mine.jsonl", on_bad="refuse").problems) == 2
    (tmp_path / "countdown_x.json").write_bytes(f"\ufeff[{json.dumps(GOOD)}]".encode())
    assert len(read_longproc(tmp_path, on_bad="refuse").problems) == 1


def test_the_same_problem_again_is_named_by_both_lines(tmp_path: Path) -> None:
    again = {"nums": [26, 17, 16, 21], "target": 46}
    path = problem_file(tmp_path, [json.dumps(row) for row in (GOOD, OTHER, again)])
    sentence = r"1 bad problems .*\nmine\.jsonl, line 3: the problem of mine\.jsonl, line 1 again$"
    with pytest.raises(ValueError, match=sentence):
        read_problem_lines(path, on_bad="refuse")
    assert len(read_problem_lines(path, on_bad="leave_out").problems) == 2


@pytest.mark.parametrize(("line", "reason"), BAD.items(), ids=range(len(BAD)))
def test_bad_lines_are_named_and_left_out_only_when_asked(tmp_path: Path, line: str, reason: str) -> None:
    path = problem_file(tmp_path, [json.dumps(GOOD), line])
    with pytest.raises(ValueError, match=f"line 2: .*{reason}"):
        read_problem_lines(path, on_bad="refuse")
    read = read_problem_lines(path, on_bad="leave_out")
    assert len(read.problems) == 1
    assert len(read.left_out) == 1
    assert read.left_out[0].startswith("mine.jsonl, line 2: ")


def test_the_largest_number_that_critics_read_is_a_problem(tmp_path: Path) -> None:
    path = problem_file(tmp_path, [json.dumps({"nums": [LARGEST, LARGEST - 1], "target": 1})])
    (row,) = read_problem_lines(path, on_bad="refuse").problems
    assert encode_state(row.numbers)[0] == LARGEST


def test_all_bad_lines_are_listed(tmp_path: Path) -> None:
    path = problem_file(tmp_path, ["{}"] * 30)
    with pytest.raises(ValueError, match="30 bad problems") as refused:
        read_problem_lines(path, on_bad="refuse")
    assert "line 20" in str(refused.value)
    assert "and 10 more" in str(refused.value)


def test_json_files_name_the_item(tmp_path: Path) -> None:
    (tmp_path / "countdown_x.json").write_text(json.dumps([GOOD, {"nums": [1, 1], "target": 5}]))
    with pytest.raises(ValueError, match=r"countdown_x.json, item 1: the numbers \[1, 1\]"):
        read_longproc(tmp_path, on_bad="refuse")
    assert len(read_longproc(tmp_path, on_bad="leave_out").problems) == 1


@pytest.mark.parametrize(
    ("text", "message"),
    [("{", "is not valid JSON"), ("{}", "must hold a list of problems"), ("[" * 100_000, "is not valid JSON")],
)
def test_a_file_that_is_no_list_is_refused(tmp_path: Path, text: str, message: str) -> None:
    (tmp_path / "countdown_x.json").write_text(text)
    with pytest.raises(ValueError, match=message):
        read_longproc(tmp_path, on_bad="leave_out")


def test_missing_files_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError, match=r"no countdown_\*\.json in longproc_dir="):
        read_longproc(tmp_path, on_bad="refuse")
    with pytest.raises(FileNotFoundError, match=r"no prompts\.yaml"):
        read_template(tmp_path)
    with pytest.raises(FileNotFoundError, match="no file of problems"):
        read_problem_lines(tmp_path / "none.jsonl", on_bad="refuse")


def test_on_bad_names_its_choices(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="on_bad must be one of refuse, leave_out, got 'skip'"):
        read_problem_lines(problem_file(tmp_path, []), on_bad="skip")


def test_template_is_the_literal_block(tmp_path: Path) -> None:
    block = "USER_PROMPT: |-\n  See {demonstration}\n\n    indented\n  {nums} {target}\nOTHER: x\n"
    (tmp_path / "prompts.yaml").write_text(block)
    assert read_template(tmp_path) == "See {demonstration}\n\n  indented\n{nums} {target}"


@pytest.mark.parametrize("text", ["USER_PROMPT: hi", "OTHER: |-\n  x", "USER_PROMPT: |-\n  {nums} {target}"])
def test_a_template_without_its_placeholders_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "prompts.yaml").write_text(text)
    with pytest.raises(ValueError, match="USER_PROMPT"):
        read_template(tmp_path)


@here
def test_every_stored_trace_is_ours_after_the_header_swap() -> None:
    rows = [row for file in sorted(FOLDER.glob("countdown_*.json")) for row in json.loads(file.read_text())]
    assert len(rows) == len(read_longproc(FOLDER, on_bad="refuse").problems) >= 400
    for row in rows:
        trace = search_trace(row["nums"], row["target"])
        stored = row["demonstration"].replace("<Search Procedure>\n", "# Search Procedure\n", 1)
        assert trace.text == stored.replace("\n</Search Procedure>\n\n", "\n\n", 1)
        assert "\n".join(trace.solution) == row["solution_text"]
