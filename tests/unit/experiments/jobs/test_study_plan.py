"""Rules for the file of a study, its jobs, and checks that each of our studies can be planned and compared."""

from __future__ import annotations

import copy
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import yaml
from hydra.utils import instantiate
from omegaconf import OmegaConf

from contrastive_reasoning.critics.checkpoint import save_critic
from experiments.cli.commands import COMMANDS
from experiments.config.folders import CONF, study_names
from experiments.jobs.finished import mark_of, start_policies
from experiments.jobs.study_jobs import ArmJob, check, compose_job, jobs_of, start_jobs
from experiments.jobs.study_plan import RIGHT_PLAN, Primary, Start, Study, StudyError, find_study, read_study
from experiments.stages.building import check_credit_fits
from experiments.stages.plan import plan_stages
from experiments.study import chosen_study, close

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


def changed(path: str, value: Any) -> Any:
    """Returns the content with one value replaced, or removed by ``...``."""
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


def test_seeds_start_at_first_seed_of_study() -> None:
    study = read_study("s", changed("start.seed", "each") | {"first_seed": 10})
    jobs = jobs_of(study, {})
    assert [job.seed for job in jobs if job.arm == "plain"] == [10, 11, 12]
    assert [job.overrides[-3] for job in start_jobs(study).values()] == ["seed=10", "seed=11", "seed=12"]


def test_jobs_are_ordered_by_row_then_by_seed() -> None:
    jobs = jobs_of(read_study("s", CONTENT), {})
    first = [("plain", 0), ("better", 0), ("plain", 1), ("better", 1), ("plain", 2)]
    assert [(job.arm, job.seed) for job in jobs] == [*first, ("third", 0)]
    assert jobs[1].overrides == ("debug=fast", "experiment=llama_oracle", "seed=0", "name=s", "arm=better")


def test_all_arms_start_from_same_warm_start() -> None:
    study = read_study("s", CONTENT)
    starts = start_jobs(study)
    assert list(starts) == [0, 1, 2]
    (start,) = {compose_job(job) for job in set(starts.values())}
    assert (start.stages, start.seed, start.policy.pretrained) == (["warm_start"], 7, None)
    jobs = jobs_of(study, dict.fromkeys(starts, "a/policy"))
    assert {compose_job(job).policy.pretrained for job in jobs} == {"a/policy"}
    assert start_jobs(read_study("s", changed("start", None))) == {}


def test_each_seed_can_have_its_own_warm_start() -> None:
    study = read_study("s", changed("start.seed", "each"))
    assert {seed: compose_job(start).seed for seed, start in start_jobs(study).items()} == {0: 0, 1: 1, 2: 2}
    policies = start_policies(study)
    assert len(set(policies.values())) == 3
    pretrained = {(job.arm, job.seed): compose_job(job).policy.pretrained for job in jobs_of(study, policies)}
    assert pretrained == {(arm, seed): policies[seed] for arm, seed in pretrained}
    assert len(pretrained) == 6


def test_options_do_not_change_mark_of_job(tmp_path: Path) -> None:
    (file := tmp_path / "s.yaml").write_text(yaml.safe_dump(CONTENT))
    study, only = chosen_study(COMMANDS["study"].read([str(file)]))
    assert (study, only) == (find_study(str(file)), [])
    other, only = chosen_study(COMMANDS["study"].read([str(file), "parallel=7", "only=plain,third", "progress=json"]))
    assert (other.parallel, only) == (7, ["plain", "third"])
    job = jobs_of(other, {})[0]
    assert compose_job(job).progress._target_.rpartition(".")[2] == "JSONLines"
    assert mark_of(job) == mark_of(jobs_of(study, {})[0])
    with pytest.raises(StudyError, match=r"parallel.*1"):
        chosen_study(COMMANDS["study"].read([str(file), "parallel=0"]))
    with pytest.raises(StudyError, match=r"launcher=joblip.*'joblib'"):
        chosen_study(COMMANDS["study"].read([str(file), "launcher=joblip"]))
    mistyped, _ = chosen_study(COMMANDS["study"].read([str(file), "progress=jsn"]))
    with pytest.raises(StudyError, match=r"progress=jsn.*'json'"):
        check(mistyped)


