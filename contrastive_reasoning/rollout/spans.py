"""From characters to tokens: the bytes of each token, the text they spell, the characters each token covers.

Decoding prefixes of a completion, or encoding its text again, moves token borders; bytes do not. The bytes of the
tokens are joined and read as UTF-8 with ``surrogateescape``, which inverts exactly, even if a character is cut short:

    tokens      ' 4'    'é'[0]   'é'[1]   '6'          é is two bytes, one in each of two tokens
    bytes       20 34    c3       a9       36
    characters  ' ' '4'  └──  'é'  ──┘    '6'           both tokens cover the character 2
"""

from __future__ import annotations

import re
import unicodedata
from bisect import bisect_left
from collections.abc import Callable, Sequence
from functools import lru_cache
from itertools import accumulate
from operator import itemgetter

from transformers import PreTrainedTokenizerBase

PROBE = "Numbers: [21, 16], target: 46\n|- Try 21 + 16 = 37. ### é → 漢 🙂"
"""A text that a tokenizer must spell byte by byte before its completions are read."""

Span = tuple[int, int]
_THOUGHT = re.compile(r"think|thought|reason|<\|(?:channel|message)\|>", re.IGNORECASE)
"""Special tokens that are kept in the text of a completion: an answer inside the thoughts does not count."""


@lru_cache(maxsize=8)
def token_bytes(tokenizer: PreTrainedTokenizerBase) -> tuple[bytes, ...]:
    """The bytes that each token id stands for; b"" for special tokens except those around thoughts, ``</think>``.

    Byte-level and SentencePiece vocabularies are supported; the first that spells ``PROBE`` from its token ids is used.

    Raises ValueError if neither does.
    """
    ids = list(tokenizer(PROBE, add_special_tokens=False)["input_ids"])  # pyright: ignore[reportArgumentType]
    for piece_bytes in (_byte_level, _sentence_piece):
        table = _table(tokenizer, piece_bytes)
        spelled = b"".join(table[i] for i in ids)
        # A SentencePiece tokenizer may put a space before the first word of a text.
        if PROBE.encode() in (spelled, spelled[1:] if spelled.startswith(b" ") else spelled):
            return table
    raise ValueError(
        f"the tokenizer {tokenizer.name_or_path or type(tokenizer).__name__} does not spell text byte by byte: "
        "only byte-level and SentencePiece tokenizers with byte fallback can be used"
    )


def text_of(table: Sequence[bytes], ids: Sequence[int]) -> str:
    """The text that the tokens spell; ids beyond the table (padding of the embedding matrix) spell nothing."""
    return b"".join(_pieces(table, ids)).decode("utf-8", "surrogateescape")


def readable(text: str) -> str:
    """``text`` for people and files: invalid UTF-8 bytes become U+FFFD, since lone surrogates cannot be written."""
    return text.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def token_spans(table: Sequence[bytes], ids: Sequence[int]) -> list[Span]:
    """Per token, the characters of ``text_of(table, ids)`` that it covers: (first, one past last), empty if none.

    Tokens that share a character overlap on it. A token starts at the character that holds its first byte.
    """
    pieces = _pieces(table, ids)
    ends = list(accumulate(map(len, pieces)))
    text = b"".join(pieces)
    starts = [end - len(piece) for end, piece in zip(ends, pieces, strict=True)]
    if text.isascii():
        return list(zip(starts, ends, strict=True))
    of_byte = _character_of_byte(text.decode("utf-8", "surrogateescape"))
    return [
        (of_byte[start], of_byte[end - 1] + 1 if end > start else of_byte[start])
        for start, end in zip(starts, ends, strict=True)
    ]


def tokens_of_span(spans: Sequence[Span], start: int, end: int) -> tuple[int, int] | None:
    """The first and last token (inclusive) of the characters start … end − 1; None if no token begins there.

    A token belongs to the characters that hold its first byte, so adjacent spans never share a token.
    """
    first = bisect_left(spans, start, key=itemgetter(0))
    last = bisect_left(spans, end, key=itemgetter(0)) - 1
    while first <= last and _empty(spans[first]):
        first += 1
    while first <= last and _empty(spans[last]):
        last -= 1
    return (first, last) if first <= last else None


