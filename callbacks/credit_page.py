"""Completions as a page, each token on the colour of its advantage: blue was taught more of, vermilion less of.

The page holds what a policy wrote and what people made problems of: all of it is escaped, nothing is fetched, no script
runs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from html import escape

from callbacks.diverging import colour, limit_of

SHARES = (-1.0, -0.5, 0.0, 0.5, 1.0)
"""Of the scale's end, at which the legend shows colours."""
POLICY = "default-src 'none'; style-src 'unsafe-inline'"
STYLE = """
body { margin: 1.5rem auto; max-width: 64rem; padding: 0 1rem; background: #fff; color: #1a1a1a;
       font: 15px/1.5 system-ui, "Segoe UI", Helvetica, Arial, sans-serif; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.05rem; margin: 1.6rem 0 .3rem; }
.legend b { font-weight: normal; padding: .15rem .6rem; border: 1px solid #ccc; }
pre { margin: .3rem 0; padding: .5rem .7rem; border: 1px solid #ddd; white-space: pre-wrap; overflow-wrap: anywhere;
      font: .92rem/1.7 ui-monospace, Menlo, Consolas, monospace; unicode-bidi: isolate; }
.prompt, .told { color: #555; } .told { margin: .2rem 0; overflow-wrap: anywhere; }
"""


@dataclass(frozen=True, kw_only=True)
class Trace:
    """One completion with what its tokens were taught with."""

    heading: str
    """Its verdict and the reason."""
    told: Mapping[str, float]
    """Numbers of the whole completion, by name."""
    prompt: str
    tokens: Sequence[str]
    """What each token spells."""
    advantages: Sequence[float]
    """Of each token."""

    def __post_init__(self) -> None:
        if len(self.tokens) != len(self.advantages):
            raise ValueError(f"a trace of {len(self.tokens)} tokens has {len(self.advantages)} advantages")


def credit_page(traces: Sequence[Trace], *, step: int, longest: int) -> str:
    """The page; of a completion at most its first ``longest`` tokens, and of a prompt as many characters times four."""
    limit = limit_of(value for trace in traces for value in trace.advantages)
    body = "".join(_section(trace, limit, longest) for trace in traces)
    title = f"Advantage per token, step {step:,}"
    return (
        f'<!DOCTYPE html>\n<html lang="en"><head><meta charset="utf-8"><title>{title}</title>\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}"><style>{STYLE}</style></head>\n'
        f"<body><h1>{title}</h1>\n{_legend(limit)}{body}</body></html>\n"
    )


def _legend(limit: float) -> str:
    if limit == 0:
        return '<p class="legend">All advantages are 0: these completions taught nothing.</p>\n'
    swatches = " ".join(
        f'<b style="background:{colour(share * limit, limit)}">{number(share * limit)}</b>' for share in SHARES
    )
    return f'<p class="legend">{swatches} &nbsp; Point at a token to read its own.</p>\n'


def _section(trace: Trace, limit: float, longest: int) -> str:
    told = " · ".join(f"{name} {number(value)}" for name, value in trace.told.items())
    left_out = len(trace.tokens) - longest
    more = f'<p class="told">… {left_out} more tokens</p>\n' if left_out > 0 else ""
    shown = zip(trace.tokens[:longest], trace.advantages[:longest], strict=True)
    tokens = "".join(_token(text, value, limit) for text, value in shown)
    return (
        f'<h2>{escape(trace.heading)}</h2>\n<p class="told">{escape(told)}</p>\n'
        f'<pre class="prompt">{escape(trace.prompt[: 4 * longest])}</pre>\n<pre>{tokens}</pre>\n{more}'
    )


def _token(text: str, value: float, limit: float) -> str:
    return f'<span style="background:{colour(value, limit)}" title="{number(value)}">{escape(text)}</span>'


def number(value: float) -> str:
    """Three digits, a sign that is one."""
    return f"{value:+.3g}".replace("-", "−") if value else "0"
