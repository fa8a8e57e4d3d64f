"""Options of config groups that differ from another option by a few values: a row each, instead of a file each.

Hydra composes a row like the file ``conf/GROUP/NAME.yaml``: ``trainer=zero2`` is ``trainer/zero1.yaml`` with
``strategy.stage=2``. So ``ls conf/GROUP`` shows the options that differ in kind, and this table those that differ in
value. The names of experiments are in ``experiments.py``. Standard library only.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Variant:
    """An option that differs from another one of its group by values and choices.

    Attributes:
        base: the other one, a file or a row; empty: none, and the values are all that it has.
        values: what it sets, as in a file.
        summary: the first comment of its file; empty: that of ``base``, after the label.
        label: how it differs from others with the same base, as in ``Llama``.
        choices: config group → option.
    """

    base: str = ""
    values: Mapping[str, Any] = field(default_factory=dict)
    summary: str = ""
    label: str = ""
    choices: Mapping[str, str] = field(default_factory=dict)

    def node(self) -> dict[str, Any]:
        """Returns the content that its file would have."""
        overrides = [{f"override /{group}": option} for group, option in self.choices.items()]
        return {"defaults": [self.base, "_self_", *overrides] if self.base else ["_self_"], **self.values}


AT_THE_BUDGETS_SIZE = {"problems": "${budget.evaluate.problems}", "samples": "${budget.evaluate.samples}"}


def _formula(target: str) -> dict[str, Any]:
    return {"formula": {"_target_": target, "_partial_": True}, "positives": "all"}


OPTIONS: dict[str, dict[str, Variant]] = {
    "policy": {
        "smollm2": Variant(
            "base",
            {"pretrained": "${output_dir}/models/smollm2-135m-q4"},
            "SmolLM2-135M-Instruct, a Llama of 30 layers, as make model name=smollm2-135m-q4 fetches it. Its weights "
            "were quantised to 4 bits, so it is not bit for bit the hub's model. Its chat template is ChatML.",
        ),
        "llama_workstation": Variant("smollm2", summary="The Llama of scale=workstation."),
        "qwen_gpu": Variant(
            "base",
            {"pretrained": "Qwen/Qwen2.5-0.5B-Instruct"},
            "Qwen2.5-0.5B-Instruct, the Qwen of scale=gpu and of scale=workstation. Larger ones: policy=qwen_1_5b, "
            "policy=qwen_3b.",
        ),
        "qwen_workstation": Variant(
            "qwen_gpu",
            {"gradient_checkpointing": True},  # keeps it within 16 GB
            "The Qwen of scale=workstation, the same as at scale=gpu: four times as large and as slow as the "
            "workstation's Llama.",
        ),
        "qwen_1_5b": Variant(
            "base",
            {
                "pretrained": "Qwen/Qwen2.5-1.5B-Instruct",
                "gradient_checkpointing": True,  # a third more compute, much less memory for activations
            },
            "Qwen2.5-1.5B-Instruct: train adapters on a GPU of 24 GB, all weights on one of 80 GB.",
        ),
        "qwen_3b": Variant(
            "qwen_1_5b",
            {"pretrained": "Qwen/Qwen2.5-3B-Instruct"},
            "Qwen2.5-3B-Instruct, the model of CLIPO's Track I: train adapters or all weights on one GPU of 80 GB.",
        ),
        "llama_gpu": Variant(
            "qwen_1_5b",
            {"pretrained": "meta-llama/Llama-3.2-1B-Instruct"},
            "Llama-3.2-1B-Instruct, the Llama of scale=gpu: train adapters on a GPU of 24 GB, all weights on one of 80 "
            "GB. A smaller one: policy=smollm2.",
        ),
    },
    # Warm-started on random legal plays; embedded:qwen_countdown was also trained on hindsight-relabelled plays.
    "policy/laptop/qwen": {
        "countdown": Variant(values={"pretrained": "embedded:qwen_countdown_unaimed"}),
        **{task: Variant(values={"pretrained": None}) for task in ("reasoning_gym", "verifiers")},
    },
    # No policy of the package was trained on these problems: a fresh one is, on gold answers.
    "policy/laptop": {
        f"llama_{task}": Variant(values={"pretrained": None, "architecture": {"max_length": 256}})
        for task in ("reasoning_gym", "verifiers")
    },
    "policy/paper": {
        # The critic paper's Qwen, with the LoRA adapters of its Llama.
        "qwen_countdown": Variant("llama_countdown", {"pretrained": "Qwen/Qwen2.5-7B"}),
        # The model of CLIPO's Track II.
        "qwen_math": Variant(values={"pretrained": "Qwen/Qwen2.5-7B-Instruct"}),
    },
    # The generated stories, which replace the hub's problems on a laptop.
    "policy/corpus": {
        **{task: Variant("arithmetic", {"task": "${task.generated}"}) for task in ("gsm8k", "math")},
        "verifiers": Variant("reasoning_gym"),
    },
    # The sizes of the arithmetic stories, which replace the hub's problems on a laptop.
    "budget/laptop": {
        **{task: Variant("arithmetic") for task in ("gsm8k", "math")},
        **{
            task: Variant("arithmetic", {"budget": {"warm_start": {"unaimed_steps": 0}}})
            for task in ("reasoning_gym", "verifiers")
        },
    },
    # As on a laptop: what the critic learns does not depend on the policy.
    "budget/pairwise": {scale: Variant("laptop") for scale in ("workstation", "gpu")},
    "task/by_scale": {
        # The package's policies write the form of the answer without an instruction.
        "arithmetic_laptop": Variant(values={"instructed": False}),
        # Generated stories instead of the hub's problems, unless path is set.
        "stand_in_laptop": Variant(values={"source": "generated"}),
        # An easier form of the task, for policies of a million parameters; not in the paper.
        "countdown_laptop": Variant(
            values={
                "style": "direct",
                "counts": [3],
                "number_range": [1, 30],
                "max_search_lines": None,  # no search is written
                "train_problems": 8000,  # of about 18,600
            },
        ),
        "countdown_workstation": Variant("countdown_laptop"),
        # Small policies write the answer alone, as in their warm start.
        "reasoning_gym_laptop": Variant(values={"prompt": "{question}\n", "tag": None, "train_problems": 2000}),
        # Moves alone: models of this size rarely complete a search of 1,024 tokens. A warm start on plays shows the
        # form.
        "countdown_gpu": Variant(values={"style": "direct", "max_search_lines": None}),
        # The paper trains on LongProc's easiest problems. Held-out problems are generated in their ranges, without
        # those.
        "countdown_paper": Variant(
            values={
                "train": "longproc",
                "longproc_dir": "https://github.com/princeton-pli/LongProc/raw/"
                "5931e826d02486b84bc5f955a19c326a5cf7c2ad/data/countdown",
            },
        ),
    },
    "warm_start": {
        "generated_stories": Variant(
            "arithmetic",
            {"datamodule": {"task": "${task.generated}"}},
            "The generated stories, which replace the hub's problems on a laptop.",
        ),
    },
    # Countdown's pretrained models are trained too, since they do not know the form of bare moves.
    "warm_start/by_scale": {scale: Variant(values={"train": True}) for scale in ("workstation", "gpu")},
    "suite": {
        **{
            f"{task}_{scale}": Variant("held_out")
            for task in ("countdown", "gsm8k", "math")
            for scale in ("laptop", "workstation", "gpu")
        },
        "gsm8k_paper": Variant("track1", AT_THE_BUDGETS_SIZE, "CLIPO's Track I, at the size that the budget sets."),
        "math_paper": Variant("track2", AT_THE_BUDGETS_SIZE, "CLIPO's Track II, at the size that the budget sets."),
    },
    "reward": {
        "clipo_l2": Variant(
            "clipo",
            {
                "similarity": {
                    "_target_": "contrastive_reasoning.losses.neg_unit_l2",
                    "_partial_": True,
                    "epsilon": 1.0e-8,
                }
            },
            "CLIPO with Euclidean distance instead of the cosine (in its released code).",
        ),
        "clipo_softnn": Variant(
            "clipo",
            {**_formula("contrastive_reasoning.losses.soft_nearest_neighbour"), "weight": 1.0},  # lambda of SoftNN
            "CLIPO with SoftNN: the sum over all positives inside the logarithm (its Table 4).",
        ),
        "clipo_supcon": Variant(
            "clipo",
            _formula("contrastive_reasoning.losses.supcon"),
            "CLIPO with SupCon: the mean over all positives outside the logarithm (its Table 4).",
        ),
        "clipo_supcon_in": Variant(
            "clipo",
            _formula("contrastive_reasoning.losses.supcon_in"),
            "CLIPO with SupCon, the mean over all positives inside the logarithm (in its released code only).",
        ),
    },
    "module": {
        "grpo_reference": Variant(
            "grpo",
            {"reference": "${policy}"},  # built a second time
            "GRPO with a frozen copy of the policy it starts from, for objectives with a KL term.",
        ),
    },
    # With module=grpo_reference; the weight is that of CLIPO, arXiv:2603.10101.
    "objective/by_module": {"grpo_reference": Variant(values={"kl_weight": 0.001})},
    "reward/by_preset": {
        # Equation 10 as printed: the sum over the group includes the anchor.
        "clipo_paper": Variant(values={"self_in_denominator": True}),
        # As by default the sum leaves out the anchor; an epsilon is added inside the logarithms.
        "clipo_released": Variant(values={"reference_epsilon": 1.0e-8}),
    },
    "objective/by_preset": {
        # verl's default, which CLIPO's scripts do not change.
        "grpo_released": Variant(values={"dual_clip": 3.0}),
        # In the released code GMPO averages over rollouts, whatever aggregation is set.
        "gmpo_released": Variant(
            values={"aggregation": {"_target_": "contrastive_reasoning.objectives.SeqMeanTokenMean"}}
        ),
    },
    "rollout/by_preset": {
        # CLIPO's text names dynamic sampling for DAPO; as in rollout=dynamic.
        "dapo_paper": Variant(
            values={
                "_target_": "callbacks.rollout_generation.DynamicSampling",
                "task": "${task}",
                "max_prompt_tokens": "${budget.grpo.max_prompt_tokens}",
                "max_refills": 3,  # not in the paper, which draws until the batch is full
            },
        ),
    },
    "trainer": {
        "gpu": Variant(
            "cpu",
            {"accelerator": "gpu"},
            "Lightning's trainer on one accelerator of the machine. Each stage sets its own length and checkpoints.",
        ),
        "zero2": Variant(
            "zero1",
            {"strategy": {"stage": 2}},
            "Several devices, with the optimizer's state and the gradients sharded over them: ZeRO-2.",
        ),
        "zero3": Variant(
            "zero1",
            {"strategy": {"stage": 3}},
            "Several devices, with the parameters, the gradients and the optimizer's state sharded over them: ZeRO-3.",
        ),
        "zero3_offload": Variant(
            "zero3",
            {"strategy": {"offload_optimizer": True, "offload_parameters": True}},
            "ZeRO-3 with the shards of the parameters and of the optimizer's state kept in host memory.",
        ),
    },
    "datamodule": {
        "hindsight": Variant(
            "reachability", summary="The former name of datamodule=reachability: exact labels by exhaustive search."
        ),
    },
}
"""Group → name → option."""
