from __future__ import annotations

import subprocess
import sys

from conf.experiments import EXPERIMENTS
from experiments.cli.catalogue import SECTIONS
from experiments.config.folders import CONF, summaries


def test_every_experiment_summary_has_question_and_command() -> None:
    for name, line in summaries("experiment").items():
        assert "?" in line, name
        assert line.endswith(f"make exp name={name}"), name


def test_list_imports_only_standard_library() -> None:
    """-S excludes site-packages, -I the environment."""
    root = str(CONF.parent)
    script = f"import sys; sys.path.insert(0, {root!r}); from experiments.cli.catalogue import main; main()"
    done = subprocess.run([sys.executable, "-I", "-S", "-c", script], capture_output=True, text=True, check=True)
    titles = [line for line in done.stdout.splitlines() if not line.startswith("  ")]
    listed = [line.split()[0] for line in done.stdout.splitlines() if line.startswith("  ")]
    assert titles == [*SECTIONS.values()]
    assert listed == [name for group in SECTIONS for name in summaries(group)]
    assert {"llama_critic", "clipo_dapo_math", "clipo_l2", "critic_text", "countdown_credit", "tau"} <= set(listed)
    assert {variant.base for variant in EXPERIMENTS.values()} & set(listed) == {"clipo_gsm8k"}
    assert not any(" make " in line for line in done.stdout.splitlines() if line.startswith("  "))
