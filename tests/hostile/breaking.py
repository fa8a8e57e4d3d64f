r"""Texts that would break a reader or run in it: code, towers, depths, bombs, a megabyte, bytes that are no text."""

from __future__ import annotations

from random import Random

from tests.hostile.drawn import MEGABYTE, PAYLOADS, SIZES, Drawn, Mark, framed
from tests.hostile.watch import CANARY


def code(draw: Random, mark: Mark) -> str:
    return framed(draw, draw.choice(PAYLOADS))


def code_in_mathematics(draw: Random, mark: Mark) -> str:
    """Code where a formula, a number, an index or a name is wanted."""
    payload = draw.choice(PAYLOADS)
    forms = (r"\sqrt{{{}}}", r"x_{{{}}}", r"\frac{{{}}}{{2}}", r"\variable{{{}}}", "f({})", "{} + 1", r"\text{{{}}}^2")
    forms += (r"\mathrm{{{}}}", "2^{{{}}}", r"\operatorname{{{}}} x")
    return r"\boxed{" + draw.choice(forms).format(payload) + "}"


def dunders(draw: Random, mark: Mark) -> str:
    names = ["class", "bases", "globals", "import", "builtins", "reduce", "init", "code"]
    chain = ".".join(draw.choices([f"__{name}__" for name in names], k=draw.randint(1, 30)))
    return framed(draw, f"{draw.choice(('()', '1', 'x', chr(39) * 2, 'S'))}.{chain}{draw.choice(('', '()', '[0]'))}")


def powers(draw: Random, mark: Mark) -> str:
    sign = draw.choice(("**", "^"))
    tower = sign.join(str(draw.randint(2, 99)) for _ in range(draw.randint(2, 40)))
    nested = "9^{" * (depth := draw.randint(1, 60)) + "9" + "}" * depth
    grouped = "(" * 3 + "2" + "".join(f")^{{{draw.randint(50, 9999)}}}" for _ in range(3))
    forms = (tower, nested, grouped, rf"\sqrt[{10 ** draw.randint(3, 30)}]{{2}}", f"10^{{{draw.randint(401, 10**9)}}}")
    return framed(draw, draw.choice((*forms, f"1e{draw.randint(401, 10**9)}")))


def factorials(draw: Random, mark: Mark) -> str:
    number = draw.randint(3, 10 ** draw.randint(1, 12))
    forms = (f"{number}{'!' * draw.randint(2, 40)}", f"({number}!)!", rf"\binom{{{number + 20_000}}}{{7}}")
    return framed(
        draw, draw.choice((*forms, rf"\Gamma({number + 9_000_000})", f"{201 + number}!", f"(x!)! + {number}!"))
    )


def nesting(draw: Random, mark: Mark) -> str:
    depth = draw.choice(SIZES)
    pairs = ("()", "[]", ("{", "}"), (r"\boxed{", "}"), (r"\frac{1}{", "}"), (r"\sqrt{", "}"), (r"\left(", r"\right)"))
    opening, closing = draw.choice((*pairs, ("<Solution>", "</Solution>"), ("<think>", "</think>"), (r"\text{", "}")))
    return framed(draw, opening * depth + "8" + closing * draw.choice((depth, depth - 1, depth + 1, 0)))


def controls(draw: Random, mark: Mark) -> str:
    signs = "\x00\x01\x07\x08\x0b\x0c\r\x1b\x7f\x85\u2028\u2029"
    noise = "".join(draw.choices(signs, k=draw.randint(1, 300)))
    escape = draw.choice(("\x1b[2J\x1b[H", "\x1b]0;owned\x07", "\x1b[8m", "\r\x1b[K", "\x08" * 40))
    return framed(draw, draw.choice((noise, escape, f"8{noise}1", f"8{escape}", noise * 3_000)))


