"""What users set for a host's body by its own names, laid over what is ours."""

from __future__ import annotations

from collections.abc import Container, Mapping
from typing import Any

__all__ = ["lay_over"]


def lay_over(body: dict[str, Any], fields: Mapping[str, Any], groups: Container[str]) -> None:
    """Put fields in the place of those of a body; of an object that ``groups`` names, those within it."""
    for name, value in fields.items():
        there = body.get(name)
        grouped = name in groups and isinstance(there, dict) and isinstance(value, dict)
        body[name] = there | value if grouped else value
