"""The written table, line by line, and what stands in its four forms."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from io import StringIO

import pytest
from rich.console import Console

from contrastive_reasoning.published import published_names, published_table
from experiments.analysis import set_table_forms
from experiments.analysis.arms import arms_by
from experiments.analysis.evaluation_sets import columns_of, published_beside
from experiments.analysis.set_table import SetTable, lines, set_table
from experiments.analysis.table import as_rich, escaped_latex
from experiments.tracking.tracked_run import TrackedRun
from tests.unit.experiments.comparison_kit import finished

METRIC = "test/verifier/accuracy"
TRACK = {"suite.quantity": "verifier/accuracy", "suite.published": "clipo_table1"}
MODEL = "Qwen/Qwen2.5-3B-Instruct"
PAPER = {**TRACK, "policy.pretrained": MODEL}


def track_run(
    name: str,
    seed: int,
    *,
    gsm8k: float,
    p1: float | None,
    reward: str,
    model: str = MODEL,
    settings: Mapping[str, str] | None = None,
) -> TrackedRun:
    metrics = {"test/gsm8k/verifier/accuracy": gsm8k, "start/gsm8k/verifier/accuracy": 0.5}
    metrics |= {} if p1 is None else {"test/gsm_p1/verifier/accuracy": p1}
    params = {**TRACK, "policy.pretrained": model, **(settings or {})}
    return finished(name, seed=seed, metrics=metrics, reward=reward, params=params)


def table_of(runs: list[TrackedRun], *, baseline: str | None = "plain") -> SetTable:
    arms = arms_by(runs, ["experiment"])
    published = published_beside(runs, METRIC)
    columns = columns_of(runs, METRIC, None, published)
    against = {arm.label: other for arm in arms for other in arms if other.label == baseline != arm.label}
    return set_table(arms, columns, metric=METRIC, against=against, published=published)


def two_arms(model: str = MODEL) -> list[TrackedRun]:
    plain = [track_run("plain", s, gsm8k=0.80 + 0.02 * s, p1=0.6, reward="verifier", model=model) for s in (0, 1)]
    return plain + [track_run("clipo", s, gsm8k=0.84 + 0.02 * s, p1=0.7, reward="clipo", model=model) for s in (0, 1)]


def test_a_table_with_published_figures_line_by_line() -> None:
    """The interval of two values x and x + 0.02 is 12.706 · 0.01 to both sides."""
    written = [(line.label, line.seeds, *line.cells) for line in lines(table_of(two_arms()))]
    assert written == [
        ("before training", "2", "50.0 ± 0.0", ""),
        ("plain", "2", "81.0 ± 12.7", "60.0 ± 0.0"),
        ("published: GRPO, Qwen2.5-3B-Instruct", "", "87.79", "73.12"),
        ("clipo", "2", "85.0 ± 12.7", "70.0 ± 0.0"),
        ("Δ to plain", "", "+4.0 ± 0.0", "+10.0 ± 0.0"),
        ("published: GRPO+CLIPO, Qwen2.5-3B-Instruct", "", "88.02", "74.60"),
        ("published: Δ to GRPO", "", "+0.23", "+1.48"),
    ]


def test_figures_of_another_model_are_not_beside_ours() -> None:
    table = table_of(two_arms(model="Qwen/Qwen2.5-0.5B"))
    assert not any("published" in line.label for line in lines(table))
    assert "Published" not in table.caption


@pytest.mark.parametrize("choices", [{"advantage": "leave_one_out"}, {"task": "math"}])
def test_another_advantage_or_task_is_another_method(choices: dict[str, str]) -> None:
    runs = [finished("arm", seed=s, metrics={"test/gsm8k/verifier/accuracy": 0.8}, params=PAPER) for s in (0, 1)]
    others = [replace(run, tags={**run.tags, **choices}) for run in runs]
    assert [len(table_of(found).published) for found in (runs, others)] == [1, 0]


@pytest.mark.parametrize(
    ("reward", "settings", "method"),
    [
        ("clipo", {"reward.temperature": "0.05", "rollout.group_size": "16"}, "GRPO+CLIPO"),
        ("clipo", {"reward.temperature": "0.020", "reward.weight": "0.2"}, "GRPO+CLIPO, τ 0.02"),
        ("clipo", {"reward.temperature": "0.3"}, None),
        ("clipo", {"rollout.group_size": "8"}, None),
        ("clipo_softnn", {"reward.weight": "1.0"}, "GRPO+CLIPO, SoftNN"),
        ("clipo_softnn", {"reward.weight": "0.2"}, None),
        ("clipo_fixed_head", {"reward.temperature": "${tau}"}, None),
        ("verifier", {"rollout.group_size": "8"}, None),
    ],
)
def test_an_arm_stands_beside_the_row_of_its_own_settings(
    reward: str, settings: dict[str, str], method: str | None
) -> None:
    runs = [track_run("arm", s, gsm8k=0.8, p1=0.7, reward=reward, settings=settings) for s in (0, 1)]
    assert [row.method for row in table_of(runs).published.values()] == ([] if method is None else [method])


def test_a_published_difference_names_what_it_is_to_and_is_a_gain_over_that_alone() -> None:
    runs = [track_run("clipo", 0, gsm8k=0.8, p1=0.7, reward="clipo")]
    runs += [track_run("fixed", 0, gsm8k=0.8, p1=0.7, reward="clipo_fixed_head")]
    runs += [track_run("plain", 0, gsm8k=0.8, p1=0.7, reward="verifier")]
    table = table_of(runs, baseline="plain")
    assert "published: Δ to GRPO+CLIPO" in [line.label for line in lines(table)]
    assert [dict(table.published_deltas(label)).get("gsm8k") for label in ("clipo", "fixed")] == [0.23, None]
    assert table_of(runs, baseline="clipo").published_deltas("fixed")["gsm8k"] == 0.61
    assert table.caption.endswith("Published: CLIPO, Table 1, Pass@1 in %; CLIPO, Table 11.")


def test_a_reward_that_the_table_does_not_have_is_no_row_of_it() -> None:
    runs = [track_run("l2", s, gsm8k=0.8, p1=0.7, reward="clipo_l2") for s in (0, 1)]
    assert not table_of(runs).published


def test_what_an_arm_was_not_tested_on_is_empty_and_fewer_seeds_are_said() -> None:
    runs = [track_run("plain", s, gsm8k=0.8, p1=0.6 if s else None, reward="x") for s in (0, 1)]
    runs += [track_run("other", 0, gsm8k=0.9, p1=None, reward="x")]
    written = {line.label: list(line.cells) for line in lines(table_of(runs, baseline="other"))}
    assert written["plain"] == ["80.0 ± 0.0", "60.0 [1]"]
    assert written["other"] == ["90.0", ""]
    assert written["Δ to other"] == ["-10.0 [1]", ""], "nothing to compare with there"


def test_arms_of_other_seeds_have_a_common_beginning() -> None:
    """Each seed's evaluation draws its own samples: means over other seeds differ, the policy does not."""
    runs = [
        finished(name, seed=s, metrics={METRIC: 0.5, METRIC.replace("test", "start"): 0.1 * s})
        for name, seeds in (("plain", (1, 2, 3)), ("other", (1,)))
        for s in seeds
    ]
    first, *others = lines(table_of(runs))
    assert (first.label, first.seeds, first.cells[0][:4]) == ("before training", "3", "20.0")
    assert "before training" not in {line.label for line in others}


