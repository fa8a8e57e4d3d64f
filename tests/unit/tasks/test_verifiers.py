"""Environments of the library verifiers: prompts, splits, scores in worker processes, and what is refused."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from textwrap import indent
from typing import Any

import pytest

from contrastive_reasoning.rewards import FunctionReward, FunctionVerifier
from contrastive_reasoning.tasks.base import messages_of
from contrastive_reasoning.tasks.problem_set import FunctionTask, question_key
from contrastive_reasoning.tasks.verifiers import environment as environments, score, scorer, taskset_of, verifiers_task
from contrastive_reasoning.tasks.verifiers.environment import module_of
from contrastive_reasoning.tasks.verifiers.scoring import trace_of
from datamodules.gold_answers import with_gold

needs_library = pytest.mark.skipif(find_spec("verifiers") is None, reason="needs the extra: pip install '.[verifiers]'")
OWN = "own-sums-of-a-test"
Write = Callable[..., str]
LIMITS: dict[str, Any] = {"workers": 1, "limit_s": 5.0, "memory_mib": 2048, "max_failures": 1.0}
SUMS = """
import asyncio
import verifiers.v1 as vf


class SumData(vf.TaskData):
    answer: str | None = None


class Sum(vf.Task[SumData]):
    @vf.reward
    async def right(self, trace: vf.Trace) -> float:
        reply = trace.last_reply
        if reply == "hang":
            await asyncio.sleep(1000)
        if reply == "raise":
            raise RuntimeError("cannot read it")
        return float(reply == self.data.answer)

    @vf.reward(weight=0.5)
    async def digits(self, trace: vf.Trace) -> float:
        return float(trace.last_reply.isdigit())

    @vf.reward(weight=-0.25)
    async def long(self, trace: vf.Trace) -> float:
        return float(len(trace.last_reply) > 10)

    @vf.metric
    async def files(self, trace: vf.Trace, runtime: vf.Runtime) -> float:
        raise AssertionError("a metric has no effect, and there is no runtime")


class SumConfig(vf.TasksetConfig):
    first: int = 0
    count: int = 40
    system: str | None = None
    kind: str = "text"
    endless: bool = False


def prompt_of(number: int, kind: str):
    text = f"{number} + 1 = ?"
    return {
        "text": text,
        "none": None,
        "messages": [
            {"role": "user", "content": "1 + 1 = ?"},
            {"role": "assistant", "content": "2"},
            {"role": "user", "content": [{"type": "text", "text": text}]},
        ],
        "image": [{"role": "user", "content": [{"type": "image_url", "image_url": {"url": "a.png"}}]}],
        "open": [{"role": "user", "content": text}, {"role": "assistant", "content": "It is"}],
        "late system": [{"role": "user", "content": text}, {"role": "system", "content": "Be brief."}],
        "two systems": [{"role": "system", "content": "Be brief."}, {"role": "user", "content": text}],
    }[kind]


class Sums(vf.Taskset[Sum, SumConfig]):
    def __init__(self, config):
        super().__init__(config)
        self.INFINITE = config.endless

    def load(self):
        settings = self.config
        number = settings.first
        while settings.endless or number < settings.first + settings.count:
            prompt = prompt_of(number, settings.kind)
            data = SumData(prompt=prompt, system_prompt=settings.system, answer=str(number + 1))
            yield Sum(data, settings.task)
            number += 1


__all__ = ["Sums"]
"""
HARNESS = """class Own(vf.Harness[vf.HarnessConfig]):
    async def launch(self, *_):
        raise AssertionError
"""
REFUSED = {
    "Env of its own": ("class Own(vf.SingleAgentEnv):\n    pass\n", "", ["Own"]),
    "harness of its own": (HARNESS, "", ["Own"]),
    "container": ("", "NEEDS_CONTAINER = True", []),
    "tools": ("", "@classmethod\ndef toolsets(cls, config):\n    return [vf.Toolset(vf.ToolsetConfig())]", []),
    "hook setup": ("", "async def setup(self, trace, runtime):\n    await runtime.run(['true'], {})", []),
    "reward tested needs a runtime": ("", "@vf.reward\nasync def tested(self, trace, runtime):\n    return 1.0", []),
    "@intercept": ("", "@vf.intercept\nasync def changed(self, request: vf.Request):\n    return request", []),
}
"""Part of the sentence → code of the module, of its task, and further names that the module exports."""


@pytest.fixture(scope="module")
def write(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Write]:
    """Returns a function that writes an environment of sums under a name; the name is returned."""
    folder = tmp_path_factory.mktemp("environments")

    def write(text: str = SUMS, name: str = OWN) -> str:
        (folder / f"{module_of(name)}.py").write_text(text)
        return name

    with pytest.MonkeyPatch.context() as patch:
        patch.syspath_prepend(folder)
        yield write


def in_this_process(*, function: Callable[..., Any]) -> Any:
    """Stands for the verifier's worker processes: what the function returns."""
    return lambda problems, completions: [function(*pair) for pair in zip(problems, completions, strict=True)]


