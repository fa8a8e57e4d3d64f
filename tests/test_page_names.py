"""Metrics, options and paths that pages name exist, and the page of metrics has all public ones."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import pytest
import yaml

from conf import VARIANTS
from experiments.cli.commands import COMMANDS

ROOT = Path(__file__).resolve().parent.parent
CONF = ROOT / "conf"
PAGES = [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *sorted((ROOT / "docs").rglob("*.md"))]
PUBLIC = ROOT / "tests" / "contract" / "data" / "public_names.json"
CODE = re.compile(r"`([^`\n]+)`")
BLOCK = re.compile(r"^```.*?^```$", re.M | re.S)
METRIC = re.compile(r"(?<![\w./-])(?:train|val|start|test|<split>)/[\w<>/…]+")
OF_A_SET = re.compile(r"^(?:val|start|test)/(?:\w+/)?(?=(?:verifier|verdict|completion|problems|longproc|arithmetic)/)")
PART = re.compile(r"^ +- (?:override |optional )?/?(\w+)@([a-z][\w.]*):", re.M)
OPTION = re.compile(r"(?<![\w./@{<-])([a-z][\w.]*(?:/\w+)*(?:@[\w.]+)?)=(?=[^\s=])([\w,]*)")
NOT_METRICS = {
    "train/completions": "a table",
    "val/completions": "a table",
    "test/completions": "a table",
    "train/credit": "a page",
    "train/step_credit": "a picture",
    "start/…": "any metric before training",
}
OTHER_OPTIONS = {
    "device": "an argument of make gpu-check",
    "importance_sampling_level": "TRL's",
    "loss_type": "TRL's",
    "max_gen_toks": "an argument of lm_eval",
    "parts": "an argument of make gpu-check",
    "viewStateShareKey": "a parameter of MLflow's addresses",
    "weights_only": "an argument of torch.load",
}
FOLDERS = {
    *("benchmarks", "callbacks", "conf", "contrastive_reasoning", "datamodules"),
    *("docs", "experiments", "lightning_modules", "tests"),
}


def text_of(page: Path) -> str:
    return page.read_text(encoding="utf-8")


def general(metric: str) -> str:
    """A metric's name as on the page of metrics: without the set, the end of an interval, and numbers."""
    metric = OF_A_SET.sub("<split>/", metric)
    if metric.startswith("<split>/"):
        metric = re.sub(r"_(low|high)$", "", metric)
    return re.sub(r"depth[12]$", "depth<d>", re.sub(r"pass_at_\d+", "pass_at_<k>", metric))


def metric_names() -> dict[str, list[str]]:
    """Section of the page of metrics → the names in its table."""
    sections = re.split(r"^## ", text_of(ROOT / "docs" / "metrics.md"), flags=re.M)[1:]
    rows = {section.partition("\n")[0]: re.findall(r"^\| (`.+?) \|", section, re.M) for section in sections}
    return {title: [name for row in found for name in CODE.findall(row)] for title, found in rows.items()}


def unknown_metrics(text: str) -> list[str]:
    """The metrics in ``text`` that the page of metrics does not have. A name that ends in … or / is a beginning."""
    known = [name for names in metric_names().values() for name in names]
    families = [name.removesuffix("<name>") for name in known if name.endswith("<name>")]

    def exists(metric: str) -> bool:
        name = general(metric.rstrip("…"))
        if metric.endswith(("…", "/")):
            return any(each.startswith(name) for each in known)
        return name in known or name.startswith(tuple(families))

    return [name for name in METRIC.findall(text) if name not in NOT_METRICS and not exists(name)]


def nested(content: Any, prefix: str) -> Iterator[str]:
    if isinstance(content, Mapping):
        for key, value in content.items():
            yield f"{prefix}{key}"
            yield from nested(value, f"{prefix}{key}.")


