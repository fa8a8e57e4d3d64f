"""User-defined prompt templates: text with ``{nums}`` and ``{target}``, and ``{demonstration}`` for worked examples.

A file with suffix ``.yaml`` or ``.yml`` holds the template in the literal block ``USER_PROMPT``, as LongProc's
``prompts.yaml`` does. Any other file is the template itself, without its trailing line ends. All other braces are text.
"""

from __future__ import annotations

import re
from functools import lru_cache
from pathlib import Path

NEEDED = ("{nums}", "{target}")
_BLOCK = re.compile(r"^USER_PROMPT: \|-[ \t\r]*\n((?:[ \t\r]*\n| .*(?:\n|\Z))*)", re.MULTILINE)


@lru_cache(maxsize=16)
def read_prompt_file(path: str) -> str:
    """Reads the template of a file.

    Raises:
        FileNotFoundError: if there is no such file.
        ValueError: if it is not UTF-8, a YAML file lacks the block, or the template lacks a required placeholder.
    """
    file = Path(path).expanduser()
    if not file.is_file():
        raise FileNotFoundError(f"prompt_file={path!r}: no such file")
    try:
        text = file.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as error:
        raise ValueError(f"prompt_file={path!r} is not UTF-8 text: {error}") from error
    template = user_prompt(text) if file.suffix in (".yaml", ".yml") else text.rstrip("\n")
    if missing := [name for name in NEEDED if name not in template]:
        raise ValueError(
            f"prompt_file={path!r} lacks {' and '.join(missing)}: a template names {' and '.join(NEEDED)}, and "
            "{demonstration} where worked examples are to stand"
        )
    return template


def user_prompt(text: str) -> str:
    """Returns the literal block ``USER_PROMPT`` of a YAML file, the form that LongProc uses; empty if there is none."""
    block = _BLOCK.search(text)
    lines = block[1].split("\n") if block else []
    indent = min([len(line) - len(line.lstrip(" ")) for line in lines if line.strip()], default=0)
    return "\n".join([line[indent:] for line in lines]).rstrip("\n")