def test_unlike_beginnings_stand_under_their_arms() -> None:
    runs = two_arms()
    runs[-1] = finished("clipo", seed=1, metrics={**runs[-1].metrics, "start/gsm8k/verifier/accuracy": 0.7}, reward="x")
    assert [line.label for line in lines(table_of(runs))][:2] == ["plain", "before training"]


@pytest.mark.parametrize(
    ("other", "written"),
    [
        ({3: 0.3, 4: 0.4, 5: 0.5}, "+20.0 ± 22.7 ʷ"),
        ({1: 0.4, 2: 0.4, 4: 0.9}, "+25.0 ± 63.5 [2]"),
        ({2: 0.4}, "+20.0"),
        ({7: 0.4}, "+20.0"),
    ],
    ids=["one seed in common", "two of three", "one that the baseline has", "one that it has not"],
)
def test_a_difference_is_over_the_seeds_of_both(other: dict[int, float], written: str) -> None:
    """A seed decides the start too: against all of the baseline's, starts would be compared."""
    runs = [finished("plain", seed=s, metrics={METRIC: 0.1 * s}) for s in (1, 2, 3)]
    runs += [finished("other", seed=s, metrics={METRIC: value}) for s, value in other.items()]
    (delta,) = (line for line in lines(table_of(runs)) if line.label == "Δ to plain")
    assert delta.cells[0] == written