def token_of_character(spans: Sequence[Span], character: int) -> int:
    """The last token that covers the character; ``len(spans)`` if none does."""
    last = bisect_left(spans, character + 1, key=itemgetter(0)) - 1
    while last >= 0 and _empty(spans[last]):
        last -= 1
    return last if last >= 0 and spans[last][1] > character else len(spans)


def _empty(span: Span) -> bool:
    return span[0] == span[1]


def _pieces(table: Sequence[bytes], ids: Sequence[int]) -> list[bytes]:
    return [table[i] if i < len(table) else b"" for i in ids]


def _character_of_byte(text: str) -> list[int]:
    """For each byte of ``text`` the index of its character, and one more entry: the number of characters."""
    widths = (len(character.encode("utf-8", "surrogateescape")) for character in text)
    return [index for index, width in enumerate(widths) for _ in range(width)] + [len(text)]


def _table(tokenizer: PreTrainedTokenizerBase, piece_bytes: Callable[[str], bytes]) -> tuple[bytes, ...]:
    special = set(tokenizer.all_special_ids)
    added = tokenizer.added_tokens_decoder  # spelled as they are, in every kind of vocabulary
    special |= {i for i, token in added.items() if token.special}
    special -= {i for i in special if i in added and _THOUGHT.search(added[i].content)}
    pieces = tokenizer.convert_ids_to_tokens(list(range(len(tokenizer))))
    return tuple(
        b"" if i in special or piece is None else added[i].content.encode() if i in added else piece_bytes(piece)
        for i, piece in enumerate(pieces)
    )


def _byte_level(piece: str) -> bytes:
    alphabet = _byte_alphabet()
    return bytes(alphabet[character] for character in piece if character in alphabet)


def _sentence_piece(piece: str) -> bytes:
    """``▁`` is a space, ``<0xNN>`` one byte, all else itself."""
    if len(piece) == 6 and piece.startswith("<0x") and piece.endswith(">"):
        return bytes.fromhex(piece[3:5])
    return piece.replace("▁", " ").encode()


@lru_cache(maxsize=1)
def _byte_alphabet() -> dict[str, int]:
    """The characters that byte-level vocabularies write bytes with: printable bytes as themselves, the others as the
    characters from 256 on, in order (Radford et al. 2019)."""
    printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    others = [byte for byte in range(256) if byte not in printable]
    return {chr(byte): byte for byte in printable} | {chr(256 + n): byte for n, byte in enumerate(others)}


UNSEEN = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
"""Unicode categories without a visible form: controls, private and unassigned characters, line separators."""


def visible_tokens(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """A readable form of each token: one string per token, none of them empty, none that hides another.

        tokens   " 4"   "é"[0]    "é"[1]    newline   end of text   U+202E (writes from right to left)
        shown    " 4"   ⟨c3⟩      ⟨a9⟩      "↵\\n"     ⟨<|end|>⟩     ⟨U+202E⟩

    Bytes that are not UTF-8 by themselves are hexadecimal, special tokens are names, and invisible characters are
    numbers; the end of a line is marked and kept.
    """
    table = token_bytes(tokenizer)
    pieces = [table[i].decode("utf-8", "surrogateescape") if i < len(table) else "" for i in ids]
    return [
        "".join(map(_character, piece)) if piece else _token_name(tokenizer, i)
        for piece, i in zip(pieces, ids, strict=True)
    ]


def _character(character: str) -> str:
    number = ord(character)
    if character == "\n":
        return "↵\n"
    if 0xDC80 <= number <= 0xDCFF:  # a byte that surrogateescape has escaped
        return f"⟨{number - 0xDC00:02x}⟩"
    return f"⟨U+{number:04X}⟩" if unicodedata.category(character) in UNSEEN else character


def _token_name(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    name = tokenizer.convert_ids_to_tokens(token) if token < len(tokenizer) else None
    return f"⟨{''.join(map(_character, str(name)))}⟩" if name else f"⟨token {token}⟩"
