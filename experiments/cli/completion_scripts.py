"""What teaches a shell to complete ``contrastive-reasoning``: it asks the program itself, each time Tab is pressed.

eval "$(contrastive-reasoning completion bash)"           in ~/.bashrc; zsh likewise, behind compinit
contrastive-reasoning completion fish | source            in ~/.config/fish/config.fish
"""

from __future__ import annotations

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
