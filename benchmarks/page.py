"""Writes the results of a model as a Markdown page without paths and host names."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from benchmarks.measures import PEAK_MEMORY, Findings, Result
from benchmarks.workloads import PRETRAINED

HEAD = """\
# Performance, side by side: {title}

Written by `{command}`: every number below comes from one run of that command, on one machine, all arms alternating.

**How to read it.** A ratio is the peer's seconds over ours, so 2.00 means twice as fast as the peer and 0.50 half as
fast. It is the median over the repeats, each repeat a pair of measurements taken one after the other; beside it stand
the smallest and the largest of those ratios. Where the range includes 1, nothing was shown. Seconds are medians and
belong to this machine. Of `peak_memory` the ratio is the peer's GiB over ours. This page is of a CPU;
`make bench over='--device cuda'` measures policies of the shapes of Qwen2 0.5 B and 1.5 B on a GPU, and has not been
run on one yet.
"""
TITLES = {True: "a pretrained model of 135 million parameters", False: "a small policy"}

ARMS = """\
## How each arm does the work

{policy} Weights are fp32, forward passes compute in {dtype}, sampling is at temperature 1 without top-k and top-p. A
step draws completions for every prompt and rewards every other row with 1, so that every row has an advantage. Then it
takes GRPO's clipped loss as a token mean, without a KL term, and one AdamW step with the gradient clipped to 1. The
learning rate is 1e-12, so all repeats see the same policy. Each arm is a process of its own, warmed up before anything
is counted. The number of prompt and completion tokens is compared with ours; an arm that differs is left out.

- **Ours**: the configuration's own parts in Lightning's loop: the engine, the reward, the GRPO module's training step.
  `generation` ends with the rollout batch (texts and log-probs included), `update` is the rest of the step, reward
  included. `scoring` is the pass that a reference or a second mini-batch needs; a plain step has none.
- **TRL**: `GRPOTrainer` on its transformers path with its defaults, one optimizer step per rollout batch. What
  differs: no gradient checkpointing, no shuffling of prompts, the same compute dtype, and micro-batches of as many rows
  as our token budget holds ({rows}). `generation` is its `_generate`; `update` is the step without
  `_generate_and_score_completions`. `scoring` is `_get_per_token_logps_and_entropies` on all rows, without gradients.
- **transformers**: `generate` with prompts repeated for their group, left-padded; no log-probs are kept. Its
  `whole_step` is its generation and our update, added.
- **vLLM**: our own arm with rollouts from a server on the same machine. Weights are sent after each update, which
  counts as generation. The memory of the server is not in `peak_memory`.

**`peak_memory`** is the largest resident memory of the arm's process. **`update_roofline`** is the fraction of the rate
of a large matrix product, measured in the same process, that our update reaches. It counts the floating-point
operations that the tokens need, without padding and recomputation.
"""
FRESH = """
**Lengths.** With *short prompts* and *LongProc prompts* the end token is so unlikely in the policy that it is never
drawn. So every completion has its full length. With *uneven lengths* the policy's own weights give the end token a
probability of 1/200 at every token, and our engine draws. The problems' ids are chosen so that no row ends before 32
tokens; the longest are cut at 512. Then the peers get these lengths: a logits processor forbids the end token before
a row's last token and forces it there. So every row has the same length everywhere, and the peers spend next to
nothing on it.

**`shared_prefix`** is forward and backward of all completions with each prompt passing through the policy once, against
once for each completion. **`decode_roofline`** is the fraction of the memory roofline that our decoding reaches: the
seconds in which a copy's bandwidth, measured in the same process, would read all weights once a step and the keys and
values that are attended to, over the seconds from each row's first token to its end. **`scaling/…`** compares our own
whole step with the same step when one size is doubled: its `ours` is the base, its ratio how many times the cost.
**`clipo_overhead`** is the other way round: our seconds over those of the same step without the contrastive reward, so
less is better.
"""


FRESH_POLICY = "The policy is the same files for all: a Llama of 4 layers, random weights, a vocabulary of 512."
PRETRAINED_POLICY = """\
The policy is the same files for all: SmolLM2-135M-Instruct, quantised to 4 bits and unpacked, a Llama of 30 layers with
a vocabulary of 49,152. Its end token is one that it never writes, so every completion has its full length."""


def page(found: Findings, *, model: str, repeats: int) -> str:
    """Returns the whole page: one table for each workload, in the order of the results."""
    threads, dtype = (found.versions.get(name, "unknown") for name in ("threads", "dtype"))
    libraries = sorted(found.versions.items() - {("threads", threads), ("dtype", dtype)})
    versions = ", ".join(f"{name} {version}" for name, version in libraries)
    pretrained = model == PRETRAINED
    command = f"make bench over='--models {model}'" if pretrained else "make bench"
    lines = [
        HEAD.format(title=TITLES[pretrained], command=command),
        "## This run\n",
        f"- {datetime.now(UTC).date()}; {os.cpu_count() or 1} cores, threads of an arm: {threads}; no GPU.",
        f"- {versions or 'versions unknown'}.",
        f"- {repeats} repeats of every measure.",
        *(f"- {title}: {size}." for title, size in found.sizes.items()),
        *(f"- {note}" for note in found.notes),
        "",
        "## Results\n",
    ]
    for workload in dict.fromkeys(result.workload for result in found.results):
        lines += [
            f"### {workload}\n",
            "| measure | against | ratio | from – to | ours | peer |",
            "|---|---|---:|---:|---:|---:|",
        ]
        lines += [_row(result) for result in found.results if result.workload == workload]
        lines.append("")
    policy, rows = (PRETRAINED_POLICY, "8") if pretrained else (FRESH_POLICY, "64, 8 and 32")
    how = ARMS.format(policy=policy, dtype=dtype, rows=rows)
    return "\n".join([*lines, how if pretrained else how + FRESH])


def _row(result: Result) -> str:
    spread = f"{result.ratio_min:.2f} – {result.ratio_max:.2f}"
    both = " | ".join(_format(value, result.measure) for value in (result.ours, result.theirs))
    return f"| `{result.measure}` | {result.peer} | **{result.ratio:.2f}** | {spread} | {both} |"


def _format(value: float, measure: str) -> str:
    if measure == PEAK_MEMORY:
        return f"{value:.2f} GiB"
    return f"{value * 1000:.0f} ms" if value < 1 else f"{value:.1f} s"
