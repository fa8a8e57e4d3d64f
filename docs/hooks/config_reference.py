"""The reference of the configuration, generated from the files and tables of ``conf/`` when the site is built."""

from __future__ import annotations

from itertools import takewhile
from pathlib import Path
from typing import Any

import yaml
from mkdocs.structure.files import File, Files

from conf import VARIANTS
from experiments.config.folders import summaries

CONF = Path(__file__).resolve().parents[2] / "conf"
GROUPS = {
    "experiment": "Experiments: the method, as a choice of parts.",
    "study": "Studies: arms × seeds of one question, `make study name=…`.",
    "sweep": "Sweeps: values of a setting, `make sweep name=… sweep=…`.",
    "scale": "Model, trainer and sizes for a laptop, a workstation, one GPU or the papers' models.",
    "budget": "Sizes and numbers of steps, by scale and task.",
    "preset": "CLIPO as in its paper or as in its released code.",
    "debug": "All stages with the smallest sizes, in minutes.",
    "family": "Architecture of the policy.",
    "policy": "The language model that is trained.",
    "adapter": "Adapters that are trained instead of the policy's weights.",
    "warm_start": "Supervised training before GRPO.",
    "task": "Problems, verifier and steps.",
    "suite": "The sets that a policy is evaluated on.",
    "harness": "Another evaluation harness, beside the suite.",
    "prompts": "The order of problems.",
    "critic": "Architecture of the critic f(s, a, g).",
    "loss": "Contrastive loss of the critic.",
    "datamodule": "Training and validation pairs of the critic.",
    "game": "Games whose random plays a critic learns from.",
    "pretraining": "The training step of a critic.",
    "online": "Training of the critic during GRPO.",
    "rollout": "Sampling of completions.",
    "reward": "Rewards of completions and values of their steps.",
    "advantage": "From rewards to advantages of tokens.",
    "objective": "The policy's loss.",
    "correction": "Importance weights for rollouts of another policy.",
    "module": "The training step of the policy.",
    "optimizer": "Optimizer and learning rate.",
    "trainer": "Devices and precision.",
    "callbacks": "Callbacks.",
    "logger": "MLflow and log files.",
    "progress": "Format of progress lines.",
}
"""Every group of ``conf/``, in the order of the index page."""


def options(group: str) -> dict[str, str]:
    """The text of each YAML file of a group, by name; of a row of a table, what its file would have."""
    texts = {path.stem: path.read_text(encoding="utf-8") for path in sorted((CONF / group).glob("*.yaml"))}
    comments, variants = summaries(group), VARIANTS.get(group, {})
    texts |= {
        name: f"# {comments[name]}\n{yaml.safe_dump(one.node(), sort_keys=False)}" for name, one in variants.items()
    }
    return dict(sorted(texts.items()))


def index_page() -> str:
    """The groups, and the file that composes them."""
    rows = [f"| [`{group}`]({group}.md) | {about} | {len(options(group))} |" for group, about in GROUPS.items()]
    config = (CONF / "config.yaml").read_text(encoding="utf-8")
    return "\n".join(
        [
            "# Configuration",
            "",
            "In `over='…'`, `group=option` selects an option of a group, and `dotted.key=value` sets a value. Files",
            "of `study` are not part of a run's configuration. These pages are generated from `conf/`.",
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
    """The options of a group: the comment at the head of each file, and the file."""
    files = options(group)
    rows = [f"| [`{name}`](#{name}) | {cell(comment(text))} |" for name, text in files.items()]
    sections = [line for name, text in files.items() for line in (f"## {name} {{ #{name} }}", "", *fenced(text), "")]
    return "\n".join([f"# {group}", "", GROUPS[group], "", "| option | |", "|---|---|", *rows, "", *sections])


def comment(text: str) -> str:
    """The comment at the head of a file, without its Hydra header."""
    lines = [line for line in text.splitlines() if not line.startswith("# @")]
    return " ".join(line.lstrip("# ").strip() for line in takewhile(lambda line: line.startswith("#"), lines))


def cell(text: str) -> str:
    """The text as a cell of a table."""
    return text.replace("|", "\\|").replace("<", "&lt;")


def fenced(text: str) -> list[str]:
    return ["```yaml", *text.rstrip().splitlines(), "```"]


def on_config(config: Any) -> Any:
    """Replaces ``configuration/`` in the navigation by the pages."""
    pages = ["configuration/index.md", *(f"configuration/{group}.md" for group in GROUPS)]
    for entry in config.nav:
        if entry.get("Configuration") == "configuration/":
            entry["Configuration"] = pages
    return config


def on_files(files: Files, config: Any) -> Files:
    """Adds the pages.

    Raises:
        ValueError: if ``GROUPS`` and the folders of ``conf/`` differ.
    """
    folders = {path.name for path in CONF.iterdir() if path.is_dir() and any(path.glob("*.yaml"))}
    if folders != set(GROUPS):
        raise ValueError(f"GROUPS must describe the folders of conf/: {', '.join(sorted(folders ^ set(GROUPS)))}")
    files.append(File.generated(config, "configuration/index.md", content=index_page()))
    for group in GROUPS:
        files.append(File.generated(config, f"configuration/{group}.md", content=group_page(group)))
    return files
