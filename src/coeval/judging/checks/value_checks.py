"""Checks of a number, of JSON, and of what an answer took."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from decimal import Decimal
from functools import cached_property
from typing import Annotated, Any, Literal, TypeAlias

from msgspec import Meta

from coeval.core.entry_points import extra_pip_command
from coeval.core.errors import CheckFailed, Undecodable, Unparsable
from coeval.core.figures import dollars
from coeval.core.foreign import decode
from coeval.core.plain import cut_middle
from coeval.core.text import extract_json
from coeval.judging.checks.rubric_check import (
    PASSED,
    CheckedAnswer,
    CheckPlace,
    CheckScore,
    RubricCheck,
    TargetedCheck,
    quote_line,
    shorten_line,
)

NotNegative: TypeAlias = Annotated[float, Meta(ge=0)]

# Characters that a reason shows of a number, or of a value in JSON.
_LONGEST_VALUE = 40
# Characters of an answer in which numbers are sought, from either end.
_NUMBERS_READ = 100_000

# What is a number with a decimal comma only, as 1.234,50 and 7,25 are: never two numbers with a point.
_OTHER = (
    r"(?<![\d.,])(?:\d{1,3}(?:\.\d{3})+,\d+|\d+,(?:\d\d?|\d{4,})|\d{4,},\d{3}|\d{1,3}(?:\.\d{3}){2,})"
    r"(?![.,]?\d)"
)
_NUMBER = re.compile(
    rf"(?<![\w.])([-+]?)[$€£¥]?(?:({_OTHER})|(?=\.?\d)(\d{{1,3}}(?:,\d{{3}})+(?!\d)|\d*)(\.\d+)?"
    r"(e[-+]?\d{1,3}(?!\w))?)",
    re.IGNORECASE,
)
# Thin blanks and apostrophes that part thousands, as in 1 234 and 1'234; plain blanks before a fraction.
_PARTED = re.compile(r"[\u00a0\u202f'’](?<=\d.)(?=\d{3})")
_BLANKS = re.compile(r"(?<![\d.,])\d{1,3}(?: \d{3})+(?=[.,]\d)")
_BLANK = re.compile(r"\d \d")
_SWAPPED = str.maketrans(",.", ".,")


class NumericCheck(TargetedCheck, frozen=True, kw_only=True, tag_field="check", tag="numeric", dict=True):
    """The answer's number equals the target, within a tolerance. Of several numbers the last one counts, or
    the first. ``math`` compares expressions as well (math-verify)."""

    absolute: NotNegative = 0.0
    relative: NotNegative = 0.0
    which: Literal["first", "last"] = "last"
    decimal: Literal[".", ","] = "."
    math: bool = False

    def __post_init__(self) -> None:
        TargetedCheck.__post_init__(self)
        if self.math and (self.absolute or self.relative):
            raise ValueError("math compares expressions and knows no tolerance; drop absolute and relative")
        if not self.math and None in map(_find_last_number, self.constants):
            raise ValueError("is not a number; write it with a decimal point")

    @property
    def runs(self) -> CheckPlace:
        return "worker" if self.math else "here"

    def score(self, answer: CheckedAnswer) -> CheckScore:
        """Compare the answer's first or last number with the targets."""
        targets = self.targets(answer)
        if self.math:
            return _compare_expressions(answer.response, targets)
        wanted = self._constants or tuple(map(self._target_number, targets))
        text = answer.response
        text = text[:_NUMBERS_READ] if self.which == "first" else text[-_NUMBERS_READ:]
        try:
            number = self._find_number(text, self.which)
        except _OtherDecimal as error:
            return CheckScore(0.0, str(error))
        if number is None:
            return CheckScore(0.0, "holds no number")
        if number in wanted or any(abs(number - target) <= self._tolerance(target) for target in wanted):
            return PASSED
        return CheckScore(0.0, f"gives {cut_middle(str(number), _LONGEST_VALUE)}")

    @cached_property
    def _constants(self) -> tuple[Decimal, ...]:
        return tuple(number for text in self.constants if (number := _find_last_number(text)) is not None)

    def _target_number(self, text: str) -> Decimal:
        try:
            number = self._find_number(text, "last")
        except _OtherDecimal as other:  # no answer profits: what a table says is read as it can be
            number = other.number
        if number is None:
            raise CheckFailed(f"{quote_line(text)} holds no number to compare with")
        return number

    def _tolerance(self, number: Decimal) -> Decimal:
        return max(Decimal(self.absolute), Decimal(self.relative) * abs(number))

    def _find_number(self, text: str, which: Literal["first", "last"]) -> Decimal | None:
        if not text.isascii() or "'" in text:
            text = _PARTED.sub("", text.replace("\u2212", "-"))
        if _BLANK.search(text) is not None:
            text = _BLANKS.sub(lambda parted: parted[0].replace(" ", ""), text)
        return _parse_number(text.translate(_SWAPPED) if self.decimal == "," else text, which, self.decimal)


