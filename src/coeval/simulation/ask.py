"""What a role player is given, and what it gives back."""

from __future__ import annotations

from typing import Any, NamedTuple, TypeAlias

from coeval.core.records import Schema
from coeval.simulation.draws import Draws
from coeval.simulation.traits import Traits


class Fenced(NamedTuple):
    """An object to be written as JSON in a Markdown fence."""

    value: dict[str, Any]


class OfferedChoice(NamedTuple):
    """A text of one token, and how likely each token was in its place, the likeliest first or second."""

    text: str
    chances: dict[str, float]


Reply: TypeAlias = str | dict[str, Any] | Fenced | OfferedChoice
"""A text, or an object to be written as JSON."""


class SimulatedAsk(NamedTuple):
    """One question to ``model``: ``text`` is the last user message, ``labels`` those of the request."""

    model: str
    traits: Traits
    text: str
    schema: Schema | None
    draws: Draws
    labels: dict[str, list[str]]

    def properties(self) -> dict[str, Any]:
        """The properties that the schema names; none without a schema."""
        found = self.schema.body.get("properties") if self.schema else None
        return found if isinstance(found, dict) else {}