@cache
def known_options() -> frozenset[str]:
    """Groups and keys of ``conf/``, and the arguments of commands and of make."""
    found = {key for command in COMMANDS.values() for key in command.own_keys}
    found |= {variable for taken in json.loads(text_of(PUBLIC))["make"].values() for variable in taken}
    parts: set[tuple[str, str]] = set()
    for path in CONF.rglob("*.yaml"):
        text, group = text_of(path), path.relative_to(CONF).parts[0]
        prefix = "" if path.parent == CONF or "# @package _global_" in text else f"{group}."
        found |= {group, *nested(yaml.safe_load(text), prefix)}
        parts |= {(part, prefix + place) for part, place in PART.findall(text)}
    for part, place in parts:  # an option of the group ``part`` is put at ``place``
        below = {place + key.removeprefix(part) for key in found if key.startswith(f"{part}.")}
        found |= {f"{part}@{place}", place, *below}
    return frozenset(found)


def unknown_options(text: str) -> list[str]:
    """The keys of ``key=value`` in code of ``text`` that are neither of the configuration nor of a command.

    Also each ``group=option`` without a file ``conf/group/option.yaml`` or a row of a table.
    """
    pairs = [pair for code in CODE.findall(BLOCK.sub("", text)) for pair in OPTION.findall(code)]
    known = {*known_options(), *OTHER_OPTIONS}
    unknown = [key for key, _ in pairs if key not in known and not key.startswith("hydra")]
    groups = {path.name for path in CONF.iterdir() if path.is_dir()}
    for key, values in pairs:
        group = key.partition("@")[0]
        named = [value for value in values.split(",") if re.fullmatch(r"[a-z]\w*", value)] if group in groups else []
        there = VARIANTS.get(group, ())
        absent = (value for value in named if not (value in there or (CONF / group / f"{value}.yaml").exists()))
        unknown += [f"{key}={value}" for value in absent]
    return unknown


def missing_paths(text: str) -> list[str]:
    """The paths in code of ``text`` that begin with a folder of this repository and match nothing in it.

    NAME and SCALE stand for any name.
    """
    paths = [code for code in CODE.findall(BLOCK.sub("", text)) if re.fullmatch(r"[\w.*-]+(?:/[\w.*-]+)+/?", code)]
    inside = [path for path in paths if path.partition("/")[0] in FOLDERS]
    return [path for path in inside if not [*ROOT.glob(re.sub("NAME|SCALE", "*", path))]]


@pytest.mark.parametrize("find", [unknown_metrics, unknown_options, missing_paths])
def test_names_on_pages_exist(find: Any) -> None:
    found = {page.relative_to(ROOT).as_posix(): find(text_of(page)) for page in PAGES}
    assert {page: names for page, names in found.items() if names} == {}


def test_wrong_names_are_found() -> None:
    assert (
        unknown_metrics("`val/verifier/accuracy` `test/math/verifier/pass_at_4` `train/alarm/kl` `train/gate/…`") == []
    )
    wrong = ["val/verifier/acuracy", "train/stepz/", "test/verifier/pass_at_k5"]
    assert unknown_metrics(" ".join(f"`{name}`" for name in wrong)) == wrong
    right = "`over='reward.weight=0.1 objective=grpo,gspo'` `reward@reward.source=oracle` `reward.source.checkpoint=F`"
    assert unknown_options(right) == []
    wrong = ["reward.wieght", "rewards@reward.source", "gpu"]
    assert unknown_options(" ".join(f"`{key}=1`" for key in wrong)) == wrong
    assert unknown_options("`objective=grpo,gpso`") == ["objective=gpso"]
    assert missing_paths("`conf/objective/NAME.yaml` `tests/unit/*` `outputs/x/y` `a/b`") == []
    assert missing_paths("`conf/objectives/grpo.yaml` `docs/gone.md`") == ["conf/objectives/grpo.yaml", "docs/gone.md"]


def test_page_of_metrics_has_public_names_and_no_others() -> None:
    runs = json.loads(text_of(PUBLIC))["metrics"].values()
    public = {general(name) for stages in runs for names in stages.values() for name in names}
    names = metric_names()
    names.pop("Further metrics")
    assert {name for each in names.values() for name in each} == public