class _OtherDecimal(Exception):
    """A number with the other decimal sign; ``text`` is written with a comma before its fraction."""

    def __init__(self, text: str, sign: str, decimal: str) -> None:
        self.number = _parse_number(sign + text.translate(_SWAPPED), "last")
        as_written, other = (text.translate(_SWAPPED), ".") if decimal == "," else (text, ",")
        remedy = f"set decimal: {other!r} to read it"
        super().__init__(f"{quote_line(as_written)} is not a number with decimal: {decimal!r}; {remedy}")


def _parse_number(text: str, which: Literal["first", "last"], decimal: str = ".") -> Decimal | None:
    """Find a number with a decimal point and optional commas between thousands, in a text that had
    ``decimal`` for the point; raises _OtherDecimal."""
    match: re.Match[str] | None = None
    words = text.split()  # no number holds a blank, so the last one is in the last word with any
    for word in words if which == "first" else reversed(words):
        numbers = list(_NUMBER.finditer(word))
        if numbers:
            match = numbers[0 if which == "first" else -1]
            break
    if match is None:
        return None
    sign, other, whole, fraction, exponent = match.groups(default="")
    if other:
        raise _OtherDecimal(other, sign, decimal)
    return Decimal(f"{sign}{whole.replace(',', '') or 0}{fraction}{exponent}")


def _find_last_number(text: str) -> Decimal | None:
    with suppress(_OtherDecimal):
        return _parse_number(text, "last")
    return None


def _compare_expressions(answer_text: str, targets: tuple[str, ...]) -> CheckScore:
    """Compare mathematical expressions; runs in a worker, whose time limit replaces that of math-verify."""
    try:
        from math_verify import parse, verify
    except ImportError as error:
        raise CheckFailed(f"math: true needs math-verify: {extra_pip_command('math')}") from error

    expression = parse(answer_text, parsing_timeout=None)
    if not expression:
        return CheckScore(0.0, "holds no expression")
    same = any(verify(parse(t, parsing_timeout=None), expression, timeout_seconds=None) for t in targets)
    return PASSED if same else CheckScore(0.0, f"gives {quote_line(str(expression[-1]))}")


# --- JSON


class JsonCheck(RubricCheck, frozen=True, kw_only=True, tag_field="check", tag="is_json", dict=True):
    """The answer is JSON, or holds an object or array (``anywhere``)."""

    anywhere: bool = False

    def score(self, answer: CheckedAnswer) -> CheckScore:
        return PASSED if self.read_json_into_list(answer.response) else CheckScore(0.0, "is not JSON")

    def read_json_into_list(self, text: str) -> list[Any]:
        """Return the JSON value of the answer in a list, empty if there is none."""
        if self.anywhere:
            try:
                parsed = extract_json(text)
            except Unparsable:
                return []
            return [] if parsed.repaired else [parsed.value]
        try:
            return [decode(text)]
        except Undecodable:
            return []


