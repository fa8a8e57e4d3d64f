"""New files of every kind work as they are: their test passes, an experiment builds with them, and a debug run ends."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from experiments.cli.commands import KINDS
from experiments.config.composition import compose_lines, forget_compositions
from experiments.config.folders import VARIABLE, take_config_dir
from experiments.new.__main__ import main
from experiments.schema import composing
from experiments.stages.building import check_arguments, check_parts
from tests.forking import Forks, forks

ROOT = Path(__file__).resolve().parents[4]


@pytest.fixture(autouse=True)
def own_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """Works in an empty folder, from which Python imports; restores the config folder after each test."""
    monkeypatch.setenv(VARIABLE, "")
    monkeypatch.delenv(VARIABLE)
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(tmp_path)
    forget_compositions()
    yield tmp_path
    forget_compositions()


def run(*words: str) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}
    return subprocess.run([sys.executable, "-m", *words], env=environment, capture_output=True, text=True, check=False)


def overrides(kind: str, name: str) -> list[str]:
    return [f"experiment={KINDS[kind]}", f"{kind}={name}"]


def test_new_files_pass_their_tests_and_build_with_an_experiment(
    own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    names = {kind: f"short_{kind}" for kind in KINDS}
    for kind, name in names.items():
        assert main([kind, name]) == 0
        printed = capsys.readouterr().out
        files = [f"mine/{name}.py", f"mine/conf/{kind}/{name}.yaml", f"mine/test_{name}.py"]
        assert [(own_folder / file).is_file() and file in printed for file in files] == [True] * 3
    settings = ["--config", str(ROOT / "pyproject.toml"), "--no-cache"]
    tests = ["pytest", "-q", "-p", "no:cacheprovider", *(f"mine/test_{name}.py" for name in names.values())]
    for command in (tests, ["ruff", "check", *settings, "mine"], ["ruff", "format", "--check", *settings, "mine"]):
        done = run(*command)
        assert done.returncode == 0, done.stdout
    take_config_dir(["--config-dir", "mine/conf"])
    for kind, name in names.items():
        with composing():
            config = compose_lines(*overrides(kind, name), "debug=fast")
        assert f"mine.{name}." in str(config[kind])
        check_arguments(config)
        check_parts(config)


@pytest.fixture(scope="module")
def train(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Forks]:
    with forks(["experiment=llama_critic"], tmp_path_factory.mktemp("said") / "log", source=ROOT) as started:
        yield started


@pytest.mark.whole
@pytest.mark.parametrize("kind", KINDS)
def test_debug_run_with_new_files_ends(kind: str, own_folder: Path, train: Forks) -> None:
    assert main([kind, "short_lines"]) == 0
    given = ["--config-dir", "mine/conf", *overrides(kind, "short_lines"), "debug=fast", "logger.mirror=false"]
    assert train(*given, folder=str(own_folder)) == 0, train.log.read_text()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], [*KINDS]),
        (["rewad", "a"], ["rewad", *KINDS]),
        (["reward"], [*KINDS]),
        (["reward", "two-words"], ["two-words", *KINDS]),
        (["reward", "lambda"], ["lambda", *KINDS]),
        (["reward", "clipo"], ["reward=clipo", *KINDS]),
        (["advantage", "mine"], ["advantage", *KINDS]),
        (["objective", "mean_centred", "folder=conf"], ["conf"]),
        (["reward", "torch"], ["torch"]),  # mine/torch.py would hide the library from pytest
        (["critic", "tensor"], ["tensor"]),  # class Tensor would hide the class that the file imports
        (["reward", "max"], ["max"]),  # the function would call itself
        (["reward", "brief", "folder=../mine"], ["../mine"]),
        (["reward", "brief", "folder=json"], ["json"]),
    ],
    ids=" ".join,
)
def test_invalid_name_kind_or_folder_writes_nothing(
    arguments: Sequence[str], named: Sequence[str], own_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(arguments) == 2
    (sentence,) = capsys.readouterr().err.splitlines()
    assert [word for word in named if word not in sentence] == []
    assert [*own_folder.iterdir()] == []


@pytest.mark.parametrize("taken", ["mine/brief.py", "mine/test_brief.py", "mine/conf/reward/brief.yaml"])
def test_no_file_is_overwritten(taken: str, own_folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = own_folder / taken
    path.parent.mkdir(parents=True)
    path.write_text("# my work\n")
    assert main(["reward", "brief"]) == 2
    assert taken in capsys.readouterr().err
    assert [each for each in own_folder.rglob("*") if each.is_file()] == [path]
    assert path.read_text() == "# my work\n"
