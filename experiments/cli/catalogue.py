"""What there is to run, each with the first line of its file. Standard library only: ``make list`` needs no install."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from experiments.cli.own_conf import own_folder
from experiments.cli.typed_here import typed

CONF = Path(__file__).resolve().parents[2] / "conf"
FOLDER = CONF / "experiment"
COMMAND = " make "
"""With it a study's first line ends, for who reads the file; the list says it once for all."""


@dataclass(frozen=True, kw_only=True)
class Section:
    """A folder of configurations to run."""

    title: str
    folder: Path
    run: str
    """How one of them is run."""


SECTIONS = (
    Section(title="Experiments", folder=FOLDER, run=typed("exp", "NAME")),
    Section(title="Studies, the arms and seeds of a question", folder=CONF / "study", run=typed("study", "NAME")),
    Section(
        title="Sweeps, over values of one experiment",
        folder=CONF / "sweep",
        run=typed("sweep", "EXPERIMENT", "sweep=NAME"),
    ),
)


def first_comment(text: str) -> str:
    """The first comment of a YAML file that is not a Hydra header; empty where there is none."""
    for line in text.splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").strip()
    return ""


def catalogue(folder: Path) -> dict[str, str]:
    """Name → its first comment line, sorted by name."""
    return {path.stem: first_comment(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}


def of_both(folder: Path) -> dict[str, str]:
    """A folder of ``conf/``, and the one of this name of one's own."""
    own = own_folder()
    return catalogue(folder) | (catalogue(own / folder.name) if own else {})


def catalogued() -> dict[str, str]:
    """The experiments of the house, and those of one's own."""
    return of_both(FOLDER)


def experiments() -> list[str]:
    return [*catalogued()]


def studies() -> list[str]:
    return [*of_both(CONF / "study")]


def main() -> None:
    entries = [of_both(section.folder) for section in SECTIONS]
    width = max(len(name) for lines in entries for name in lines)
    for section, lines in zip(SECTIONS, entries, strict=True):
        print(f"{section.title}: {section.run}")
        for name, line in lines.items():
            print(f"  {name:<{width}}  {line.partition(COMMAND)[0].rstrip()}")


if __name__ == "__main__":
    main()
