"""Credentials: where they are looked for, and how they are kept out of every message.

A model's own ``access_key`` comes first, then its host's entry in a key file, then the
environment. Only the first key file that exists is read: ``--keys``, ``COEVAL_KEYS_FILE``,
``keys.yaml`` in the working folder, ``~/.coeval/keys.yaml``. No message made here holds a value.
"""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Mapping
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from coeval.core.errors import UsageError
from coeval.core.options import KEYS
from coeval.core.plain_file import file_bytes
from coeval.core.secrets.key_shapes import is_key_like, is_password_like
from coeval.core.secrets.redaction import Redactor
from coeval.core.secrets.shown_url import HIDDEN
from coeval.core.yaml_text import yaml_reader
from coeval.models.catalog import HOSTS, IDENTITY_FIELDS, SECRET_FIELDS, Host

__all__ = ["Credential", "Keys"]

Entries = dict[str, dict[str, str]]
"""Host → field of its entry → value."""

_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")

_log = logging.getLogger(__name__)


class Credential:
    """Who asks a host: an API key or the host's own fields. Its repr shows no value."""

    __slots__ = ("fields",)

    def __init__(self, fields: Mapping[str, str]) -> None:
        self.fields = dict(fields)

    @property
    def api_key(self) -> str | None:
        return self.fields.get("api_key")

    @property
    def secrets(self) -> tuple[str, ...]:
        return tuple(value for field, value in self.fields.items() if field in SECRET_FIELDS)

    def __repr__(self) -> str:
        return f"Credential({', '.join(f'{field}=…' for field in self.fields)})"


class _Source(NamedTuple):
    path: Path | None
    entries: Entries


class Keys:
    """The credentials of all hosts, read once."""

    def __init__(self, source: _Source, env: Mapping[str, str]) -> None:
        self._source = source
        self._env = env

    @classmethod
    def load(cls, path: Path | None, *, env: Mapping[str, str], cwd: Path, home: Path) -> Keys:
        """Read the first key file there is; ``path`` is what ``--keys`` named.

        Raises
        ------
        UsageError
            a file that was named is not there, or a file is not a key file.
        """
        found = _find(path, env, cwd, home)
        return cls(_Source(found, _read(found) if found is not None else {}), env)

    def credential(self, interface: str, access_key: str | None = None) -> Credential | None:
        """What an interface's models are asked with, or None where no place holds anything."""
        host = HOSTS[interface]
        fields = self._from_env(host)
        entry = self._from_file(host)
        if entry.keys() & IDENTITY_FIELDS:
            fields = _without_identity(fields)
        fields |= entry
        if access_key:
            fields = _without_identity(fields) | {"api_key": access_key}
        return Credential(fields) if fields else None

    def places(self, interface: str) -> str:
        """The sentence that names every place where this interface's key may stand."""
        host = HOSTS[interface]
        file = (
            f"`providers.{interface}` in {self._source.path}"
            if self._source.path is not None
            else f"`providers.{interface}` in a key file ({KEYS}, COEVAL_KEYS_FILE, "
            "./keys.yaml or ~/.coeval/keys.yaml; none of these exists)"
        )
        variables = host.key_env or tuple(name for names in host.settings.values() for name in names)
        places = ["`access_key` of the model", file]
        if variables:
            places.append(f"{' or '.join(variables)} in the environment")
        return f"A key is looked for in: {'; '.join(places)}."

    def _from_env(self, host: Host) -> dict[str, str]:
        wanted = {"api_key": host.key_env, **host.settings}
        found: dict[str, str] = {}
        for field, names in wanted.items():
            value = next((value for name in names if (value := self._env.get(name, "").strip())), "")
            if value:
                found[field] = value
        return found

    def _from_file(self, host: Host) -> dict[str, str]:
        entries = self._source.entries
        own = entries.get(host.name)
        if own is None and host.shares_keys_of is not None:
            own = entries.get(host.shares_keys_of)
        return own or {}


def _without_identity(fields: Mapping[str, str]) -> dict[str, str]:
    return {field: value for field, value in fields.items() if field not in IDENTITY_FIELDS}


def _find(path: Path | None, env: Mapping[str, str], cwd: Path, home: Path) -> Path | None:
    named = env.get("COEVAL_KEYS_FILE", "").strip()
    for given, origin in ((path, str(KEYS)), (Path(named) if named else None, "COEVAL_KEYS_FILE")):
        if given is None:
            continue
        asked = home.joinpath(*given.parts[1:]) if given.parts[:1] == ("~",) else cwd / given
        if not asked.exists():
            raise UsageError(f"{_shown(given, asked)}, the key file that {origin} names, is not there.")
        return asked
    usual = (cwd / "keys.yaml", home / ".coeval" / "keys.yaml")
    return next((file for file in usual if file.exists()), None)


def _shown(given: Path, asked: Path) -> str:
    """A path that leads nowhere: a key may have been given in the place of a file."""
    if any(is_key_like(part) or is_password_like(part) for part in map(str.strip, given.parts)):
        return HIDDEN
    return Redactor().message(str(asked))


def _read(path: Path) -> Entries:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            _log.warning("%s can be read by every user of this machine; `chmod 600` it.", path)
        content = yaml_reader().load(file_bytes(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: the key file cannot be read: {error.strerror}.") from error
    except (YAMLError, ValueError, RecursionError) as error:
        # The parser quotes the lines around an error; neither they nor the cause may be shown.
        raise UsageError(f"{path}{_line(error)}: {_fault(error)}.") from None
    return _entries(path, content)


def _line(error: Exception) -> str:
    mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
    return f":{mark.line + 1}" if mark is not None else ""


def _fault(error: Exception) -> str:
    match error:
        case DuplicateKeyError():
            return "the key file names the same key twice"
        case UnicodeDecodeError():
            return "the key file is not UTF-8 text"
        case _:
            return "the key file is not valid YAML"


def _entries(path: Path, content: Any) -> Entries:
    shape = "a key file reads `providers:` and, below it, one `name: key` per provider"
    if content is None:
        return {}
    if not isinstance(content, dict) or set(content) - {"providers"}:
        raise UsageError(f"{path}: {shape}.")
    providers = content.get("providers")
    if providers is None:
        return {}
    if not isinstance(providers, dict):
        raise UsageError(f"{path}: {shape}.")
    problems: list[str] = []
    entries = {
        name: _entry(name, value, problems)
        for name, value in providers.items()
        if _known(name, problems) and value is not None
    }
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return entries


def _known(name: Any, problems: list[str]) -> bool:
    if isinstance(name, str) and name in HOSTS:
        return True
    # A key pasted in the place of a name is not repeated.
    shown = f"`{name}`" if isinstance(name, str) and _PLAIN_NAME.fullmatch(name) else "a name"
    close = get_close_matches(name, HOSTS, n=1) if isinstance(name, str) else []
    hint = f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(sorted(HOSTS))}."
    problems.append(f"`providers` holds {shown} that is no provider; {hint}")
    return False


def _entry(name: str, value: Any, problems: list[str]) -> dict[str, str]:
    allowed = {"api_key", *HOSTS[name].settings}
    fields = value if isinstance(value, dict) else {"api_key": value}
    given = {field: content for field, content in fields.items() if content is not None}
    if not given.keys() <= allowed:
        problems.append(
            f"`providers.{name}` has a field it cannot have; it may have: {', '.join(sorted(allowed))}."
        )
        return {}
    for field, content in given.items():
        if not isinstance(content, str) or not content.strip():
            problems.append(f"`providers.{name}`: {field} must be text; put it in quotes.")
            return {}
    return {field: content.strip() for field, content in given.items()}
