"""Each token by itself, for people to read: what it spells, and nothing that could hide or rearrange its neighbours.

tokens   " 4"   "é"[0]    "é"[1]    newline   end of text   U+202E (writes from right to left)
shown    " 4"   ⟨c3⟩      ⟨a9⟩      "↵\\n"     ⟨<|end|>⟩     ⟨U+202E⟩
"""

from __future__ import annotations

import unicodedata
from collections.abc import Sequence

from transformers import PreTrainedTokenizerBase

from contrastive_reasoning.rollout.spans import token_bytes

UNSEEN = ("Cc", "Cf", "Co", "Cn", "Zl", "Zp")
"""Unicode's categories of what has no form of its own: controls, private and unassigned ones, separators of lines."""


def spelled(tokenizer: PreTrainedTokenizerBase, ids: Sequence[int]) -> list[str]:
    """What each token spells, one string a token, none of them empty.

    Bytes that are no UTF-8 by themselves stand in hexadecimal, special tokens by their names, and characters that are
    not seen by their numbers; a line's end is marked and kept.
    """
    table = token_bytes(tokenizer)
    return [_shown(table[i]) if i < len(table) and table[i] else _named(tokenizer, i) for i in ids]


def _shown(piece: bytes) -> str:
    text = piece.decode("utf-8", "surrogateescape")
    return "".join(_character(character) for character in text)


def _character(character: str) -> str:
    number = ord(character)
    if character == "\n":
        return "↵\n"
    if 0xDC80 <= number <= 0xDCFF:  # a byte that surrogateescape has put aside
        return f"⟨{number - 0xDC00:02x}⟩"
    return f"⟨U+{number:04X}⟩" if unicodedata.category(character) in UNSEEN else character


def _named(tokenizer: PreTrainedTokenizerBase, token: int) -> str:
    name = tokenizer.convert_ids_to_tokens(token) if token < len(tokenizer) else None
    return f"⟨{''.join(map(_character, str(name)))}⟩" if name else f"⟨token {token}⟩"
