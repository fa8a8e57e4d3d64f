"""The format of a run on disk: written and read by this package alone. It is the truth; MLflow is a copy of it.

outputs/runs/<experiment>/<time>-<seed>/
    config.yaml        the resolved configuration, with the commit (git_sha)
    choices.json       {group: option}, the choices made in composing it                     (started by Hydra)
    origin.json        {"about": …, "overrides": […], "python": …, "packages": {…}, "id": …} (started by Hydra)
    environment.json   system, Python, processors, memory, accelerators
    installed.txt      name==version, one package a line
    stages.json        {stage: {"folder": …, "fingerprint": …, "reused": bool}}, in order of running
    sweep.json         {"sweep": id, "overrides": …, "folder": …}                            (job of a multirun)
    failure.json       {"cause": …, "ended": …}                                              (failed)
    summary.json       {"seconds": …, "metrics": {stage: {name: value}}}, written last       (finished)

outputs/stages/<stage>/<fingerprint>/
    config.yaml, result.json (written last), policy/, critic/, checkpoints/
    metrics.jsonl      {"step": 3, "name": …, "value": 0.5, "time": …}, one number a line
    figures/<name>/<step>.png, tables/<name>/<step>.json, pages/<name>/<step>.html
"""

from experiments.run_folder.reader import (
    METRICS_FILE,
    Metric,
    Origin,
    complete_lines,
    last_values,
    read_config,
    read_json,
    read_metrics,
    stage_folders,
)

__all__ = [
    "METRICS_FILE",
    "Metric",
    "Origin",
    "complete_lines",
    "last_values",
    "read_config",
    "read_json",
    "read_metrics",
    "stage_folders",
]