NO_ARM = {"about": "", "overrides": [], "seeds": 1}


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        ("question", ..., "s.question"),
        ("parallel", True, "s.parallel: .*True"),
        ("start", [], "s.start: .*Start"),
        ("start.seed", "every", "s.start.seed .*'each'.*'every'"),
        ("arms.plain.seeds", 0, "s.arms.plain.seeds .*0"),
        ("arms.plain.sedes", 1, "s.arms.plain.sedes: .*'seeds'"),
        ("arms.Plain", NO_ARM, "s.arms.Plain"),
        ("arms.start", NO_ARM, "s.arms.start"),
        ("arms.plain.overrides", ["seed=3"], "s.arms.plain.overrides: seed=3"),
        ("order", [["plain", "better"]], "s.order .*'third' 0 times"),
        ("order", [["plain", "bettr"], ["third"]], "s.order: .*'bettr'.*'better'"),
        ("common", ["policy.pretrained=a"], "s.common: policy.pretrained=a"),
        ("arms.plain.overrides", ["policy.pretrained=a"], "s.arms.plain.overrides: policy.pretrained=a"),
        ("start.overrides", ["policy.pretrained=a"], "s.start.overrides: policy.pretrained=a"),
        ("primary.arm", "plain", "s.primary: .*'plain'"),
        ("primary.arm", "fourth", "s.primary.arm: .*'fourth'.* better, plain, third"),
        ("curve", "val/verifier/acuracy", "s.curve: .* 'val/verifier/acuracy'.*'val/verifier/accuracy'"),
        ("primary.metric", "test/loss", "s.primary.metric .* auc, .*'test/loss'"),
        ("tests", [["plain"]], r"s.tests: .* \['plain'\]"),
        ("tests", [["plain", "plain"]], r"s.tests: .* \['plain', 'plain'\]"),
        ("tests", [["better", "plain"]] * 2, r"s.tests: \['better', 'plain'\] .*2 times"),
        ("equivalence", {"pairs": [["better", "plain"]]}, "s.equivalence.margin"),
        ("equivalence", {"margin": 0, "pairs": []}, "s.equivalence.margin .*0"),
        ("equivalence", {"margin": 2.0, "pairs": [["better", "x"]]}, "s.equivalence.pairs: .*'x'"),
    ],
)
def test_invalid_study_raises_with_key_and_value(path: str, value: Any, named: str) -> None:
    with pytest.raises(StudyError, match=f"^{named}"):
        read_study("s", changed(path, value))


@pytest.mark.parametrize("text", ["- question", "question", "question: [", "common: ['${']"])
def test_file_that_is_no_mapping_raises(tmp_path: Path, text: str) -> None:
    (file := tmp_path / "s.yaml").write_text(text)
    with pytest.raises(StudyError, match=r"s\b"):
        find_study(str(file))


def extending(folder: Path, content: Any, *, base: Any = CONTENT) -> Study:
    """Reads a study from a file beside that of the study it extends."""
    (folder / "base.yaml").write_text(yaml.safe_dump(base))
    (file := folder / "s.yaml").write_text(
        yaml.safe_dump({"extends": str(folder / "base.yaml"), **content}, sort_keys=False)
    )
    return find_study(str(file))


def test_study_extends_another_one(tmp_path: Path) -> None:
    arms = {"better": {"seeds": 5}, "plain": {}, "new": {"about": "n", "overrides": ["a=1"], "seeds": 1}}
    study = extending(tmp_path, {"arms": arms, "order": [["plain", "better", "new"]], "common": []})
    whole = {**CONTENT, "common": [], "order": [["plain", "better", "new"]]}
    whole["arms"] = {"better": {**CONTENT["arms"]["better"], "seeds": 5}, "plain": CONTENT["arms"]["plain"]}
    whole["arms"]["new"] = arms["new"]
    assert study == replace(read_study("s", whole), called=study.called, text=study.text)
    assert [*study.arms] == ["better", "plain", "new"]
    assert extending(tmp_path, {"first_seed": 3}).arms == read_study("s", CONTENT).arms
    assert extending(tmp_path, {"primary": {"metric": "auc"}}).primary == Primary(
        **{**CONTENT["primary"], "metric": "auc"}
    )


@pytest.mark.parametrize(
    ("content", "base", "message"),
    [
        ({"extends": "countdown_cerdit"}, {}, "s.extends: .*'countdown_cerdit'.*'countdown_credit'"),
        ({"extends": []}, {}, "s.extends"),
        ({}, {"extends": "countdown_main"}, "s.extends: .*base.* countdown_main"),
        ({}, {"parallel": "two"}, "base.parallel: .*two"),
        ({"arms": {"plain": {}, "bettr": {}}}, {}, "s.arms.bettr.about"),
        ({"arms": {"plain": {}}}, {}, "s.order: .*'better'; there are plain"),
        ({"arms": ["plain"]}, {}, r"s.arms: .*\['plain'\]"),
        ({"quest": "x"}, {}, "s.quest: .*'question'"),
    ],
)
def test_invalid_extension_raises_with_key_and_value(tmp_path: Path, content: Any, base: Any, message: str) -> None:
    with pytest.raises(StudyError, match=f"^{message}"):
        extending(tmp_path, content, base={**CONTENT, **base})


@pytest.mark.parametrize(("path", "value"), [("start", None), ("start.overrides", ["policy.pretrained=null"])])
def test_pretrained_policy_is_allowed_if_no_start_overrides_it(path: str, value: Any) -> None:
    content = changed(path, value)
    content["arms"]["plain"]["overrides"] = ["policy.pretrained=${a}"] if value is None else []
    assert read_study("s", content).arms["plain"].overrides == content["arms"]["plain"]["overrides"]


