"""Every experiment with the first line of its file. Standard library only, so that ``make list`` needs no install."""

from __future__ import annotations

from pathlib import Path

from experiments.own_conf import own_folder

FOLDER = Path(__file__).resolve().parent.parent / "conf" / "experiment"


def first_comment(text: str) -> str:
    """The first comment of a YAML file that is not a Hydra header; empty where there is none."""
    for line in text.splitlines():
        if line.startswith("#") and not line.startswith("# @"):
            return line.lstrip("# ").strip()
    return ""


def catalogue(folder: Path) -> dict[str, str]:
    """Experiment name → its first comment line, sorted by name."""
    return {path.stem: first_comment(path.read_text(encoding="utf-8")) for path in sorted(folder.glob("*.yaml"))}


def catalogued() -> dict[str, str]:
    """The experiments of the house, and those of one's own."""
    own = own_folder()
    return catalogue(FOLDER) | (catalogue(own / "experiment") if own else {})


def main() -> None:
    entries = catalogued()
    width = max(map(len, entries))
    for name, line in entries.items():
        print(f"{name:<{width}}  {line}")


if __name__ == "__main__":
    main()
