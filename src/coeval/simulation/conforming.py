"""JSON that follows whatever schema a client sends: OpenAI's structured outputs, tools, JSON mode."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any, NamedTuple

from coeval.core.errors import BadRequest
from coeval.simulation.prose import AnswerMark, SimulatedAsk, sentences, write_answer
from coeval.simulation.student import hidden_quality

# Schemas that people write nest some five deep.
DEEPEST = 12
# Values (and, above, levels) after which optional parts are omitted, so that a recursive schema ends.
MANY = 200
# Recursion must end before Python's own limit; each level takes some frames.
_DEEPEST_SCHEMA = 64
# What a client's schema can make the server write is bounded: by values, …
_MOST_VALUES = 10_000
# … items of one list, …
_MOST_ITEMS = 1000
# … characters of one text, …
_LONGEST_STRING = 100_000
# … characters in all (a few megabytes on the wire), …
_MOST_CHARACTERS = 1_000_000
# … and branches that are looked at.
_MOST_BRANCHES = 100

# A value for each format of JSON Schema that a client may name.
_STRINGS = {
    "date": "2026-01-01",
    "time": "12:00:00Z",
    "date-time": "2026-01-01T12:00:00Z",
    "duration": "P1D",
    "email": "sim@example.org",
    "hostname": "example.org",
    "ipv4": "192.0.2.1",
    "ipv6": "2001:db8::1",
    "uri": "https://example.org/",
    "uuid": "00000000-0000-4000-8000-000000000000",
}


def conforming(ask: SimulatedAsk) -> dict[str, Any]:
    """Make a random object that follows the schema of ``ask``; its first text states the answer's quality.

    Values are drawn by chance; the first text states the quality of this answer, as a student's does.

    Raises BadRequest: the schema is no object's, or asks for what a simulated model does not write; says
    what.
    """
    body = ask.schema.body if ask.schema is not None else {}
    writer = _Writer(ask, body)
    value = writer.value(_SchemaPlace(body, "$", 0))
    if not isinstance(value, dict):
        raise _unwritable("$", "the schema of an answer must be that of an object")
    return value or {"answer": writer.text("$.answer")}


class _SchemaPlace(NamedTuple):
    """A schema, where its value stands, and how deep."""

    schema: Any
    path: str
    depth: int

    def below(self, schema: Any, name: str) -> _SchemaPlace:
        return _SchemaPlace(schema, f"{self.path}{name}", self.depth + 1)


class _Writer:
    """Writes one value."""

    def __init__(self, ask: SimulatedAsk, root: Mapping[str, Any]) -> None:
        self._ask = ask
        self._root = root
        self._marked = False
        self._values = self._characters = 0

    def value(self, place: _SchemaPlace) -> Any:
        self._values += 1
        if self._values > _MOST_VALUES:
            raise _unwritable(place.path, f"it holds more than {_MOST_VALUES:,} values")
        schema = self._resolved(place)
        if "const" in schema:
            return schema["const"]
        if "enum" in schema:
            return self._one_of(schema["enum"], place.path)
        for name in ("anyOf", "oneOf"):
            if branches := _part(schema, name, list, [], place.path)[:_MOST_BRANCHES]:
                return self.value(place.below(self._branch(branches, place), ""))
        kind = _kind(schema)
        match kind:
            case "object":
                return self._object(schema, place)
            case "array":
                return self._array(schema, place)
            case "string":
                return self._string(schema, place.path)
            case "integer" | "number":
                return self._number(schema, place.path, whole=kind == "integer")
            case "boolean":
                return self._uniform(place.path) >= 0.5
            case "null":
                return None
            case _:
                raise _unwritable(place.path, f"the type {kind!r} is none of JSON Schema")

    def text(self, path: str) -> str:
        """A sentence or two; the first of an answer states its quality."""
        said = sentences(self._ask.draws, f"text {path}", 2)
        if self._marked:
            return said
        self._marked = True
        quality = hidden_quality(self._ask, 0.5)
        return f"{write_answer(AnswerMark(self._ask.model, self._ask.traits.family, quality))} {said}"

    def _is_much(self, place: _SchemaPlace) -> bool:
        return place.depth >= DEEPEST or self._values >= MANY

    def _resolved(self, place: _SchemaPlace) -> dict[str, Any]:
        """The schema with its reference followed and the parts of ``allOf`` laid together."""
        if place.depth > _DEEPEST_SCHEMA:
            raise _unwritable(place.path, f"it is nested more than {_DEEPEST_SCHEMA} deep")
        schema = place.schema
        for _ in range(_DEEPEST_SCHEMA):
            if schema is True:
                return {}
            if not isinstance(schema, dict):
                raise _unwritable(place.path, "this is no schema")
            if "$ref" not in schema:
                break
            schema = self._referred(schema["$ref"], place.path)
        else:
            raise _unwritable(place.path, "its references go round in a circle")
        laid: dict[str, Any] = {}
        for part in _part(schema, "allOf", list, [], place.path)[:_MOST_BRANCHES]:
            other = self._resolved(_SchemaPlace(part, place.path, place.depth + 1))
            laid = {**laid, **other, **_joined(laid, other)}
        return {**laid, **schema, **_joined(laid, schema)} if laid else schema

    def _referred(self, reference: Any, path: str) -> Any:
        found: Any = self._root
        if not isinstance(reference, str) or not reference.startswith("#"):
            raise _unwritable(path, f"the reference {str(reference)[:80]!r} points out of the schema")
        for name in filter(None, reference[1:].split("/")):
            key = name.replace("~1", "/").replace("~0", "~")
            if not isinstance(found, dict) or key not in found:
                raise _unwritable(path, f"the reference {reference[:80]!r} leads nowhere")
            found = found[key]
        return found

    def _branch(self, branches: list[Any], place: _SchemaPlace) -> Any:
        """The first that is a value; the one that ends soonest where it is deep already."""
        if self._is_much(place):
            kinds = [_kind(self._resolved(place._replace(schema=branch))) for branch in branches]
            simple = [i for i, kind in enumerate(kinds) if kind not in ("object", "array")]
            return branches[simple[0] if simple else 0]
        return next((b for b in branches if isinstance(b, dict) and b.get("type") != "null"), branches[0])

    def _object(self, schema: dict[str, Any], place: _SchemaPlace) -> dict[str, Any]:
        properties = _part(schema, "properties", dict, {}, place.path)
        required = _part(schema, "required", list, [], place.path)
        names = required if self._is_much(place) else {**properties, **dict.fromkeys(required)}
        return {name: self.value(place.below(properties.get(name, True), f".{name}")) for name in names}

    def _array(self, schema: dict[str, Any], place: _SchemaPlace) -> list[Any]:
        least = _part(schema, "minItems", int, 0, place.path)
        most = _part(schema, "maxItems", int, _MOST_ITEMS, place.path)
        if least > _MOST_ITEMS:
            raise _unwritable(place.path, f"minItems is above {_MOST_ITEMS}")
        first = schema.get("prefixItems") or []
        needed = least if self._is_much(place) else max(least, len(first) or 1 + self._bits(place.path) % 3)
        rest = schema.get("items", True)
        count = min(needed, most) if rest is not False else min(needed, most, len(first))
        return [self.value(place.below(first[i] if i < len(first) else rest, f"[{i}]")) for i in range(count)]

    def _string(self, schema: dict[str, Any], path: str) -> str:
        if "pattern" in schema:
            raise _unwritable(path, "simulated models write no text to a pattern")
        if (needed := schema.get("format")) is not None:
            return _STRINGS.get(needed) or self.text(path)
        least = _part(schema, "minLength", int, 0, path)
        most = _part(schema, "maxLength", int, _LONGEST_STRING, path)
        if least > _LONGEST_STRING:
            raise _unwritable(path, f"minLength is above {_LONGEST_STRING}")
        text = self.text(path)
        text = (text * (least // len(text) + 1) if len(text) < least else text)[:most]
        self._characters += len(text)
        if self._characters > _MOST_CHARACTERS:
            raise _unwritable(path, f"its texts take more than {_MOST_CHARACTERS:,} characters")
        return text

    def _number(self, schema: dict[str, Any], path: str, *, whole: bool) -> int | float:
        step = _part(schema, "multipleOf", float, 1.0 if whole else 0.0, path)
        nudge = step or 1e-6
        low = _part(schema, "minimum", float, -math.inf, path)
        high = _part(schema, "maximum", float, math.inf, path)
        low = max(low, _part(schema, "exclusiveMinimum", float, -math.inf, path) + nudge)
        high = min(high, _part(schema, "exclusiveMaximum", float, math.inf, path) - nudge)
        # A number without bounds is one of 0 to 10, moved to where its one bound lies.
        low = low if math.isfinite(low) else min(0.0, high - 10) if math.isfinite(high) else 0.0
        high = high if math.isfinite(high) else max(10.0, low + 10)
        value = low + (high - low) * self._uniform(path)
        if step:
            value = min(max(round(value / step), math.ceil(low / step)), math.floor(high / step)) * step
        if not low <= value <= high:
            raise _unwritable(path, "no number meets its bounds")
        return round(value) if whole else round(value, 6)

    def _one_of(self, values: Any, path: str) -> Any:
        if not isinstance(values, list) or not values:
            raise _unwritable(path, "enum takes a list of values")
        return values[self._bits(path) % len(values)]

    def _bits(self, path: str) -> int:
        return self._ask.draws.bits(f"value {path}")

    def _uniform(self, path: str) -> float:
        return self._ask.draws.uniform(f"value {path}")


def _kind(schema: Mapping[str, Any]) -> Any:
    """The type of a schema's values, told by its other words where it names none."""
    kind = schema.get("type")
    if isinstance(kind, list):
        return next((one for one in kind if one != "null"), "null")
    if kind is not None:
        return kind
    if "items" in schema or "prefixItems" in schema:
        return "array"
    if "properties" in schema or not schema.keys() - {"title", "description", "$defs", "$schema"}:
        return "object" if "properties" in schema else "string"
    return "object" if "required" in schema or "additionalProperties" in schema else "string"


def _joined(one: Mapping[str, Any], other: Mapping[str, Any]) -> dict[str, Any]:
    """Properties and required names of two schemas that both hold."""
    return {
        "properties": {**(one.get("properties") or {}), **(other.get("properties") or {})},
        "required": [*dict.fromkeys([*(one.get("required") or ()), *(other.get("required") or ())])],
    }


_WORDS = {list: "a list", dict: "a mapping", int: "a whole number, 0 or more", float: "a number"}


def _part(schema: Mapping[str, Any], name: str, kind: type[Any], default: Any, path: str) -> Any:
    value = schema.get(name, default)
    fits = isinstance(value, int | float if kind is float else kind) and not isinstance(value, bool)
    if not fits or (kind is int and value < 0):
        raise _unwritable(path, f"{name} must be {_WORDS[kind]}")
    return float(value) if kind is float else value


def _unwritable(path: str, reason: str) -> BadRequest:
    return BadRequest(f"the schema cannot be followed at {path[:200]}: {reason}", status=400)
