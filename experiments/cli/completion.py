"""What could stand at the end of a line that is being typed: commands, experiments, and by Hydra keys and choices.

contrastive-reasoning exp llama_critic reward.wei|      →  reward.weight=
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from experiments.cli.catalogue import experiments, studies
from experiments.cli.commands import COMMANDS, Command
from experiments.cli.completion_scripts import SCRIPTS

BREAKS = "=:"
"""Where bash splits a word in two. What completes it must then begin behind the last of them."""
UNFINISHED = ("=", ".", "/", ",")
"""Ends behind which something has to follow, and no space."""


def answers(shell: str, words: Sequence[str]) -> list[str]:
    """The candidates in a shell's own form.

    Args:
        shell: bash, zsh or fish.
        words: of the line behind the program's name; the last, perhaps empty, is being typed.
    """
    words = joined(words) if shell == "bash" else [*words]
    found = candidates(words)
    if shell != "fish":  # who puts the space there itself
        found = [word if word.endswith(UNFINISHED) else f"{word} " for word in found]
    if shell == "bash":
        behind = max(words[-1].rfind(sign) for sign in BREAKS) + 1
        found = [word[behind:] for word in found]
    return found


def joined(pieces: Sequence[str]) -> list[str]:
    """Words from the pieces that bash makes of them: ``objective``, ``=``, ``gr`` are one."""
    words = [""]
    for before, piece in zip(["", *pieces], pieces, strict=False):
        glued = (piece[:1] in BREAKS and piece != "") or (before[-1:] in BREAKS and before != "")
        words = [*words[:-1], words[-1] + piece] if glued else [*words, piece]
    return words[1:]


def candidates(words: Sequence[str]) -> list[str]:
    """Whole words that could stand in the place of the last one."""
    first, *typed = words
    if not typed:
        return _beginning(first, [*COMMANDS, "completion", "help"])
    if first == "completion":
        return _beginning(typed[-1], SCRIPTS) if len(typed) == 1 else []
    return sorted(_for_command(COMMANDS[first], typed)) if first in COMMANDS else []


def _for_command(command: Command, typed: Sequence[str]) -> Iterator[str]:
    *before, word = typed
    if "=" not in word:
        takes_several = not command.overrides
        if command.names and (not before or takes_several):
            yield from _beginning(word, {"experiment": experiments, "study": studies}[command.names]())
        yield from _beginning(word, [f"{key}=" for key in command.own_keys])
    if command.overrides:
        yield from _overrides(command, before, word)


def _overrides(command: Command, before: Sequence[str], word: str) -> list[str]:
    """What Hydra's own completion says, which composes the configuration with the words before."""
    from hydra import initialize_config_module
    from hydra._internal.core_plugins.bash_completion import BashCompletion
    from hydra.core.global_hydra import GlobalHydra

    from experiments.schema import register

    register()
    known = [other for other in before if other.partition("=")[0] not in command.own_keys]
    with initialize_config_module("conf", version_base="1.3"):
        hydra = BashCompletion(GlobalHydra.instance().config_loader())
        return hydra._query(config_name="config", line=" ".join([*command.words(known), word]))


def _beginning(word: str, known: Sequence[str] | dict[str, str]) -> list[str]:
    return [name for name in known if name.startswith(word)]
