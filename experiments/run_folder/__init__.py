"""The on-disk format of a run, with its readers and writers. The files are authoritative; MLflow is a copy of them.

outputs/runs/<experiment>/<time>-<seed>/
    config.yaml        the resolved configuration, with the commit (git_sha)
    choices.json       {group: option}, the options chosen in its composition                (started by Hydra)
    origin.json        {"about": …, "overrides": […], "python": …, "packages": {…}, "id": …} (started by Hydra)
    environment.json   system, Python, processors, memory, accelerators
    installed.txt      name==version, one package per line
    stages.json        {stage: {"folder": …, "fingerprint": …, "reused": bool}}, in order of execution
    sweep.json         {"sweep": id, "overrides": …, "folder": …}                            (job of a multirun)
    failure.json       {"cause": …, "ended": …}                                              (failed)
    summary.json       {"seconds": …, "metrics": {stage: {name: value}}}, written last       (finished)

outputs/stages/<stage>/<fingerprint>/
    config.yaml, result.json (written last), policy/, critic/, checkpoints/
    metrics.jsonl      {"step": 3, "name": …, "value": 0.5, "time": …}, one number per line
    figures/<name>/<step>.png, tables/<name>/<step>.json, pages/<name>/<step>.html
"""
