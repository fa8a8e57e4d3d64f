"""Parts of the check on a GPU: time limits, failure reasons, results read from their files, and the page."""

from __future__ import annotations

import re
import sys
import time
from pathlib import Path

import pytest
import torch

from benchmarks.command import report
from benchmarks.gpu_check.__main__ import NO_GPU, PAGE, machine, main, run_parts
from benchmarks.gpu_check.parts import EXPERIMENT, MODELS, PARTS, Check
from benchmarks.gpu_check.results import Outcome, of_benchmark, of_run, of_tests, outcomes_section
from benchmarks.measures import Findings, compare
from benchmarks.page import with_results
from benchmarks.processes import run
from tests.config_kit import composed

TESTS = """
import os
import signal
import time

import pytest


def test_right() -> None:
    pass


def test_wrong() -> None:
    assert 1 + 1 == 3


@pytest.mark.skip(reason="needs what is not here")
def test_skipped() -> None:
    pass


def test_interrupted() -> None:
    os.killpg(0, signal.SIGINT)
    time.sleep(60)
"""
STUBBORN = "trap '' INT; sleep 60 & echo started $!; sleep 60"


def check(folder: Path, **settings: str | None) -> Check:
    return Check(
        **{"device": "cpu", "model": None, "experiment": EXPERIMENT, "vllm": None, "folder": folder} | settings
    )


def python(script: str) -> list[str]:
    return [sys.executable, "-c", script]


def is_alive(process: int) -> bool:
    """A zombie counts as dead: it waits for a parent that has ended as well."""
    status = Path(f"/proc/{process}/status")
    return status.exists() and "State:\tZ" not in status.read_text()


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is a GPU")
def test_main_without_gpu_fails_and_changes_no_files(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "gpu_check").mkdir()
    (tmp_path / "gpu_check" / "kept.log").write_text("of an earlier check")
    assert main([f"output_dir={tmp_path}", f"page={tmp_path / 'gpu.md'}"]) == 2
    assert capsys.readouterr().err == f"{NO_GPU}\n"
    assert [path.name for path in tmp_path.rglob("*")] == ["gpu_check", "kept.log"]


@pytest.mark.parametrize(("argument", "named"), [("parts=tests,tset", "'tset'"), ("minutes=0", "minutes")])
def test_main_rejects_invalid_setting(argument: str, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit, match="2"):
        main([argument, "device=cpu"])
    assert named in capsys.readouterr().err


def test_run_kills_process_and_children_at_time_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("benchmarks.processes.GRACE_SECONDS", 0.2)
    reason = run(["sh", "-c", STUBBORN], log=tmp_path / "log", seconds=2)
    assert reason is not None
    assert reason.startswith("stopped at its time limit of 2 s; its last output: started ")
    child = int(reason.split()[-1])
    end = time.monotonic() + 5
    while is_alive(child) and time.monotonic() < end:
        time.sleep(0.05)
    assert not is_alive(child)


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("pass", None),
        (
            "print('it began'); print(); raise SystemExit('no such   thing in /srv/data/x')",
            "exit code 1: no such thing in …/x",
        ),
        ("print('at step 3', flush=True); import os; os.kill(os.getpid(), 9)", "ended by SIGKILL: at step 3"),
        ("raise SystemExit(3)", "exit code 3: no output"),
    ],
)
def test_run_returns_last_output_line_of_failure(script: str, reason: str | None, tmp_path: Path) -> None:
    assert run(python(script), log=tmp_path / "log", seconds=100) == reason


def test_of_tests_reads_results_of_interrupted_pytest_run(tmp_path: Path) -> None:
    """Runs pytest without plugins, which take seconds to load."""
    (tmp_path / "test_part.py").write_text(TESTS)
    results = tmp_path / "tests.xml"
    command = ["env", "PYTEST_DISABLE_PLUGIN_AUTOLOAD=1", sys.executable, "-m", "pytest", "-v"]
    command += ["-p", "no:cacheprovider", f"--junit-xml={results}", str(tmp_path)]
    outcome = of_tests(results, run(command, log=tmp_path / "log", seconds=100))
    assert outcome.figures == (("tests passed", "1 of 3"),)
    assert outcome.notes == ("Tests skipped: 1 (needs what is not here).",)
    (test, why), (program, end) = outcome.failures
    assert (test, why) == ("test_wrong", "assert (1 + 1) == 3")
    assert program == "pytest"
    assert end.startswith("exit code 2: ")


def test_of_tests_is_not_run_if_all_tests_were_skipped(tmp_path: Path) -> None:
    skipped = '<testsuites><testcase name="test_one"><skipped message="no GPU"/></testcase></testsuites>'
    (tmp_path / "tests.xml").write_text(skipped)
    outcome = of_tests(tmp_path / "tests.xml", None)
    assert (outcome.state, outcome.not_run) == ("not run", "all 1 tests were skipped: no GPU")


