"""Writes the results of a model as a Markdown page without paths and host names."""

from __future__ import annotations

import os
from datetime import UTC, datetime

from torch.backends.cpu import get_cpu_capability as cpu_capability

from benchmarks.measures import PEAK_MEMORY, Findings, Result
from benchmarks.workloads import PRETRAINED

HEAD = """\
# Performance, side by side: {title}

`{command}` writes this page. Every number under
*Results* comes from one run on one machine, with alternating arms.

**How to read it.** A ratio is the peer's seconds divided by ours: 2.00 means twice as fast as the peer, and 0.50 half
as fast. It is the median over the repeats; each repeat is a pair of consecutive measurements. The next column shows the
smallest and the largest of these ratios. If this range includes 1, the run shows no difference. Seconds are medians and
apply to this machine only. The ratio of `peak_memory` is the peer's GiB divided by ours. This page is of a CPU.
`make bench over='--device cuda'` measures policies of the shapes of Qwen2 0.5 B and 1.5 B on a GPU; [a GPU's
page](gpu.md) has ratios of the smaller one.
"""
PROFILE = "A profile of a micro-batch shows [where the update loses time](pretrained.md#speed).\n"
TITLES = {True: "a pretrained model of 135 million parameters", False: "a small policy"}

ARMS = """\
## How each arm does the work

{policy}

Weights are fp32, and forward passes compute in {dtype}. Sampling is at temperature 1 without top-k and top-p.
A step draws completions for every prompt and gives every other row a reward of 1, so that every row has an advantage.
Then it computes GRPO's clipped loss as a token mean, without a KL term. One AdamW step follows, with the gradient
clipped to 1. The learning rate is 1e-12, so all repeats use the same policy. Each arm is a separate process and is
warmed up before the measurement. The benchmark compares each arm's number of prompt and completion tokens with ours,
and leaves out an arm that differs.

- **Ours**: the parts of the configuration in Lightning's loop: the engine, the reward, the GRPO module's training step.
  `generation` ends with the rollout batch (including texts and log-probs). `update` is the rest of the step, including
  the reward. `scoring` is the pass for a reference or a second mini-batch; a plain step has none.
- **TRL**: `GRPOTrainer` on its transformers path with its defaults, one optimizer step per rollout batch. The
  differences from the defaults are: no gradient checkpointing, no shuffling of prompts, the same compute dtype, and
  micro-batches of as many rows as our token budget holds ({rows}). `generation` is its `_generate`. `update` is the
  step without `_generate_and_score_completions`. `scoring` is `_get_per_token_logps_and_entropies` on all rows, without
  gradients.
- **transformers**: `generate` with left-padded prompts, repeated for their group; it keeps no log-probs. Its
  `whole_step` is the sum of its generation and our update.
- **vLLM**: our own arm with rollouts from a server on the same machine. It sends weights after each update, which
  counts as generation. On a CPU the server computes in float32, also where our engine computes in bfloat16.
  `peak_memory` excludes the memory of the server.

**`peak_memory`** is the largest resident memory of the arm's process. **`update_roofline`** is the fraction of the rate
of a large matrix product, measured in the same process, that our update reaches. It counts the floating-point
operations that the tokens need, without padding and recomputation. **`decode_roofline`** is the fraction of the memory
roofline that our decoding reaches. The roofline is a time: the bytes of all weights at every step, and of the attended
keys and values, divided by the bandwidth of a copy in the same process. The fraction is this time divided by the
seconds from each row's first token to its end.
"""
FRESH = """
**Lengths.** For *short prompts* and *LongProc prompts* the policy gives the end token such a low probability that it is
never drawn. So every completion has its full length. For *uneven lengths* the policy's own weights give the end token a
probability of 1/200 at every token, and our engine samples the lengths. The problem ids are chosen so that no row ends
before 32 tokens; the longest rows are cut at 512. Then the peers reproduce these lengths: a logits processor forbids
the end token before a row's last token and forces it there. So every row has the same length in every arm, at almost no
cost for the peers.

**`shared_prefix`** is the forward and backward pass of all completions. It compares one pass of each prompt through the
policy with one pass of the prompt per completion. **`scaling/…`** compares our own whole step with the same step after
one size is doubled. Its `ours` is the base, and its ratio is the factor of the cost. **`clipo_overhead`** is the
inverse: our seconds divided by those of the same step without the contrastive reward, so less is better.
"""
FRESH_POLICY = """\
All arms load the same policy files: a Llama of 4 layers with random weights and a vocabulary of 512."""
PRETRAINED_POLICY = """\
All arms load the same policy files: SmolLM2-135M-Instruct, quantised to 4 bits and unpacked, a Llama of 30 layers with
a vocabulary of 49,152. It never writes its end token, so every completion has its full length."""


def page(found: Findings, *, model: str, repeats: int) -> str:
    """Returns the whole page: one table for each workload, in the order of the results."""
    threads, dtype = (found.versions.get(name, "unknown") for name in ("threads", "dtype"))
    libraries = sorted(found.versions.items() - {("threads", threads), ("dtype", dtype)})
    versions = ", ".join(f"{name} {version}" for name, version in libraries)
    pretrained = model == PRETRAINED
    served = any(result.peer.startswith("vLLM") for result in found.results)
    options = [*(["--models", model] if pretrained else []), *(["--vllm COMMAND"] if served else [])]
    command = f"make bench over='{' '.join(options)}'" if options else "make bench"
    lines = [
        HEAD.format(title=TITLES[pretrained], command=command),
        *([PROFILE] if pretrained else []),
        "## This run\n",
        f"- {datetime.now(UTC).date()}; {os.cpu_count() or 1} cores ({cpu_capability()}), no GPU; "
        f"threads of an arm: {threads}.",
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
