"""What a person sees of a token: all of it, and nothing that acts."""

from __future__ import annotations

import pytest

from contrastive_reasoning.rollout.spelled import spelled
from tests.unit.lightning_modules.grpo_kit import TOKENIZER


def shown(text: str) -> list[str]:
    return spelled(TOKENIZER, TOKENIZER(text, add_special_tokens=False)["input_ids"])


def test_ordinary_tokens_join_to_the_text() -> None:
    text = "21+16=37; 37-17=20 <b>$x_1$</b> &amp;"
    assert "".join(shown(text)) == text
    assert len(shown(text)) == len(TOKENIZER(text, add_special_tokens=False)["input_ids"])


@pytest.mark.parametrize(
    ("text", "seen"),
    [
        ("a\nb", "a↵\nb"),
        ("a\r\x00\x1b[31m", "a⟨U+000D⟩⟨U+0000⟩⟨U+001B⟩[31m"),
        ("é", "⟨c3⟩⟨a9⟩"),
        ("\u202e", "⟨e2⟩⟨80⟩⟨ae⟩"),
    ],
)
def test_what_is_not_seen_or_not_whole_is_written_out(text: str, seen: str) -> None:
    assert "".join(shown(text)) == seen


def test_a_character_that_turns_text_around_is_written_out_where_one_token_spells_it() -> None:
    tokenizer = TOKENIZER.__class__(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token=TOKENIZER.eos_token)
    tokenizer.add_tokens(["\u202e"])
    assert spelled(tokenizer, [len(tokenizer) - 1]) == ["⟨U+202E⟩"]


def test_special_tokens_and_ids_beyond_the_vocabulary_have_names() -> None:
    end, beyond = TOKENIZER.get_vocab()[str(TOKENIZER.eos_token)], len(TOKENIZER) + 5
    assert spelled(TOKENIZER, [end, beyond]) == [f"⟨{TOKENIZER.eos_token}⟩", f"⟨token {beyond}⟩"]