def test_of_benchmark_reads_ratios_and_notes_from_file(tmp_path: Path) -> None:
    result = compare("update", "short prompts", "TRL 1.0", ours=[2.0, 2.0], theirs=[1.0, 3.0])
    found = Findings(results=[result], notes=["vLLM was not measured: no GPU."])
    report(found, tmp_path / "bench.json")
    outcome = of_benchmark(tmp_path / "bench.json", None)
    assert outcome.figures == (("update: short prompts, against TRL 1.0", "1.00 (0.50 – 1.50)"),)
    assert outcome.notes == ("vLLM was not measured: no GPU.",)
    assert outcome.state == "works"
    assert of_benchmark(tmp_path / "bench.json", "ours ended").failures == (("benchmark", "ours ended"),)
    report(Findings(notes=found.notes), tmp_path / "none.json")
    assert of_benchmark(tmp_path / "none.json", None).failures == (("benchmark", "no ratio was measured"),)
    assert of_run(tmp_path, None).failures == (("experiment", "no step of GRPO was logged"),)


def test_missing_program_fails_and_part_without_model_is_not_run(tmp_path: Path) -> None:
    (tmp_path / "model").mkdir()
    place = tmp_path / "gpu.md"
    here = check(tmp_path / "parts", model=str(tmp_path / "model"), vllm="/no/such/vllm")
    outcomes = run_parts(here, {"model", "vllm"}, 30, place)
    assert outcomes["vllm"].failures == (("start", "[Errno 2] No such file or directory: '…/vllm'"),)
    assert "| `vllm` | start | [Errno 2] No such file or directory: '…/vllm' |" in place.read_text()
    assert run_parts(check(tmp_path / "parts", vllm="x"), {"experiment", "vllm"}, 30, place)["vllm"].not_run


@pytest.mark.parametrize(("hub", "failed"), [(True, 0), (False, 1)])
def test_without_hub_model_of_index_trains_on_generated_problems(
    hub: bool, failed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A stub replaces the processes: which model can be fetched depends on the network."""
    started: list[list[str]] = []

    def stand_in(command: list[str], *, log: Path, seconds: float) -> str | None:
        started.append(command[2:])
        return None if hub or "/" not in command[3] else "exit code 1: the hub cannot be reached"

    monkeypatch.setattr("benchmarks.gpu_check.parts.run", stand_in)
    here = check(tmp_path, device="cuda")
    assert len(here.fetch(180).failures) == failed
    here.train(300)
    fetched, trained = started[-2:]
    assert fetched == ["experiments.model", MODELS[failed]]
    assert f"policy.pretrained=outputs/models/{MODELS[failed].replace('/', '--')}" in trained
    assert ("task=arithmetic" in trained) == (not hub)
    assert "trainer=gpu" in trained


def test_experiment_has_ten_steps_on_gpu() -> None:
    for task in ("gsm8k", "arithmetic"):
        config = composed(*f"experiment={EXPERIMENT}".split(), "trainer=gpu", "policy.pretrained=x", f"task={task}")
        assert (config.scale, config.trainer.accelerator, config.budget.grpo.steps) == ("gpu", "gpu", 10)


def test_section_has_every_figure_and_reason() -> None:
    outcomes = {name: Outcome(not_run="it was not chosen") for name in PARTS} | {
        "tests": Outcome(failures=(("test_a", "out|of memory"),), figures=(("tests passed", "1 of 2"),), seconds=3.2),
        "bench": Outcome(figures=(("update", "2.00 (1.00 – 3.00)"),), notes=("TRL was not measured.",)),
    }
    text = outcomes_section(machine(), outcomes, device="cpu")
    for line in (
        "| `tests` | failed | 3 s |  |",
        "| `bench` | works | 0 s |  |",
        "| `vllm` | not run | 0 s | it was not chosen |",
        "| `tests` | test_a | out\\|of memory |",
        "| `bench` | update | 2.00 (1.00 – 3.00) |",
        "- `bench`: TRL was not measured.",
        "The parts ran on the CPU. Their figures say nothing about a GPU.",
    ):
        assert line in text.splitlines()
    assert f"torch {torch.__version__}".partition("+")[0] in text


def test_docs_page_describes_the_parts_and_has_marks_around_the_outcomes() -> None:
    prose, _, results = PAGE.read_text(encoding="utf-8").partition("## This machine")
    described = re.findall(r"^\| `(\w+)` \| .* \| (\d+) min \|$", prose, re.MULTILINE)
    assert [(name, float(minutes)) for name, minutes in described] == [
        (name, part.minutes) for name, part in PARTS.items()
    ]
    assert sum(part.minutes for part in PARTS.values()) <= 30
    assert re.search(r"^\| `tests` \| (works|failed|not run) \|", results, re.MULTILINE)
    assert with_results(PAGE, "").startswith(prose.rstrip())