# Keywords whose cost may grow beyond the product of the sizes of answer and schema.
_UNBOUNDED = frozenset(
    {"pattern", "patternProperties", "uniqueItems", "$ref", "$dynamicRef", "unevaluatedItems"}
    | {"unevaluatedProperties", "format", "contains", "propertyNames"}
)


class JsonSchemaCheck(JsonCheck, frozen=True, kw_only=True, tag_field="check", tag="json_schema", dict=True):
    """The answer is JSON that follows the schema (draft 2020-12). Nothing is fetched."""

    schema: dict[str, Any]

    def __post_init__(self) -> None:
        for word, value in _iterate_keywords(self.schema):
            if word in ("$ref", "$dynamicRef") and not (isinstance(value, str) and value.startswith("#")):
                raise ValueError(
                    f"{word}: {quote_line(str(value))} is outside the schema; write it into $defs"
                )
        from jsonschema import Draft202012Validator, SchemaError

        try:
            Draft202012Validator.check_schema(self.schema)
        except SchemaError as error:
            raise ValueError(f"schema: {cut_middle(str(error).partition(chr(10))[0], 200)}") from error

    @property
    def runs(self) -> CheckPlace:
        return "worker" if self._has_unbounded_keywords else "here"

    @cached_property
    def _has_unbounded_keywords(self) -> bool:
        return any(word in _UNBOUNDED for word, _ in _iterate_keywords(self.schema))

    @cached_property
    def _validator(self) -> Any:
        from jsonschema import Draft202012Validator
        from referencing import Registry

        return Draft202012Validator(self.schema, registry=Registry())

    def score(self, answer: CheckedAnswer) -> CheckScore:
        values = self.read_json_into_list(answer.response)
        if not values:
            return CheckScore(0.0, "is not JSON")
        error = next(self._validator.iter_errors(values[0]), None)
        if error is None:
            return PASSED
        reason = error.message
        if reason.startswith(python_text := repr(error.instance)):  # in words of JSON, not of Python
            instance = json.dumps(error.instance, ensure_ascii=False)
            reason = cut_middle(instance, _LONGEST_VALUE) + reason.removeprefix(python_text)
        where = error.json_path.removeprefix("$").removeprefix(".")
        return CheckScore(0.0, f"{where}: {shorten_line(reason)}" if where else shorten_line(reason))


def _iterate_keywords(schema: object) -> Iterator[tuple[str, object]]:
    """Yield every key of a schema with its value, at any depth."""
    pending = [schema]
    while pending:
        match pending.pop():
            case dict() as mapping:
                yield from mapping.items()
                pending += mapping.values()
            case list() as values:
                pending += values


# --- What an answer took


class _Limit(RubricCheck, frozen=True, kw_only=True, dict=True):
    most: NotNegative

    def score_at_most(self, figure: float | None, reason: Callable[[float], str], unknown: str) -> CheckScore:
        """Compare a figure with the limit; raises CheckFailed if there is none."""
        if figure is None:
            raise CheckFailed(f"the answer's record holds no {unknown}")
        return PASSED if figure <= self.most else CheckScore(0.0, reason(figure))


class LatencyCheck(_Limit, frozen=True, kw_only=True, tag_field="check", tag="latency_ms", dict=True):
    """The answer took at most so many milliseconds."""

    def score(self, answer: CheckedAnswer) -> CheckScore:
        took_ms = None if answer.latency_s is None else answer.latency_s * 1000
        return self.score_at_most(took_ms, "took {:,.0f} ms".format, "time")


class CostCheck(_Limit, frozen=True, kw_only=True, tag_field="check", tag="cost_usd", dict=True):
    """The answer cost at most so much, in US dollars."""

    def score(self, answer: CheckedAnswer) -> CheckScore:
        unknown = "cost: its model has no known price"
        return self.score_at_most(answer.cost_usd, lambda usd: f"cost {dollars(usd)}", unknown)
