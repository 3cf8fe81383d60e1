"""A configuration as a run folder keeps it."""

from __future__ import annotations

from collections.abc import Container, Iterator
from typing import Any

from coeval.core.secrets.credential_names import is_credential_name
from coeval.core.secrets.redaction import REDACTED, Redactor
from coeval.core.secrets.shown_url import HIDDEN, shown_url, without_url_secrets

__all__ = ["without_credentials"]

_NAMES = frozenset({"name", "model", "base_model"})
"""Entries of a model that name it openly."""


def without_credentials(value: Any) -> Any:
    """A copy of plain data in which every entry named like a credential reads ``***``.

    So does what may be a key in addresses; the access keys are taken out wherever they stand.
    """
    return _without(value, Redactor(_entries(value, {"access_key"}), names=_entries(value, _NAMES)))


def _entries(value: Any, names: Container[str]) -> Iterator[str]:
    """The texts that stand in entries of these names."""
    match value:
        case dict():
            for key, item in value.items():
                if key in names and isinstance(item, str):
                    yield item
                else:
                    yield from _entries(item, names)
        case list() | tuple():
            for item in value:
                yield from _entries(item, names)


def _without(value: Any, redactor: Redactor) -> Any:
    match value:
        case dict():
            return {key: _without_entry(key, item, redactor) for key, item in value.items()}
        case list() | tuple():
            return [_without(item, redactor) for item in value]
        case str():
            return without_url_secrets(redactor.answer(value))
        case _:
            return value


def _without_entry(key: Any, item: Any, redactor: Redactor) -> Any:
    if isinstance(key, str) and is_credential_name(key) and item is not None:
        return HIDDEN
    if key == "base_url" and isinstance(item, str):
        return shown_url(redactor.answer(item).replace(REDACTED, HIDDEN))
    return _without(item, redactor)
