"""URLs as they may be shown: a key may stand in each part of one but its scheme and its host."""

from __future__ import annotations

import re
from collections.abc import Iterator
from urllib.parse import unquote

from coeval.core.secrets.credential_names import is_credential_name
from coeval.core.secrets.key_shapes import is_key_like, is_password_like

__all__ = ["HIDDEN", "shown_url", "url_secrets", "without_url_secrets"]

HIDDEN = "***"
"""What is shown in place of a credential that stands in a setting."""

_SCHEME = r"(?P<scheme>[A-Za-z][A-Za-z0-9+.-]*://)"
_REST = r"(?P<host>[^/?#@\s]*)(?P<path>[^?#\s]*)(?:\?(?P<query>[^#\s]*))?(?:#(?P<fragment>\S*))?"
_SET = re.compile(rf"\s*{_SCHEME}(?:(?P<user>.*[^/]|)@)?{_REST}\s*", re.DOTALL)
"""An address that a user wrote: what stands before its last @ may be a password, whatever is in it; only a
part of a path may begin with one."""
_MENTIONED = re.compile(rf"(?<![A-Za-z0-9+.-]){_SCHEME}(?:(?P<user>[^/?#\s@]*)@)?{_REST}")
_HOST = re.compile(r"(?:[\w.-]+|\[[0-9A-Fa-f:.]+\])(?::\d*)?")
"""What names a host and a port; what stands there in another form may be a key that was put in its place."""
_QUERY_SECRETS = frozenset({"code", "pw", "sig", "signature"})


def shown_url(url: str) -> str:
    """An address from the configuration or the environment, without what may be secret in it.

    That is the user and password, the query, the fragment, and what looks like a key in the path. All of
    what is no URL is hidden.
    """
    parts = _SET.fullmatch(url)
    if parts is None or not _is_host(parts["host"]):
        return HIDDEN
    user = f"{HIDDEN}@" if parts["user"] is not None else ""
    query = f"?{HIDDEN}" if parts["query"] else ""
    fragment = f"#{HIDDEN}" if parts["fragment"] else ""
    return f"{parts['scheme']}{user}{parts['host']}{_shown_path(parts['path'])}{query}{fragment}"


def url_secrets(url: str) -> Iterator[str]:
    """What of an address that we ask is, or may be, a credential."""
    parts = _SET.fullmatch(url)
    if parts is None:
        return
    name, colon, password = (parts["user"] or "").partition(":")
    yield from _spelled(password if colon else name)
    for setting in (parts["query"] or "").split("&"):
        yield from _spelled(setting.partition("=")[2])
    yield from _spelled(parts["fragment"] or "")
    for segment in filter(_is_key, parts["path"].split("/")):
        yield from _spelled(segment)
    if not _is_host(parts["host"]):
        yield from _spelled(parts["host"].partition(":")[0])


def without_url_secrets(text: str) -> str:
    """A message without passwords in the URLs that it mentions, nor keys in their paths and queries."""
    return _MENTIONED.sub(_mentioned, text) if "://" in text else text


def _mentioned(parts: re.Match[str]) -> str:
    user = f"{HIDDEN}@" if parts["user"] is not None else ""
    query = "&".join(map(_shown_setting, parts["query"].split("&"))) if parts["query"] else ""
    fragment = _shown_setting(parts["fragment"]) if parts["fragment"] else ""
    return (
        f"{parts['scheme']}{user}{parts['host']}{_shown_path(parts['path'])}"
        f"{'?' if query else ''}{query}{'#' if fragment else ''}{fragment}"
    )


def _is_host(text: str) -> bool:
    return _HOST.fullmatch(text) is not None and not is_key_like(text)


def _is_key(segment: str) -> bool:
    segment = unquote(segment)
    return is_key_like(segment) or is_password_like(segment)


def _spelled(value: str) -> Iterator[str]:
    yield from {value, unquote(value)}


def _shown_path(path: str) -> str:
    return "/".join(HIDDEN if _is_key(segment) else segment for segment in path.split("/"))


def _shown_setting(setting: str) -> str:
    name, equals, _ = setting.partition("=")
    secret = is_credential_name(name) or name.lower() in _QUERY_SECRETS or is_key_like(unquote(setting))
    return f"{name}={HIDDEN}" if equals and secret else HIDDEN if secret else setting
