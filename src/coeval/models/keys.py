"""Credentials: where they are looked for, and how they are kept out of every message.

A model's own ``access_key`` comes first, then its host's entry in a key file or the account that the model
names there, then the environment. Key files are read in the order of ``--keys``, ``COEVAL_KEYS_FILE``,
``keys.yaml`` in the working folder, ``~/.coeval/keys.yaml``; the first with an entry for the provider wins.
No message made here holds a value.
"""

from __future__ import annotations

import logging
import os
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
    """What authenticates requests to a host: an API key or the host's own fields. Its repr shows no value."""

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
    """A named entry of a key file: a further credential for an interface."""

    interface: str
    fields: dict[str, str]


class _KeyFile(NamedTuple):
    path: Path
    entries: Entries
    accounts: dict[str, _Account]


class Keys:
    """The credentials of all hosts, from key files and the environment."""

    def __init__(self, files: Sequence[_KeyFile], env: Mapping[str, str]) -> None:
        self._files = files
        self._env = env

    @classmethod
    def load(cls, path: Path | None, *, env: Mapping[str, str], cwd: Path, home: Path) -> Keys:
        """Read the key files that exist; ``path`` is the value of ``--keys``. Raises UsageError: a named file
        does not exist, or is not a key file."""
        return cls([_read_key_file(file) for file in _find_key_files(path, env, cwd, home)], env)

    def credential(
        self, interface: str, access_key: str | None = None, account: str | None = None
    ) -> Credential | None:
        """Return the credential for an interface's models, or None if none is configured. ``account`` names a
        key file's entry that replaces the interface's own, except for an address it lacks. Raises UsageError:
        no such account, or it belongs to another interface."""
        host = HOSTS[interface]
        fields = {field: self._env[name].strip() for field, name in self._variable_by_field(host).items()}
        for entry in (self._find_entry(host)[1], self._account_fields(account, interface) if account else {}):
            if entry.keys() & IDENTITY_FIELDS:
                fields = _without_identity(fields)
            fields |= entry
        if access_key:
            fields = _without_identity(fields) | {"api_key": access_key}
        return Credential(fields) if fields else None

    def describe_places(self, interface: str) -> str:
        """Describe in a sentence every place where this interface's key may be."""
        host = HOSTS[interface]
        variables = host.key_env or tuple(name for names in host.settings.values() for name in names)
        places = ["`access_key` of the model", f"`providers.{interface}` in {self._describe_paths()}"]
        if variables:
            places.append(f"{' or '.join(variables)} in the environment")
        return f"A key is looked up in: {'; '.join(places)}."

    def _describe_paths(self) -> str:
        usual = f"{KEYS}, COEVAL_KEYS_FILE, ./keys.yaml or ~/.coeval/keys.yaml"
        return ", ".join(str(file.path) for file in self._files) or (
            f"a key file ({usual}; none of these exists)"
        )

    def _account_fields(self, name: str, interface: str) -> dict[str, str]:
        accounts: dict[str, _Account] = {}
        for file in reversed(self._files):
            accounts.update(file.accounts)
        if (account := accounts.get(name)) is None:
            hint = _suggest_name(name, accounts) if accounts else "no account is named there."
            raise UsageError(f"the account {_quote_account(name)} is not in {self._describe_paths()}; {hint}")
        if account.interface != interface:
            raise UsageError(
                f"the account {_quote_account(name)} is one of the interface `{account.interface}`, not of "
                f"`{interface}`; correct the model's account or its interface."
            )
        return account.fields

    def sources(self, interface: str) -> dict[str, str]:
        """Return where each field of an interface's credential comes from, in words without any value."""
        host = HOSTS[interface]
        sources = {
            field: f"{name} in the environment" for field, name in self._variable_by_field(host).items()
        }
        entry_source, entry = self._find_entry(host)
        if entry.keys() & IDENTITY_FIELDS:
            sources = _without_identity(sources)
        return sources | dict.fromkeys(entry, entry_source)

    def locate_accounts(self) -> dict[str, tuple[str, Path]]:
        return {
            name: (account.interface, file.path)
            for file in reversed(self._files)
            for name, account in file.accounts.items()
        }

    def _variable_by_field(self, host: Host) -> dict[str, str]:
        """Return the environment variable that sets each credential field."""
        candidates = {"api_key": host.key_env, **host.settings}
        return {
            field: name
            for field, names in candidates.items()
            if (name := next((name for name in names if self._env.get(name, "").strip()), None)) is not None
        }

    def _find_entry(self, host: Host) -> tuple[str, dict[str, str]]:
        """Return the first key file's entry for a host, after its place in words; empty if none has one."""
        for file in self._files:
            for name in (host.name, host.shares_keys_of):
                if name in file.entries:
                    return f"`providers.{name}` in {file.path}", file.entries[name]
        return "", {}


def _without_identity(fields: Mapping[str, str]) -> dict[str, str]:
    return {field: value for field, value in fields.items() if field not in IDENTITY_FIELDS}


