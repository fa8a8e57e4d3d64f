"""``LMEval`` with a program in place of the harness, which writes files as lm_eval 0.4.13 does."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
import torch

from contrastive_reasoning.evaluation import wilson
from contrastive_reasoning.evaluation.lm_eval import HarnessFailed, LMEval, unknown_tasks
from contrastive_reasoning.policies.causal_lm import CausalLMPolicy
from contrastive_reasoning.policies.tiny import train_tokenizer
from tests.tiny_models import tiny_llama, tiny_policy
from tests.two_ranks import on_ranks

MADE = "2026-11-29T18-28-10.263820"
RESULTS = {
    "sums": {
        "name": "sums",
        "alias": "sums",
        "sample_len": 3,
        "exact_match,last-number": 1 / 3,
        "exact_match_stderr,last-number": 1 / 3,
        "exact_match,strict": 0.0,
        "exact_match_stderr,strict": 0.0,
    },
    "choices": {
        "alias": "choices",
        "sample_len": 2,
        "acc,none": 0.5,
        "acc_stderr,none": 0.5,
        "word_perplexity,none": 7.5,
    },
    "group": {"alias": "group", "acc,none": 0.25, "acc_stderr,none": "N/A"},
}
MAIN = f"""
import json, os, sys, time
from pathlib import Path
arguments = sys.argv[1:]
model = json.loads(arguments[arguments.index("--model_args") + 1])
saved = Path(model["pretrained"])
ends = json.loads((saved / "generation_config.json").read_text())["eos_token_id"]
assert (saved / "config.json").is_file() and (saved / "tokenizer.json").is_file()
seen = {{"arguments": arguments, "model": model, "ends": ends, "variables": dict(os.environ), "process": os.getpid()}}
Path(os.environ["SEEN"]).write_text(json.dumps(seen))
if "--limit" in arguments:
    sys.exit("the data cannot be read")
if "--wait" in arguments:
    time.sleep(600)
if "--nothing" in arguments:
    sys.exit(print("the disk is full"))
folder = Path(arguments[arguments.index("--output_path") + 1]) / "model"
folder.mkdir(parents=True)
(folder / "results_{MADE}.json").write_text(os.environ["RESULTS"])
for task, lines in json.loads(os.environ["SAMPLES"]).items():
    (folder / f"samples_{{task}}_{MADE}.jsonl").write_text("".join(json.dumps(line) + "\\n" for line in lines))
"""
TASKS = """
from fnmatch import filter

class TaskManager:
    def __init__(self, include_path):
        self.all_tasks = ["sums", "choices", "group", *(["mine"] if include_path else [])]

    def match_tasks(self, names):
        return [task for name in names for task in filter([*self.all_tasks, "a_tag"], name)]
"""


def sample(number: int, response: str, method: str, read: str, correct: float) -> dict[str, Any]:
    return {
        "doc_id": number,
        "target": str(number),
        "arguments": {"gen_args_0": {"arg_0": f"Say {number}:", "arg_1": {"until": []}}},
        "resps": [[response]],
        "filtered_resps": [read],
        "filter": method,
        "metrics": ["exact_match"],
        "exact_match": correct,
    }


SAMPLES = {
    "sums": [
        *(sample(i, f"it is {i % 2}", "last-number", str(i % 2), float(i == 1)) for i in (1, 2, 3)),
        *(sample(i, f"it is {i % 2}", "strict", "[invalid]", 0.0) for i in (1, 2, 3)),
    ],
    "choices": [
        {
            **sample(i, "", "none", "", 0.0),
            "resps": [[["-1.0", "False"]], [["-2.0", "True"]]],
            "metrics": ["acc"],
            "acc": acc,
        }
        for i, acc in ((0, 1.0), (1, 0.0))
    ],
}


@pytest.fixture
def seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The file in which the program leaves its arguments."""
    package = tmp_path / "site" / "lm_eval"
    package.mkdir(parents=True)
    (package / "__init__.py").touch()
    (package / "__main__.py").write_text(MAIN)
    (package / "tasks.py").write_text(TASKS)
    set_version(tmp_path, "0.4.13")
    for name, value in {
        "PYTHONPATH": str(tmp_path / "site"),
        "SEEN": str(tmp_path / "seen.json"),
        "RESULTS": json.dumps({"results": RESULTS, "configs": {"sums": {}, "choices": {}}}),
        "SAMPLES": json.dumps(SAMPLES),
    }.items():
        monkeypatch.setenv(name, value)
    unknown_tasks.cache_clear()
    return tmp_path / "seen.json"


