"""Which fields are named like credentials: of a request's body, a header, a URL's query."""

from __future__ import annotations

import re
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, TypeAlias

__all__ = ["credential_fields", "is_credential_name"]

Path: TypeAlias = tuple[str | int, ...]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALWAYS = frozenset(
    {
        "accesskey", "apikey", "apitoken", "auth", "authentication", "authorization", "authtoken", "bearer",
        "cookie", "cookies", "credential", "credentials", "jwt", "passphrase", "passwd", "password",
        "passwords", "pwd", "secret", "secretkey", "secrets",
    }
)  # fmt: skip
_HARMLESS_KEYS = frozenset(
    {
        "answer", "cache", "column", "dedup", "dict", "foreign", "group", "idempotency", "image", "input",
        "json", "label", "lookup", "map", "message", "output", "partition", "primary", "prompt", "public",
        "question", "response", "routing", "sort", "text",
    }
)  # fmt: skip
"""What has a key that opens nothing: ``prompt_cache_key``."""
_HARMLESS_TOKENS = frozenset(
    {
        "audio", "begin", "bos", "cls", "decoder", "end", "eos", "forced", "image", "mask", "newline", "pad",
        "sep", "special", "start", "stop", "think", "thinking", "tool", "unk", "video",
    }
)  # fmt: skip
"""What tokens of a text are called: ``eos_token``."""
_NAMES_BELOW = frozenset({"$defs", "definitions", "patternProperties", "properties"})
"""Below these, keys are names of what a JSON schema describes."""


def is_credential_name(name: str) -> bool:
    """Whether a field so named holds a credential: ``api_key``, ``x-auth``, ``pwd``, ``extra_headers``."""
    words = [word.lower() for word in _WORD.findall(name)]
    if not words:
        return False
    if _ALWAYS.intersection((*words, "".join(words))) or ("access", "key") in pairwise(words):
        return True
    before = words[-2] if len(words) > 1 else ""
    match words[-1]:
        case "header" | "headers":
            return True
        case "pass":
            return before in ("", "user", "db", "proxy")
        case "key" | "keys":
            return before not in _HARMLESS_KEYS
        case "token":
            return before not in _HARMLESS_TOKENS
        case _:
            return False


def credential_fields(value: Any, path: Path = ()) -> Iterator[Path]:
    """Where plain data has a field that is named like a credential and holds something, at any depth.

    A pair of a ``name`` and a ``value``, as headers are written, is such a field too; what a JSON schema
    describes is none.
    """
    match value:
        case list() | tuple():
            for index, item in enumerate(value):
                yield from credential_fields(item, (*path, index))
        case {"name": str(name), "value": item} | {"key": str(name), "value": item}:
            if is_credential_name(name) and _holds(name, item):
                yield (*path, "value")
        case dict():
            described = path[-1:] != () and path[-1] in _NAMES_BELOW
            for key, item in value.items():
                if not described and is_credential_name(key) and _holds(key, item):
                    yield (*path, key)
                else:
                    yield from credential_fields(item, (*path, key))


def _holds(name: str, value: Any) -> bool:
    """Whether there is something in a field: a number is none where it may count or stand for a token."""
    if isinstance(value, bool | int | float):
        return not isinstance(value, bool) and not name.lower().endswith(("key", "token"))
    return bool(value)
