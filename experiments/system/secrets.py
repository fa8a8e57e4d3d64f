"""Removes secrets of the environment, logins and local paths from text for files, pages and terminals.

Secrets are the values of variables with certain names (``HF_TOKEN``, ``MLFLOW_TRACKING_PASSWORD``,
``AWS_SECRET_ACCESS_KEY``, …), and the login in an address (``https://user:password@host``) in any variable.
"""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any
from urllib.parse import quote, unquote

SHORTEST = 8
"""Fewest characters of a value to search for; a shorter one occurs in ordinary text by chance."""
HIDDEN = "***"
SECRET_NAME = re.compile(
    r"SECRET|PASSWORD|PASSWD|PASSPHRASE|(?:^|_)(?:TOKEN|API_?KEY|KEY|PAT|CREDENTIAL)S?(?:_|$)"
    r"|(?:^|_)(?:PG|DB)?PASS(?:_|$)|_PWD(?:_|$)|_AUTH$|(?:^|_)(?:WEBHOOK|DSN)(?:_|$)",
    re.IGNORECASE,
)
LOGIN = re.compile(r"(?<=://)([^/\s@]+)@(?=[^/\s@])")
ENVIRONMENT_RESOLVER = re.compile(r"oc\.env\s*:\s*([A-Za-z_]\w*)")
LOCAL_PATH = re.compile(
    r"(?!(?<=[<\[|◁])/[\w:]+[>\]|▷])"  # not a tag, such as </think> or [/THINK]
    r"(?<![\w./:~…-])(?:(?:sqlite|file):/*)?(?:~|/[A-Za-z_.])[\w.+@%-]*(?:/[\w.+@%-]+)*/?"
)
WHOLE_PATH = re.compile(r"""(['"]?)(?:(?:sqlite|file):.*/|~[\w.-]*/(?:.*/)?|/(?:.*/)?)([^/]+?)/*\1""", re.DOTALL)
ELEMENT = re.compile(r"""(['"]).*?\1|[^\s\[\]{},][^\[\]{},]*""")
"""An element of a list in an override."""


def without_login(address: str) -> str:
    return LOGIN.sub("", address)


def without_paths(text: str) -> str:
    """Returns the text with local paths cut to their last part: ``/home/ann/models/x`` becomes ``…/x``."""
    return LOCAL_PATH.sub(lambda path: f"…/{path[0].rstrip('/').rpartition('/')[2]}", text)


def shorten_paths(value: Any) -> Any:
    """Returns a value of JSON in which each string that is as a whole a local path is cut to the path's last part.

    Such a string begins with ``/``, ``~`` or ``file:``, and may have any characters.
    """
    if isinstance(value, Mapping):
        return {key: shorten_paths(item) for key, item in value.items()}
    if isinstance(value, list):
        return [shorten_paths(item) for item in value]
    path = WHOLE_PATH.fullmatch(value) if isinstance(value, str) else None
    return path.expand(r"\1…/\2\1") if path else value


def shorten_override(override: str) -> str:
    """Returns an override ``key=value`` with the paths that are its value, or elements of its list, cut likewise."""
    key, equals, value = override.partition("=")
    if value.startswith("["):
        return key + equals + ELEMENT.sub(lambda element: shorten_paths(element[0]), value)
    return key + equals + shorten_paths(value)


def hide_secrets(text: str, environment: Mapping[str, str] = os.environ) -> str:
    """Returns the text with every secret of the environment replaced by ``***``."""
    # the longest first, because one secret may contain another
    for secret, _ in sorted(_secrets(environment), key=lambda found: -len(found[0])):
        text = text.replace(secret, HIDDEN)
    return text


def secret_finder(environment: Mapping[str, str] = os.environ) -> Callable[[str], str | None]:
    """Returns a function from a text to the name of a secret variable in it, or None.

    A text has a secret if it contains the value or references the variable by ``${oc.env:NAME}``. The environment is
    read once.
    """
    secrets = list(_secrets(environment))

    def find(text: str) -> str | None:
        referenced = next((name for name in ENVIRONMENT_RESOLVER.findall(text) if SECRET_NAME.search(name)), None)
        return referenced or next((name for secret, name in secrets if secret in text), None)

    return find


def _secrets(environment: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Yields each secret, also in its URL-quoted and JSON forms, with the name of its variable."""
    for name, value in environment.items():
        found = [value] if SECRET_NAME.search(name) else []
        for login in LOGIN.findall(value):
            found += [login, unquote(login.partition(":")[2])]
        for one in found:
            in_json = (json.dumps(one, ensure_ascii=ascii_only)[1:-1] for ascii_only in (False, True))
            for form in dict.fromkeys((one, quote(one, safe=""), *in_json)):
                if len(form) >= SHORTEST:
                    yield form, name
