"""Spans of characters and tokens: the tokens of a credited span hold the step's text, byte by byte."""

from __future__ import annotations

import random
from collections.abc import Sequence
from itertools import pairwise

import pytest
from tokenizers import Tokenizer, decoders, models, normalizers, pre_tokenizers
from transformers import PreTrainedTokenizerFast

from contrastive_reasoning.rollout.spans import (
    readable,
    text_of,
    token_bytes,
    token_of_character,
    token_spans,
    tokens_of_span,
    visible_tokens,
)
from contrastive_reasoning.tasks.answer import verify_answer
from tests.unit.lightning_modules.grpo_kit import TOKENIZER

TEXTS = ["21+16=37;37-17=20", "|- Try 3 × 4 = 12.\n", "é → 漢字 🙂🙂", "", " two  spaces ", "\x00\x7f\u0080\uffff"]


@pytest.fixture(scope="module")
def sentence_piece() -> PreTrainedTokenizerFast:
    """BPE over ▁-words with byte fallback, as in the first Llamas."""
    characters = dict.fromkeys("▁Numbers: [21, 16], target: 46|- Try37.#\n+=é;")
    pieces = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), *characters, "▁T", "21"]
    vocabulary = {piece: i for i, piece in enumerate(pieces)}
    tokenizer = Tokenizer(
        models.BPE(vocab=vocabulary, merges=[("▁", "T"), ("2", "1")], unk_token="<unk>", byte_fallback=True)
    )
    tokenizer.pre_tokenizer = pre_tokenizers.Metaspace(prepend_scheme="first", split=False)
    tokenizer.decoder = decoders.Sequence([decoders.Replace("▁", " "), decoders.ByteFallback(), decoders.Fuse()])
    return PreTrainedTokenizerFast(tokenizer_object=tokenizer, eos_token="</s>", bos_token="<s>", unk_token="<unk>")


@pytest.fixture(params=["byte_level", "sentence_piece"])
def tokenizer(request: pytest.FixtureRequest) -> PreTrainedTokenizerFast:
    return request.getfixturevalue(request.param)


@pytest.mark.parametrize("text", TEXTS)
def test_token_bytes_reproduce_the_encoded_text(tokenizer: PreTrainedTokenizerFast, text: str) -> None:
    ids = tokenizer(text, add_special_tokens=False)["input_ids"]
    spelled = text_of(token_bytes(tokenizer), ids)
    assert spelled.removeprefix(" ") == text.removeprefix(" ")  # Metaspace puts one space before the first word


def test_special_tokens_and_ids_beyond_the_table_have_empty_text(tokenizer: PreTrainedTokenizerFast) -> None:
    table = token_bytes(tokenizer)
    assert table[tokenizer.eos_token_id] == b""
    assert text_of(table, [tokenizer.eos_token_id, len(table) + 7]) == ""
    assert token_spans(table, [tokenizer.eos_token_id, len(table) + 7]) == [(0, 0), (0, 0)]


def test_text_of_keeps_added_tokens_and_the_special_think_token(byte_level: PreTrainedTokenizerFast) -> None:
    """Without ``</think>`` in the text, a box inside the thoughts would count as the answer."""
    copy = PreTrainedTokenizerFast(tokenizer_object=Tokenizer.from_str(byte_level.backend_tokenizer.to_str()))
    copy.add_tokens(["<think é>"])
    copy.add_special_tokens({"additional_special_tokens": ["</think>", "<|end|>"]})
    assert token_bytes(copy)[copy.convert_tokens_to_ids("<think é>")] == "<think é>".encode()
    thought = copy("\\boxed{41} is wrong", add_special_tokens=False)["input_ids"]
    ids = [*thought, *copy.convert_tokens_to_ids(["</think>", "<|end|>"])]
    text = text_of(token_bytes(copy), ids)
    assert text == "\\boxed{41} is wrong</think>"
    assert not verify_answer("41", f"{text} I do not know.").correct


def test_token_bytes_rejects_a_tokenizer_that_changes_text(byte_level: PreTrainedTokenizerFast) -> None:
    lossy = Tokenizer.from_str(byte_level.backend_tokenizer.to_str())
    lossy.normalizer = normalizers.Lowercase()
    with pytest.raises(ValueError, match="byte by byte"):
        token_bytes(PreTrainedTokenizerFast(tokenizer_object=lossy))


