"""JSON that follows a client's schema: properties, enums, numbers, texts, lists of these, references."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from coeval.core.errors import BadRequest
from coeval.simulation.prose import AnswerMark, SimulatedAsk, sentences, write_answer
from coeval.simulation.student import hidden_quality

# Schemas that people write nest some five deep; one that holds itself ends here.
_DEEPEST = 12
# Values, so that a client's schema makes no answer of megabytes.
_MOST_VALUES = 1_000
# Where a schema bounds no number: from 0 to 10.
_USUAL_RANGE = 10
# Readers of JSON keep whole numbers up to here.
_LARGEST = 2**53


def conforming(ask: SimulatedAsk) -> dict[str, Any]:
    """Make a random object that follows the schema of ``ask``; its first text states the answer's quality, as
    a student's does.

    Raises BadRequest: the schema is no object's, or has a word that simulated models do not follow.
    """
    writer = _Writer(ask)
    value = writer.value(writer.root, "$", 0)
    if not isinstance(value, dict):
        raise _unwritable("$", "the schema of an answer must be that of an object")
    return value or {"answer": writer.text("$.answer")}


class _Writer:
    """Writes one answer."""

    def __init__(self, ask: SimulatedAsk) -> None:
        self._ask = ask
        self.root: Mapping[str, Any] = ask.schema.body if ask.schema is not None else {}
        self._marked = False
        self._values = 0

    def value(self, schema: Any, path: str, depth: int) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES or depth > _DEEPEST:
            raise _unwritable(path, f"it has over {_MOST_VALUES:,} values, or nests over {_DEEPEST} deep")
        if isinstance(schema, dict) and "$ref" in schema:
            return self.value(self._referred(schema["$ref"], path), path, depth + 1)
        match schema:
            case {"const": value}:
                return value
            case {"enum": [*values]} if values:
                return values[self._bits(path) % len(values)]
            case {"anyOf": [first, *others]}:
                usual = (one for one in (first, *others) if one != {"type": "null"})
                return None if depth > _DEEPEST // 2 and others else self.value(next(usual), path, depth + 1)
            case {"properties": dict() as parts}:
                return {name: self.value(part, f"{path}.{name}", depth + 1) for name, part in parts.items()}
            case {"type": "object"}:
                return {}
            case {"type": "array", "items": items}:
                return [
                    self.value(items, f"{path}[{at}]", depth + 1) for at in range(1 + self._bits(path) % 3)
                ]
            case {"type": "integer" | "number" as kind}:
                return self._number(schema, path, whole=kind == "integer")
            case {"type": "boolean"}:
                return self._bits(path) % 2 == 0
            case {"type": "string"} if not schema.keys() & {"pattern", "format", "minLength", "maxLength"}:
                return self.text(path)
        raise _unwritable(
            path, "simulated models follow properties, enums, numbers, texts and lists of these"
        )

    def text(self, path: str) -> str:
        """A sentence or two; the first of an answer states its quality."""
        said = sentences(self._ask.draws, f"text {path}", 2)
        if self._marked:
            return said
        self._marked = True
        quality = hidden_quality(self._ask, 0.5)
        return f"{write_answer(AnswerMark(self._ask.model, self._ask.traits.family, quality))} {said}"

    def _referred(self, reference: Any, path: str) -> Any:
        place: Any = self.root
        for name in str(reference).removeprefix("#").strip("/").split("/"):
            place = place.get(name) if name and isinstance(place, dict) else place
        if not str(reference).startswith("#") or place is None:
            raise _unwritable(path, f"the reference {str(reference)[:80]!r} leads to no part of the schema")
        return place

    def _number(self, schema: Mapping[str, Any], path: str, *, whole: bool) -> int | float:
        low = _bound(schema, "inimum", 0.0, path)
        high = _bound(schema, "aximum", low + _USUAL_RANGE, path)
        value = low + (high - low) * self._ask.draws.uniform(f"value {path}")
        return round(value) if whole else round(value, 6)

    def _bits(self, path: str) -> int:
        return self._ask.draws.bits(f"value {path}")


def _bound(schema: Mapping[str, Any], name: str, usual: float, path: str) -> float:
    """Return ``minimum`` or ``exclusiveMinimum``, or the same of ``maximum``, by what their names share."""
    bound = schema.get(f"m{name}", schema.get(f"exclusiveM{name}", usual))
    if isinstance(bound, bool) or not isinstance(bound, int | float) or not abs(bound) < _LARGEST:
        raise _unwritable(path, f"its m{name} is no number that fits")
    return float(bound)


def _unwritable(path: str, reason: str) -> BadRequest:
    return BadRequest(f"the schema cannot be followed at {path[:200]}: {reason}", status=400)