def set_version(folder: Path, version: str) -> None:
    info = folder / "site" / "lm_eval-0.dist-info"
    info.mkdir(exist_ok=True)
    (info / "METADATA").write_text(f"Metadata-Version: 2.1\nName: lm_eval\nVersion: {version}\n")


def harness(**given: Any) -> LMEval:
    plain: dict[str, Any] = {
        "tasks": ["sums"],
        "python": None,
        "include_path": None,
        "limit": None,
        "num_fewshot": None,
        "max_tokens": None,
        "batch_size": "auto",
        "arguments": [],
    }
    return LMEval(**plain | given)


def evaluate(one: LMEval, policy: CausalLMPolicy) -> Any:
    return one(policy, seed=3, alive=lambda: None)


def test_figures_are_those_of_the_harness_with_intervals_over_problems(seen: Path, policy: CausalLMPolicy) -> None:
    found = evaluate(harness(tasks=["sums", "choices", "group"]), policy)
    own = {name: value for name, value in found.metrics.items() if not name.endswith(("_low", "_high"))}
    assert own == {
        "lm_eval/sums/last-number/exact_match": 1 / 3,
        "lm_eval/sums/strict/exact_match": 0.0,
        "lm_eval/choices/acc": 0.5,
        "lm_eval/choices/word_perplexity": 7.5,
        "lm_eval/group/acc": 0.25,
    }
    interval = wilson(1, 3)
    assert found.metrics["lm_eval/sums/last-number/exact_match_low"] == interval.low
    assert found.metrics["lm_eval/sums/last-number/exact_match_high"] == interval.high
    assert "lm_eval/choices/word_perplexity_low" not in found.metrics, "it is no mean over problems"
    assert "lm_eval/group/acc_low" not in found.metrics, "its problems are those of its tasks"


def test_rows_hold_completion_and_what_each_filter_read(seen: Path, policy: CausalLMPolicy) -> None:
    rows = evaluate(harness(tasks=["sums", "choices"]), policy).rows
    assert len(rows) == 8
    assert rows[0] == {
        "task": "sums",
        "filter": "last-number",
        "problem": 1,
        "prompt": "Say 1:",
        "answer": "1",
        "completion": "it is 1",
        "extracted": "1",
        "exact_match": 1.0,
    }
    assert rows[3]["extracted"] == "[invalid]"
    assert json.loads(rows[6]["completion"]) == [[["-1.0", "False"]], [["-2.0", "True"]]]


def test_columns_are_shares_of_named_tasks(seen: Path, policy: CausalLMPolicy) -> None:
    metrics = evaluate(harness(), policy).metrics
    sums, choices = ["lm_eval/sums/last-number/exact_match", "lm_eval/sums/strict/exact_match"], ["lm_eval/choices/acc"]

    def shown(*tasks: str) -> list[str]:
        return [*harness(tasks=tasks).columns(metrics)]

    assert shown("sums") == sums
    assert shown("choices", "group") == [*choices, "lm_eval/group/acc"], "a perplexity is no share"
    assert shown("sums", "cho*") == [*sums, *choices]
    assert shown("sums", "a_tag") == [*sums, *choices, "lm_eval/group/acc"], "the tasks of a tag have other names"