def test_token_spans_of_random_tokens_match_byte_counts(tokenizer: PreTrainedTokenizerFast) -> None:
    for seed in range(20):
        table, rng = token_bytes(tokenizer), random.Random(seed)
        ids = _random_ids(tokenizer, table, rng)
        text = text_of(table, ids)
        assert text.encode("utf-8", "surrogateescape") == b"".join(table[i] for i in ids), seed
        holder = [n for n, character in enumerate(text) for _ in character.encode("utf-8", "surrogateescape")]
        position = 0
        for token, span in zip(ids, token_spans(table, ids), strict=True):
            covered = holder[position : position + len(table[token])]
            position += len(table[token])
            if covered:
                assert span == (covered[0], covered[-1] + 1), seed
            else:
                assert span[0] == span[1], seed


def test_tokens_of_span_maps_a_text_partition_to_a_token_partition(tokenizer: PreTrainedTokenizerFast) -> None:
    for seed in range(20):
        table, rng = token_bytes(tokenizer), random.Random(100 + seed)
        ids = _random_ids(tokenizer, table, rng)
        text, spans = text_of(table, ids), token_spans(table, ids)
        cuts = sorted({0, len(text), *(rng.randrange(len(text) + 1) for _ in range(5))})
        first_byte = [sum(len(table[i]) for i in ids[:n]) for n in range(len(ids))]
        credited: list[int] = []
        for start, end in pairwise(cuts):
            low, high = (len(text[:cut].encode("utf-8", "surrogateescape")) for cut in (start, end))
            expected = [n for n, token in enumerate(ids) if table[token] and low <= first_byte[n] < high]
            found = tokens_of_span(spans, start, end)
            assert found == ((expected[0], expected[-1]) if expected else None), seed
            credited += expected
        assert credited == [n for n, token in enumerate(ids) if table[token]], seed


def test_spans_of_a_split_character_include_all_its_tokens() -> None:
    """é is two bytes in two tokens; a special token has no text."""
    table = [b"4", "é".encode()[:1], "é".encode()[1:], b"6", b""]
    ids = [0, 1, 2, 4, 3]
    spans = token_spans(table, ids)
    assert text_of(table, ids) == "4é6"
    assert spans == [(0, 1), (1, 2), (1, 2), (2, 2), (2, 3)]
    assert [tokens_of_span(spans, *span) for span in ((1, 2), (2, 3), (3, 9))] == [(1, 2), (4, 4), None]
    assert [token_of_character(spans, character) for character in range(5)] == [0, 2, 4, 5, 5]
    assert token_of_character([(0, 1), (1, 1)], 0) == token_of_character([], 0) == 0


def test_invalid_utf8_is_preserved_and_readable() -> None:
    table = ["é".encode()[:1], b"\xed\xb2\x80", b"ok"]
    text = text_of(table, [0, 1, 2])
    assert text.encode("utf-8", "surrogateescape") == b"\xc3\xed\xb2\x80ok"
    assert token_spans(table, [0, 1, 2]) == [(0, 1), (1, 4), (4, 6)]
    assert readable(text).endswith("ok")
    readable(text).encode()


def _random_ids(tokenizer: PreTrainedTokenizerFast, table: Sequence[bytes], rng: random.Random) -> list[int]:
    """Random ids, some of them of whole characters with several bytes; the end is cut at a random place."""
    ids: list[int] = []
    for _ in range(12):
        if rng.random() < 0.4:
            ids += tokenizer(rng.choice(["漢", "é", "🙂", "21"]), add_special_tokens=False)["input_ids"]
        else:
            ids.append(rng.randrange(len(table)))
    return ids[: rng.randrange(4, len(ids) + 1)]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("a\nb", "a↵\nb"),
        ("a\r\x00\x1b[31m", "a⟨U+000D⟩⟨U+0000⟩⟨U+001B⟩[31m"),
        ("é", "⟨c3⟩⟨a9⟩"),
        ("\u202e", "⟨e2⟩⟨80⟩⟨ae⟩"),
    ],
)
def test_visible_tokens_escapes_control_and_partial_characters(text: str, expected: str) -> None:
    assert "".join(visible_tokens(TOKENIZER, TOKENIZER(text, add_special_tokens=False)["input_ids"])) == expected


def test_visible_tokens_names_special_and_unknown_tokens_and_escapes_a_bidi_override_in_one_token() -> None:
    end, beyond = TOKENIZER.get_vocab()[str(TOKENIZER.eos_token)], len(TOKENIZER) + 5
    assert visible_tokens(TOKENIZER, [end, beyond]) == [f"⟨{TOKENIZER.eos_token}⟩", f"⟨token {beyond}⟩"]
    tokenizer = TOKENIZER.__class__(tokenizer_object=TOKENIZER.backend_tokenizer, eos_token=TOKENIZER.eos_token)
    tokenizer.add_tokens(["\u202e"])
    assert visible_tokens(tokenizer, [len(tokenizer) - 1]) == ["⟨U+202E⟩"]
