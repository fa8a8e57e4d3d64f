"""Write a task, reward, objective or critic of your own, with its YAML file and its test:  make new

python -m experiments.new KIND NAME [folder=mine]

    mine/brief.py    mine/conf/reward/brief.yaml    mine/test_brief.py

The files work as they are; ``templates/`` has them with the words PACKAGE, NAME and CLASS in place of the names.
"""

from __future__ import annotations

import builtins
import re
import sys
from collections.abc import Sequence
from importlib.machinery import PathFinder
from keyword import iskeyword
from pathlib import Path

from experiments.cli.commands import COMMANDS, KINDS
from experiments.config.folders import OURS, summaries
from experiments.config.hints import IN_A_CLONE, command_line, did_you_mean, python_command
from experiments.system.launch import FAILED
from experiments.system.terminal import USAGE_ERROR, one_line, protect_output

TEMPLATES = Path(__file__).with_name("templates")
NAME = re.compile(r"[a-z][a-z0-9_]*")


def main(arguments: Sequence[str]) -> int:
    options = COMMANDS["new"].read(arguments)
    kind, name, folder = options.kind, options.name, options.folder
    if (refused := refusal(kind, name, folder)) is not None:
        print(refused, file=sys.stderr)
        return USAGE_ERROR
    files = new_files(kind, name, folder)
    try:
        for path, text in files.items():
            path.parent.mkdir(parents=True, exist_ok=True)
            with path.open("x", encoding="utf-8") as file:
                file.write(text)
    except OSError as error:
        print(f"{folder}: {one_line(error)}", file=sys.stderr)
        return FAILED
    over = f"--config-dir {folder / 'conf'} {kind}={name} debug=fast name=trial"
    trial = command_line("exp", KINDS[kind], f"over='{over}'" if IN_A_CLONE else over)
    print(f"wrote {', '.join(map(str, files))}")
    print(f"its test:     {python_command()} -m pytest {[*files][-1]}\na trial run:  {trial}")
    return 0


def class_name(name: str) -> str:
    """Returns ``TwoWords`` for ``two_words``."""
    return "".join(part.capitalize() for part in name.split("_"))


def new_files(kind: str, name: str, folder: Path) -> dict[Path, str]:
    """Returns path → content of the Python file, the YAML file and the test, in this order."""
    words = {"PACKAGE": ".".join(folder.parts), "NAME": name, "CLASS": class_name(name)}
    paths = {
        f"{kind}.py.txt": folder / f"{name}.py",
        f"{kind}.yaml.txt": folder / "conf" / kind / f"{name}.yaml",
        f"{kind}_test.py.txt": folder / f"test_{name}.py",
    }
    texts = {path: (TEMPLATES / template).read_text(encoding="utf-8") for template, path in paths.items()}
    return {path: re.sub(r"PACKAGE|NAME|CLASS", lambda word: words[word[0]], text) for path, text in texts.items()}


def refusal(kind: str | None, name: str | None, folder: Path) -> str | None:
    """Returns the first error of the arguments as one sentence; None if there is none."""
    kinds = f"the kinds are {', '.join(KINDS)}"
    if not kind:
        return f"choose a kind; {kinds}"
    if kind not in KINDS:
        return f"kind={kind}: no such kind; {did_you_mean(kind, KINDS, names=KINDS)}"
    if name is None or not NAME.fullmatch(name) or iskeyword(name):
        return f"name={name or ''}: a name is one word of a-z, 0-9 and _, for a Python module of a {kind}; {kinds}"
    if not folder.parts or not all(part.isidentifier() and not iskeyword(part) for part in folder.parts):
        return f"folder={folder}: Python imports from a folder below this one, such as folder=mine or folder=my/parts"
    if folder.parts[0] in (*OURS, "conf") or _hides_a_module(folder.parts[0]):
        return f"folder={folder}: {folder.parts[0]} is a package already; choose another folder, such as folder=mine"
    if name in summaries(kind):
        return f"name={name}: {kind}={name} is an option already; choose another name for your {kind}; {kinds}"
    if _hides_a_module(name) or hasattr(builtins, name) or _in_templates(kind, name):
        return f"name={name}: Python or the new file uses this name already; choose another for your {kind}; {kinds}"
    if taken := next((path for path in new_files(kind, name, folder) if path.exists()), None):
        return f"name={name}: {taken} is there already, and nothing is overwritten; choose another name; {kinds}"
    return None


def _hides_a_module(word: str) -> bool:
    """Whether a module outside the working folder has this name: the new files would hide it, or be hidden by it."""
    elsewhere = [entry for entry in sys.path if Path(entry).resolve() != Path.cwd()]
    return word in sys.stdlib_module_names or PathFinder.find_spec(word, elsewhere) is not None


def _in_templates(kind: str, name: str) -> bool:
    """Whether the code of a template uses the name, or its class name, for something else."""
    text = "".join(path.read_text(encoding="utf-8") for path in TEMPLATES.glob(f"{kind}*.py.txt"))
    code = re.sub(r'""".*?"""|"[^"\n]*"|#[^\n]*', "", text, flags=re.S)
    return {name, class_name(name)} & {*re.findall(r"\w+", code)} != set()


if __name__ == "__main__":
    protect_output()
    sys.exit(main(sys.argv[1:]))
