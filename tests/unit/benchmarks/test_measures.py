"""From requests to the page: requests to each arm, ratios of paired repeats, and the tables of the page."""

from __future__ import annotations

from argparse import Namespace
from pathlib import Path

import pytest
import torch

from benchmarks.command import PAGES, options
from benchmarks.measures import MEASURES, Findings, compare
from benchmarks.page import BEGIN, END, results_section, with_results
from benchmarks.side_by_side import requests
from benchmarks.workloads import MODELS, PRETRAINED, SMALL
from experiments.config.known_models import model_folder


def chosen(monkeypatch: pytest.MonkeyPatch, *arguments: str) -> Namespace:
    monkeypatch.setattr("sys.argv", ["bench", *arguments])
    return options()


def test_options_set_page_only_for_complete_run_of_one_model(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    plain, large = chosen(monkeypatch), chosen(monkeypatch, "--models", MODELS[1])
    assert (plain.models, plain.page, plain.workloads) == ([SMALL], PAGES[SMALL], ["short", "long", "uneven"])
    assert large.page is None
    assert plain.measures == large.measures == MEASURES
    assert chosen(monkeypatch, "--measures", "update").page is None
    assert chosen(monkeypatch, "--workloads", "short").page is None
    monkeypatch.setattr("benchmarks.command.OUTPUTS", tmp_path)
    with pytest.raises(SystemExit):
        chosen(monkeypatch, "--models", PRETRAINED)
    assert f"make model name={PRETRAINED}" in capsys.readouterr().err
    model_folder(PRETRAINED, tmp_path).mkdir(parents=True)
    pretrained = chosen(monkeypatch, "--models", PRETRAINED)
    assert (pretrained.page, pretrained.workloads) == (PAGES[PRETRAINED], ["problems"])


@pytest.mark.parametrize("arguments", ["--workloads problems", "--repeats 0", "--device cuda"])
def test_options_reject_unsupported_value(
    arguments: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(SystemExit):
        chosen(monkeypatch, *arguments.split())
    option, value = arguments.split()
    assert {option, value} <= {word.strip(",;") for word in capsys.readouterr().err.rpartition("error:")[2].split()}


def test_requests_contain_step_once_and_scoring_separately() -> None:
    assert requests(MEASURES) == ["step", "scoring"]
    assert requests(["update", "peak_memory"]) == requests(["update_roofline"]) == ["step"]
    assert requests(["scoring"]) == ["scoring"]
    assert requests(["decode_roofline"]) == []


def test_compare_divides_paired_seconds() -> None:
    ours, theirs = [1.0, 2.0, 4.0], [3.0, 2.0, 6.0]
    result = compare("update", "short", "TRL", ours=ours, theirs=theirs)
    assert (result.ratio_min, result.ratio, result.ratio_max) == (1.0, 1.5, 3.0)
    assert (result.ours, result.theirs) == (2.0, 3.0)


@pytest.mark.parametrize(("ours", "theirs"), [([], []), ([1.0], [1.0, 2.0])])
def test_compare_rejects_unpaired_repeats(ours: list[float], theirs: list[float]) -> None:
    with pytest.raises(ValueError, match=f"got {len(ours)} and {len(theirs)}"):
        compare("update", "short", "TRL", ours=ours, theirs=theirs)


def test_page_gets_a_row_for_each_result_and_the_conditions_between_its_marks(tmp_path: Path) -> None:
    found = Findings(
        results=[
            compare("generation", "short prompts", "TRL 1.0", ours=[0.5, 0.25], theirs=[1.0, 1.0]),
            compare("update", "LongProc prompts", "TRL 1.0", ours=[12.0], theirs=[30.0]),
            compare("peak_memory", "short prompts", "TRL 1.0", ours=[1.5, 1.5], theirs=[3.0, 3.0]),
        ],
        versions={"torch": "2.13.0", "threads": "1", "trl": "1.0", "dtype": "float32"},
        sizes={"short prompts": "8 prompts of 32 tokens"},
        notes=["vLLM was not measured: no GPU."],
    )
    page = tmp_path / "page.md"
    page.write_text(f"By hand.\n\n{BEGIN}\n\n| `old` |\n\n{END}\n\nMore by hand.\n")
    text = with_results(page, results_section(found, repeats=2))
    assert text.startswith(f"By hand.\n\n{BEGIN}\n\n## This run\n\n- ")
    assert text.endswith(f" |\n\n{END}\n\nMore by hand.\n")
    assert "old" not in text
    short, long = (text.index(f"### {title} prompts\n\n| measure |") for title in ("short", "LongProc"))
    assert short < text.index("| `generation` | TRL 1.0 | **3.00** | 2.00 – 4.00 | 375 ms | 1.0 s |") < long
    assert short < text.index("| `peak_memory` | TRL 1.0 | **2.00** | 2.00 – 2.00 | 1.50 GiB | 3.00 GiB |") < long
    assert long < text.index("| `update` | TRL 1.0 | **2.50** | 2.50 – 2.50 | 12.0 s | 30.0 s |")
    for fact in ("threads of an arm: 1", "in float32", "- torch 2.13.0, trl 1.0.", "- 2 repeats", *found.notes):
        assert fact in text
    assert "- short prompts: 8 prompts of 32 tokens." in text
    page.write_text(f"{END} {BEGIN}")
    with pytest.raises(ValueError, match=r"page\.md"):
        with_results(page, "")


def test_pages_of_the_documentation_have_marks_around_their_results() -> None:
    for page in PAGES.values():
        new = with_results(page, "## This run\n\nnothing")
        assert new.count(BEGIN) == new.count(END) == 1
        assert "| `whole_step` |" in page.read_text(encoding="utf-8")
        assert "| `whole_step` |" not in new
        assert "## How each arm does the work" in new
