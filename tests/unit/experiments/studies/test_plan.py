"""What a study's file may say, and that each study of ours can be run: its arms compose, its stages can be planned."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from experiments.schema import register
from experiments.stages.plan import plan_stages
from experiments.studies.finished import mark_of
from experiments.studies.jobs import check_comparable, check_jobs, composed, jobs_of, start_jobs
from experiments.studies.plan import STUDIES, StudyError, find_study, read_study, study_names
from experiments.studies.starts import start_policies
from experiments.study import chosen_study, options
from experiments.validation import check_credit_fits

CONTENT = yaml.safe_load("""
question: Is it better?
primary: {metric: test/verifier/accuracy, arm: better, baseline: plain}
curve: val/verifier/accuracy
common: [debug=fast]
start: {overrides: [experiment=llama_baseline], seed: 7}
arms:
  plain: {about: as it was, overrides: [experiment=llama_baseline], seeds: 3}
  better: {about: improved, overrides: [experiment=llama_oracle], seeds: 2}
  third: {about: another, overrides: [experiment=llama_oracle, reward.weight=0.1], seeds: 1}
order: [[plain, better], [third]]
parallel: 2
""")
register()


def changed(path: str, value: Any) -> Any:
    """The content with one value replaced, or taken away by ``...``."""
    content = copy.deepcopy(CONTENT)
    *parents, last = path.split(".")
    node = content
    for key in parents:
        node = node[key]
    if value is ...:
        del node[last]
    else:
        node[last] = value
    return content


def test_jobs_come_row_by_row_and_seed_by_seed() -> None:
    jobs = jobs_of(read_study("s", CONTENT), {})
    assert [(job.arm, job.seed) for job in jobs] == [
        ("plain", 0),
        ("better", 0),
        ("plain", 1),
        ("better", 1),
        ("plain", 2),
        ("third", 0),
    ]
    assert jobs[1].overrides == ("debug=fast", "experiment=llama_oracle", "seed=0", "name=s", "arm=better")


def test_all_arms_begin_from_the_one_warm_start() -> None:
    study = read_study("s", CONTENT)
    starts = start_jobs(study)
    assert list(starts) == [0, 1, 2]
    (start,) = set(starts.values())
    assert composed(start).stages == ["warm_start"]
    assert (composed(start).seed, composed(start).policy.pretrained) == (7, None)
    jobs = jobs_of(study, dict.fromkeys(starts, "a/policy"))
    assert {composed(job).policy.pretrained for job in jobs} == {"a/policy"}
    assert start_jobs(read_study("s", changed("start", None))) == {}


def test_each_seed_can_begin_from_a_warm_start_of_its_own() -> None:
    study = read_study("s", changed("start.seed", "each"))
    assert {seed: composed(start).seed for seed, start in start_jobs(study).items()} == {0: 0, 1: 1, 2: 2}
    policies = start_policies(study)
    assert len(set(policies.values())) == 3
    begun = {(job.arm, job.seed): composed(job).policy.pretrained for job in jobs_of(study, policies)}
    assert begun == {(arm, seed): policies[seed] for arm, seed in begun}
    assert len(begun) == 6


def test_options_change_what_is_run_and_not_what_it_is(tmp_path: Path) -> None:
    (file := tmp_path / "s.yaml").write_text(yaml.safe_dump(CONTENT))
    study, only = chosen_study(options([str(file)]))
    assert (study, only) == (find_study(str(file)), [])
    other, only = chosen_study(options([str(file), "parallel=7", "only=plain,third", "progress=json"]))
    assert (other.parallel, only) == (7, ["plain", "third"])
    job = jobs_of(other, {})[0]
    assert composed(job).progress._target_.rpartition(".")[2] == "JSONLines"
    assert mark_of(job) == mark_of(jobs_of(study, {})[0])
    with pytest.raises(StudyError, match="launcher=joblip: no such launcher; did you mean 'joblib'"):
        chosen_study(options([str(file), "launcher=joblip"]))
    mistyped, _ = chosen_study(options([str(file), "progress=jsn"]))
    with pytest.raises(StudyError, match="progress=jsn: no such progress; did you mean 'json'"):
        check_jobs(jobs_of(mistyped, {}))


@pytest.mark.parametrize(
    ("path", "value", "sentence"),
    [
        ("question", ..., "s.question is missing; there must be question, primary, curve"),
        ("quest", "x", "s.quest: no such key; did you mean 'question'?"),
        ("parallel", True, "s.parallel must be a whole number, got True"),
        ("parallel", 0, "s.parallel must be at least 1, got 0"),
        ("start", [], r"s.start must be a mapping or null, got \[\]"),
        ("start.seed", "every", "s.start.seed must be a whole number, or 'each' .*, got 'every'"),
        ("start.seed", None, "s.start.seed must be a whole number or a text, got None"),
        ("arms.plain.seeds", 0, "s.arms.plain.seeds must be at least 1, got 0"),
        ("arms.plain.about", ..., "s.arms.plain.about is missing; there must be about, overrides, seeds"),
        ("arms.plain", 3, "s.arms.plain must be a mapping with about, overrides, seeds; got 3"),
        ("arms.Plain", {"about": "", "overrides": [], "seeds": 1}, "s.arms.Plain: an arm is named by small letters"),
        ("arms.start", {"about": "", "overrides": [], "seeds": 1}, "s.arms.start: .* and not 'start'"),
        ("arms.plain.overrides", ["seed=3"], "s.arms.plain.overrides: seed=3: the study sets seed, name, arm itself"),
        ("common", ["debug"], "s.common: 'debug' is no override: write 'key=value'"),
        ("order", [["plain", "better"]], "s.order must hold each arm once, but 'third' 0 times"),
        ("order", [["plain", "bettr"], ["third"]], "s.order: no arm 'bettr'; did you mean 'better'?"),
        ("order", ["plain"], "s.order: each row must be a list of arms, got 'plain'"),
        ("common", ["policy.pretrained=a"], "s.common: policy.pretrained=a: all arms begin from the policy of s.start"),
        (
            "arms.plain.overrides",
            ["policy.pretrained=a"],
            "s.arms.plain.overrides: policy.pretrained=a: .* start: null",
        ),
        ("start.overrides", ["policy.pretrained=a"], "s.start.overrides: policy.pretrained=a: all arms begin from"),
        ("primary.arm", "plain", "s.primary: arm and baseline are both 'plain'"),
        ("primary.arm", "fourth", "s.primary.arm: no arm 'fourth'; there are better, plain, third"),
        ("curve", "val/verifier/acuracy", "s.curve: .* 'val/verifier/acuracy'; did you mean 'val/verifier/accuracy'"),
        ("primary.metric", "test/loss", "s.primary.metric must be test/verifier/accuracy or .*, got 'test/loss'"),
    ],
)
def test_each_fault_has_its_sentence(path: str, value: Any, sentence: str) -> None:
    with pytest.raises(StudyError, match=sentence):
        read_study("s", changed(path, value))


@pytest.mark.parametrize(("path", "value"), [("start", None), ("start.overrides", ["policy.pretrained=null"])])
def test_a_policy_to_begin_from_is_named_where_nothing_overwrites_it(path: str, value: Any) -> None:
    content = changed(path, value)
    content["arms"]["plain"]["overrides"] = ["policy.pretrained=a"] if value is None else []
    assert read_study("s", content).arms["plain"].overrides == content["arms"]["plain"]["overrides"]


def test_an_unknown_study_is_answered_with_the_nearest() -> None:
    with pytest.raises(StudyError, match="no study 'countdown_credt'; did you mean 'countdown_credit'"):
        find_study("countdown_credt")


def test_an_arm_that_the_command_line_would_refuse_is_named() -> None:
    study = read_study("s", changed("arms.third.overrides", ["experiment=llama_oracle", "reward.wight=0.1"]))
    with pytest.raises(StudyError, match=r"arm third: reward.wight: no such key; did you mean 'reward.weight'"):
        check_jobs(jobs_of(study, {}))


def test_a_mark_knows_the_seed_and_what_is_trained_and_not_the_studys_name() -> None:
    first, *others = jobs_of(read_study("s", changed("start", None)), {})
    another_seed = next(job for job in others if job.arm == first.arm)
    another_arm = next(job for job in others if job.arm != first.arm and job.seed == first.seed)
    marks = [mark_of(job).stage for job in (first, another_seed, another_arm)]
    assert len(set(marks)) == len(marks)
    again = next(iter(jobs_of(read_study("other", changed("start", None)), {})))
    assert mark_of(again).stage == marks[0]


@pytest.mark.whole
@pytest.mark.parametrize("name", study_names())
def test_every_arm_of_every_study_can_be_run(name: str) -> None:
    study = find_study(name)
    jobs = {job.arm: job for job in [*start_jobs(study).values(), *jobs_of(study, {})]}
    check_jobs(list(jobs.values()))
    check_comparable(study, [job for arm, job in jobs.items() if arm != "start"])
    for arm, job in jobs.items():
        stages = [plan.name for plan in plan_stages(composed(job)).values()]
        assert arm == "start" or {"grpo", "evaluate"} <= set(stages)
        check_credit_fits(composed(job))
    assert (STUDIES / f"{name}.yaml").read_text().splitlines()[0].endswith(f"make study name={name}")