def test_harness_gets_policy_and_settings(seen: Path, policy: CausalLMPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    of_ranks = {"RANK", "LOCAL_RANK", "WORLD_SIZE", "MASTER_ADDR", "TORCHELASTIC_RUN_ID"}
    for name in of_ranks:
        monkeypatch.setenv(name, "0")
    settings: dict[str, Any] = {"num_fewshot": 2, "batch_size": 8, "include_path": "/mine", "max_tokens": 7}
    evaluate(harness(**settings, tasks=["sums", "mine"], arguments=["-x", 3]), policy)
    found = json.loads(seen.read_text())
    given = found["arguments"]
    assert given[:3] == ["run", "--model", "hf"]
    assert given[given.index("--tasks") + 1 : given.index("--model_args")] == ["sums", "mine"]
    options = {"--num_fewshot": "2", "--batch_size": "8", "--include_path": "/mine", "--gen_kwargs": "max_gen_toks=7"}
    for option, value in (options | {"--seed": "3,3,3,1234", "--device": "cpu"}).items():
        assert given[given.index(option) + 1] == value
    assert found["model"].keys() == {"pretrained", "dtype"}
    assert found["model"]["dtype"] == "float32"
    assert found["ends"] == [*policy.eos_token_ids]
    assert {"--limit", "--apply_chat_template"}.isdisjoint(given), "the tokenizer has no template"
    assert given[-2:] == ["-x", "3"]
    assert of_ranks.isdisjoint(found["variables"]), "the harness would wait for the other ranks"
    assert "SEEN" in found["variables"]


def test_weights_keep_their_dtype(seen: Path, policy: CausalLMPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(policy, "compute_dtype", torch.bfloat16)
    evaluate(harness(), policy)
    model = json.loads(seen.read_text())["model"]
    assert (model["dtype"], model["mixed_precision_dtype"]) == ("float32", "bfloat16")


def on_both() -> list[dict[str, float] | None]:
    """Metrics of a policy on a rank, and of a harness that fails: None where it failed here."""
    tokenizer = train_tokenizer([f"Say {i}:" for i in range(12)], vocab_size=270)
    policy, found = tiny_policy(tokenizer, tiny_llama(tokenizer, hidden_size=32)), []
    for arguments in ([], ["--limit"]):
        try:
            found.append(dict(evaluate(harness(arguments=arguments), policy).metrics))
        except HarnessFailed:
            found.append(None)
    return found


def test_all_ranks_have_the_results_or_the_failure(seen: Path, tmp_path: Path) -> None:
    (results, failure), other = on_ranks(on_both, tmp_path)
    assert other == [results, failure]
    assert results
    assert failure is None


def test_harness_ends_with_the_evaluation(seen: Path, policy: CausalLMPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("contrastive_reasoning.evaluation.lm_eval.SECONDS", 0.1)

    def stop() -> None:
        if seen.exists():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        harness(arguments=["--wait"])(policy, seed=0, alive=stop)
    process = json.loads(seen.read_text())["process"]
    with pytest.raises(ProcessLookupError):
        os.kill(process, 0)


@pytest.mark.parametrize(("setting", "applied"), [(None, True), (False, False)])
def test_chat_template_is_applied_if_the_policy_does(
    seen: Path, policy: CausalLMPolicy, setting: bool | None, applied: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        policy.tokenizer, "chat_template", "{% for message in messages %}{{ message['content'] }}{% endfor %}"
    )
    monkeypatch.setattr(policy, "chat_template", setting)
    monkeypatch.setattr(policy, "system", "Be brief.")
    evaluate(harness(), policy)
    given = json.loads(seen.read_text())["arguments"]
    assert ("--apply_chat_template" in given, "--system_instruction=Be brief." in given) == (applied, applied)


def test_failure_of_harness_raises(seen: Path, policy: CausalLMPolicy, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(HarnessFailed, match="exit code 1:\nthe data cannot be read"):
        evaluate(harness(limit=5), policy)
    with pytest.raises(HarnessFailed, match="the disk is full"):
        evaluate(harness(arguments=["--nothing"]), policy)
    monkeypatch.setenv("SAMPLES", json.dumps({"sums": SAMPLES["sums"]}))
    with pytest.raises(HarnessFailed, match="not written"):
        evaluate(harness(), policy)


@pytest.mark.parametrize("version", ["0.4.9.2", "0.5.0", "1.0"])
def test_another_version_is_refused_with_the_one_needed(seen: Path, version: str) -> None:
    set_version(seen.parent, version)
    with pytest.raises(ModuleNotFoundError, match=rf"lm_eval {version}.*lm_eval\[hf\]==0.4.13"):
        harness()


@pytest.mark.parametrize(
    ("setting", "named"),
    [
        ({"tasks": ["sums", "suns"]}, "'suns'.*sums"),
        ({"tasks": []}, "tasks"),
        ({"tasks": "sums"}, r"tasks=\[sums"),
        ({"limit": 0}, "limit"),
        ({"num_fewshot": -1}, "num_fewshot"),
        ({"max_tokens": 0}, "max_tokens"),
    ],
)
def test_unknown_tasks_and_numbers_out_of_range_are_refused(seen: Path, setting: dict[str, Any], named: str) -> None:
    with pytest.raises(ValueError, match=named):
        harness(**setting)


@pytest.mark.parametrize("python", [None, "/no/such/python"])
def test_missing_harness_says_how_to_install_it(python: str | None, monkeypatch: pytest.MonkeyPatch) -> None:
    unknown_tasks.cache_clear()
    with pytest.raises(ModuleNotFoundError, match="pip install"):
        harness(python=python)
