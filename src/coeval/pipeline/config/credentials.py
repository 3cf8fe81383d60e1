"""Where credentials stand, and where not.

V-26: parameters are sent with every request and kept with what it makes, so they hold none. V-34: a model is
asked with one.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

from coeval.core.secrets.credential_names import credential_fields
from coeval.core.secrets.key_shapes import KNOWN_KEY
from coeval.core.secrets.redaction import Redactor
from coeval.core.secrets.shown_url import HIDDEN
from coeval.models.keys import is_account_name
from coeval.pipeline.config.findings import Finding, KeyPath

__all__ = ["account_of", "credentials_in"]

_WAY_OUT = "use access_key of the model, a key file, or the environment"
_PROSE = frozenset({"system_prompt", "stop", "stop_sequences"})
"""What may mention a key without being one."""


def account_of(model: KeyPath, account: Any, access_key: Any) -> Iterator[Finding]:
    """What is wrong with the account that a model names: a run keeps its name and messages show it."""
    if not isinstance(account, str):
        return
    if not is_account_name(account):
        message = (
            "is no name of an account: letters, digits and - _ . alone, and nothing that looks like a key, "
            "which belongs into access_key or a key file"
        )
        yield Finding((*model, "account"), "V-26", message)
    elif access_key is not None:
        message = "access_key is set too, and would be asked with; leave out one of the two"
        yield Finding((*model, "account"), "V-34", message)


def credentials_in(
    path: KeyPath, parameters: dict[str, Any], access_key: Any, names: Iterable[Any]
) -> Iterator[Finding]:
    """What is named like a credential at any depth, looks like one, or is the model's own ``access_key``;
    ``names`` are those of the model, which may stand anywhere."""
    named = {(*path, *where) for where in credential_fields(parameters)}
    for where in sorted(named, key=str):
        message = f"'{where[-1]}' would be sent with every request, and kept with the results; {_WAY_OUT}"
        yield Finding(where, "V-26", message)
    own = Redactor(
        [access_key] if isinstance(access_key, str) else [],
        names=[name for name in names if isinstance(name, str)],
    )
    for name, value in parameters.items():
        if name == "base_url":
            yield from _hidden((*path, name), value)
        elif name not in _PROSE:
            for where, text in _texts((*path, name), value):
                if where not in named and (KNOWN_KEY.search(text) or own.answer(text) != text):
                    message = f"holds a key, which would be sent and kept with the results; {_WAY_OUT}"
                    yield Finding(where, "V-26", message)


def _hidden(path: KeyPath, value: Any) -> Iterator[Finding]:
    if isinstance(value, str) and HIDDEN in value:
        message = f"holds {HIDDEN}, which a run's snapshot shows in place of a key; write the address anew"
        yield Finding(path, "V-26", message)


def _texts(path: KeyPath, value: Any) -> Iterator[tuple[KeyPath, str]]:
    match value:
        case str():
            yield path, value
        case dict():
            for key, item in value.items():
                yield from _texts((*path, key), item)
        case list() | tuple():
            for index, item in enumerate(value):
                yield from _texts((*path, index), item)
