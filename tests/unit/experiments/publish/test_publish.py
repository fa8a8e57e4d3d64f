"""A published folder: complete without a network, read back with the same log-probs, pushed by the hub's own client."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any

import pytest
import torch
from huggingface_hub import ModelCard, constants
from omegaconf import OmegaConf
from safetensors.torch import load_file

from contrastive_reasoning.critics import load_critic_weights, save_critic
from contrastive_reasoning.policies.load import load_policy
from experiments.analysis.statistics import over_seeds
from experiments.assemble import build
from experiments.publish.__main__ import main
from experiments.publish.card import base_of, card as card_of, hub_datasets
from experiments.stages.checkpoints import seal
from tests.config_kit import composed
from tests.unit.lightning_modules.grpo_kit import policy

ROOT = Path(__file__).resolve().parents[4]
REPO, TOKEN = "someone/some-policy", "hf_abcdefghijklmnop"
MATH = "DigitalLearningGmbH/MATH-lighteval"
TASK = {
    "path": None,
    "train": {"path": "owner/train_set", "split": "train"},
    "validation": {"path": "owner/validation_set", "split": "train"},
    "test": {"path": "owner/test_set", "split": "test"},
}
GENERATED = {"path": None, "source": "generated", "real": TASK}
CONFIG = {
    "name": "mine",
    "policy": {"pretrained": "OWNER/base"},
    "critic": {},
    "reward": {},
    "task": TASK,
    "suite": {"settings": {"main": {"task": TASK, "split": "test"}}},
    "git_sha": "0123456789ab",
    "stages": ["warm_start", "grpo", "evaluate"],
}


def write(path: Path, content: Any) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(content))  # JSON is YAML


def make_run(root: Path, seed: int, accuracy: float, *, problems: str | None = "gsm8k", **config: Any) -> Path:
    """Writes a run with a policy and an evaluation on ``problems``."""
    grpo, evaluate = (root / "outputs" / "stages" / stage / str(seed) for stage in ("grpo", "evaluate"))
    run = root / "outputs" / "runs" / "mine" / f"2026-01-0{seed + 1}"
    write(grpo / "policy" / "config.json", {"model_type": "llama", "_name_or_path": str(root / "secret_place")})
    for name in ("model.safetensors", "tokenizer.json"):
        (grpo / "policy" / name).write_bytes(f"the {name} of seed {seed}".encode())
    reward = {"_target_": "x.CLIPO", "file": str(root / "my models" / "head.pt"), "ends": ["</think>", "[/THINK]"]}
    write(grpo / "config.yaml", {"seed": seed, "reward": reward})
    write(grpo / "result.json", {})
    write(run / "config.yaml", {**CONFIG, "seed": seed, **config})
    write(run / "choices.json", {"task": "gsm8k", "objective": "grpo", "reward": "clipo"})
    overrides = ["experiment=clipo", f"seed={seed}", f"output_dir={root / 'a=1,b' / 'outputs'}", f"logger.key={TOKEN}"]
    origin = {"about": "Does it work? make exp name=mine", "overrides": overrides, "python": "3.11", "packages": {}}
    write(run / "origin.json", origin)
    write(run / "stages.json", {"grpo": {"folder": str(grpo)}, "evaluate": {"folder": str(evaluate)}})
    write(evaluate / "result.json", {"problems": problems})
    name = "test/verifier/accuracy"
    write_metrics(evaluate, {name: accuracy, f"{name}_low": accuracy - 0.1, f"{name}_high": accuracy + 0.1})
    return run


def write_metrics(stage: Path, values: dict[str, float]) -> None:
    lines = [json.dumps({"step": 0, "name": key, "value": value, "time": 0.0}) for key, value in values.items()]
    (stage / "metrics.jsonl").write_text("\n".join(lines) + "\n")


def publish(run: Path, *arguments: str) -> int:
    return main([f"model={run}", f"output_dir={run.parents[2]}", *arguments])


def published(run: Path, part: str = "policy") -> Path:
    return run.parents[2] / "published" / f"mine-{run.name}-{part}"


def card_of_policy(run: Path) -> ModelCard:
    assert publish(run) == 0
    return ModelCard.load(published(run) / "README.md")


@pytest.fixture(autouse=True)
def token(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", TOKEN)


def test_policy_is_read_back_with_equal_log_probs(tmp_path: Path) -> None:
    run, trained = make_run(tmp_path, 0, 0.5), policy()
    folder = tmp_path / "outputs" / "stages" / "grpo" / "0" / "policy"
    shutil.rmtree(folder)
    trained.save(folder)
    assert publish(run) == 0
    plain: dict[str, Any] = {"weights_dtype": "float32", "compute_dtype": "float32", "kernels": "torch", "lora": None}
    no: dict[str, Any] = {"trust_remote_code": False, "gradient_checkpointing": False, "compiled": False}
    back = load_policy(pretrained=str(published(run)), architecture=None, chat_template=None, seed=0, **plain, **no)
    with torch.no_grad():
        ours, theirs = (
            one.log_probs(*one.encode_prompts(["21+16\n", "2"]), *one.encode_completions(["=37", "7\n"]))
            for one in (trained, back)
        )
    assert (ours == theirs).all()


def test_card_of_one_run_names_it_and_has_valid_metadata(tmp_path: Path) -> None:
    card = card_of_policy(make_run(tmp_path, 0, 0.5))
    assert (card.data.base_model, card.data.metrics) == ("OWNER/base", ["accuracy"])
    assert card.data.datasets == ["owner/train_set", "owner/validation_set"]
    (result,) = card.data.eval_results or []
    assert (result.dataset_type, result.dataset_name, result.metric_value) == ("owner/test_set", "gsm8k", 0.5)
    assert "0.500 [0.400, 0.600] | 1 |" in card.text
    for told in ("One run, of seed 0", "Does it work?", "objective: `grpo`", "0123456789ab", "experiment=clipo seed=0"):
        assert told in card.text


@pytest.mark.parametrize(
    ("task", "problems"),
    [(GENERATED, "arithmetic stories"), ({**TASK, "path": "data"}, "gsm8k"), (TASK, None)],
    ids=["generated", "local", "unknown"],
)
def test_result_on_problems_that_are_not_on_the_hub_is_only_in_the_text(
    task: Any, problems: str | None, tmp_path: Path
) -> None:
    suite = {"settings": {"main": {"task": task, "split": "test"}}}
    card = card_of_policy(make_run(tmp_path, 0, 0.5, problems=problems, suite=suite))
    assert (card.data.eval_results, card.data.metrics) == (None, None)
    assert "0.500 [0.400, 0.600]" in card.text
    assert (problems or "Figures") in card.text


def test_figures_of_several_sets_are_in_the_card(tmp_path: Path) -> None:
    run = make_run(tmp_path, 0, 0.5, suite={"sets": {}}, problems=None)
    values = {"test/gsm8k/verifier/accuracy": 0.25, "test/average/m_avg": 0.375, "start/mmlu/verifier/accuracy": 0.125}
    write_metrics(run.parents[2] / "stages" / "evaluate" / "0", {**values, "test/verifier/seconds": 9.0})
    card = card_of_policy(run)
    assert all(f"`{name}` | {value:.3f}" in card.text for name, value in values.items())
    assert "seconds" not in card.text
    assert card.data.eval_results is None


def test_card_of_several_seeds_has_mean_and_interval(tmp_path: Path) -> None:
    values = [0.5, 0.6, 0.7]
    run, *_ = [make_run(tmp_path, seed, value) for seed, value in enumerate(values)]
    make_run(tmp_path, 3, 0.0, git_sha="ba9876543210")  # of another commit
    card = card_of_policy(run)
    assert f"{over_seeds(values).text('.3f')} | 3 |" in card.text
    assert "3 runs" in card.text
    assert "One run" not in card.text
    (result,) = card.data.eval_results or []
    assert result.metric_value == 0.5, "the metadata are those of the published weights"


@pytest.mark.parametrize("git_sha", ["", "0123456789ab-dirty"])
def test_runs_of_unknown_code_are_not_averaged(git_sha: str, tmp_path: Path) -> None:
    run, *_ = [make_run(tmp_path, seed, 0.5, git_sha=git_sha) for seed in range(3)]
    assert "One run, of seed 0" in card_of_policy(run).text


@pytest.mark.parametrize("part", ["policy", "clipo"])
def test_no_secret_and_no_local_path_is_published(part: str, tmp_path: Path) -> None:
    run = make_run(tmp_path, 0, 0.5)
    save_head(run)
    assert publish(run, f"part={part}") == 0
    files = [path for path in published(run, part).iterdir() if path.suffix in (".json", ".md")]
    assert {path.name for path in files} > {"README.md"}
    for path in files:
        text = path.read_text(encoding="utf-8")
        assert str(tmp_path) not in text
        assert TOKEN not in text
        assert not {"my models", "a=1,b"} & {*text.split("/")}
    if part == "clipo":
        configuration = json.loads((published(run, part) / "clipo.json").read_text(encoding="utf-8"))
        assert configuration == {"_target_": "x.CLIPO", "file": "…/head.pt", "ends": ["</think>", "[/THINK]"]}


def save_head(run: Path) -> dict[str, torch.Tensor]:
    head = {"0.weight": torch.randn(4, 3), "0.bias": torch.randn(4)}
    folder = run.parents[2] / "stages" / "grpo" / "0" / "checkpoints"
    folder.mkdir()
    torch.save({"reward": {"head": head, "calls": 1}}, folder / "step=000002.ckpt")
    seal(folder / "step=000002.ckpt", step=2, metric=None)
    return head


def test_head_of_clipo_is_published_from_the_newest_checkpoint(tmp_path: Path) -> None:
    run = make_run(tmp_path, 0, 0.5)
    head = save_head(run)
    write_metrics(run.parents[2] / "stages" / "grpo" / "0", {"train/clipo/loss": 0.625})
    assert publish(run, "part=clipo") == 0
    back = load_file(published(run, "clipo") / "clipo.safetensors")
    assert back.keys() == head.keys()
    assert all(torch.equal(back[name], head[name]) for name in head)
    card = ModelCard.load(published(run, "clipo") / "README.md")
    assert "0.625" in card.text
    assert card.data.eval_results is None, "a figure of training is no evaluation"


def test_finished_critic_of_unfinished_run_is_read_back_with_equal_weights(tmp_path: Path) -> None:
    run = make_run(tmp_path, 0, 0.5)
    critic, again = (build(composed("experiment=llama_critic"), "critic") for _ in range(2))
    for weight in critic.parameters():
        weight.data += 1
    stage = tmp_path / "outputs" / "stages" / "critic" / "0"
    save_critic(critic, stage / "critic", {})
    write(stage / "result.json", {})
    write(run / "stages.json", {"critic": {"folder": str(stage)}})
    assert publish(run, "part=critic") == 0
    load_critic_weights(again, published(run, "critic"))
    assert all(torch.equal(own, there) for own, there in zip(again.parameters(), critic.parameters(), strict=True))
    (stage / "result.json").unlink()
    assert publish(run, "part=critic") == 2


@pytest.mark.parametrize(
    ("overrides", "used"),
    [
        (["experiment=llama_critic"], "reward.source.checkpoint=FOLDER"),
        (["experiment=llama_critic_published"], "reward.checkpoint=FOLDER"),
        (["experiment=clipo_laptop"], "reward=critic reward.checkpoint=FOLDER"),
    ],
)
def test_card_of_a_critic_has_the_override_that_reads_it(overrides: list[str], used: str, tmp_path: Path) -> None:
    reward = OmegaConf.to_container(composed(*overrides).reward, resolve=True)
    run = make_run(tmp_path, 0, 0.5, reward=reward)
    assert f"`{used}`" in card_of(run, "critic", run).text


@pytest.mark.parametrize(
    ("pretrained", "hub", "licence"),
    [
        (None, None, None),
        ("embedded:llama_arithmetic", None, "apache-2.0"),
        ("Qwen/Qwen2.5-0.5B", "Qwen/Qwen2.5-0.5B", None),
        ("models/mine", None, None),  # a local folder that the stage read
        ("outputs/models/smollm2-135m-q4", None, "apache-2.0"),
        ("fetched", "Qwen/Qwen3-0.6B", "mit"),
    ],
)
def test_base_model_and_licence(
    pretrained: str | None, hub: str | None, licence: str | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    write(tmp_path / "fetched" / "origin.json", {"name": "Qwen/Qwen3-0.6B", "licence": "mit"})
    base = base_of(pretrained, {"models/mine": "c5950cfd3c22"})
    assert (base.hub, base.licence) == (hub, licence)


@pytest.mark.parametrize(
    ("overrides", "sets"),
    [
        (["experiment=grpo_gsm8k", "scale=paper"], {"train": "openai/gsm8k", "test": "openai/gsm8k"}),
        (["experiment=grpo_math", "scale=gpu"], {"train": MATH, "test": "HuggingFaceH4/MATH-500"}),
        (["experiment=clipo_laptop"], {}),
    ],
)
def test_data_sets_are_those_of_the_hub(overrides: list[str], sets: dict[str, str]) -> None:
    task: Any = OmegaConf.to_container(composed(*overrides).task, resolve=True)
    assert dict(hub_datasets(task)) == sets


def assert_only_one_sentence(run: Path, named: str, capsys: pytest.CaptureFixture[str]) -> None:
    (sentence,) = capsys.readouterr().err.splitlines()
    assert named in sentence
    assert not (run.parents[2] / "published").exists()


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        ([], "model="),
        (["model=nowhere"], "nowhere"),
        (["model={run}", "part=polcy"], "polcy"),
        (["model={run}", "repo=name"], "repo=name"),
        (["model={run}", "part=critic"], "critic"),
    ],
)
def test_invalid_argument_writes_nothing(
    arguments: list[str], named: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, 0, 0.5)
    assert main([*(one.format(run=run) for one in arguments), f"output_dir={run.parents[2]}"]) == 2
    assert_only_one_sentence(run, named, capsys)


@pytest.mark.parametrize("begun", [True, False], ids=["stopped", "not begun"])
@pytest.mark.parametrize("part", ["policy", "clipo"])
def test_unfinished_policy_is_not_published(
    begun: bool, part: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, 0, 0.5)
    grpo = run.parents[2] / "stages" / "grpo" / "0"
    warm_start = shutil.copytree(grpo, grpo.parents[1] / "warm_start" / "0")
    (grpo / "result.json").unlink()
    stages = {"warm_start": {"folder": str(warm_start)}, "grpo": {"folder": str(grpo)}}
    write(run / "stages.json", stages if begun else {"warm_start": stages["warm_start"]})
    assert publish(run, f"part={part}") == 2
    assert_only_one_sentence(run, f"model={run}: grpo ", capsys)


class Hub(ThreadingHTTPServer):
    """Receives commits as the hub does. ``refuses`` is the status with which it answers every request, if any."""

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.address = f"http://127.0.0.1:{self.server_port}"
        self.files: dict[str, bytes] = {}
        self.tags: list[str] | None = None  # of the card that is there
        self.created: list[dict[str, Any]] = []
        self.refuses: int | None = None
        self.tokens: set[str] = set()

    def answer(self, path: str, body: bytes) -> Any:
        if path == "/api/validate-yaml":
            assert json.loads(body)["content"].startswith("---\n")
            return {"errors": [], "warnings": []}
        if path == "/api/repos/create":
            self.created.append(json.loads(body))
            return {"url": f"{self.address}/{REPO}"}
        if path == f"/api/models/{REPO}/preupload/main":
            files = json.loads(body)["files"]
            return {"files": [{**file, "uploadMode": "regular", "shouldIgnore": False} for file in files]}
        if path == f"/api/models/{REPO}/commit/main":
            for line in map(json.loads, body.splitlines()):
                if line["key"] == "file":
                    self.files[line["value"]["path"]] = base64.b64decode(line["value"]["content"])
            oid = "c0ffee" + 34 * "0"
            return {"success": True, "commitOid": oid, "commitUrl": f"{self.address}/{REPO}/commit/{oid}"}
        card_data = {} if self.tags is None else {"cardData": {"tags": self.tags}}
        return {"sha": "c0ffee" + 34 * "0", "id": REPO, "siblings": [], **card_data}


class Handler(BaseHTTPRequestHandler):
    server: Hub

    def do_GET(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        self.server.tokens.add(self.headers.get("Authorization") or "")
        found = {} if self.server.refuses else self.server.answer(self.path.partition("?")[0], body)
        self.send_response(self.server.refuses or 200)
        self.send_header("Content-Type", "application/json")
        self.end_headers()
        self.wfile.write(json.dumps(found).encode())

    do_POST = do_GET

    def log_message(self, format: str, *args: Any) -> None: ...


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    """Yields a hub that the client addresses. It reads HF_ENDPOINT only when it is imported."""
    hub = Hub()
    Thread(target=hub.serve_forever, args=(0.01,), daemon=True).start()
    monkeypatch.setattr(constants, "HF_HUB_OFFLINE", False)
    monkeypatch.setattr(constants, "ENDPOINT", hub.address)
    for name in [*filter(lambda name: name.lower().endswith("_proxy"), os.environ)]:
        monkeypatch.delenv(name)
    yield hub
    hub.shutdown()
    hub.server_close()


def contents(folder: Path) -> dict[str, bytes]:
    return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def test_folder_is_pushed_to_the_hub(tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]) -> None:
    run = make_run(tmp_path, 0, 0.5)
    assert publish(run, f"repo={REPO}") == 0, capsys.readouterr().err
    assert hub.files == contents(published(run))
    assert {"README.md", "config.json", "model.safetensors", "tokenizer.json"} <= hub.files.keys()
    assert [(one["name"], one["organization"]) for one in hub.created] == [tuple(reversed(REPO.split("/")))]
    assert f"Bearer {TOKEN}" in hub.tokens
    assert f"{hub.address}/{REPO}" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("options", "visibility"), [(["private=true"], "private"), (["private=false"], "public"), ([], None)]
)
def test_new_repository_is_private_as_chosen(
    options: list[str], visibility: str | None, tmp_path: Path, hub: Hub
) -> None:
    assert publish(make_run(tmp_path, 0, 0.5), f"repo={REPO}", *options) == 0
    assert [one.get("visibility") for one in hub.created] == [visibility]


@pytest.mark.parametrize(("tags", "code"), [(["contrastive-reasoning", "critic"], 2), (["policy"], 0), ([], 0)])
def test_repository_of_another_part_is_unchanged(
    tags: list[str], code: int, tmp_path: Path, hub: Hub, capsys: pytest.CaptureFixture[str]
) -> None:
    hub.tags = tags
    assert publish(make_run(tmp_path, 0, 0.5), f"repo={REPO}") == code
    assert bool(hub.files) == (code == 0)
    if code:
        (sentence,) = capsys.readouterr().err.splitlines()
        assert {f"repo={REPO}:", "critic"} <= {*sentence.split()}


@pytest.mark.parametrize("failure", ["no token", "unreachable", "refused", "invalid"])
def test_folder_stays_complete_if_the_hub_does_not_take_it(
    failure: str, tmp_path: Path, hub: Hub, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    run = make_run(tmp_path, 0, 0.5)
    hub.refuses = {"refused": 403, "invalid": 400}.get(failure)
    if failure == "unreachable":
        monkeypatch.setattr(constants, "ENDPOINT", "http://127.0.0.1:9")
    if failure == "no token":
        monkeypatch.setattr("huggingface_hub.get_token", lambda: None)
    assert publish(run, f"repo={REPO}") == 1
    sentence = capsys.readouterr().err.splitlines()[-1]
    assert {f"model={run}", f"repo={REPO}"} <= {*sentence.split()}, "the command that pushes it later"
    assert TOKEN not in sentence
    assert hub.files == {}
    policy = run.parents[2] / "stages" / "grpo" / "0" / "policy"
    assert contents(published(run)).keys() == {*contents(policy), "README.md"}


@pytest.mark.whole
def test_policy_of_a_run_is_published_and_evaluated(tmp_path: Path) -> None:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1"}

    def call(*words: str) -> None:
        command = [sys.executable, "-m", *words]
        done = subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr

    small = ["debug=fast", "logger.mirror=false"]
    call("experiments.run", "experiment=clipo_laptop", "stages=[grpo]", *small)
    (run,) = (tmp_path / "outputs" / "runs" / "clipo_laptop").iterdir()
    for part in ("policy", "clipo"):
        call("experiments.publish", f"model={run}", f"part={part}")
    folder = tmp_path / "outputs" / "published" / f"clipo_laptop-{run.name}-policy"
    shutil.rmtree(tmp_path / "outputs" / "stages")
    read = [f"policy.pretrained={folder.relative_to(tmp_path)}", "policy.chat_template=null"]
    call("experiments.run", "experiment=grpo_laptop", "stages=[evaluate]", *read, *small)
    assert load_file(folder.with_name(f"clipo_laptop-{run.name}-clipo") / "clipo.safetensors")
