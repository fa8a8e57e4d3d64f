"""What the environment keeps secret, and how it is kept out of files, pages and terminals.

A variable is secret by its name (``HF_TOKEN``, ``MLFLOW_TRACKING_PASSWORD``, ``AWS_SECRET_ACCESS_KEY``, …), and so is
the login in an address (``https://user:password@host``), whatever the variable is called.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from urllib.parse import quote, unquote

SHORTEST = 8
"""Characters of a value that is looked for: a shorter one stands in ordinary text by chance."""
HIDDEN = "***"
_NAME = re.compile(
    r"SECRET|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)(?:TOKEN|API_?KEY|KEY|PAT|CREDENTIAL)S?(?:_|$)"
    r"|(?:^|_)(?:PG|DB)?PASS(?:_|$)|_PWD(?:_|$)|_AUTH$|(?:^|_)(?:WEBHOOK|DSN)(?:_|$)",
    re.IGNORECASE,
)
_LOGIN = re.compile(r"(?<=://)([^/\s@]+)@(?=[^/\s@])")
_ENVIRONMENT = re.compile(r"oc\.env\s*:\s*([A-Za-z_]\w*)")
"""How a configuration asks for a variable."""


def is_secret(name: str) -> bool:
    """Whether a variable of this name holds what nobody should read."""
    return _NAME.search(name) is not None


def without_login(address: str) -> str:
    """An address as it may be shown: without the user and the password in it."""
    return _LOGIN.sub("", address)


def concealed(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """The text with every secret of the environment as ``***``; the same text where it holds none."""
    for secret, _ in sorted(_secrets(environment), key=lambda found: -len(found[0])):
        text = text.replace(secret, HIDDEN)
    return text


def secret_in(text: str, environment: Mapping[str, str] = os.environ) -> str | None:
    """The variable whose secret a text holds or asks for by ``${oc.env:NAME}``; None for a text without any."""
    return secret_finder(environment)(text)


def secret_finder(environment: Mapping[str, str] = os.environ) -> Callable[[str], str | None]:
    """:func:`secret_in` for many texts: the environment is read once."""
    secrets = list(_secrets(environment))

    def find(text: str) -> str | None:
        asked = next((name for name in _ENVIRONMENT.findall(text) if is_secret(name)), None)
        return asked or next((name for secret, name in secrets if secret in text), None)

    return find


def _forms(secret: str) -> Iterator[str]:
    yield secret
    yield quote(secret, safe="")
    yield from (json.dumps(secret, ensure_ascii=ascii_alone)[1:-1] for ascii_alone in (False, True))


def _secrets(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Each secret, as it is and as it stands in an address or in JSON, with the variable that holds it."""
    for name, value in environment.items():
        found = [value] if is_secret(name) else []
        for login in _LOGIN.findall(value):
            found += [login, unquote(login.partition(":")[2])]
        for secret in dict.fromkeys(form for one in found for form in _forms(one)):
            if len(secret) >= SHORTEST:
                yield secret, name
