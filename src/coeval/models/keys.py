"""Credentials: where they are looked for, and how they are kept out of every message.

A model's own ``access_key`` comes first, then its host's entry in a key file, or the account that the model
names there, then the environment. Key files are looked into in the order of ``--keys``, ``COEVAL_KEYS_FILE``,
``keys.yaml`` in the working folder, ``~/.coeval/keys.yaml``: the first that has a provider is its. No message
made here holds a value.
"""

from __future__ import annotations

import logging
import re
import stat
from collections.abc import Iterable, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path
from typing import Any, NamedTuple

from ruamel.yaml.constructor import DuplicateKeyError
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from coeval.core.errors import UsageError
from coeval.core.options import KEYS
from coeval.core.redaction import Redactor
from coeval.core.regular_files import read_file_bytes
from coeval.core.shown_url import HIDDEN, is_key_like, is_password_like
from coeval.core.yaml_text import yaml_reader
from coeval.models.catalog import HOSTS, IDENTITY_FIELDS, SECRET_FIELDS, Host

Entries = dict[str, dict[str, str]]
"""Host → field of its entry → value."""

_PLAIN_NAME = re.compile(r"[a-z][a-z0-9_]{0,23}")
_ACCOUNT_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,63}")

_log = logging.getLogger(__name__)


class Credential:
    """Who asks a host: an API key or the host's own fields. Its repr shows no value."""

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


class _Account(NamedTuple):
    """An entry with a name of its own, for an interface that has another one, or none."""

    interface: str
    fields: dict[str, str]


class _KeyFile(NamedTuple):
    path: Path
    entries: Entries
    accounts: dict[str, _Account]


class Keys:
    """The credentials of all hosts, read once."""

    def __init__(self, files: Sequence[_KeyFile], env: Mapping[str, str]) -> None:
        self._files = files
        self._env = env

    @classmethod
    def load(cls, path: Path | None, *, env: Mapping[str, str], cwd: Path, home: Path) -> Keys:
        """Read the key files that there are; ``path`` is what ``--keys`` named.

        Raises UsageError: a file that was named is not there, or a file is not a key file.
        """
        return cls([_read(file) for file in _find(path, env, cwd, home)], env)

    def credential(
        self, interface: str, access_key: str | None = None, account: str | None = None
    ) -> Credential | None:
        """What an interface's models are asked with, or None where no place holds anything.

        ``account`` names an entry of a key file, which is asked with in place of the interface's own; where
        that one says no address, the interface's holds.

        Raises UsageError: there is no such account, or it is one of another interface.
        """
        host = HOSTS[interface]
        fields = {field: self._env[name].strip() for field, name in self._variables(host).items()}
        for entry in (self._entry(host)[1], self._of_account(account, interface) if account else {}):
            if entry.keys() & IDENTITY_FIELDS:
                fields = _without_identity(fields)
            fields |= entry
        if access_key:
            fields = _without_identity(fields) | {"api_key": access_key}
        return Credential(fields) if fields else None

    def places(self, interface: str) -> str:
        """The sentence that names every place where this interface's key may stand."""
        host = HOSTS[interface]
        variables = host.key_env or tuple(name for names in host.settings.values() for name in names)
        places = ["`access_key` of the model", f"`providers.{interface}` in {self._paths()}"]
        if variables:
            places.append(f"{' or '.join(variables)} in the environment")
        return f"A key is looked for in: {'; '.join(places)}."

    def _paths(self) -> str:
        usual = f"{KEYS}, COEVAL_KEYS_FILE, ./keys.yaml or ~/.coeval/keys.yaml"
        return ", ".join(str(file.path) for file in self._files) or (
            f"a key file ({usual}; none of these exists)"
        )

    def _of_account(self, name: str, interface: str) -> dict[str, str]:
        accounts: dict[str, _Account] = {}
        for file in reversed(self._files):
            accounts.update(file.accounts)
        if (found := accounts.get(name)) is None:
            hint = _hint(name, accounts) if accounts else "none is named there."
            raise UsageError(f"the account {_shown_account(name)} is not in {self._paths()}; {hint}")
        if found.interface != interface:
            raise UsageError(
                f"the account {_shown_account(name)} is one of the interface `{found.interface}`, not of "
                f"`{interface}`; correct the model's account or its interface."
            )
        return found.fields

    def sources(self, interface: str) -> dict[str, str]:
        """Where each field of an interface's credential was found, in words without any value."""
        host = HOSTS[interface]
        found = {field: f"{name} in the environment" for field, name in self._variables(host).items()}
        place, entry = self._entry(host)
        if entry.keys() & IDENTITY_FIELDS:
            found = _without_identity(found)
        return found | dict.fromkeys(entry, place)

    def accounts(self) -> dict[str, tuple[str, Path]]:
        """The accounts of the key files: name → its interface, and the file."""
        named = (
            (name, account.interface, file.path)
            for file in self._files
            for name, account in file.accounts.items()
        )
        accounts: dict[str, tuple[str, Path]] = {}
        for name, interface, path in named:
            accounts.setdefault(name, (interface, path))
        return accounts

    def _variables(self, host: Host) -> dict[str, str]:
        """Field → the variable that it is set by."""
        found: dict[str, str] = {}
        for field, names in {"api_key": host.key_env, **host.settings}.items():
            if (name := next((name for name in names if self._env.get(name, "").strip()), None)) is not None:
                found[field] = name
        return found

    def _entry(self, host: Host) -> tuple[str, dict[str, str]]:
        """The entry of the first file that has one, after its place in words."""
        for file in self._files:
            for name in (host.name, host.shares_keys_of):
                if name in file.entries:
                    return f"`providers.{name}` in {file.path}", file.entries[name]
        return "", {}


