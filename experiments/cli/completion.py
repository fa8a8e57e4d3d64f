"""Shell completion of ``contrastive-reasoning``: commands, experiments, and by Hydra keys and choices.

    contrastive-reasoning exp llama_critic reward.wei|      →  reward.weight=

The shell calls the program itself each time Tab is pressed, by a script that is loaded once:

    eval "$(contrastive-reasoning completion bash)"         in ~/.bashrc; zsh likewise, behind compinit
    contrastive-reasoning completion fish | source          in ~/.config/fish/config.fish
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from experiments.cli.commands import COMMANDS, Command
from experiments.config.folders import experiment_names, study_names

BREAKS = "=:"
"""Where bash splits a word in two. A completion must then begin behind the last of them."""
UNFINISHED = ("=", ".", "/", ",")
"""Ends behind which something has to follow, and no space."""

BASH = r"""_contrastive_reasoning() {
    local IFS=$'\n'
    COMPREPLY=($("${COMP_WORDS[0]}" completion bash "${COMP_WORDS[@]:1:COMP_CWORD}" 2>/dev/null))
}
complete -o nospace -F _contrastive_reasoning contrastive-reasoning
"""
ZSH = r"""#compdef contrastive-reasoning
_contrastive_reasoning() {
    local -a found
    found=("${(@f)$("${words[1]}" completion zsh "${(@)words[2,CURRENT]}" 2>/dev/null)}")
    compadd -Q -S '' -- "${(@)found:#}"
}
compdef _contrastive_reasoning contrastive-reasoning
"""
FISH = r"""function __contrastive_reasoning
    set -l words (commandline -opc)
    $words[1] completion fish $words[2..] (commandline -ct) 2>/dev/null
end
complete -c contrastive-reasoning -f -a '(__contrastive_reasoning)'
"""
SCRIPTS = {"bash": BASH, "zsh": ZSH, "fish": FISH}


def completions(shell: str, words: Sequence[str]) -> list[str]:
    """The candidates in the form of a shell.

    ``words``: of the line behind the program's name; the last, perhaps empty, is being typed.
    """
    words = join_pieces(words) if shell == "bash" else [*words]
    found = candidates(words)
    if shell != "fish":  # which adds the space itself
        found = [word if word.endswith(UNFINISHED) else f"{word} " for word in found]
    if shell == "bash":
        behind = max(words[-1].rfind(sign) for sign in BREAKS) + 1
        found = [word[behind:] for word in found]
    return found


def join_pieces(pieces: Sequence[str]) -> list[str]:
    """Words from the pieces that bash makes of them: ``objective``, ``=``, ``gr`` are one."""
    words = [""]
    for before, piece in zip(["", *pieces], pieces, strict=False):
        glued = (piece[:1] in BREAKS and piece != "") or (before[-1:] in BREAKS and before != "")
        words = [*words[:-1], words[-1] + piece] if glued else [*words, piece]
    return words[1:]


def candidates(words: Sequence[str]) -> list[str]:
    """Whole words that could stand in the place of the last one."""
    first, *given = words
    if not given:
        return _beginning_with(first, [*COMMANDS, "completion", "help"])
    if first == "completion":
        return _beginning_with(given[-1], SCRIPTS) if len(given) == 1 else []
    if first not in COMMANDS:
        return []
    command, *before, word = COMMANDS[first], *given
    found: list[str] = []
    if "=" not in word:
        if command.names and (not before or not command.overrides):
            found += _beginning_with(word, experiment_names() if command.names == "experiment" else study_names())
        found += _beginning_with(word, [f"{key}=" for key in command.own_keys])
    return sorted([*found, *(_overrides(command, before, word) if command.overrides else [])])


def _overrides(command: Command, before: Sequence[str], word: str) -> list[str]:
    """By Hydra's own completion, which composes the configuration with the words before."""
    from hydra import initialize_config_module
    from hydra._internal.core_plugins.bash_completion import BashCompletion
    from hydra.core.global_hydra import GlobalHydra

    from experiments.schema import register

    register()
    known = [other for other in before if other.partition("=")[0] not in command.own_keys]
    with initialize_config_module("conf", version_base="1.3"):
        hydra = BashCompletion(GlobalHydra.instance().config_loader())
        return hydra._query(config_name="config", line=" ".join([*command.arguments(known), word]))


def _beginning_with(word: str, known: Collection[str]) -> list[str]:
    return [name for name in known if name.startswith(word)]
