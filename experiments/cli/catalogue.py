"""Prints all experiments, studies and sweeps with the first comment of their files.

Standard library only: no install is needed.
"""

from __future__ import annotations

from experiments.config.folders import summaries, without_command
from experiments.config.hints import command_line
from experiments.system.terminal import protect_output

SECTIONS = {
    "experiment": f"Experiments: {command_line('exp', 'NAME')}",
    "study": f"Studies, the arms and seeds of a question: {command_line('study', 'NAME')}",
    "sweep": f"Sweeps, over values of one experiment: {command_line('sweep', 'EXPERIMENT', 'sweep=NAME')}",
}
"""Folder of conf/ → its heading."""


def main() -> None:
    entries = {group: summaries(group) for group in SECTIONS}
    width = max(len(name) for names in entries.values() for name in names)
    for group, heading in SECTIONS.items():
        print(heading)
        for name, line in entries[group].items():
            print(f"  {name:<{width}}  {without_command(line)}")  # the heading has the command


if __name__ == "__main__":
    protect_output()
    main()