def task(environment: str = OWN, **changes: Any) -> FunctionTask:
    settings: dict[str, Any] = {"name": "sums", "environment": environment, "answer": "answer"}
    settings |= {"validation_problems": 6, "test_problems": 8, "verifier": in_this_process}
    settings |= dict.fromkeys(("settings", "test_settings", "full_score", "train_problems"))
    return verifiers_task(**settings | changes)


@needs_library
def test_problems_are_the_tasks_of_the_environment(write: Write) -> None:
    made = task(write())
    found = {one.prompt: one.answer for split in ("train", "validation", "test") for one in made.problems(split)}
    assert found == {f"{number} + 1 = ?": str(number + 1) for number in range(40)}
    assert with_gold(made, "train") == list(made.problems("train"))
    assert {problem.answer for problem in task(answer="solution").problems("train")} == {""}


@needs_library
@pytest.mark.parametrize(
    ("changes", "sizes"),
    [
        ({}, (26, 6, 8)),
        ({"train_problems": 10}, (10, 6, 8)),
        ({"test_settings": {"first": 30}}, (24, 6, 40)),  # 10 of its questions are in the training set, too
        ({"settings": {"endless": True}, "train_problems": 20}, (20, 6, 8)),
        ({"settings": {"endless": True}, "train_problems": 20, "test_settings": {"first": 100}}, (20, 6, 8)),
    ],
)
def test_no_question_is_in_two_splits(changes: dict[str, Any], sizes: tuple[int, ...], write: Write) -> None:
    made = task(write(), **changes)
    splits = [{question_key(one) for one in made.problems(split)} for split in ("train", "validation", "test")]
    assert tuple(map(len, splits)) == sizes
    assert len(set.union(*splits)) == sum(sizes)


@needs_library
@pytest.mark.parametrize(
    ("settings", "roles"),
    [
        ({}, ["user"]),
        ({"system": "Add."}, ["system", "user"]),
        ({"kind": "messages"}, ["user", "assistant", "user"]),
        ({"kind": "messages", "system": "Add."}, ["system", "user", "assistant", "user"]),
        ({"kind": "two systems"}, ["system", "user"]),
    ],
)
def test_messages_are_in_prompt_and_trace(settings: dict[str, Any], roles: list[str], write: Write) -> None:
    problem = task(write(), settings=settings).problems("train")[0]
    assert [message.role for message in messages_of(problem.prompt)] == roles
    assert "Add." in problem.prompt or settings.get("system") is None
    trace = trace_of(problem.fields["task"], problem.prompt, "<think>7?</think>8", ("</think>",))
    assert [message.role for message in trace.messages] == [*roles, "assistant"]
    assert (trace.last_reply, trace.messages[-1].reasoning_content) == ("8", "<think>7?</think>")
    assert (trace.num_turns, trace.num_branches, trace.is_truncated) == (1, 1, False)


@needs_library
@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"kind": "none"}, "no prompt"),
        ({"kind": "image"}, "image"),
        ({"kind": "open"}, "the user's last, got user, assistant"),
        ({"kind": "late system"}, "got user, system"),
        ({"kind": "two systems", "system": "Add."}, "got system, system, user"),
        ({"endless": True}, "task.train_problems"),
    ],
)
def test_prompt_that_is_not_text_for_one_reply_is_refused(settings: dict[str, Any], named: str, write: Write) -> None:
    with pytest.raises(ValueError, match=named):
        task(write(), settings=settings).problems("train")


@needs_library
def test_share_of_full_score_is_judged_and_total_is_rewarded(write: Write) -> None:
    made = task(write())
    problem = made.problems("train")[0]
    wrong = str(int(problem.answer) + 1)
    texts = [problem.answer, f"<think>{wrong}</think>\n{problem.answer}", wrong, "12345678901", "no", "no such number"]
    totals = [1.5, 1.5, 0.5, 0.25, 0.0, -0.25]
    assert [score(problem, text) for text in texts] == totals
    assert [made.verify(problem, text) for text in texts] == [1.0, 1.0, 1 / 3, 1 / 6, 0.0, 0.0]
    lower = task(full_score=0.5)
    assert [lower.verify(problem, text) for text in texts] == [1.0, 1.0, 1.0, 0.5, 0.0, 0.0]
    weighted = task(settings={"task": {"rewards": {"digits": {"weight": 0.0}}}})
    assert weighted.verify(weighted.problems("train")[0], wrong) == 0.0


