"""The documentation builds, its links exist, its commands compose, and its messages match the product's."""

from __future__ import annotations

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Collection, Iterator, Sequence
from itertools import takewhile
from pathlib import Path
from typing import NamedTuple

import pytest

from experiments.cli.commands import COMMANDS
from experiments.config.folders import VARIABLE, study_names, summaries, take_config_dir
from experiments.config.override_checks import override_error, override_errors
from experiments.jobs.study_plan import find_study
from experiments.model.__main__ import refusal
from experiments.new.__main__ import refusal as new_refusal

ROOT = Path(__file__).resolve().parents[2]
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PACKAGES = ("experiments", "callbacks", "lightning_modules", "contrastive_reasoning")
CODE = [path for package in PACKAGES for path in (ROOT / package).rglob("*.py")]
BLOCK = re.compile(r"(?:^<!-- (?P<mark>[^\n]*) -->\n)?^```(?P<language>\w*)\n(?P<text>.*?)^```$", re.M | re.S)
RUN_ELSEWHERE = (
    *("setup", "test", "test-all", "test-real", "check", "help"),
    *("docs", "list", "sync", "bench", "gpu-check"),
)
"""Targets without arguments, or with their own flags."""
OF_MLFLOW = ("compare", "report", "dashboard")
"""Targets that read existing runs: only names and keys are checked here."""
OWN_KEYS: dict[str, Collection[str]] = {
    "experiments.run": (),
    "experiments.plan": COMMANDS["plan"].own_keys,
    "experiments.sample": COMMANDS["sample"].own_keys,
}
"""Programs that take configuration overrides, and the keys that they take besides."""


class Block(NamedTuple):
    page: str
    language: str
    mark: str | None
    text: str


def blocks(language: str) -> Iterator[Block]:
    for page in PAGES:
        for found in BLOCK.finditer(page.read_text()):
            if found["language"] == language:
                yield Block(page.name, language, found["mark"], found["text"])


def inline() -> Iterator[Block]:
    """The commands within sentences, except those with a … to fill in and those that only name a target."""
    for page in PAGES:
        for text in re.findall(r"`(make [a-z-]+ [^`]+)`", BLOCK.sub("", page.read_text())):
            if "…" not in text:
                yield Block(page.name, "sh", None, text)


def commands(text: str) -> list[list[str]]:
    """The commands of a shell block, without comments. Lines that a quote or a backslash continues are joined."""
    found: list[list[str]] = []
    kept = ""
    for line in text.splitlines():
        kept = f"{kept}\n{line}" if kept else line
        try:
            words = shlex.split(kept, comments=True)
        except ValueError:  # a quote is still open
            continue
        if kept.endswith("\\"):
            continue
        kept = ""
        if words:
            found.append(words)
    assert not kept, f"unfinished: {kept}"
    return found


