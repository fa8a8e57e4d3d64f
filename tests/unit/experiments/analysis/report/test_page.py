"""The page of real runs in a real MLflow: its content, no active content, and MLflow as its only source."""

from __future__ import annotations

import json
import re
import shlex
from dataclasses import asdict
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from callbacks.completions import rewards_of
from contrastive_reasoning.rewards import Credit
from experiments.analysis.report.gather import command, command_over_seeds, commits, study_command
from experiments.analysis.report.page import choose_completions, differences
from experiments.analysis.runs import arms_by
from experiments.mlflow_sync import Tracker
from experiments.mlflow_sync.sync import FolderSync
from experiments.report import main
from experiments.run_folder.reader import Origin
from tests.unit.experiments.comparison_kit import finished

HOSTILE = "<script>alert(1)</script>"
HOSTILE_NAME = "x<img src=y onerror=alert(1)>$^"
SAMPLED = "verifier/accuracy_sampled"


class Reader(HTMLParser):
    """Collects elements, attributes and text as a browser would; asserts that elements are closed in order."""

    VOID = ("img", "meta")

    def __init__(self, page: str) -> None:
        super().__init__()
        self.elements: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text: list[str] = []
        self._open: list[str] = []
        self.feed(page)
        assert not self._open

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append(tag)
        self.attributes += [(name.rpartition(":")[2], value or "") for name, value in attrs]
        self._open += [] if tag in self.VOID else [tag]

    def handle_endtag(self, tag: str) -> None:
        assert tag in self.VOID or self._open.pop() == tag

    def handle_data(self, data: str) -> None:
        self.text.append(data)


def picture(path: Path, *, shade: int) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    Image.fromarray(np.full((40, 60), shade, dtype=np.uint8)).save(path)


def add_run(outputs: Any, tracker: Tracker, name: str, seed: int, *, final: float, origin: bool, reward: str) -> None:
    """Adds a run with two sets, completions, a figure at two steps and, with ``origin``, its command line."""
    run: Path = outputs.run(name, seed=seed, final=final, reward=reward)
    stages = {stage: Path(entry["folder"]) for stage, entry in json.loads((run / "stages.json").read_text()).items()}
    outputs.log(stages["evaluate"], f"test/larger/{SAMPLED}", {0: final / 2})
    outputs.log(stages["grpo"], "train/rollout/completion_tokens", {step: 10.0 + step for step in range(20)})
    outputs.log(stages["grpo"], "train/rollout/truncated", dict.fromkeys(range(20), 0.0))
    for step in (0, 20):
        picture(stages["grpo"] / f"figures/clipo/similarity/{step}.png", shade=10 * seed + step)
    common = {"setting": "main", "prompt": "2 3 = 5", "reason": "", "samples_correct": "3/8"}
    rows = [
        {**common, "completion": text, "status": status}
        for text, status in (("2+3=5", "ok"), (HOSTILE, "unparsed"), ("\u202e5=\x1b3+2", "wrong"))
    ]
    outputs.table(stages["evaluate"], "test/completions", rows, step=0)
    credit = Credit(outcome=torch.tensor([0.75]), parts={"verifier": torch.ones(1), "critic": torch.tensor([-0.25])})
    learned = {"prompt": "4 5 = 9", "completion": "4+5=9", "status": "ok", "reason": "", "advantage": 0.4321}
    outputs.table(stages["grpo"], "train/completions", [learned | rewards_of(credit, 0)], step=20)
    if origin:
        overrides = [f"experiment={reward}_experiment", "policy.pretrained=/home/ann/models/llama", f"seed={seed}"]
        recorded = Origin(
            about=f"Does {HOSTILE} help?", overrides=overrides, python="3.11.7", packages={"torch": "2.9.1"}
        )
        (run / "origin.json").write_text(json.dumps(asdict(recorded)))
    FolderSync(run, tracker).send(live=False)


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with ``mlruns/`` and the ``outputs/`` that were sent to it."""
    from tests.unit.experiments.conftest import Outputs

    folder = tmp_path_factory.mktemp("made")
    tracker, outputs = Tracker(f"sqlite:///{folder / 'mlruns' / 'mlflow.db'}"), Outputs(folder / "outputs")
    for seed in (0, 1):
        add_run(outputs, tracker, "plain_baseline", seed, final=0.3 + 0.02 * seed, origin=False, reward="verifier")
        add_run(outputs, tracker, HOSTILE_NAME, seed, final=0.4 + 0.02 * seed, origin=True, reward="critic")
    return folder


@pytest.fixture(scope="module")
def page(made: Path, tmp_path_factory: pytest.TempPathFactory) -> str:
    """The page of the MLflow in ``made``, written in another folder."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made / 'mlruns' / 'mlflow.db'}")
        patch.chdir(folder := tmp_path_factory.mktemp("empty"))
        assert main(["plain_baseline", HOSTILE_NAME, "--output=page.html"]) == 0
        return (folder / "page.html").read_text(encoding="utf-8")


def test_page_has_no_scripts_and_no_external_resources(page: str, made: Path) -> None:
    reader = Reader(page)
    assert str(made) not in page
    assert "/home/" not in page, "no path of a machine"
    assert "script" not in reader.elements
    assert not [name for name, _ in reader.attributes if name.startswith("on")]
    addresses = [value for name, value in reader.attributes if name in ("src", "href")]
    assert all(address.startswith(("data:image/png;base64,", "#")) for address in addresses)
    assert "default-src 'none'" in page, "a browser would refuse it, too"
    assert not re.search(r"url\((?!#)|@import", page)
    shown = "".join(reader.text)
    for one in (HOSTILE, HOSTILE_NAME, "\\u202e5=\\x1b3+2"):
        assert one in shown, "all is there to be read"


