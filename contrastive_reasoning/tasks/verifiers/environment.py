"""Environments of the library verifiers (0.4, ``verifiers.v1``), and which of them are one prompt and one completion.

An environment is an installed package with a ``Taskset``, whose tasks have prompts and reward functions. It is used
as by the library's harness ``null``: one prompt, one completion, no tools, and here no runtime either. Environments
that need more are refused before their data are loaded. The library is optional.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterator, Mapping
from difflib import get_close_matches
from importlib import import_module
from importlib.metadata import distributions
from typing import Any

INSTALL = "pip install verifiers==0.4.0"
WITH_A_RUNTIME = ("setup", "finalize", "stage_verifier")
"""Methods of a task that the library calls with a runtime."""
ONE_TURN = "only environments of one prompt and one completion can be used"
NO_SANDBOX = "there is no sandbox here"


def library() -> Any:
    """The module ``verifiers.v1``. Raises ModuleNotFoundError with the command that installs it."""
    try:
        return import_module("verifiers.v1")
    except ModuleNotFoundError as missing:
        raise ModuleNotFoundError(
            f"task=verifiers needs the library (no module {missing.name}): {INSTALL}"
        ) from missing


def taskset_of(environment: str, settings: Mapping[str, Any] | None) -> Any:
    """The taskset of an environment. It loads its data when it is iterated.

    Raises:
        ModuleNotFoundError: if the library is not installed.
        ValueError: for a name that is no environment, with the nearest ones, an environment that needs more than a
            prompt and a completion, and a setting that it does not have or refuses.
    """
    vf = library()
    _import(vf, environment)
    kind = vf.taskset_config_type(environment)
    try:
        config = kind.model_validate({**(settings or {}), "id": environment})
    except ValueError as refused:  # of pydantic
        first: Any = refused.errors()[0]  # pyright: ignore[reportAttributeAccessIssue]
        key = ".".join(("settings", *map(str, first["loc"])))
        known = ", ".join(name for name in kind.model_fields if name != "id")
        raise ValueError(f"{key}: {first['msg']}; the settings of {environment} are {known}") from refused
    taskset = vf.load_taskset(config)
    if (flaw := next(flaws(environment, taskset), None)) is not None:
        raise ValueError(f"environment={environment}: {flaw}")
    return taskset


def module_of(environment: str) -> str:
    """The module of an environment's name by the library's rule: ``my_name`` of ``owner/my-name@1.0``."""
    return environment.rpartition("/")[2].partition("@")[0].replace("-", "_").lower()


def installed_environments() -> list[str]:
    """Names of the installed packages that require the library."""
    return sorted({one.name for one in distributions() if any(map(_is_library, one.requires or ()))})


def _is_library(requirement: str) -> bool:
    return re.split(r"[^\w.-]", requirement, maxsplit=1)[0] == "verifiers" and "extra ==" not in requirement


def _import(vf: Any, environment: str) -> None:
    try:
        vf.import_taskset(environment)
        vf.taskset_config_type(environment)
    except ModuleNotFoundError as missing:
        cause = missing.__cause__
        inner = cause.name if isinstance(cause, ModuleNotFoundError) else missing.name
        if inner not in (None, module_of(environment)):
            raise ValueError(f"environment={environment} cannot be imported: there is no module {inner}") from missing
        names = installed_environments()
        near = get_close_matches(environment.lower().replace("_", "-"), names, n=3) or names
        listed = f"nearest are {', '.join(near)}" if near else "none is installed"
        raise ValueError(f"environment={environment}: no such package is installed; {listed}") from missing
    except ImportError as error:
        raise ValueError(f"environment={environment} cannot be imported: {error}") from error
    except (AttributeError, TypeError, ValueError) as no_taskset:
        raise ValueError(f"environment={environment}: {no_taskset}") from no_taskset


def flaws(environment: str, taskset: Any) -> Iterator[str]:
    """Yields why an environment is more than a prompt and a completion. Loads no data."""
    vf = library()
    task = blank_task(taskset)
    kind, settings = type(task), task.config
    if vf.environment_class(environment) is not vf.SingleAgentEnv:
        yield f"an Env of its own plays several turns or agents, and {ONE_TURN}"
    if vf.default_harness_id(environment) == environment:
        yield f"a harness of its own runs the model, and {ONE_TURN}"
    if kind.NEEDS_CONTAINER:
        yield f"its tasks need a container, and {NO_SANDBOX}"
    if taskset.toolsets(taskset.config) or kind.toolsets(settings):
        yield f"it gives tools to the model, and {ONE_TURN}"
    if judges := [name for name, value in settings if _is_judge(vf, value)]:
        yield f"a judge model scores it ({', '.join(judges)}), and there is none here"
    for name in WITH_A_RUNTIME:
        if getattr(kind, name) is not getattr(vf.Task, name):
            yield f"the hook {name} of its tasks needs a runtime, and {NO_SANDBOX}"
    if any(hasattr(value, "intercept") for owner in kind.__mro__ for value in vars(owner).values()):
        yield f"it changes requests or replies (@intercept), and {ONE_TURN}"
    rewards = task.hooks("reward")
    if not rewards:
        yield "its tasks have no reward"
    for reward in rewards:
        runtime = inspect.signature(reward).parameters.get("runtime")
        if runtime is not None and runtime.default is inspect.Parameter.empty:
            yield f"its reward {reward.__name__} needs a runtime, and {NO_SANDBOX}"


def _is_judge(vf: Any, value: Any) -> bool:
    if isinstance(value, list | tuple):
        return any(_is_judge(vf, one) for one in value)
    return isinstance(value, vf.JudgeConfig)


def blank_task(taskset: Any) -> Any:
    """A task with the taskset's settings and without data, for its hooks: data are loaded later."""
    kind = type(taskset).task_type()
    task = kind.__new__(kind)
    task.config = taskset.config.task
    return task


def full_score_of(taskset: Any) -> float:
    """The sum of the positive weights of the rewards: the total if each of them is 1."""
    weights = [float(getattr(reward, "_vf_weight", 1.0)) for reward in blank_task(taskset).hooks("reward")]
    return sum(weight for weight in weights if weight > 0)
