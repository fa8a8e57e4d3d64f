"""All numbers that ``compare``, a study's report and the HTML page print for a frozen MLflow, to the printed digit.

``comparisons/finished_runs.tar.xz`` contains the ``mlruns`` folder of about forty tiny runs, the files of two studies
and the marks that determine which of their runs count. ``shown.json`` contains the output of the commands for these
runs at commit 30de96c; ``study_curves.csv`` and the columns ``pass_at_4`` and ``auc`` of ``study_runs.csv`` were added
later. Tables are compared as text; of other lines only the numbers are compared.
"""

from __future__ import annotations

import json
import re
import sqlite3
import tarfile
from collections import Counter
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from experiments import compare, report
from experiments.jobs.finished import Mark, Today

DATA = Path(__file__).parent / "comparisons"
EXPECTED = DATA / "shown.json"
TABLE_LINE = re.compile(r"[|┃│┏┡└├╞]|\s*\\|.* & .*")
NUMBER = re.compile(r"(?<![\w.])[-+]?\d[\d,]*\.?\d*|\bnan\b|\binf\b")
CASES: dict[str, tuple[str, ...]] = {
    "sets": ("compare", "gold_critic", "gold_baseline", "gold_third"),
    "one set": ("compare", "gold_critic", "gold_baseline", "gold_third", "sets=main"),
    "not finite": ("compare", "gold_nan", "gold_plain"),
    "several baselines": ("compare", "gold_baseline", "gold_plain", "gold_critic", "sets=main"),
    "sweep": ("compare", "gold_losses", "by=reward", "baseline=verifier"),
    "published": ("compare", "gold_track_grpo", "gold_track_clipo"),
    "study": ("compare", "gold_study.yaml"),
    "starts": ("compare", "gold_starts.yaml"),
    "runs of a study": ("compare", "gold_study.yaml", "metric=test/verifier/pass_at_4"),
    "runs of a study in sets": ("compare", "gold_starts.yaml", "curve=val/verifier/accuracy"),
    "study beside others": ("compare", "gold_study.yaml", "gold_baseline", "metric=test/verifier/accuracy"),
    "page": ("report", "gold_critic", "gold_baseline"),
    "page of tracks": ("report", "gold_track_grpo", "gold_track_clipo"),
    "page of a study": ("report", "gold_study.yaml"),
}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A working directory with the frozen ``mlruns`` and the studies' files."""
    root = tmp_path_factory.mktemp("frozen")
    with tarfile.open(DATA / "finished_runs.tar.xz") as packed:
        packed.extractall(root, filter="data")
    database = sqlite3.connect(root / "mlruns" / "mlflow.db")
    for table, column in (("runs", "artifact_uri"), ("experiments", "artifact_location")):
        database.execute(f"update {table} set {column} = replace({column}, '/frozen', ?)", (str(root),))
    # these runs have no manifests; each configuration has one fingerprint, which stands for the hash of its settings
    database.execute("insert into tags select 'settings', value, run_uuid from tags where key = 'fingerprint'")
    database.commit()
    database.close()
    for name, study in json.loads((root / "studies.json").read_text()).items():
        (root / f"{name}.yaml").write_text(json.dumps(study["content"]))
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(root)
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{root / 'mlruns' / 'mlflow.db'}")
        yield root


def output_of(folder: Path, case: str, monkeypatch: pytest.MonkeyPatch, capsys: Any) -> dict[str, list[str]]:
    """Runs the command of a case; returns the lines of its standard output and of each file that it writes."""
    marks = {name: study["marks"] for name, study in json.loads((folder / "studies.json").read_text()).items()}
    # in this order: study_report, if it is not imported yet, must import the real function from finished
    for module in ("analysis.study_report", "jobs.finished"):
        monkeypatch.setattr(
            f"experiments.{module}.today", lambda _, study: Today({Mark(*mark) for mark in marks[study.name]}, {})
        )
    kind, *arguments = CASES[case]
    for old in (folder / "outputs").rglob("*.*"):
        old.unlink()
    assert {"compare": compare.main, "report": report.main}[kind](arguments) == 0
    found = {"stdout": capsys.readouterr().out.splitlines()}
    for path in sorted((folder / "outputs").rglob("*.*")):
        if path.suffix in (".md", ".csv", ".tex"):
            found[path.name] = path.read_text(encoding="utf-8").splitlines()
        if path.suffix == ".html":
            found = {"page": rows_of(path.read_text(encoding="utf-8"))}
    return found


def rows_of(page: str) -> list[str]:
    """The rows of a page's tables, with cells between bars, and its paragraphs; without figures."""
    body = re.sub(r"<(svg|style)\b.*?</\1>", "", page, flags=re.DOTALL)
    lines = []
    for tag, text in re.findall(r"<(tr|p|pre|li|summary)\b[^>]*>(.*?)</\1>", body, flags=re.DOTALL):
        cells = "| " + re.sub(r"</t[hd]>", " | ", text) if tag == "tr" else text
        lines.append(unescape(re.sub(r"<[^>]+>", "", cells)))
    return lines


def comparable(file: str, lines: list[str]) -> list[Any]:
    """Table lines as they are; other lines as lists of their numbers."""
    if file.endswith(".csv"):
        return lines
    found = [line if TABLE_LINE.match(line) else NUMBER.findall(line) for line in lines]
    return [one for one in found if one]


@pytest.mark.parametrize("case", CASES)
def test_printed_numbers_match_the_recorded_output(
    folder: Path, case: str, monkeypatch: pytest.MonkeyPatch, capsys: Any
) -> None:
    expected = json.loads(EXPECTED.read_text(encoding="utf-8"))[case]
    output = output_of(folder, case, monkeypatch, capsys)
    assert output.keys() == expected.keys()
    for file, lines in expected.items():
        ours, theirs = comparable(file, output[file]), comparable(file, lines)
        if file == "page":  # its sections were reordered since, and pages of experiments got a verdict
            missing, added = Counter(map(str, theirs)), Counter(map(str, ours))
            assert not missing - added, file
            assert (added - missing).total() == (case != "page of a study"), file
        else:
            assert ours == theirs, file