def test_page_shows_results_of_the_runs(page: str) -> None:
    shown = re.sub(r"\s+", " ", " ".join(Reader(page).text))
    for fact in (
        "1 arm, 2 runs, 2 seeds.",
        "before training 2 20.0 ± 0.0",
        "plain_baseline 2 31.0 ± 12.7 15.5 ± 6.4",
        f"{HOSTILE_NAME} 2 41.0 ± 12.7 20.5 ± 6.4",
        "Δ to plain_baseline +10.0 ± 0.0 +5.0 ± 0.0",
        "prompt completion verdict reason samples",
        "2 3 = 5 2+3=5 ok 3/8",
        "plain_baseline: what it last learned from",
        "prompt completion verdict reason reward reward/critic reward/verifier advantage",
        "4 5 = 9 4+5=9 ok 0.75 -0.25 1 0.432",
        f"over plain_baseline: {HOSTILE_NAME} +10.0 ± 0.0 (significant).",
        "clipo/similarity at step 20",
        "torch 2.9.1",
        "commit abc",
        f"val/{SAMPLED}",
        "train/rollout/completion_tokens",
    ):
        assert fact in shown
    assert re.findall("<h2>(.*?)</h2>", page)[:4] == ["Question", "Verdict", "Tables", "Runs"]
    verdict = page[page.index("<h2>Verdict") : page.index("<h2>Tables")]
    assert verdict.count('role="img"') == 1
    assert "train/rollout/truncated" not in shown, "a curve that is constant"


def test_page_lists_command_of_each_arm_and_marks_approximate_ones(page: str) -> None:
    reader = Reader(page)
    commands = [text for text in reader.text if "python -m" in text]
    assert commands == [
        "# at abc\npython -m experiments.run -m reward=verifier objective=grpo seed=0,1",
        "# at abc\npython -m experiments.run -m experiment=critic_experiment policy.pretrained=…/llama seed=0,1",
    ]
    assert "plain_baseline *" in reader.text, "its command is the nearest one"
    assert f"{HOSTILE_NAME} *" not in reader.text


@pytest.mark.parametrize(
    ("arguments", "named"),
    [
        (["plain_baselin"], ["'plain_baselin'", "'plain_baseline'"]),
        (["plain_baseline", "curve=val/x"], ["'val/x'", "val/verifier/"]),
        (["a/b"], ["'a/b'"]),
    ],
)
def test_wrong_argument_prints_error_and_writes_no_page(
    arguments: list[str],
    named: list[str],
    made: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.setenv("MLFLOW_TRACKING_URI", f"sqlite:///{made / 'mlruns' / 'mlflow.db'}")
    monkeypatch.chdir(tmp_path)
    assert main(arguments) == 2
    message = capsys.readouterr().err
    assert [name for name in named if name not in message] == []
    assert not list(tmp_path.iterdir())


def test_choose_completions_alternates_accepted_and_rejected() -> None:
    rows: list[dict[str, Any]] = [{"status": "ok", "n": n} for n in range(9)] + [{"status": "wrong", "n": 9}]
    assert [row["n"] for row in choose_completions(rows)] == [0, 9, 1, 2]


@pytest.mark.parametrize(
    ("ours", "theirs", "shown"),
    [
        (
            {"reward.weight": "0.1", "module.reward.weight": "0.1", "module.lr": "1", "steps": "5"},
            {"reward.weight": "0.2", "module.reward.weight": "0.2", "module.lr": "2", "steps": "5"},
            [("module.lr", "1", "2"), ("reward.weight", "0.1", "0.2")],
        ),
        (
            {"reward.critic._target_": "Joint", "reward.critic.width": "512", "reward.critic.head._target_": "Head"},
            {},
            [("reward.critic._target_", "Joint", "—")],
        ),
        (
            {"critic._target_": "Joint", "critic.width": "512"},
            {"critic._target_": "Numeric", "critic.width": "64"},
            [("critic._target_", "Joint", "Numeric"), ("critic.width", "512", "64")],
        ),
    ],
    ids=["listed once at its shortest path", "missing part", "replaced part"],
)
def test_differences_list_each_changed_setting_once(
    ours: dict[str, str], theirs: dict[str, str], shown: list[tuple[str, str, str]]
) -> None:
    assert differences(ours, theirs) == shown


def test_commands_are_shell_quoted_and_seeds_are_joined_in_one_multirun() -> None:
    overrides = ["experiment=x", "policy.pretrained=a b; rm -rf ~", "sweep=objective", "stages=[grpo, evaluate]"]
    assert shlex.split(command(overrides)) == ["python", "-m", "experiments.run", *overrides[:2], overrides[3]]
    seeds = {"0": ["experiment=x", "seed=0"], "10": ["experiment=x", "seed=10"], "2": ["seed=2", "experiment=x"]}
    assert command_over_seeds(seeds) == "python -m experiments.run -m experiment=x seed=0,2,10"
    assert command_over_seeds({"0": ["experiment=x"]}) == "python -m experiments.run experiment=x seed=0"
    assert command_over_seeds({**seeds, "2": [*seeds["2"], "reward.weight=0.1"]}) is None


def test_commits_and_study_command_describe_the_arm() -> None:
    runs = [finished("my_study", seed=s, params={"arm": "critic"}, git_sha=f"abc{s}-dirty") for s in (0, 4)]
    (arm,) = arms_by(runs, ["arm"])
    changed = "with changes that were not committed"
    assert commits(arm) == [f"# at abc0 {changed}, abc4 {changed}"]
    assert study_command(arm) == "python -m experiments.study my_study only=critic seeds=5"
    (alone,) = arms_by([finished("llama_critic", seed=0, params={"arm": "null"})], ["experiment"])
    assert study_command(alone) is None
