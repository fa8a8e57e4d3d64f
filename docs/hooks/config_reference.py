"""The configuration reference, written anew from the YAML files of ``conf/`` whenever the site is built."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File, Files

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = {
    "experiment": "What is asked: the method, by the parts it exchanges.",
    "study": "Arms × seeds of one question: `make study name=…`.",
    "sweep": "Presets of values that are tried: `make sweep name=… sweep=…`.",
    "scale": "A laptop, a workstation, one GPU or the papers' models.",
    "budget": "Every size and number of steps, by scale and task.",
    "preset": "CLIPO as its paper prints it, or as its released code computes it.",
    "debug": "The whole path in seconds.",
    "family": "Whose shape the policy has.",
    "policy": "The language model that learns.",
    "adapter": "Adapters that are trained instead of the policy's weights.",
    "warm_start": "What a small policy is taught before.",
    "task": "Problems, verifier and steps.",
    "suite": "The sets that a policy is evaluated on.",
    "prompts": "The order of problems.",
    "critic": "f(s, a, g).",
    "loss": "What a critic is trained with.",
    "datamodule": "Where a critic's pairs come from.",
    "pretraining": "The training step of a critic.",
    "online": "Whether a critic goes on learning beside the policy.",
    "rollout": "How completions are drawn.",
    "reward": "What a completion, or each of its steps, is worth.",
    "advantage": "What that means for each token.",
    "objective": "The policy's loss.",
    "correction": "What is done where the drawing and the learning policy differ.",
    "module": "The training step of the policy.",
    "optimizer": "How weights move.",
    "trainer": "Devices and precision.",
    "callbacks": "What watches a run.",
    "logger": "Where numbers go.",
    "progress": "How a run says how far it is.",
}
"""Every group of ``conf/``, in the order of a reader's questions."""


def options(group: str) -> dict[str, str]:
    """The text of each YAML file of a group, by name."""
    return {path.stem: path.read_text(encoding="utf-8") for path in sorted((CONF / group).glob("*.yaml"))}


def index_page() -> str:
    """The groups, and the file that puts them together."""
    rows = [f"| [`{group}`]({group}.md) | {about} | {len(options(group))} |" for group, about in GROUPS.items()]
    config = (CONF / "config.yaml").read_text(encoding="utf-8")
    return "\n".join(
        [
            "# Configuration",
            "",
            "A group is exchanged by `group=option`, a value set by its dotted path, both in `over='…'`; a preset of",
            "`study` is not composed with the others. These pages are written from the YAML files themselves.",
            "",
            "| group | what | options |",
            "|---|---|---|",
            *rows,
            "",
            "## config.yaml",
            "",
            *fenced(config),
        ]
    )


def group_page(group: str) -> str:
    """What each option of a group says of itself, and its file."""
    files = options(group)
    rows = [f"| [`{name}`](#{name}) | {cell(comment(text))} |" for name, text in files.items()]
    sections = [line for name, text in files.items() for line in (f"## {name} {{ #{name} }}", "", *fenced(text), "")]
    return "\n".join([f"# {group}", "", GROUPS[group], "", "| option | |", "|---|---|", *rows, "", *sections])


def comment(text: str) -> str:
    """What a file says of itself at its beginning, its Hydra header left out."""
    said = [line for line in text.splitlines() if not line.startswith("# @")]
    return " ".join(line.lstrip("# ").strip() for line in takewhile(lambda line: line.startswith("#"), said))


def cell(text: str) -> str:
    """A line of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def fenced(text: str) -> list[str]:
    return ["```yaml", *text.rstrip().splitlines(), "```"]


def on_config(config: Any) -> Any:
    """Put the pages where the navigation says ``configuration/``."""
    pages = ["configuration/index.md", *(f"configuration/{group}.md" for group in GROUPS)]
    for entry in config.nav:
        if entry.get("Configuration") == "configuration/":
            entry["Configuration"] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    """Add the pages.

    Raises:
        ValueError: where ``GROUPS`` and the folders of ``conf/`` differ.
    """
    folders = {path.name for path in CONF.iterdir() if path.is_dir() and any(path.glob("*.yaml"))}
    if folders != set(GROUPS):
        raise ValueError(f"say in GROUPS what these groups of conf/ are: {', '.join(sorted(folders ^ set(GROUPS)))}")
    files.append(File.generated(config, "configuration/index.md", content=index_page()))
    for group in GROUPS:
        files.append(File.generated(config, f"configuration/{group}.md", content=group_page(group)))
    return files
