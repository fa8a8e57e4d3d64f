"""FAMILY_FILE, FILE_TASK and CLIPO's ablations: the names of experiments that share a file of ``experiment/``.

These are rows as in ``options.py``: ``llama_critic`` is ``experiment/critic.yaml`` with ``family=llama``, ``dapo_math``
is ``experiment/dapo.yaml`` with ``task=math``, and ``clipo_l2`` is ``clipo_gsm8k`` with ``reward=clipo_l2``. Standard
library only.
"""

from __future__ import annotations

from dataclasses import replace
from typing import Any

from conf.options import Variant

FAMILIES = {"llama": "Llama", "qwen": "Qwen"}
FOR_BOTH_FAMILIES = (
    "baseline",
    "critic",
    "critic_calibrated",
    "critic_exact",
    "critic_level",
    "critic_online",
    "critic_outcomes",
    "critic_potential",
    "critic_process",
    "critic_published",
    "critic_released",
    "critic_survival",
    "oracle",
    "oracle_calibrated",
    "oracle_level",
    "oracle_potential",
    "oracle_process",
    "oracle_survival",
    "perfect_move",
    "vineppo",
)
TRACKS = {"gsm8k": "Track I of CLIPO", "math": "Track II of CLIPO"}
OBJECTIVES = ("grpo", "dapo", "gmpo", "gspo")
TASK = "${oc.select:task.real.name,gsm8k}"
"""The name of the real problem set, so that ``clipo_l2 task=math`` follows ``clipo_math``."""
REFERENCE = {
    "offload_reference": f"${{equal:{TASK},gsm8k}}",  # as in CLIPO's Track I
    # Track II does not offload it, but whole it does not fit; the paper's sharding is unknown.
    "shard_reference": f"${{equal:{TASK},math}}",
}
"""Where GRPO's reference model is kept. The other objectives have none."""


def _families() -> dict[str, Variant]:
    return {
        f"{family}_{base}": Variant(base, label=label, choices={"family": family})
        for family, label in FAMILIES.items()
        for base in FOR_BOTH_FAMILIES
    }


def _tracks() -> dict[str, Variant]:
    """Each objective with and without the contrastive reward. For CLIPO's best row on MATH: reward.temperature=0.02."""
    found: dict[str, Variant] = {}
    for task, label in TRACKS.items():
        for objective in OBJECTIVES:
            values = {"module": REFERENCE} if objective == "grpo" else {}
            clipo = "clipo" if objective == "grpo" else f"clipo_{objective}"
            compared = {"baseline": f"{objective}_{TASK}", **values}
            found[f"{objective}_{task}"] = Variant(objective, values, label=label, choices={"task": task})
            found[f"{clipo}_{task}"] = Variant(clipo, compared, label=label, choices={"task": task})
    return found


RELEASED, HEADS, LOSSES = "in CLIPO's released code only", "CLIPO's Tables 11 and 12", "CLIPO's Tables 13 and 14"
ABLATIONS = {
    "clipo_batch_level": ("Does it help to contrast all completions of a batch?", "reward.level=batch", RELEASED),
    "clipo_cross_level": (
        "Do completions of other prompts help as additional negatives?",
        "reward.level=cross",
        RELEASED,
    ),
    "clipo_fixed_head": (
        "Must the head be trained, or is a fixed random head enough?",
        "reward.trainable=false",
        HEADS,
    ),
    "clipo_l2": ("Can Euclidean distance replace the cosine?", "reward=clipo_l2", RELEASED),
    "clipo_mlp_head": (
        "Does a two-layer head help?",
        "reward.head._target_=contrastive_reasoning.rewards.MLPHead",
        RELEASED,
    ),
    "clipo_softnn": ("Does SoftNN do better than InfoNCE?", "reward=clipo_softnn", LOSSES),
    "clipo_supcon": ("Does SupCon do better than InfoNCE?", "reward=clipo_supcon", LOSSES),
    "clipo_supcon_in": (
        "Does SupCon with the mean inside the logarithm do better?",
        "reward=clipo_supcon_in",
        RELEASED,
    ),
}
"""Name → question, the one override of ``clipo_gsm8k``, and its source."""


def _ablations() -> dict[str, Variant]:
    found: dict[str, Variant] = {}
    for name, (question, override, source) in ABLATIONS.items():
        question = f"{question} Ablation of clipo_gsm8k, and with task=math of clipo_math ({source})."
        key, _, option = override.partition("=")
        group, *path = key.split(".")
        if path:
            value: Any = {"true": True, "false": False}.get(option, option)
            for part in reversed(path):
                value = {part: value}
            found[name] = Variant("clipo_gsm8k", {group: value}, question)
        else:
            found[name] = Variant("clipo_gsm8k", summary=question, choices={group: option})
    return found


LIBRARIES = {"reasoning_gym": "reasoning-gym", "verifiers": "verifiers"}
"""Task → the library that it is named after, whose problems it poses."""


def _libraries() -> dict[str, Variant]:
    found: dict[str, Variant] = {}
    for task, label in LIBRARIES.items():
        found[f"grpo_{task}"] = Variant("grpo", label=label, choices={"task": task})
        found[f"clipo_{task}"] = Variant("clipo", {"baseline": f"grpo_{task}"}, label=label, choices={"task": task})
    return found


EXPERIMENTS = {
    name: replace(variant, values={"name": name, **variant.values})
    for name, variant in {**_families(), **_tracks(), **_ablations(), **_libraries()}.items()
}
"""Name → experiment."""
