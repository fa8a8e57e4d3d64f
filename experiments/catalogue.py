"""What there is to run, each with the first line of its file. Standard library only: ``make list`` needs no install."""

from __future__ import annotations

from pathlib import Path

from experiments.own_conf import own_folder

CONF = Path(__file__).resolve().parent.parent / "conf"
FOLDER = CONF / "experiment"
SECTIONS = {
    "Experiments": FOLDER,
    "Studies, the arms and seeds of a question": CONF / "study",
    "Sweeps, over values of one experiment": CONF / "sweep",
}


def first_comment(text: str) -> str:
    """The first comment of a YAML file that is not a Hydra header; empty where there is none."""
    for line in text.splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").strip()
    return ""


def catalogue(folder: Path) -> dict[str, str]:
    """Name → its first comment line, sorted by name."""
    return {path.stem: first_comment(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}


def catalogued() -> dict[str, str]:
    """The experiments of the house, and those of one's own."""
    own = own_folder()
    return catalogue(FOLDER) | (catalogue(own / "experiment") if own else {})


def experiments() -> list[str]:
    return [*catalogued()]


def studies() -> list[str]:
    return [*catalogue(CONF / "study")]


def main() -> None:
    entries = {title: catalogued() if folder is FOLDER else catalogue(folder) for title, folder in SECTIONS.items()}
    width = max(len(name) for section in entries.values() for name in section)
    for title, section in entries.items():
        print(title)
        for name, line in section.items():
            print(f"  {name:<{width}}  {line}")


if __name__ == "__main__":
    main()