def test_a_metric_that_is_no_share_keeps_its_unit() -> None:
    runs = [
        finished("plain", seed=0, metrics={"test/completion/tokens": 123.456, "test/larger/completion/tokens": 5.0})
    ]
    columns = columns_of(runs, "test/completion/tokens", None, None)
    arms = arms_by(runs, ["experiment"])
    table = set_table(arms, columns, metric="test/completion/tokens", against={}, published=None)
    assert [line.cells for line in lines(table)] == [["123.5", "5"]]
    assert "In %" not in table.caption


def test_latex_is_a_tabular_with_every_sign_escaped() -> None:
    runs = [finished("my_arm & co", seed=s, metrics={METRIC: 0.5, f"test/a_b/{METRIC[5:]}": 0.25}) for s in (0, 1)]
    written = set_table_forms.as_latex(table_of(runs, baseline=None)).splitlines()
    assert written[1:4] == [r"\begin{tabular}{lrrr}", r"\toprule", r"arm & seeds & main & a\_b \\"]
    assert written[5] == r"my\_arm \& co & 2 & 50.0 $\pm$ 0.0 & 25.0 $\pm$ 0.0 \\"
    indented = set_table_forms.as_latex(table_of(two_arms()))
    assert r"\quad $\Delta$ to plain &  & +4.0 $\pm$ 0.0 & +10.0 $\pm$ 0.0 \\" in indented.splitlines()


@pytest.mark.parametrize("name", published_names())
def test_what_papers_call_their_methods_is_in_every_latex(name: str) -> None:
    table = published_table(name)
    assert [row.method for row in table.arms if not escaped_latex(row.method).isascii()] == []


def test_markdown_holds_no_markup_of_a_name() -> None:
    runs = [finished("<script>|x", seed=s, metrics={METRIC: 0.5}) for s in (0, 1)]
    head, rule, row, *_ = set_table_forms.as_markdown(table_of(runs, baseline=None)).splitlines()
    assert (head, rule) == ("| arm | seeds | main |", "| --- | ---: | ---: |")
    assert row == r"| &lt;script>\|x | 2 | 50.0 ± 0.0 |"


@pytest.mark.parametrize("name", ["[red]x", "[/]"])
def test_the_terminal_shows_a_name_as_it_is(name: str) -> None:
    console = Console(file=StringIO(), width=120)
    console.print(set_table_forms.as_rich(table_of([finished(name, seed=0, metrics={METRIC: 0.5})], baseline=None)))
    assert f"│ {name} " in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]


@pytest.mark.parametrize("name", ["[red]", "[/]", "a[/INST]"])
def test_so_does_the_table_of_one_column(name: str) -> None:
    table = table_of([finished(name, seed=0, metrics={METRIC: 0.5})], baseline=None)
    console = Console(file=StringIO(), width=120)
    console.print(as_rich(list(table.rows["main"].values()), METRIC))
    assert f"│ {name} " in console.file.getvalue()  # pyright: ignore[reportAttributeAccessIssue]
