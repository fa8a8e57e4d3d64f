"""The commands: the module that each runs, its arguments and their help. Standard library only.

They have the names and variables of the Makefile's targets:

    make exp name=llama_critic over='seed=1'          contrastive-reasoning exp llama_critic seed=1
    make plan name=grpo_gsm8k scale=paper gpus=8      contrastive-reasoning plan grpo_gsm8k scale=paper gpus=8
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

from experiments.cli.arguments import KeyValueParser, home_path, positive, split_list

PROGRAM = "contrastive-reasoning"
EVALUATED, SUITE = "llama_critic", "countdown_laptop"
"""Defaults of ``eval``, as in the Makefile."""
EVALUATIONS = "eval"
"""Name of the experiment for ``eval`` without a name: a model of any origin is not a run of ``EVALUATED``."""
EXPERIMENT = f"an experiment that {PROGRAM} list names"
EXPERIMENTS = f"experiments that {PROGRAM} list names"
KINDS = {"task": "grpo_laptop", "reward": "grpo_laptop", "objective": "grpo_laptop", "critic": "llama_critic"}
"""The groups for which ``new`` writes files, and an experiment that uses an option of each."""
WHOLE, NUMBER, SHARE = positive(int), positive(float), positive(float, most=1.0)
OVERRIDES = "key=value is any key of the configuration, or one of its groups with another choice.\n"


def without_name(arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the name, given first or as ``name=``, and the other arguments."""
    if arguments and "=" not in arguments[0] and not arguments[0].startswith("-"):
        return arguments[0], [*arguments[1:]]
    return without_key("name", arguments)


