"""What is made of a base URL: where on a host a model is asked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import NamedTuple, TypeAlias

__all__ = ["ApiPlace", "GivenAddress", "Placer"]


class GivenAddress(NamedTuple):
    """What a place is made of: the base URL as the user wrote it, the row's settings, and the model's id.

    ``settings[name]`` raises the UsageError that says where to set it, where it is not set.
    """

    url: str
    settings: Mapping[str, str]
    model: str


class ApiPlace(NamedTuple):
    """A base URL, and the path that is appended to it, quoted."""

    url: str
    path: str


Placer: TypeAlias = Callable[[GivenAddress], ApiPlace]
"""What it makes of a URL that is none, or holds more than an address, is refused by `address_of`."""