def long_numbers(draw: Random, mark: Mark) -> str:
    """Up to a megabyte of digits."""
    size = draw.choice((61, 500, 4_301, 50_000, MEGABYTE)) if draw.random() < 0.3 else draw.choice((61, 500, 4_301))
    digits = (str(draw.randint(1, 9)) + str(draw.getrandbits(60)) * (size // 18 + 1))[:size]
    forms = (digits, f"0.{digits}", f"1/{digits}", f"{digits}_8", f"-{digits}", rf"\frac{{{digits}}}{{{digits}7}}")
    return framed(draw, draw.choice((*forms, f"0x{digits}", "1," * (size // 2) + "8", f"21 + {digits} = 37")))


def latex_bombs(draw: Random, mark: Mark) -> str:
    size = draw.choice(SIZES)
    bombs = (
        r"\def\x{\x\x}\x",
        r"\newcommand{\a}{\b\b}\newcommand{\b}{\a\a}\a",
        r"\input{/etc/passwd}",
        rf"\immediate\write18{{touch {CANARY}}}",
        rf"\openout5={CANARY}\write5{{x}}",
        r"\loop\iftrue\repeat",
        r"\csname end\endcsname",
        r"\begin{matrix}" + "1&" * min(size, 999) + r"8\end{matrix}",
        r"\begin{array}{" + "c" * min(size, 400) + r"}8\end{array}",
        r"\frac" * size,
        r"\text{" * min(size, 1_000),
        r"\boxed" * size,
        "{" * size,
        r"\\" * size + "8",
        r"\left." * size,
        "$" * size,
        r"\pm" * size,
        r"x_{" * min(size, 100) + "1" + "}" * min(size, 100),
    )
    return framed(draw, draw.choice(bombs))


def algebra_traps(draw: Random, mark: Mark) -> Drawn:
    """Short formulas in known commands: what reaches the computer algebra system, and what it might never leave.

    The gold has the same variables, without which no formula is worked out.
    """
    a, b, n = draw.randint(2, 9), draw.randint(11, 97), draw.randint(2, 100)
    deep = r"\sin(" * (depth := draw.randint(1, 12)) + "x" + ")" * depth
    roots = "+".join(rf"\sqrt{{{draw.randint(2, 99)}}}" for _ in range(draw.randint(2, 12)))
    in_x = (
        f"(x+1)^{{{n}}}-(x-1)^{{{n}}}+{a}",
        deep,
        rf"\sqrt{{{a}+\sqrt{{{b}+\sqrt{{{n}+x}}}}}}",
        rf"\frac{{x^{{{n}}}-1}}{{x^{{{a}}}-1}}",
        f"{b}^{{{n}}}+x",
        "0^0+x",
        f"S(x)^{a}",
        rf"|x^{{{n}}}-{b}|",
        rf"\{{x \mid x > {a}\}}",
        rf"({a},x)\cup[{b},\infty)",
        rf"x^{{{n}}} = {b}",
        f"200!+x^{{{a}}}",
        rf"\frac{{1}}{{\frac{{1}}{{\frac{{1}}{{x-{a}}}}}}}",
        rf"\begin{{pmatrix}}x&{a}\\{b}&x^{{{n}}}\end{{pmatrix}}",
        rf"\log(x^{{{n}}}+\sin(x^{{{a}}}))^{{{b}}}",
        rf"\sqrt[{a}]{{x^{{{n}}}+\sqrt[{b}]{{x^{a}+{n}}}}}",
        rf"x^{{x^{{x}}}}+{a}",
        rf"\frac{{(x^{{{a}}}+{b})^{{{n}}}}}{{(x-{b})^{{{n}}}}}-\frac{{{n}}}{{x}}",
    )
    of_numbers = (
        f"{roots}+{b}",
        rf"\lfloor \pi^{{{n}}} \rfloor",
        rf"\log(\log(\log({b})))",
        rf"\tan({b}^{{{n}}})",
        rf"\binom{{9999}}{{{b * 50}}}",
        f"{a}/0+1",
        r"\infty-\infty+1",
        rf"\arcsin({a})+i^i",
        rf"\sqrt[{n}]{{-{b}}}",
        rf"({b}+\sqrt{{{a}}})^{{{n}}}",
        rf"\sqrt{{{roots}}}\cdot({roots})",
        rf"\cos({n}^{{{b}}}\pi+{a})",
        rf"200!^{{{a}}}+\binom{{10000}}{{5000}}",
    )
    of_four = (f"(a+b+c+d)^{{{n}}}", f"(a+b)^{{{n}}}(c-d)^{{{n}}}", f"abcd^{{{n}}}+a", "S+N(I, E)", r"\lambda + Q")
    gold, traps = draw.choice((("x^2-3x+11", in_x), (r"3+\sqrt{47}", of_numbers), ("a+b+c+d+1", of_four)))
    return Drawn(rf"\boxed{{{draw.choice(traps)}}}", gold=gold)


def repeats(draw: Random, mark: Mark) -> str:
    """What makes a pattern go back over a long text again and again, up to a megabyte of it."""
    pieces = (
        "|- Try 1",
        "|- Try 1 + 1 = 2. Evaluate\n",
        "1 + ",
        "1+1=2;",
        "answer is ",
        "answer:",
        "####",
        r"\boxed",
        "=",
        r"\boxed{",
        "\n\n",
        " ",
        "\t",
        "0,",
        ". A",
        "/",
        r"\text",
        "Current number set: [1, ",
        "1 1 ",
        "-",
        "\\",
        "{,}",
    )
    size = MEGABYTE if draw.random() < 0.05 else draw.choice(SIZES[1:])
    piece = draw.choice(pieces)
    return framed(draw, (piece * (size // len(piece) + 1))[:size])


def broken_text(draw: Random, mark: Mark) -> str:
    """Bytes that are no text (as the rollout keeps them), marks upon marks, and the rest of Unicode."""
    half = "".join(chr(draw.randint(0xDC80, 0xDCFF)) for _ in range(draw.randint(1, 200)))
    piled = "8" + "\u0301" * draw.choice(SIZES)
    wild = "".join(chr(draw.choice((draw.randint(32, 0xD7FF), draw.randint(0xE000, 0x10FFFF)))) for _ in range(200))
    return framed(draw, draw.choice((half, f"8{half}", piled, wild, "\ud800", "\ufffe", "\U0001f9ee" * 500)))


def templates(draw: Random, mark: Mark) -> str:
    """What a template, a configuration, a tracker, a shell or another reader would fill in or run."""
    texts = (
        "{0.__class__.__init__.__globals__}",
        "%s%s%s%n",
        "${oc.env:HOME}",
        "${hydra:runtime.cwd}",
        f"!!python/object/apply:os.system ['touch {CANARY}']",
        f"$(touch {CANARY})",
        f"`touch {CANARY}`",
        f"; touch {CANARY} #",
        "{{7*7}}",
        "<script>alert(1)</script>",
        "=cmd|' /C calc'!A0",
        f"cos\nsystem\n(S'touch {CANARY}'\ntR.",
        '{"__reduce__": ["os.system", "true"]}',
        "../../../../etc/passwd",
        "'; DROP TABLE runs; --",
        "_target_: os.system",
    )
    return framed(draw, draw.choice(texts)) if draw.random() < 0.8 else draw.choice(texts) * 50
