"""``python -m experiments.sample``: whole pages by the embedded policies, arguments, and the problem of a prompt."""

from __future__ import annotations

import re
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from contrastive_reasoning.tasks.countdown import CountdownProblem, CountdownTask, reachable
from experiments.sample.__main__ import GivenProblem, given_problem, main, parse_arguments
from tests.tiny_tasks import countdown
from tests.unit.experiments.sample.test_completions import save_small_critic

PROMPT = "prompt=numbers=3,5,8 target=23"


def printed_page(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    assert main(arguments) == 0
    return capsys.readouterr().out


def test_page_shows_steps_reach_critic_value_and_verdict(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_small_critic(tmp_path)
    page = printed_page(capsys, PROMPT, "n=4", f"critic={tmp_path}")
    assert page.startswith("Problem countdown:3,5,8=23 · the target is within reach · critic 0.")
    assert re.findall(r"Completion (\d) of 4", page) == ["1", "2", "3", "4"]
    assert len(re.findall("^Verdict: ", page, re.M)) == 4
    legal = re.findall(r"^ +\d+ +\S+ +(\d[\d, ]*\d?)  +legal +(within|out of) reach +0\.\d\d", page, re.M)
    assert len(legal) >= 4
    for state, within in legal:
        assert reachable(tuple(map(int, state.split(","))), 23) == (within == "within")


def test_page_is_repeatable_and_depends_on_model_and_sampling(capsys: pytest.CaptureFixture[str]) -> None:
    sampled, greedy = printed_page(capsys, PROMPT, "n=3"), printed_page(capsys, PROMPT, "n=3", "temperature=0.0")
    assert printed_page(capsys, PROMPT, "n=3") == sampled != greedy
    assert len(set(re.findall(r"Completion . of 3 .*\n(.*)", greedy))) == 1
    assert printed_page(capsys, PROMPT, "n=3", "temperature=0.0", "model=embedded:qwen_countdown") != greedy


def test_text_prompt_has_verdict_only_with_answer(capsys: pytest.CaptureFixture[str]) -> None:
    text = "prompt=Ben has 6 toys. Mia gives Ben 2. How many has Ben?"
    for answer, verdict in (([], "none"), (["answer=8"], "(ok|wrong|unparsed)")):
        page = printed_page(capsys, text, *answer, "task=arithmetic", "temperature=0.0", "max_tokens=9")
        assert re.search(f"^Verdict: {verdict}", page, re.M)


@pytest.mark.parametrize(
    ("arguments", "start"),
    [
        (["temperature=warm"], "rollout.sampling.temperature"),
        (["temperature=nan"], "rollout.sampling: temperature"),
        (["seed=1,2"], "seed=1,2: "),
        (["model=embedded:llama_countdwn"], "policy.pretrained=embedded:llama_countdwn: "),
        (["model=./nowhere"], "policy: policy.pretrained=./nowhere: "),
        (["--config-dir=no/where"], "--config-dir no/where: "),
        (["n=0"], "n must be at least 1, got 0"),
        (["promt=x"], "promt: no such key; did you mean 'prompt'?"),
        (["numbers=3,5,8"], "numbers=3,5,8: a problem is one word, prompt='numbers=3,5,8 target=23'"),
        (["critic=nowhere"], "critic=nowhere: no critic there"),
        ([f"prompt={'1 ' * 999}"], "problem given: its prompt of "),
        ([PROMPT, "task=arithmetic"], PROMPT),
    ],
    ids=lambda value: value[0][:20] if isinstance(value, list) else "",
)
def test_invalid_argument_prints_one_sentence(
    capsys: pytest.CaptureFixture[str], arguments: list[str], start: str
) -> None:
    assert main(arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert err.splitlines()[-1].startswith(start)  # a progress bar of loading weights may come first


def test_number_of_completions_is_whole() -> None:
    for words in ("n=²", "n=1.5", "n=x"):
        with pytest.raises(SystemExit, match=r"^2$"):
            main([words])


def test_critic_that_cannot_read_task_prints_one_sentence(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    save_small_critic(tmp_path)
    assert main(["task=arithmetic", "max_tokens=30", "temperature=0.0", f"critic={tmp_path}"]) == 2
    assert capsys.readouterr().err.splitlines()[-1].startswith("numeric critics read Countdown problems; ")


def test_invalid_argument_is_rejected_before_heavy_imports() -> None:
    script = (
        "import sys; from experiments.sample.__main__ import main\n"
        "codes = [main([word]) for word in ('sed=1', 'prompt=numbers=x target=1', 'model=embedded:x', 'seed=1,2')]\n"
        "print(codes, [m for m in ('torch', 'transformers', 'rich', 'lightning') if m in sys.modules])"
    )
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert done.stdout == "[2, 2, 2, 2] []\n"
    assert done.stderr.count("\n") == 4


def test_parse_arguments_puts_short_names_before_overrides() -> None:
    own = ["n=3", "prompt=a=b c", "critic=/a/b", "answer=4"]
    overrides = ["policy.chat_template=true", "temperature=0", "model=a/b", "max_tokens=7", "task=arithmetic"]
    options, found = parse_arguments([*own, *overrides])
    assert (options.prompt, options.critic, options.answer, options.n) == ("a=b c", "/a/b", "4", 3)
    assert found == [
        "policy.pretrained='a/b'",
        "policy.chat_template=null",
        "rollout.sampling.temperature=0",
        "rollout.sampling.max_tokens=7",
        "policy.chat_template=true",
        "task=arithmetic",
    ]
    empty = parse_arguments(["model=", "prompt=", "critic=", "answer=", "n=", "temperature="])
    assert empty == parse_arguments([])


@pytest.mark.parametrize("model", ["my models/a, b", "it's", "a=b", r"c:\a", "[x]", "7"])
def test_parse_arguments_quotes_model_of_any_name(model: str) -> None:
    override, _ = parse_arguments([f"model={model}"])[1]
    assert OverridesParser.create().parse_override(override).value() == model


TASK = countdown(counts=[3], number_range=[1, 30], train_problems=0, validation_problems=3, test_problems=0)


def problem_of(
    prompt: str | None = None, *, task: CountdownTask = TASK, answer: str | None = None, seed: int = 0
) -> GivenProblem:
    return given_problem(task, prompt=prompt, answer=answer, seed=seed)


@pytest.mark.parametrize("prompt", ["numbers=3,5,8 target=23", "target=23 numbers=[3,5,8]"])
def test_numbers_and_target_make_countdown_problem(prompt: str) -> None:
    found = problem_of(prompt)
    assert found.problem == CountdownProblem((3, 5, 8), 23, style="direct")
    assert found.verify is not None
    assert [found.verify(text).status for text in ("3*5=15;15+8=23", "3+5=8;8+8=16")] == ["ok", "wrong"]
    assert [step.state for step in found.steps("3*5=15;15+8=23")] == [(15, 8), (23,)]


def test_text_problem_is_verified_by_answer_only() -> None:
    found = problem_of("What is 6 times 7?", answer="42")
    assert found.problem.prompt == "What is 6 times 7?"
    assert found.verify is not None
    assert [found.verify(text).status for text in (r"\boxed{42}", r"\boxed{41}")] == ["ok", "wrong"]
    assert found.steps("3*5=15") == []  # the problem has no numbers
    assert problem_of("What is 6 times 7?").verify is None


@pytest.mark.parametrize(
    "prompt",
    [
        "numbers=3,x target=23",
        "numbers= target=23",
        "numbers=3,-5 target=23",
        "numbers=3,٥ target=23",
        "numbers=3,5 target=1e9",
        f"numbers=3,5 target={'9' * 5000}",
        "numbers=1,2,3,4,5,6,7 target=8",
        "numbers=3,5",
        "numbers=3,5 target=8 targte=9",
    ],
)
def test_invalid_countdown_prompt_raises(prompt: str) -> None:
    with pytest.raises(ValueError, match=f"^prompt={re.escape(prompt)}: "):
        problem_of(prompt)


def test_seed_selects_validation_problem_without_prompt(tmp_path: Path) -> None:
    problems = TASK.problems("validation")
    assert [problem_of(seed=seed).problem for seed in (0, 1, 2, 3)] == [*problems, problems[0]]
    with pytest.raises(ValueError, match=r"^countdown .*prompt"):
        problem_of(task=replace(TASK, validation_problems=0))
    with pytest.raises(ValueError, match=r"^countdown: "):
        problem_of(task=replace(TASK, longproc_dir=str(tmp_path / "nowhere")))
    with pytest.raises(ValueError, match=r"^answer=3: "):
        problem_of("numbers=3,5,8 target=23", answer="3")