def without_key(key: str, arguments: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the value of ``key=``, the last if there are several, and the other arguments."""
    values = [argument.removeprefix(f"{key}=") for argument in arguments if argument.startswith(f"{key}=")]
    return (values or [None])[-1], [argument for argument in arguments if not argument.startswith(f"{key}=")]


def for_experiment(arguments: Sequence[str]) -> list[str]:
    name, rest = without_name(arguments)
    return rest if name is None else [f"experiment={name}", *rest]


def for_sweep(arguments: Sequence[str]) -> list[str]:
    return ["-m", *for_experiment(arguments)]


def for_name(arguments: Sequence[str]) -> list[str]:
    name, rest = without_name(arguments)
    return rest if name is None else [name, *rest]


def for_evaluation(arguments: Sequence[str]) -> list[str]:
    name, rest = without_name(arguments)
    suite, rest = without_key("suite", rest)
    model, rest = without_key("model", rest)
    harness, rest = without_key("harness", rest)
    tasks, rest = without_key("tasks", rest)
    policy = [f"policy.pretrained={model}", "policy.chat_template=null"] if model else []
    apart = [] if name else [f"name={EVALUATIONS}"]
    other = [*([f"harness={harness}"] if harness else []), *([f"harness.tasks=[{tasks}]"] if tasks else [])]
    chosen = [f"experiment={name or EVALUATED}", "stages=[evaluate]", f"suite={suite or SUITE}"]
    return [*chosen, *apart, *policy, *other, *rest]


def for_new(arguments: Sequence[str]) -> list[str]:
    kind, rest = without_key("kind", arguments)
    name, rest = without_key("name", rest)
    if kind is None and name is not None:  # the kind is the first word
        return [*rest[:1], name, *rest[1:]]
    return [*(word for word in (kind, name) if word is not None), *rest]


def for_sync(arguments: Sequence[str]) -> list[str]:
    given = [word for word in arguments if word.startswith("name=") or not (word.startswith("-") or "=" in word)]
    names = [name for word in given for name in word.removeprefix("name=").split()]
    rest = [word for word in arguments if word not in given]
    return [*([f"outputs/runs/{name}" for name in names] or ["outputs"]), *rest]


class Command(KeyValueParser):
    """One command. Its module parses its arguments with ``read``, unless they are overrides or those of a library.

    Args:
        name: of the command.
        summary: one line, the same as that of the Makefile's target.
        module: run as ``python -m``.
        example: arguments after the program's name.
        note: shown before the example.
        more: arguments in the help text that ``read`` does not know.
        convert: maps the arguments after the command's name to those of the module.
    """

    def __init__(
        self,
        name: str,
        summary: str,
        module: str,
        *,
        example: str = "",
        note: str = "",
        more: str = "",
        convert: Callable[[Sequence[str]], list[str]] = list,
    ) -> None:
        super().__init__(f"{PROGRAM} {name}", f"{summary[0].upper()}{summary[1:]}.", more=more)
        self.epilog = f"{note}Example: {PROGRAM} {name} {example}".rstrip()
        self.name, self.summary, self.module, self.example, self.convert = name, summary, module, example, convert


exp = Command(
    "exp",
    "run one experiment",
    "experiments.run",
    example="llama_critic seed=1 objective=gspo",
    note=OVERRIDES,
    more="[key=value …]",
    convert=for_experiment,
)
exp.add_argument("name", help=EXPERIMENT)

sweep = Command(
    "sweep",
    "run what is left of a sweep, show its table",
    "experiments.run",
    example="clipo_laptop sweep=tau seed=0,1,2",
    note=OVERRIDES,
    more="[sweep=PRESET] [key=value,value …]",
    convert=for_sweep,
)
sweep.add_argument("name", help=EXPERIMENT)

study = Command(
    "study",
    "run the arms and seeds of a study that are left",
    "experiments.study",
    example="countdown_credit parallel=1",
    convert=for_name,
)
study.add_argument("name", help="a file of conf/study/ or of your own study/, or the path of one")
study.add_argument("--parallel", type=int, metavar="1", help="jobs at once; default: the value in the study's file")
study.add_argument("--only", metavar="ARM,ARM", help="arms to run, with commas")
study.add_argument("--first", type=int, metavar="12", help="the first seed to run, else the study's")
study.add_argument("--seeds", type=int, metavar="2", help="number of seeds of each arm, from the first; else all")
study.add_argument("--launcher", metavar="submitit_slurm", help="of Hydra; default: the jobs run on this machine")
study.add_argument("--progress", metavar="json", help="format of the jobs' progress: lines, json or quiet")

listing = Command("list", "list experiments with their questions, studies and sweeps", "experiments.cli.catalogue")

model = Command(
    "model",
    "fetch a pretrained model into outputs/models",
    "experiments.model",
    example="smollm2-135m-q4",
    convert=for_name,
)
model.add_argument("name", nargs="?", help="of a known model, or OWNER/NAME of the hub")
model.add_argument("--revision", help="branch, tag or commit of a model on the hub")
model.add_argument("--output_dir", default="outputs", type=home_path, help="its folder models/ takes the model")

new = Command(
    "new",
    "write a task, reward, objective or critic of your own, with its test",
    "experiments.new",
    example="reward short_lines",
    convert=for_new,
)
new.add_argument("kind", nargs="?", metavar="KIND", help=", ".join(KINDS))
new.add_argument("name", nargs="?", help="of the new option, a word of a-z, 0-9 and _")
new.add_argument("--folder", default="mine", type=Path, help="below this one; default: mine")

plan = Command(
    "plan",
    "show what an experiment costs, without loading anything",
    "experiments.plan",
    example="grpo_gsm8k scale=paper gpus=8",
    note=OVERRIDES,
    more="[scale=paper] [key=value …]",
    convert=for_experiment,
)
plan.add_argument("name", nargs="?", help=EXPERIMENT)
plan.add_argument("--gpus", type=WHOLE, metavar="8", help="number of GPUs; default: the devices of the trainer")
plan.add_argument("--gpu_memory", type=NUMBER, default=80.0, metavar="80", help="GiB of each GPU")
plan.add_argument("--mfu", type=SHARE, default=0.4, metavar="0.4", help="share of the peak that a step uses")
plan.add_argument("--tflops", type=NUMBER, metavar="989", help="peak of each device, TFLOP/s; default: an H100's")
plan.add_argument("--prompt_tokens", type=WHOLE, metavar="200", help="of a prompt; default: the budget's maximum")
plan.add_argument("--completion_tokens", type=WHOLE, metavar="800", help="of a completion on average, for the hours")

evaluation = Command(
    "eval",
    "evaluate a model",
    "experiments.run",
    example="model=Qwen/Qwen2.5-0.5B-Instruct suite=track1",
    note=OVERRIDES,
    more="[suite=SUITE] [harness=lm_eval tasks=TASK,TASK] [key=value …]",
    convert=for_evaluation,
)
evaluation.add_argument("name", metavar="[NAME]", help=EXPERIMENT)
evaluation.add_argument("--model", metavar="HUB_NAME_OR_FOLDER", help="name on the hub, or a folder")

publish = Command(
    "publish",
    "publish what a run has trained on the Hugging Face hub",
    "experiments.publish",
    example="model=outputs/runs/NAME/DATE repo=OWNER/NAME",
)
publish.add_argument("--model", metavar="RUN", help="the folder of a run")
publish.add_argument("--repo", metavar="OWNER/NAME", help="on the hub; without it the folder is only written")
publish.add_argument("--part", default="policy", help="policy, critic or clipo (CLIPO's head); default: policy")
publish.add_argument("--private", choices=("true", "false"), metavar="true|false", help="of a new repository")
publish.add_argument("--output_dir", default="outputs", type=home_path, help="its folder published/ takes the files")

sample = Command(
    "sample",
    "draw completions of one problem, judged step by step",
    "experiments.sample",
    example="prompt='numbers=3,5,8 target=23' n=3",
    note=OVERRIDES,
    more="[key=value …]",
)
sample.add_argument("--model", metavar="HUB_NAME", help="or the folder of a model; default: the configuration's")
sample.add_argument("--prompt", metavar="TEXT", help="or numbers=3,5,8 target=23; default: a validation problem")
sample.add_argument("--answer", metavar="TEXT", help="the answer of prompt, by which completions are judged")
sample.add_argument("--critic", metavar="FOLDER", help="of a trained critic, its stage or run: values the steps")
sample.add_argument("--n", type=int, default=1, metavar="1", help="number of completions")
sample.add_argument("--temperature", metavar="1.0", help="sampling temperature; 0: greedy")
sample.add_argument("--max_tokens", metavar="48", help="longest completion, in tokens")

compare = Command(
    "compare",
    "show table and curves of finished runs",
    "experiments.compare",
    example="grpo_laptop clipo_laptop",
)
report = Command(
    "report",
    "write one HTML page of finished runs",
    "experiments.report",
    example="grpo_laptop clipo_laptop",
)
for command in (compare, report):
    command.add_argument("names", nargs="+", metavar="NAME …", help=f"{EXPERIMENTS}, or a study")
    command.add_argument("--metric", help="by its name for the main set; default: sampled success")
    command.add_argument("--sets", type=split_list, metavar="main,…", help="evaluation sets; main is the suite's")
    command.add_argument("--by", type=split_list, metavar="key,key", help="tags or parameters that make an arm")
    command.add_argument("--baseline", metavar="NAME", help="an arm, or a value that only one arm has")
    command.add_argument("--curve", help="the metric of the large picture")
report.add_argument("--output", type=home_path, metavar="FILE", help="default: outputs/report/NAME.html")

dashboard = Command(
    "dashboard",
    "open MLflow on the local results, for this machine alone",
    "experiments.dashboard",
    example="llama_baseline llama_critic --port 5001",
    more="[MLflow's own flags]",
)
dashboard.add_argument("names", nargs="*", metavar="[NAME …]", help=f"{EXPERIMENTS}; default: the newest")

sync = Command(
    "sync",
    "send to MLflow what it missed while it was unreachable",
    "experiments.track",
    example="llama_critic",
    convert=for_sync,
)
sync.add_argument("names", nargs="*", metavar="[NAME …]", help=f"{EXPERIMENTS}; default: all")

COMMANDS = {
    command.name: command
    for command in (
        *(exp, sweep, study, listing, model, new, plan, evaluation, publish),
        *(sample, compare, report, dashboard, sync),
    )
}
