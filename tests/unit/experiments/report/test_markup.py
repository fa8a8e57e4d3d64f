from __future__ import annotations

import pytest

from experiments.report.markup import Html, element, section, table
from experiments.system.secrets import without_paths


def test_what_is_not_markup_is_escaped() -> None:
    assert element("p", "<script>&", element("b", "x")) == "<p>&lt;script&gt;&amp;<b>x</b></p>"
    assert element("a", title='"><script>', class_="x") == '<a title="&quot;&gt;&lt;script&gt;" class="x"></a>'
    assert "<td" not in table(["a"], [["<td>"]]).replace('<td class="word">', "")


def test_joining_a_text_to_markup_makes_it_a_text_again() -> None:
    assert element("p", Html("<b>") + "<i>") == "<p>&lt;b&gt;&lt;i&gt;</p>"


def test_signs_that_hide_or_turn_a_line_are_shown() -> None:
    assert element("p", "a\x1b[31m\u202eb\nc") == "<p>a\\x1b[31m\\x202eb\nc</p>"


def test_a_section_without_content_is_not_there() -> None:
    assert section("Figures", Html("")) == ""
    assert section("Figures", "x") == "<section><h2>Figures</h2>x</section>"


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("policy.pretrained=/home/ann/models/llama seed=0", "policy.pretrained=…/llama seed=0"),
        ("longproc_dir='/data'", "longproc_dir='…/data'"),
        ("x=~/models/llama/", "x=…/llama"),
        ("sqlite:////srv/mlruns/mlflow.db", "…/mlflow.db"),
        ("file:///srv/mlruns/a", "…/a"),
        ("policy.pretrained=outputs/stages/warm_start/0425", "policy.pretrained=outputs/stages/warm_start/0425"),
        ("Qwen/Qwen2.5-7B 6/3/2 a / b", "Qwen/Qwen2.5-7B 6/3/2 a / b"),
        ("https://github.com/a/b", "https://github.com/a/b"),
    ],
)
def test_no_path_of_a_machine_is_shown(text: str, shown: str) -> None:
    assert without_paths(text) == shown
