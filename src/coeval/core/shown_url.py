"""URLs without credentials: a key may be in any part but the scheme and the host."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from itertools import pairwise
from typing import Any, TypeAlias
from urllib.parse import unquote

# --- Field names of credentials

Path: TypeAlias = tuple[str | int, ...]

_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+")
_ALWAYS = frozenset(
    {
        "accesskey", "apikey", "apitoken", "auth", "authentication", "authorization", "authtoken", "bearer",
        "cookie", "cookies", "credential", "credentials", "jwt", "passphrase", "passwd", "password",
        "passwords", "pwd", "secret", "secretkey", "secrets",
    }
)  # fmt: skip
# What has a key that opens nothing: ``prompt_cache_key``.
_HARMLESS_KEYS = frozenset(
    {
        "answer", "cache", "column", "dedup", "dict", "foreign", "group", "idempotency", "image", "input",
        "json", "label", "lookup", "map", "message", "output", "partition", "primary", "prompt", "public",
        "question", "response", "routing", "sort", "text",
    }
)  # fmt: skip
# What tokens of a text are called: ``eos_token``.
_HARMLESS_TOKENS = frozenset(
    {
        "audio", "begin", "bos", "cls", "decoder", "end", "eos", "forced", "image", "mask", "newline", "pad",
        "sep", "special", "start", "stop", "think", "thinking", "tool", "unk", "video",
    }
)  # fmt: skip
# Below these, keys are names of what a JSON schema describes.
_NAMES_BELOW = frozenset({"$defs", "definitions", "patternProperties", "properties"})


def is_credential_name(name: str) -> bool:
    """Check whether a field's name suggests a credential: ``api_key``, ``x-auth``, ``extra_headers``."""
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


def find_credential_fields(value: Any, path: Path = ()) -> Iterator[Path]:
    """Find the non-empty fields of plain data whose names suggest credentials, at any depth.

    A pair of a ``name`` and a ``value``, as headers are written, is such a field too; what a JSON schema
    describes is none.
    """
    match value:
        case list() | tuple():
            for index, item in enumerate(value):
                yield from find_credential_fields(item, (*path, index))
        case {"name": str(name), "value": item} | {"key": str(name), "value": item}:
            if is_credential_name(name) and _can_be_credential_value(name, item):
                yield (*path, "value")
        case dict():
            described = path[-1:] != () and path[-1] in _NAMES_BELOW
            for key, item in value.items():
                if not described and is_credential_name(key) and _can_be_credential_value(key, item):
                    yield (*path, key)
                else:
                    yield from find_credential_fields(item, (*path, key))


def _can_be_credential_value(credential_name: str, value: Any) -> bool:
    """Check whether a credential's field holds one; a number may be a count or a token's id."""
    if isinstance(value, bool | int | float):
        return not isinstance(value, bool) and not credential_name.lower().endswith(("key", "token"))
    return bool(value)


# --- Patterns of API keys

KNOWN_KEY = re.compile(
    r"\b(?:sk|gsk|hf|csk|di|xai|nvapi|pplx)[-_](?=[\w*-]*[\d*])[\w*-]{8,}"
    r"|\b(?:AIza[\w-]{16,}|A[KS]IA[0-9A-Z]{12,}|eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?)"
)
"""A key of a known host, masked or not."""
KEY_SHAPED = re.compile(rf"{KNOWN_KEY.pattern}|(?i:(?<=bearer )|(?<=basic ))[\w.~+/=*-]{{8,}}")
"""The same, and the value after an authentication scheme."""

_NAMED = re.compile(r"(?:key|token|secret|passw\w*|auth|bearer)[-_.~=:].*\d", re.IGNORECASE)
_LONG = re.compile(r"\b(?![0-9a-f]{40}\b)(?=(?:[a-z]*\d){2})(?=(?:\d*[a-z]){4})[a-z0-9]{16,}", re.IGNORECASE)
_MIXED = re.compile(r"(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*\d)[A-Za-z0-9]{12,}")

_SIGNED = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])(?=.*[!$&*+,;~])[\x21-\x7e]{8,}")


def is_key_like(text: str) -> bool:
    """Check whether a part of a URL looks like a key: by its shape, its name, or random letters and digits.
    UUIDs, which hosts use for accounts, and git revisions are no keys."""
    return any(shape.search(text) for shape in (KEY_SHAPED, _NAMED, _LONG, _MIXED))