def asked(words: Sequence[str]) -> list[list[str]]:
    """The argument lists of the Python programs that make would run for ``make …``."""
    done = subprocess.run(
        ["make", "-n", "-o", ".venv/.installed", "-o", ".venv-lm-eval/bin/python", *words],
        cwd=ROOT,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr
    return [shlex.split(line) for line in done.stdout.replace("\\\n", " ").splitlines() if " -m " in line]


def test_site_builds_without_warnings_and_external_resources(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--quiet", "--site-dir", str(tmp_path)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, env=environment())
    assert (done.returncode, done.stdout + done.stderr) == (0, "")
    for page in tmp_path.rglob("*.html"):
        fetched = re.findall(r'(?:<script[^>]+src|<link[^>]+href|<img[^>]+src)="(https?://[^"]+)"', page.read_text())
        assert fetched == [], page
    reference = (tmp_path / "configuration" / "reward" / "index.html").read_text()
    assert 'id="critic_calibrated"' in reference
    page = (tmp_path / "commands" / "index.html").read_text()
    targets = json.loads((ROOT / "tests" / "contract" / "data" / "public_names.json").read_text())["make"]
    codes = {*targets, *(variable for taken in targets.values() for variable in taken)}
    assert codes <= {*re.findall(r"<code>([^<]+)</code>", page)}
    shown = re.sub(r"<[^>]+>", "", page)  # without marks of highlighting
    assert {key for command in COMMANDS.values() for key in command.own_keys if f"  {key}=" not in shown} == set()
    assert {*COMMANDS} <= {*re.findall(r'<h2 id="([^"]+)"', page)}


def environment() -> dict[str, str]:
    return os.environ | {"NO_MKDOCS_2_WARNING": "1"}


def test_relative_links_of_readme_exist() -> None:
    text = (ROOT / "README.md").read_text()
    links = [link for link in re.findall(r"\]\(([^)#]+)", text) if "://" not in link]
    assert len(links) > 5
    assert [link for link in links if not (ROOT / link).exists()] == []


def test_tests_named_on_pages_exist() -> None:
    """``*`` matches anything, and NAME marks a file that the reader writes. Some tests are named without folder."""
    named = {
        (page.name, path) for page in PAGES for path in re.findall(r"`((?:tests/|test_)[\w./*]+)`", page.read_text())
    }
    assert len(named) > 40
    paths = {(page, path if "/" in path else f"tests/**/{path}") for page, path in named if "NAME" not in path}
    assert not [(page, path) for page, path in paths if not [*ROOT.glob(path)]]


@pytest.mark.whole
def test_every_command_composes_or_is_marked_not_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each command is checked once, even if it is on several pages."""
    monkeypatch.chdir(ROOT)
    monkeypatch.setenv(VARIABLE, "")  # restored after the test, whatever --config-dir sets
    shown = [*blocks("sh"), *inline()]
    marks = [block.mark for block in shown if block.mark is not None]
    assert all(mark.startswith("not tried: ") for mark in marks)
    command_lines = {tuple(words) for block in shown if block.mark is None for words in commands(block.text)}
    plain: list[list[str]] = []
    for words in sorted(command_lines):
        assert words[0] == "make", f"only make is composed here; say <!-- not tried: why --> before {words}"
        assert not any("\n" in word for word in words), f"make splits an argument at its line end: {words}"
        programs = asked(words[1:])
        if words[1] in RUN_ELSEWHERE:
            continue
        assert programs, words
        if words[1] in OF_MLFLOW:
            check_names_and_keys(words[1], programs[0][programs[0].index("-m") + 2 :])
            continue
        for program in programs:
            module, *rest = program[program.index("-m") + 1 :]
            plain += check_arguments(module, rest)
    os.environ.pop(VARIABLE, None)
    wrong = {shlex.join(each): error for each, error in zip(plain, override_errors(plain), strict=True) if error}
    assert not wrong


def check_names_and_keys(target: str, arguments: Sequence[str]) -> None:
    """Check that the names are experiments or studies, and that the keys are keys of the command."""
    os.environ.pop(VARIABLE, None)  # set by the previous command
    words = [*takewhile(lambda word: not word.startswith("-"), take_config_dir(arguments))]
    names = [word for word in words if "=" not in word]
    assert set(names) <= {*summaries("experiment"), *study_names()}, (target, names)
    keys = {word.partition("=")[0] for word in words if "=" in word}
    assert keys <= set(COMMANDS[target].own_keys), (target, keys)


def check_arguments(module: str, arguments: list[str]) -> Iterator[list[str]]:
    """Check the arguments of a program. Yields overrides of the package's own files, to check all of them together."""
    if module == "experiments.study":
        os.environ.pop(VARIABLE, None)
        name, *over = take_config_dir(arguments)
        known = {*find_study(name).arms}
        assert {arm for word in over if word.startswith("only=") for arm in word[5:].split(",")} <= known
    elif module == "experiments.model":
        name, *over = arguments
        assert {word.partition("=")[0] for word in over} <= set(COMMANDS["model"].own_keys)
        assert refusal(name, revision=None) is None
    elif module == "experiments.new":
        kind, name, *over = arguments
        folders = [Path(word.removeprefix("folder=")) for word in over]
        assert new_refusal(kind, name, *(folders or [Path("mine")])) is None
    elif module in OWN_KEYS:
        os.environ.pop(VARIABLE, None)  # set by the previous command
        left = take_config_dir(arguments)
        own = OWN_KEYS[module]
        overrides = [word for word in left if word != "-m" and word.partition("=")[0] not in own]
        if module == "experiments.sample":  # its command needs no experiment
            overrides = ["experiment=llama_baseline", *overrides]
        if VARIABLE in os.environ:
            assert override_error(overrides) is None
        else:
            yield overrides
    else:
        raise AssertionError(module)


@pytest.mark.parametrize("block", [*blocks("console")], ids=lambda block: block.text.splitlines()[0][2:])
def test_console_blocks_show_actual_error_messages(block: Block) -> None:
    lines = block.text.splitlines()
    assert len(lines) % 2 == 0
    for command, message in zip(lines[::2], lines[1::2], strict=True):
        assert command.startswith("$ make exp ")
        (program,) = asked(shlex.split(command)[2:])
        assert override_error(program[program.index("-m") + 2 :]) == message


def test_faq_messages_exist_in_the_code() -> None:
    """Strings are compared without their line breaks. A … in a message matches any text."""
    messages = re.findall(r"^`(.+)`$", (ROOT / "docs" / "faq.md").read_text(), re.M)
    assert len(messages) > 8
    source = re.sub(r'"\s*\n\s*f?"', "", "\n".join(path.read_text() for path in CODE))
    for message in messages:
        pattern = r"[^\n]*?".join(re.escape(part) for part in message.strip("… ").split("…"))
        assert re.search(pattern, source), message
