"""What goes wrong in MLflow's store, in a noun of ours: nobody need know MLflow's, or takes a mistake of ours for it.

It is here, for ``experiments/track.py`` is a program, too, and as such would have a noun of its own.
"""

from __future__ import annotations

from functools import wraps
from typing import Any

from experiments.system.first_line import first_line
from experiments.system.secret_values import concealed


class TrackerError(RuntimeError):
    """MLflow does not answer, cannot use its address, or refuses what it is asked."""


class ToldAsOurs:
    """A client whose methods raise a :class:`TrackerError` for what its store does.

    Args:
        client: MLflow's.
        kind: what it raises then, around the errors of its database and its network.
        address: of the store, as it may be shown.
    """

    def __init__(self, client: Any, *, kind: type[Exception], address: str) -> None:
        self._client = client
        self._kind = kind
        self._address = address

    def __getattr__(self, name: str) -> Any:
        method = getattr(self._client, name)

        @wraps(method)
        def asked(*args: Any, **kwargs: Any) -> Any:
            try:
                return method(*args, **kwargs)
            except self._kind as error:
                raise TrackerError(f"MLflow at {self._address}: {concealed(first_line(error))}") from error

        return asked