@needs_library
def test_total_above_the_sum_of_weights_is_an_error_unless_full_score_is_set(write: Write) -> None:
    several = SUMS.replace("return float(reply == self.data.answer)", 'return {"form": 1.0, "right": 1.0}')
    assert several != SUMS
    made = task(name := write(several, "own-several"))
    problem = made.problems("train")[0]
    with pytest.raises(ValueError, match=r"task\.full_score"):
        made.verify(problem, problem.answer)
    assert task(name, full_score=5.0).verify(problem, problem.answer) < 1


@needs_library
def test_scorer_that_raises_or_hangs_costs_that_completion_alone(write: Write) -> None:
    made = task(write(), verifier=partial(FunctionVerifier, **LIMITS))
    problem = made.problems("train")[0]
    texts = [problem.answer, "raise", "hang", "0", problem.answer]
    verdicts = made.verify_all([problem] * len(texts), texts)
    made.verifier.close()  # pyright: ignore[reportFunctionMemberAccess]
    assert [verdict.status for verdict in verdicts] == ["ok", "error", "timeout", "wrong", "ok"]
    assert "cannot read it" in verdicts[1].reason
    assert verdicts[3].reason.startswith("scored 0.333")
    reward = FunctionReward(name="score", function=scorer(environment=OWN), **LIMITS)
    replies = reward.pool([(problem, text) for text in texts])
    reward.close()
    assert [reply.value for reply in replies if reply.status == "number"] == [1.5, 0.5, 1.5]


@needs_library
@pytest.mark.parametrize("named", REFUSED)
def test_environment_that_needs_more_than_a_prompt_and_a_reply_is_refused(named: str, write: Write) -> None:
    head, body, exported = REFUSED[named]
    body = indent(f"{body}\n", "    ")
    text = SUMS.replace("class Sum(vf.Task[SumData]):\n", f"{head}\n\nclass Sum(vf.Task[SumData]):\n{body}")
    text = text.replace('__all__ = ["Sums"]', f"__all__ = {['Sums', *exported]}")
    with pytest.raises(ValueError, match=named):
        task(write(text, f"own-{'-'.join(named.strip('@').lower().split())}"))


@needs_library
def test_missing_module_of_an_environment_is_named(write: Write) -> None:
    with pytest.raises(ValueError, match="cannot be imported: there is no module no_such_library"):
        taskset_of(write(f"import no_such_library\n{SUMS}", "own-unfinished"), None)


@needs_library
@pytest.mark.parametrize(
    ("changes", "named"),
    [
        ({"settings": {"task": {"judges": [{"id": "reference"}]}}}, "judge model scores it .judges"),
        ({"settings": {"counts": 3}}, r"settings\.counts.*first, count, system"),
        ({"settings": {"count": "many"}}, r"settings\.count: .*integer"),
        ({"test_settings": {"counts": 3}}, r"settings\.counts"),
        ({"full_score": 0.0}, "full_score must be positive"),
        ({"environment": "json"}, "exports no Taskset"),
        ({"environment": "own-sums-of-a-tset"}, "no such package is installed; nearest are own-sums-of-a-test"),
    ],
)
def test_unusable_environment_or_setting_is_named(
    changes: dict[str, Any], named: str, write: Write, monkeypatch: pytest.MonkeyPatch
) -> None:
    write()
    monkeypatch.setattr(environments, "installed_environments", lambda: ["another", OWN])
    with pytest.raises(ValueError, match=named):
        task(**changes)


def test_installed_packages_that_require_the_library_are_the_environments(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, requirement in {"one": "verifiers>=0.4", "two": "verifiers-of-others", "three": "numpy"}.items():
        folder = tmp_path / f"env_{name}-1.0.dist-info"
        folder.mkdir()
        text = f"Metadata-Version: 2.1\nName: env-{name}\nVersion: 1.0\nRequires-Dist: {requirement}\n"
        (folder / "METADATA").write_text(text)
    monkeypatch.syspath_prepend(tmp_path)
    found = environments.installed_environments()
    assert [name for name in found if name.startswith("env-")] == ["env-one"]
    assert "contrastive-reasoning" not in found


def test_missing_library_names_the_install_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "verifiers", None)
    monkeypatch.setitem(sys.modules, "verifiers.v1", None)
    with pytest.raises(ModuleNotFoundError, match="pip install verifiers"):
        task()


def test_library_is_imported_only_where_the_task_is_used() -> None:
    code = (
        "import sys, contrastive_reasoning.rewards, contrastive_reasoning.tasks.verifiers, experiments.stages.plan; "
        "print(any(name.partition('.')[0] == 'verifiers' for name in sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
