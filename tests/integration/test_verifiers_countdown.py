"""The Countdown environment of integrations/ in the library verifiers: its own rollouts, with a scripted model."""

from __future__ import annotations

import asyncio
import json
import threading
from collections.abc import Iterator, Mapping
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest

from contrastive_reasoning.tasks.base import Problem
from contrastive_reasoning.tasks.countdown import reachable
from contrastive_reasoning.tasks.verifiers import score
from tests.hostile.drawn import PAYLOADS

vf: Any = pytest.importorskip("verifiers.v1", reason="needs the extra: pip install '.[verifiers]'")
HARNESS = """
import httpx
import verifiers.v1 as vf


class ScriptedHarness(vf.Harness[vf.HarnessConfig]):
    APPENDS_SYSTEM_PROMPT = True
    EXECUTES_CODE = False
    NEEDS_CONTAINER = False

    async def launch(self, ctx, trace, runtime, endpoint, secret, mcp_urls, data, tool_interception_url=None):
        body = {"model": ctx.model, "messages": [{"role": "user", "content": data.prompt}]}
        headers = {"authorization": f"Bearer {secret}"}
        async with httpx.AsyncClient(timeout=30, trust_env=False) as client:
            reply = await client.post(f"{endpoint}/chat/completions", json=body, headers=headers)
        return vf.ProgramResult(exit_code=int(reply.is_error), stdout="", stderr=reply.text)


__all__ = ["ScriptedHarness"]
"""
"""One request for each task, in this process: the library's own harnesses install programs from an index."""


class Model(BaseHTTPRequestHandler):
    """A server of an OpenAI-compatible model that replies to each prompt with its script."""

    script: Mapping[str, str]

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["content-length"])))
        content = self.script[body["messages"][-1]["content"]]
        choice = {"index": 0, "finish_reason": "stop", "message": {"role": "assistant", "content": content}}
        reply = {
            "id": "1",
            "object": "chat.completion",
            "created": 0,
            "model": "m",
            "choices": [choice],
        }
        data = json.dumps(reply).encode()
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("content-length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, format: str, *args: Any) -> None:
        """Prints nothing."""


@pytest.fixture
def address() -> Iterator[str]:
    with ThreadingHTTPServer(("127.0.0.1", 0), Model) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1"
        server.shutdown()
        thread.join()


def taskset(**settings: Any) -> Any:
    kind = vf.taskset_config_type("verifiers-countdown")
    return vf.load_taskset(kind.model_validate({"id": "verifiers-countdown", "problems": 20, **settings}))


def replies_to(data: Any) -> dict[str, str]:
    """Right, wrong and hostile replies to one task."""
    equations = data.answer.splitlines()[1:-1]
    numbers = data.numbers
    return {
        "right": f"Let me see.\n{data.answer}",
        "first half": f"<Solution>\n{equations[0]}\n</Solution>",
        "wrong arithmetic": f"<Solution>\n{numbers[0]} + {numbers[1]} = {data.target}\n</Solution>",
        "only the target": f"<Solution>{data.target}</Solution>",
        "repeated": "<Solution>\n" + f"{equations[0]}\n" * 100 + "</Solution>",
        "code": "<Solution>__import__('os').abort()</Solution>",
    }


def rewards_in_rollouts(task: Any, script: Mapping[str, str], address: str) -> dict[str, Any]:
    """Name → the library's trace of a rollout in which the model replies to the task with the text of that name."""
    config = vf.resolve_env_config(
        {
            "taskset": {"id": "verifiers-countdown", "problems": 20},
            "agent": {"harness": {"id": "scripted_harness_of_a_test"}, "runtime": {"type": "subprocess"}},
        }
    )
    client = vf.EvalClientConfig(base_url=address, api_key_var="NO_KEY_IS_NEEDED")

    async def play() -> dict[str, Any]:
        environment = vf.load_environment(config)
        traces: dict[str, Any] = {}
        async with environment.serving():
            for name, text in script.items():
                Model.script = {task.data.prompt: text}
                episode = await environment.run_episode(task, vf.ModelContext(model="m", client=client))
                assert not episode.errors
                (traces[name],) = episode.traces
        return traces

    return asyncio.run(play())


def test_rollouts_of_the_library_are_rewarded_as_here(
    address: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "scripted_harness_of_a_test.py").write_text(HARNESS)
    monkeypatch.syspath_prepend(tmp_path)
    task = next(iter(taskset()))
    script = replies_to(task.data)
    traces = rewards_in_rollouts(task, script, address)
    assert {name: (trace.errors, trace.num_turns, trace.last_reply) for name, trace in traces.items()} == {
        name: ([], 1, text) for name, text in script.items()
    }
    success = {name: trace.rewards["success"].score for name, trace in traces.items()}
    kept = {name: trace.rewards["reachable"].score for name, trace in traces.items()}
    assert success == dict.fromkeys(script, 0.0) | {"right": 1.0}
    assert kept == dict.fromkeys(script, 0.0) | {"right": 1.0, "first half": 0.5, "repeated": 1 / 100}
    assert traces["right"].reward == pytest.approx(1.2)
    problem = Problem(id="0", prompt=task.data.prompt, answer="", fields={"task": task})
    assert {name: trace.reward for name, trace in traces.items()} == {
        name: score(problem, text) for name, text in script.items()
    }


def test_share_counts_steps_after_which_every_target_can_be_reached() -> None:
    """Compared with the oracle, for every first step of some problems; the second step is missing."""
    share = import_module("verifiers_countdown.taskset").reachable_share
    for task in list(taskset())[:5]:
        numbers, target = task.data.numbers, task.data.target
        for first, second, left in ((0, 1, 2), (0, 2, 1), (1, 2, 0)):
            result = numbers[first] + numbers[second]
            text = f"<Solution>\n{numbers[first]} + {numbers[second]} = {result}\n</Solution>"
            assert share(numbers, target, text) == reachable((result, numbers[left]), target) / 2


def test_weights_are_set_in_the_configuration() -> None:
    task = next(iter(taskset(task={"rewards": {"reachable": {"weight": 0.0}}})))
    assert {hook.__name__: hook._vf_weight for hook in task.hooks("reward")} == {"success": 1.0, "reachable": 0.0}


def test_splits_share_no_problem_and_every_answer_is_right() -> None:
    tasks = {split: [*taskset(split=split, counts=[3, 4])] for split in ("train", "validation", "test")}
    keys = {split: {task.data.name for task in some} for split, some in tasks.items()}
    assert [len(some) for some in keys.values()] == [20] * 3
    assert len(set.union(*keys.values())) == 60
    for task in [*tasks["train"], *tasks["test"]]:
        problem = Problem(id="0", prompt=task.data.prompt, answer="", fields={"task": task})
        assert score(problem, task.data.answer) == pytest.approx(1.2)


@pytest.mark.parametrize("form", ["{}", "<Solution>\n{}\n</Solution>"])
def test_hostile_replies_get_no_success(form: str) -> None:
    task = next(iter(taskset()))
    problem = Problem(id="0", prompt=task.data.prompt, answer="", fields={"task": task})
    assert max(score(problem, form.replace("{}", payload)) for payload in PAYLOADS) < 1