def _without_identity(fields: Mapping[str, str]) -> dict[str, str]:
    return {field: value for field, value in fields.items() if field not in IDENTITY_FIELDS}


def _find(path: Path | None, env: Mapping[str, str], cwd: Path, home: Path) -> list[Path]:
    """The key files that there are, in the order in which they are looked into."""
    named = env.get("COEVAL_KEYS_FILE", "").strip()
    files: list[Path] = []
    for given, origin in ((path, str(KEYS)), (Path(named) if named else None, "COEVAL_KEYS_FILE")):
        if given is None:
            continue
        requested = home.joinpath(*given.parts[1:]) if given.parts[:1] == ("~",) else cwd / given
        if not requested.exists():
            raise UsageError(f"{_shown(given, requested)}, the key file that {origin} names, is not there.")
        files.append(requested)
    usual = (cwd / "keys.yaml", home / ".coeval" / "keys.yaml")
    return list(dict.fromkeys([*files, *(file for file in usual if file.exists())]))


def _shown(given: Path, requested: Path) -> str:
    """A path that leads nowhere: a key may have been given in the place of a file."""
    if any(is_key_like(part) or is_password_like(part) for part in map(str.strip, given.parts)):
        return HIDDEN
    return Redactor().redact_message(str(requested))


def _read(path: Path) -> _KeyFile:
    try:
        if path.stat().st_mode & stat.S_IROTH:
            _log.warning("%s can be read by every user of this machine; `chmod 600` it.", path)
        content = yaml_reader().load(read_file_bytes(path).decode("utf-8-sig"))
    except OSError as error:
        raise UsageError(f"{path}: the key file cannot be read: {error.strerror}.") from error
    except (YAMLError, ValueError, RecursionError) as error:
        # The parser quotes the lines around an error; neither they nor the cause may be shown.
        mark = error.problem_mark if isinstance(error, MarkedYAMLError) else None
        line = f":{mark.line + 1}" if mark is not None else ""
        twice = isinstance(error, DuplicateKeyError)
        why = "names the same key twice" if twice else "is not valid YAML in UTF-8"
        raise UsageError(f"{path}{line}: the key file {why}.") from None
    return _entries(path, content)


def _entries(path: Path, content: Any) -> _KeyFile:
    shape = "a key file reads `providers:` and, below it, one `name: key` per provider"
    read = _KeyFile(path, {}, {})
    content = {} if content is None else content
    if not isinstance(content, dict) or set(content) - {"providers"}:
        raise UsageError(f"{path}: {shape}.")
    providers = {} if content.get("providers") is None else content["providers"]
    if not isinstance(providers, dict):
        raise UsageError(f"{path}: {shape}.")
    problems: list[str] = []
    for name, value in providers.items():
        if isinstance(value, dict) and "interface" in value:
            _take_account(name, dict(value), read, problems)
        elif _known(name, problems) and value is not None:
            read.entries[name] = _fields(name, name, value, problems)
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return read


def _take_account(name: Any, value: dict[Any, Any], read: _KeyFile, problems: list[str]) -> None:
    interface = value.pop("interface")
    if not isinstance(name, str) or not is_account_name(name) or name in HOSTS:
        problems.append(
            "`providers` holds an account with a name that it cannot have: letters, digits and - _ . alone, "
            "at most 64 of them, no interface, and nothing that looks like a key."
        )
    elif not isinstance(interface, str) or interface not in HOSTS:
        problems.append(f"`providers.{name}` names no interface that there is; {_hint(interface, HOSTS)}")
    else:
        read.accounts[name] = _Account(interface, _fields(name, interface, value, problems))


def _known(name: Any, problems: list[str]) -> bool:
    if isinstance(name, str) and name in HOSTS:
        return True
    # A key pasted in the place of a name is not repeated.
    shown = f"`{name}`" if isinstance(name, str) and _PLAIN_NAME.fullmatch(name) else "a name"
    problems.append(
        f"`providers` holds {shown} that is no provider; {_hint(name, HOSTS)} "
        "An account of your own says its `interface:`."
    )
    return False


def _hint(given: Any, known: Iterable[str]) -> str:
    """The name that was meant, else all that there are."""
    close = get_close_matches(given, known, n=1) if isinstance(given, str) else []
    return f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(sorted(known))}."


def _fields(name: str, interface: str, value: Any, problems: list[str]) -> dict[str, str]:
    """The fields of an entry called ``name``, as a host has them."""
    allowed = {"api_key", *HOSTS[interface].settings}
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


def is_account_name(name: str) -> bool:
    """Whether an account may be called so. It is shown in messages and kept with a run: no key may be."""
    return _ACCOUNT_NAME.fullmatch(name) is not None and not is_key_like(name)


def _shown_account(name: str) -> str:
    return f"`{name}`" if is_account_name(name) else "that the model names"
