"""Writes down what a process does that no text may make it do: run code, start programs, connect, write files.

An audit hook sees all of it, whoever asks for it, and cannot be taken out again. It forbids nothing, so that the canary
which the texts' own code would leave is evidence of its own.

What is allowed, and why: to import a library's modules as they are first needed; the pool's worker; ``ast.parse`` of
``longproc_scores``, which makes a tree and no code; and one thing that sounds worse than it is. sympy turns a number's
digits into a number by evaluating ``Integer (12 )``, so digits of a completion are part of what is evaluated. Nothing
else of it may be: ``NUMBERS`` says what may.
"""

from __future__ import annotations

import os
import re
import sys
import sysconfig
from collections.abc import Sequence
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

CANARY = "canary_of_hostile_text"
"""What every payload leaves if it is run: a file of this name, or an attempt to import it, or to reach something."""
RECORD = "HOSTILE_RECORD"
"""The environment's name for the file that is written to."""
WORKER = "contrastive_reasoning.workers.answers"
SITE = f"import sys\nfrom tests.hostile.watch import watch\nif '{WORKER}' in sys.orig_argv:\n    watch('worker')\n"
"""``sitecustomize.py``: a worker watches itself from its first breath."""

REACHING = re.compile(
    r"os\.(system|exec|posix_spawn|spawn|fork|forkpty|kill|remove|rename|mkdir|rmdir|chmod|link|symlink|truncate|putenv"
    r"|unsetenv)|shutil\..*|subprocess\.Popen|socket\.(connect|bind|getaddrinfo|sendto)|urllib\.Request|http\.client\..*"
    r"|webbrowser\.open|pty\.spawn|pickle\.find_class|code\.__new__|ctypes\.dlopen"
)
NUMBERS = re.compile(
    r"Integer \([0-9]+ \)|Float \('[0-9]*\.?[0-9]*' \)|Symbol \('[A-Za-z]+' \)|E |from sympy import \*"
)
"""All that ``sympy``'s own parser may evaluate: a number that its LaTeX grammar read, and the names of its units."""
WRITING = os.O_WRONLY | os.O_RDWR | os.O_CREAT | os.O_APPEND | os.O_TRUNC
LIBRARIES = tuple({str(Path(sysconfig.get_path(name)).resolve()) for name in ("stdlib", "purelib", "platlib")})
OURS = str(Path(__file__).resolve().parents[2] / "contrastive_reasoning")


def watch(who: str) -> None:
    """Watch this process from now on; the record says so."""
    file = os.open(os.environ[RECORD], os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(file, f"watching the {who}\n".encode())
    busy: list[bool] = []

    def hook(event: str, arguments: tuple[Any, ...]) -> None:
        if busy:
            return
        busy.append(True)
        try:
            said = forbidden(event, arguments)
            if said:
                os.write(file, f"{said}\n".encode("utf-8", "backslashreplace"))
        finally:
            busy.clear()

    sys.addaudithook(hook)


def forbidden(event: str, arguments: Sequence[Any]) -> str | None:
    """What no text may make a process do, in words; None for anything else."""
    if event == "compile":
        return _compiled(*arguments[:2])
    if event == "exec":
        return _run(arguments[0])
    if event == "import":
        return f"import {CANARY}" if CANARY in str(arguments[0]) else None
    if event == "open":
        return _opened(*arguments[:3])
    if event == "subprocess.Popen" and list(arguments[1])[1:3] == ["-m", WORKER]:
        return None
    if event == "os.kill" and _asked_by("subprocess.py"):  # the pool's own worker, at its limit
        return None
    if event == "ctypes.dlopen" and arguments[0] is None:  # what ``import ctypes`` does
        return None
    return f"{event} {str(arguments)[:200]}" if REACHING.fullmatch(event) else None


def _compiled(source: Any, filename: Any) -> str | None:
    """Text becomes code: only what libraries write themselves, and sympy's numbers."""
    text = source.decode("utf-8", "replace") if isinstance(source, bytes) else str(source)
    if source is None or (isinstance(filename, str) and Path(filename).is_file()):  # a module
        return f"compile of a text with {CANARY}" if CANARY in text else None
    callers = _callers()
    if callers[:1] == [_stdlib("ast.py")] and callers[1:2] == [f"{OURS}/tasks/countdown/longproc.py"]:
        return None
    if any(caller.endswith("sympy/parsing/sympy_parser.py") for caller in callers[:2]):
        return None if NUMBERS.fullmatch(text.strip("\n")) else f"sympy evaluates {text[:200]!r}"
    if callers and callers[0].startswith(LIBRARIES) and CANARY not in text:
        return None
    return f"compile {text[:200]!r} by {callers[:2]}"


def _run(code: CodeType) -> str | None:
    """Code is run: a module's, or what a library compiled itself and :func:`_compiled` let pass."""
    by = _callers()[:1]
    own = Path(code.co_filename).is_file() or code.co_filename.startswith("<frozen")
    if CANARY in str((code.co_names, code.co_consts)) or not (own or (by and by[0].startswith(LIBRARIES))):
        return f"runs {code.co_filename} {code.co_names} {str(code.co_consts)[:200]} by {by}"
    return None


def _opened(path: Any, mode: Any, flags: Any) -> str | None:
    writes = bool(set(mode or "") & set("wax+")) or bool((flags or 0) & WRITING)
    return f"open {path!r} for writing" if writes and path != os.devnull and not isinstance(path, int) else None


def _asked_by(name: str) -> bool:
    return _stdlib(name) in _callers()[:1]


def _stdlib(name: str) -> str:
    return str(Path(sysconfig.get_path("stdlib")).resolve() / name)


def _callers() -> list[str]:
    """The files of the functions that are being called, the innermost first, without our own and the import system."""
    frame: FrameType | None = sys._getframe(1)
    found = []
    while frame is not None:
        name = frame.f_code.co_filename
        if name != __file__ and not name.startswith("<frozen"):
            found.append(str(Path(name).resolve()))
        frame = frame.f_back
    return found