def _find_key_files(path: Path | None, env: Mapping[str, str], cwd: Path, home: Path) -> list[Path]:
    """Return the key files that exist, in order of precedence."""
    named = env.get("COEVAL_KEYS_FILE", "").strip()
    files: list[Path] = []
    for file, origin in ((path, str(KEYS)), (Path(named) if named else None, "COEVAL_KEYS_FILE")):
        if file is None:
            continue
        resolved = home.joinpath(*file.parts[1:]) if file.parts[:1] == ("~",) else cwd / file
        if not resolved.exists():
            described = _path_unless_key_like(file, resolved)
            raise UsageError(f"{described}, the key file that {origin} names, is missing.")
        files.append(resolved)
    usual = (cwd / "keys.yaml", home / ".coeval" / "keys.yaml")
    return list(dict.fromkeys([*files, *(file for file in usual if file.exists())]))


def _path_unless_key_like(path: Path, requested: Path) -> str:
    """Return the path of a missing key file, hidden if it looks like a key pasted instead of a path."""
    if any(is_key_like(part) or is_password_like(part) for part in map(str.strip, path.parts)):
        return HIDDEN
    return Redactor().redact_message(str(requested))


def _read_key_file(path: Path) -> _KeyFile:
    """Read a key file; warn if every user can read it. Raises UsageError: it cannot be read, or is no key
    file. The message quotes nothing of it."""
    try:
        if path.stat().st_mode & stat.S_IROTH:
            _log.warning("%s is readable by every user of this machine; `chmod 600` it.", path)
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
    return _parse_providers(path, content)


def _parse_providers(path: Path, content: Any) -> _KeyFile:
    """Parse the content of a key file; raise one UsageError with every problem in it."""
    shape = "a key file reads `providers:` and, below it, one `name: key` per provider"
    parsed = _KeyFile(path, {}, {})
    content = {} if content is None else content
    if not isinstance(content, dict) or set(content) - {"providers"}:
        raise UsageError(f"{path}: {shape}.")
    providers = {} if content.get("providers") is None else content["providers"]
    if not isinstance(providers, dict):
        raise UsageError(f"{path}: {shape}.")
    problems: list[str] = []
    for name, value in providers.items():
        if isinstance(value, dict) and "interface" in value:
            _add_account(name, dict(value), parsed, problems)
        elif _check_provider_name(name, problems) and value is not None:
            parsed.entries[name] = _parse_fields(name, name, value, problems)
    if problems:
        raise UsageError("\n".join(f"{path}: {problem}" for problem in problems))
    return parsed


def _add_account(name: Any, value: dict[Any, Any], key_file: _KeyFile, problems: list[str]) -> None:
    interface = value.pop("interface")
    if not isinstance(name, str) or not is_account_name(name) or name in HOSTS:
        problems.append(
            "`providers` holds an account with an invalid name; use letters, digits and - _ . alone, "
            "at most 64 of them, no interface, and nothing that looks like a key."
        )
    elif not isinstance(interface, str) or interface not in HOSTS:
        problems.append(
            f"`providers.{name}` names no interface that there is; {_suggest_name(interface, HOSTS)}"
        )
    else:
        key_file.accounts[name] = _Account(interface, _parse_fields(name, interface, value, problems))


def _check_provider_name(name: Any, problems: list[str]) -> bool:
    if isinstance(name, str) and name in HOSTS:
        return True
    # A key pasted in the place of a name is not repeated.
    quoted = f"`{name}`" if isinstance(name, str) and _PLAIN_NAME.fullmatch(name) else "a name"
    problems.append(
        f"`providers` holds {quoted} that is not a provider; {_suggest_name(name, HOSTS)} "
        "An account of your own says its `interface:`."
    )
    return False


def _suggest_name(misspelled: Any, valid_names: Iterable[str]) -> str:
    """Suggest the closest valid name, else list them all."""
    close = get_close_matches(misspelled, valid_names, n=1) if isinstance(misspelled, str) else []
    return f"did you mean `{close[0]}`?" if close else f"known are: {', '.join(sorted(valid_names))}."


def _parse_fields(name: str, interface: str, value: Any, problems: list[str]) -> dict[str, str]:
    """Check an entry's fields against those of its host, add problems to the list, and return them."""
    allowed = {"api_key", *HOSTS[interface].settings}
    fields = value if isinstance(value, dict) else {"api_key": value}
    texts = {field: content for field, content in fields.items() if content is not None}
    if not texts.keys() <= allowed:
        problems.append(
            f"`providers.{name}` has an unknown field; it may have: {', '.join(sorted(allowed))}."
        )
        return {}
    for field, content in texts.items():
        if not isinstance(content, str) or not content.strip():
            problems.append(f"`providers.{name}`: {field} must be text; put it in quotes.")
            return {}
    return {field: content.strip() for field, content in texts.items()}


def is_account_name(name: str) -> bool:
    """Check whether an account may have this name. It is shown, so it must not look like a key."""
    return _ACCOUNT_NAME.fullmatch(name) is not None and not is_key_like(name)


def _quote_account(name: str) -> str:
    return f"`{name}`" if is_account_name(name) else "that the model names"


def load_keys(path: str | Path | None = None) -> Keys:
    """Load credentials from ``path``, the usual key files and the environment."""
    key_file = None if path is None else Path(path)
    return Keys.load(key_file, env=os.environ, cwd=Path.cwd(), home=Path.home())