def is_password_like(text: str) -> bool:
    """Check whether a text looks like a password: 8 characters or more, of all four kinds."""
    return any(map(_SIGNED.fullmatch, text.split()))


HIDDEN = "***"
"""Shown in place of a credential in a setting."""

_SCHEME = r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)"
_REST = r"(?P<host>[^/?#@\s]*)(?P<path>[^?#\s]*)(?:\?(?P<query>[^#\s]*))?(?:#(?P<fragment>\S*))?"
# An address that a user wrote: what stands before its last @ may be a password, whatever is in it; only a
# part of a path may begin with one.
_SET = re.compile(rf"\s*{_SCHEME}(?:(?P<user>.*[^/]|)@)?{_REST}\s*", re.DOTALL)
_MENTIONED = re.compile(rf"(?<![A-Za-z0-9+.-]){_SCHEME}(?:(?P<user>[^/?#\s@]*)@)?{_REST}")
# What names a host and a port; what stands there in another form may be a key that was put in its place.
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d*)?")
_QUERY_SECRETS = frozenset({"code", "pw", "sig", "signature"})


def mask_url(url: str) -> str:
    """Mask all but scheme, host and keyless path parts of a URL with ``***``; all of other texts."""
    parts = _SET.fullmatch(url)
    if parts is None or not _is_host(parts["host"]):
        return HIDDEN
    user = f"{HIDDEN}@" if parts["user"] is not None else ""
    query = f"?{HIDDEN}" if parts["query"] else ""
    fragment = f"#{HIDDEN}" if parts["fragment"] else ""
    return f"{parts['scheme']}{user}{parts['host']}{_mask_path(parts['path'])}{query}{fragment}"


def find_url_secrets(url: str) -> Iterator[str]:
    """List the parts of a URL that are, or may be, credentials."""
    parts = _SET.fullmatch(url)
    if parts is None:
        return
    name, colon, password = (parts["user"] or "").partition(":")
    yield from _with_decoded(password if colon else name)
    for setting in (parts["query"] or "").split("&"):
        yield from _with_decoded(setting.partition("=")[2])
    yield from _with_decoded(parts["fragment"] or "")
    for segment in filter(_is_key, parts["path"].split("/")):
        yield from _with_decoded(segment)
    if not _is_host(parts["host"]):
        yield from _with_decoded(parts["host"].partition(":")[0])


def hide_url_secrets(text: str) -> str:
    """Redact passwords, and keys in paths and queries, of the URLs in a message."""
    return _MENTIONED.sub(_mask_mentioned_url, text) if "://" in text else text


def _mask_mentioned_url(parts: re.Match[str]) -> str:
    user = f"{HIDDEN}@" if parts["user"] is not None else ""
    query = "&".join(map(_mask_query_setting, parts["query"].split("&"))) if parts["query"] else ""
    fragment = _mask_query_setting(parts["fragment"]) if parts["fragment"] else ""
    return (
        f"{parts['scheme']}{user}{parts['host']}{_mask_path(parts['path'])}"
        f"{'?' if query else ''}{query}{'#' if fragment else ''}{fragment}"
    )


def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None and not is_key_like(text)


def _is_key(segment: str) -> bool:
    segment = unquote(segment)
    return is_key_like(segment) or is_password_like(segment)


def _with_decoded(value: str) -> Iterator[str]:
    yield from {value, unquote(value)}


def _mask_path(path: str) -> str:
    return "/".join(HIDDEN if _is_key(segment) else segment for segment in path.split("/"))


def _mask_query_setting(setting: str) -> str:
    name, equals, _ = setting.partition("=")
    secret = is_credential_name(name) or name.lower() in _QUERY_SECRETS or is_key_like(unquote(setting))
    return f"{name}={HIDDEN}" if equals and secret else HIDDEN if secret else setting


def strip_credentials(environment: Mapping[str, str], passed: Collection[str] = ()) -> dict[str, str]:
    """Return what checks, programs and servers of others see of an environment: no credential but those
    ``passed`` by name. Proxies keep their passwords."""

    def is_credential_variable(name: str, value: str) -> bool:
        in_url = "://" in value and not name.lower().endswith("_proxy") and any(find_url_secrets(value))
        return is_credential_name(name) or bool(KNOWN_KEY.search(value)) or in_url

    return {
        name: value
        for name, value in environment.items()
        if name in passed or not is_credential_variable(name, value)
    }
