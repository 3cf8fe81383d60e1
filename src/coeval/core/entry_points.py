"""What other packages bring: named in their entry points, loaded when it is asked for."""

from __future__ import annotations

from collections.abc import Iterator
from importlib import import_module
from importlib.metadata import entry_points
from typing import Any

from coeval.core.errors import UsageError

__all__ = ["brought", "loaded"]


def loaded(place: str, wanted_by: str) -> Any:
    """The object at ``package.module:name``; ``wanted_by`` is who names it.

    Raises
    ------
    UsageError
        there is no such place, or it cannot be imported.
    """
    module, colon, name = place.partition(":")
    try:
        if colon:
            return getattr(import_module(module), name)
    except (ImportError, AttributeError) as error:
        raise UsageError(f"{wanted_by}: {place} cannot be loaded ({error}); reinstall its package") from error
    raise UsageError(f"{wanted_by}: {place} is not known here; a place of another package is `module:name`")


def brought(group: str) -> Iterator[tuple[str, Any]]:
    """What installed packages bring in an entry point group: (name, object), by name.

    Raises
    ------
    UsageError
        one of them cannot be imported.
    """
    for point in sorted(entry_points(group=group), key=lambda point: point.name):
        try:
            yield point.name, point.load()
        except (ImportError, AttributeError) as error:
            raise UsageError(
                f"{point.name} ({point.value}), which an installed package brings as one of {group}, "
                f"cannot be loaded ({error}); reinstall or remove that package"
            ) from error
