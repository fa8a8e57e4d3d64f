from __future__ import annotations

import pytest
from hydra.core.override_parser.overrides_parser import OverridesParser

from experiments.config.override_checks import override_error
from experiments.sample.options import SHORT, Options, SampleError, parsed
from experiments.schema import register

register()


def test_own_arguments_are_kept_apart_from_overrides() -> None:
    options, overrides = parsed(["n=3", "task=arithmetic", "prompt=a=b c", "critic=/a/b", "answer=4", "seed=1"])
    assert options == Options(prompt="a=b c", critic="/a/b", answer="4", n="3")
    assert overrides == ["task=arithmetic", "seed=1"]


def test_short_names_stand_before_overrides_which_win() -> None:
    _, overrides = parsed(["policy.chat_template=true", "temperature=0", "model=a/b", "max_tokens=7"])
    assert overrides == [
        "rollout.sampling.temperature=0",
        "policy.pretrained='a/b'",
        "policy.chat_template=null",
        "rollout.sampling.max_tokens=7",
        "policy.chat_template=true",
    ]


@pytest.mark.parametrize("model", ["my models/a, b", "it's", "a=b", r"c:\a", "[x]", "7"])
def test_a_model_may_have_any_name(model: str) -> None:
    override, _ = parsed([f"model={model}"])[1]
    assert OverridesParser.create().parse_override(override).value() == model


def test_every_short_name_is_of_a_key_of_the_configuration() -> None:
    values = {"model": "embedded:llama_countdown", "temperature": "0.5", "max_tokens": "3"}
    _, overrides = parsed([f"{name}={values[name]}" for name in SHORT])
    assert override_error(["name=sample", "stages=[evaluate]", *overrides]) is None


def test_what_is_left_empty_was_not_given() -> None:
    assert parsed(["model=", "prompt=", "critic=", "answer=", "n=", "temperature="]) == (Options(), [])


@pytest.mark.parametrize(
    ("argument", "sentence"),
    [
        ("n=0", "n=0: it takes a whole number of at least 1"),
        ("n=two", "n=two: it takes a whole number of at least 1"),
        ("n=-1", "n=-1: it takes a whole number of at least 1"),
        ("n=²", "n=²: it takes a whole number of at least 1"),
        ("promt=x", "promt: no such key; did you mean 'prompt'?"),
        ("temprature=1", "temprature: no such key; did you mean 'temperature'?"),
        ("numbers=3,5,8", "numbers=3,5,8: a problem is one word, prompt='numbers=3,5,8 target=23'"),
    ],
)
def test_a_mistake_gets_its_one_sentence(argument: str, sentence: str) -> None:
    with pytest.raises(SampleError) as caught:
        parsed([argument])
    assert str(caught.value) == sentence
