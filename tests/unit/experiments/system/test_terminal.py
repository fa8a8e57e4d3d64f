"""Output and errors that contain a token, with real processes and real streams."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

from contrastive_reasoning.workers.functions import LONGEST, describe, pack, verdict
from experiments.system.launch import CAUSES, report_cause
from experiments.system.terminal import be_quiet, visible

SECRET = "sentinel-0123456789"
SPEAKER = """
import logging, os, sys, warnings
from experiments.system.terminal import protect_output

protect_output()
protect_output()
secret = os.environ["HF_TOKEN"]
print("printed", secret, sep="=")
sys.stdout.writelines(["a line ", f"with {secret}\\n"])
warnings.warn(f"warned of {secret}")
logging.warning("logged %s", secret)
assert sys.stdout.fileno() == 1 and not sys.stdout.isatty()
sys.stdout = None
protect_output()
assert sys.stdout is None
raise RuntimeError(f"401 for {secret}")
"""


def test_protect_output_hides_secrets_in_all_output() -> None:
    command = [sys.executable, "-c", SPEAKER]
    done = subprocess.run(command, env=os.environ | {"HF_TOKEN": SECRET}, capture_output=True, text=True, check=False)
    assert SECRET not in done.stdout + done.stderr
    assert done.stdout == "printed=***\na line with ***\n"
    for hidden in ("UserWarning: warned of ***", "WARNING:root:logged ***", "RuntimeError: 401 for ***"):
        assert hidden in done.stderr


def test_be_quiet_prints_warnings_in_one_line_without_source(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("HF_HUB_DISABLE_PROGRESS_BARS", "TOKENIZERS_PARALLELISM"):  # be_quiet() sets them for its own process
        monkeypatch.setenv(name, "1")
    monkeypatch.setattr(warnings, "showwarning", warnings.showwarning)
    with warnings.catch_warnings(action="always"):
        be_quiet()
        monkeypatch.setattr(warnings, "formatwarning", lambda *_: "by Lightning, which replaces it at its import")
        warnings.warn("look\n  here", stacklevel=1)
        warnings.warn("this goes", FutureWarning, stacklevel=1)
        warnings.warn("the loader does not have many workers", stacklevel=1)
    assert capsys.readouterr() == ("", "warning: look here\nFutureWarning: this goes\n")


def start_script(script: str, **environment: str) -> subprocess.Popen[str]:
    whole = f"from experiments.system.terminal import protect_output\nprotect_output()\n{script}"
    command, known = [sys.executable, "-c", whole], os.environ | {"PYTHONUNBUFFERED": ""} | environment
    return subprocess.Popen(command, env=known, encoding="latin-1", stdout=subprocess.PIPE, stderr=subprocess.PIPE)


def test_unencodable_characters_are_replaced() -> None:
    output, errors = start_script("print('Δ = 1 κ')", PYTHONIOENCODING="latin-1").communicate()
    assert (output, errors) == ("? = 1 ?\n", "")


@pytest.mark.parametrize(
    ("lines", "ending"),
    [
        (1, "print('last')"),
        (100_000, "print('last')"),
        (1, "sys.exit(130)"),
        (100_000, "raise SystemExit('a sentence')"),
    ],
    ids=["met by flush", "met by write", "flush, then an exit code", "write, then a sentence"],
)
def test_closed_standard_output_does_not_change_exit_code(lines: int, ending: str) -> None:
    script = "import sys, time\nprint('first')\nsys.stdout.flush()\ntime.sleep(0.5)\n"
    script += f"for number in range({lines}): print(number)\nsys.stdout.flush()\n"
    process = start_script(script + ending)
    assert process.stdout is not None
    assert process.stdout.readline() == "first\n"
    process.stdout.close()
    errors = process.stderr.read() if process.stderr is not None else ""
    expected = {"print('last')": (0, ""), "sys.exit(130)": (130, "")}.get(ending, (1, "a sentence\n"))
    assert (process.wait(), errors) == expected


def test_report_cause_hides_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for name, value in {CAUSES: str(tmp_path), "RANK": "1", "HF_TOKEN": SECRET}.items():
        monkeypatch.setenv(name, value)
    report_cause(RuntimeError(f"401 for {SECRET}"))
    assert (tmp_path / "1").read_text() == "RuntimeError: 401 for ***"


def test_shortened_errors_and_reasons_do_not_split_secret() -> None:
    """Only whole values are hidden, so a part of one would be printed."""
    for at in range(LONGEST - len(SECRET) - 2, LONGEST + 1):
        long = "x" * (at - 1) + " " + SECRET + " and more" * 20
        _, reason = verdict(lambda *_, text=long: text, pack([{}, ""]).decode())
        for message in (describe(ValueError(long)).removeprefix("ValueError: "), reason):
            assert len(message) <= LONGEST + len(" …"), at
            assert SECRET in message or SECRET[:1] not in message, at


@pytest.mark.whole
@pytest.mark.parametrize(
    "entry", ["run", "sample", "plan", "track", "compare", "report", "study", "dashboard", "benchmarks"]
)
def test_commands_do_not_print_secrets(entry: str, tmp_path: Path) -> None:
    """Each command gets an unknown argument, which its error message contains."""
    module = entry if entry == "benchmarks" else f"experiments.{entry}"
    command = [sys.executable, "-m", module, f"/{SECRET}"]
    known = os.environ | {"HF_TOKEN": SECRET, "PYTHONPATH": str(Path(__file__).resolve().parents[4])}
    done = subprocess.run(command, cwd=tmp_path, env=known, capture_output=True, text=True, check=False)
    assert SECRET not in done.stdout + done.stderr
    assert "***" in done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("3 × 5 = 15 → é 漢 🙂\n\tnext", "3 × 5 = 15 → é 漢 🙂\n\tnext"),
        ("\x1b[31mred\x1b[0m", r"\x1b[31mred\x1b[0m"),
        ("\x1b]0;title\x07", r"\x1b]0;title\x07"),
        ("\x9b31m", r"\x9b31m"),
        ("wrong\rright\b\x7f", r"wrong\rright\x08\x7f"),
        ("\u202eright to left\u2066", r"\u202eright to left\u2066"),
        ("a\u200bb\ufeff\U000e0041", r"a\u200bb\ufeff\U000e0041"),
        ("half \udce2\udc82", r"half \udce2\udc82"),
        ("[bold]markup[/bold]", "[bold]markup[/bold]"),
    ],
)
def test_visible_escapes_invisible_characters(text: str, expected: str) -> None:
    assert visible(text) == expected
