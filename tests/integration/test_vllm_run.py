"""Runs with rollouts from a vLLM server, a fake one: of another model, absent, and one that dies and starts again."""

from __future__ import annotations

import re
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from experiments.config.folders import EMBEDDED_FOLDER
from experiments.stages.checkpoints import CHECKPOINTS, kept_checkpoints
from experiments.system.launch import FAILED
from experiments.system.terminal import USAGE_ERROR
from tests.contract.fake_vllm import FakeVLLM, FakeWorker, TokenIn
from tests.contract.recording import serving
from tests.forking import SHORT, Forks
from tests.ports import free_port

pytestmark = pytest.mark.whole
OWN, OTHER = "llama_countdown_unaimed", "qwen_countdown_unaimed"
"""The policy of the runs, and a policy of another architecture."""
AGAIN = "; run the same command again to resume\n"


def backend(policy: str) -> FakeVLLM:
    folder = EMBEDDED_FOLDER / policy
    model: Any = AutoModelForCausalLM.from_pretrained(folder)
    served = TokenIn(
        model=model,
        tokenizer=AutoTokenizer.from_pretrained(folder),
        compute_dtype=torch.float32,
        chat_template=False,
    )
    return FakeVLLM(FakeWorker(served, logprobs_mode="raw_logprobs"))


class Ended(NamedTuple):
    """Exit code and output of a run."""

    returncode: int
    stdout: str
    stderr: str


Run = Callable[..., Ended]


@pytest.fixture
def run(command_line: Forks, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Runs with the server at a URL."""
    log, errors = command_line.log, tmp_path_factory.mktemp("errors") / "errors"

    def run_with(url: str, outputs: Path, *overrides: str) -> Ended:
        server = ["rollout=vllm", f"rollout.engine.url={url}", "rollout.engine.retries=0"]
        words = [*overrides, "debug=fast", "logger.mirror=false", *SHORT, *server, f"output_dir={outputs}"]
        before = len(log.read_text())
        code = command_line(*words, folder=str(outputs), errors=str(errors))
        return Ended(code, log.read_text()[before:], errors.read_text())

    return run_with


def test_wrong_or_absent_server_ends_run_before_first_stage(run: Run, tmp_path: Path) -> None:
    with serving(backend(OTHER)) as served:
        wrong = run(served.url, tmp_path, "experiment=llama_critic")
        assert served.paths() == ["/v1/completions", "policy_report"]
    url = f"http://127.0.0.1:{free_port()}"
    absent = run(url, tmp_path, "experiment=llama_critic")
    for done, sentence in (
        (wrong, rf"{served.url} serves another model than the policy's \(model_type qwen2, not llama.*\): .*\n"),
        (absent, rf"{url}/\S+ cannot be reached \(tried once\): .*\n"),
    ):
        assert done.returncode == USAGE_ERROR
        assert AGAIN not in done.stderr
        assert re.fullmatch(sentence, done.stderr), done.stderr
    assert not (tmp_path / "stages").exists()


def test_run_resumes_after_death_of_its_server(run: Run, tmp_path: Path) -> None:
    """The server dies once there is a checkpoint. A finished run needs no server."""
    grpo = ("experiment=llama_baseline", "stages=[grpo]")
    with serving(backend(OWN)) as served:

        def die(answer: Any) -> Any:
            if any(kept_checkpoints(folder) for folder in tmp_path.glob(f"stages/grpo/*/{CHECKPOINTS}")):
                served.drop = sys.maxsize
            return answer

        served.tamper["/v1/completions"] = die
        stopped = run(served.url, tmp_path, *grpo)
        assert stopped.returncode == FAILED
        sentences = [line for line in stopped.stderr.splitlines(keepends=True) if not line.startswith("warning: ")]
        assert len(sentences) == 1, stopped.stderr
        assert re.fullmatch(rf"{served.url}/\S+ cannot be reached \(tried once\): .*{AGAIN}", sentences[0])
        served.drop = 0
        served.tamper.clear()
        resumed = run(served.url, tmp_path, *grpo)
    assert resumed.returncode == 0, resumed.stderr
    assert "grpo: resuming in " in resumed.stdout
    finished = run(served.url, tmp_path, *grpo)
    assert finished.returncode == 0, finished.stderr
    assert "grpo: reusing " in finished.stdout