@pytest.mark.parametrize(
    ("path", "value", "named"),
    [
        (
            "arms.third.overrides",
            ["experiment=llama_oracle", "reward.wight=0.1"],
            "arm third: reward.wight: .*'reward.weight'",
        ),
        ("common", ["debug"], "arm start: 'debug'"),
        ("first_seed", -1, "seed=-1"),
    ],
)
def test_check_names_arm_with_invalid_override(path: str, value: Any, named: str) -> None:
    study = read_study("s", changed(path, value))
    with pytest.raises(StudyError, match=named):
        check(study)
    if path == "arms.third.overrides":
        check(study, only=["plain", "better"])  # an arm that does not run may be invalid, or lack its critic


GREEDY, SAMPLED = "verifier/accuracy", "verifier/accuracy_sampled"


def comparable(*overrides: str, metric: str = GREEDY, curve: str = f"val/{SAMPLED}") -> Study:
    """Returns a study of two arms with these overrides."""
    arms = {arm: {"about": "", "overrides": ["experiment=llama_baseline"], "seeds": 1} for arm in ("plain", "better")}
    primary = {**CONTENT["primary"], "metric": f"test/{metric}"}
    fixed = {"primary": primary, "curve": curve, "common": [*overrides], "start": None}
    return read_study("s", {**CONTENT, **fixed, "arms": arms, "order": [["plain", "better"]]})


PASS_AT_4 = "val/verifier/pass_at_4"
NO_TEST = "suite.settings must hold 'main', on which a study compares; there are"


@pytest.mark.parametrize(
    ("study", "message"),
    [
        (comparable("suite=countdown"), f"{NO_TEST} longproc_500"),
        (comparable("suite=track1"), f"{NO_TEST} none"),
        (comparable("stages=[grpo]"), r"stages=\['grpo'\].*evaluate"),
        (comparable("budget.evaluate.samples=0", metric=SAMPLED), "main.samples.* 0.*primary metric"),
        (comparable("rollout.validation_samples=0"), "samples=0.*val/verifier/accuracy"),
        (comparable("rollout.validation_samples=8", curve=PASS_AT_4), "val/verifier/pass_at_8.*/pass_at_4"),
        (comparable("rollout.validation_samples=8", curve=RIGHT_PLAN), f"val/verifier/pass_at_8, got {RIGHT_PLAN}"),
        (comparable("budget.grpo.validation_problems=0"), "budget.grpo.validation_problems.* 0.*curve"),
        (comparable("policy.pretrained=null"), "policy.pretrained.*s.start"),
    ],
)
def test_check_rejects_arm_with_nothing_to_compare(study: Study, message: str) -> None:
    with pytest.raises(StudyError, match=f"arm plain: .*{message}"):
        check(study)


@pytest.mark.parametrize(
    ("curve", "task"),
    [(f"val/{GREEDY}", []), (f"val/{SAMPLED}", []), (PASS_AT_4, []), (RIGHT_PLAN, ["task=arithmetic"])],
)
def test_check_accepts_comparable_arms(curve: str, task: list[str]) -> None:
    drawn = ("rollout.validation_samples=4", "budget.evaluate.samples=4", "policy.pretrained=null")
    study = comparable(*drawn, *task, metric=SAMPLED, curve=curve)
    check(replace(study, start=Start(overrides=["experiment=llama_baseline"], seed=0)))


@pytest.mark.parametrize("address", [None, "nowhere://at-all"])
def test_close_names_failed_jobs_even_if_report_fails(
    address: str | None, tracker: Any, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """First the study has no runs, then MLflow is not reachable either."""
    if address is not None:
        monkeypatch.setenv("MLFLOW_TRACKING_URI", address)
    assert close(comparable(), {"better seed 0": Path("better-0.log")}, sent=None) == 1
    assert capsys.readouterr().out.endswith("better seed 0: FAILED, see better-0.log\n")


def save_named_critics(job: ArmJob) -> None:
    """Saves an untrained critic where the job expects one that was trained before the study."""
    for override in job.overrides:
        if override.startswith("reward.checkpoint="):
            config = compose_job(job).critic
            save_critic(instantiate(config), override.partition("=")[2], OmegaConf.to_container(config, resolve=True))


@pytest.mark.whole
@pytest.mark.parametrize("name", study_names())
def test_every_arm_of_every_study_can_be_planned(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    study = find_study(name)
    jobs = {job.arm: job for job in [*start_jobs(study).values(), *jobs_of(study, {})]}
    monkeypatch.chdir(tmp_path)  # paths of critics in studies are relative
    for job in jobs.values():
        save_named_critics(job)
    check(study)
    for arm, job in jobs.items():
        stages = [plan.name for plan in plan_stages(compose_job(job)).values()]
        assert arm == "start" or {"grpo", "evaluate"} <= set(stages)
        check_credit_fits(compose_job(job))
    assert (CONF / "study" / f"{name}.yaml").read_text().splitlines()[0].endswith(f"make study name={name}")
