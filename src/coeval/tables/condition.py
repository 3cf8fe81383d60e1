"""Which rows are wanted: ``level = hard``, ``score >= 3``, ``language != 'de'``. Nothing is evaluated."""

from __future__ import annotations

import operator
import re
from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Any

from coeval.core.errors import UsageError
from coeval.tables.field_path import FieldPath, Misfit, Row, as_text

_FORM = re.compile(r"\s*(.+?)\s*(!=|<=|>=|==|=|<|>)\s*(.*?)\s*", re.DOTALL)
_QUOTES = "'\""
_equal: Callable[[Any, Any], bool] = operator.eq
_ORDERS: dict[str, Callable[[Any, Any], bool]] = {
    "<": operator.lt,
    "<=": operator.le,
    ">": operator.gt,
    ">=": operator.ge,
}


@dataclass(frozen=True, slots=True)
class Condition:
    """``path`` held against ``value`` by ``sign``: numbers as numbers where both are, else text. A value that
    is not there equals the empty text, and is neither less nor more than anything."""

    path: str
    sign: str
    value: str

    @classmethod
    def of(cls, text: str) -> Condition:
        """
        Raises
        ------
        UsageError
            it is no comparison of a column with a value, or more than one.
        """
        match = _FORM.fullmatch(text)
        if match is None:
            raise UsageError(f"'{text}' is no condition; write COLUMN = VALUE, or with !=, <, <=, >, >=")
        path, sign, value = match.groups()
        if value[:1] in ("<", ">", "=", "!"):
            meant = f"; is {value[0]}= meant?" if sign == "=" and value[0] != "=" else "."
            raise UsageError(
                f"'{text}' has two signs{meant} There are =, !=, <, <=, > and >=; quote a value that begins "
                "with one"
            )
        if value[:1] in _QUOTES and value:
            if len(value) < 2 or value[-1] != value[0] or value[0] in value[1:-1]:
                raise UsageError(
                    f"'{text}' is not one condition; give each one of its own, and quote its value whole"
                )
            value = value[1:-1]
        elif re.search(r"\s(and|or)\s.*[=<>]", value, re.IGNORECASE):
            raise UsageError(f"'{text}' is more than one condition; give each one of its own (all must hold)")
        if path[:1] in _QUOTES and path[-1] == path[0] and len(path) > 2:
            path = path[1:-1]
        return cls(path, "=" if sign == "==" else sign, value)

    def among(self, columns: Collection[str]) -> Callable[[Row], bool]:
        """Whether it holds of a row; of one whose value is a list or a mapping it raises Misfit."""
        path, value, number = FieldPath.among(self.path, columns), self.value, _number(self.value)
        order = _ORDERS.get(self.sign, _equal)

        def equal(row: Row) -> bool:
            found = path.value(row)
            said = "" if found is None else as_text(found, path.text)
            return said == value or (number is not None and _number(said) == number)

        def different(row: Row) -> bool:
            return not equal(row)

        def ordered(row: Row) -> bool:
            found = path.value(row)
            if found is None:
                return False
            said = as_text(found, path.text)
            if number is None:
                if _number(said) is not None and not any(map(str.isdecimal, value)):
                    raise Misfit(
                        f"its `{path.text}` is {said}, and what it is held against ({value}) is no number"
                    )
                return order(said, value)
            theirs = _number(said)
            return theirs is not None and order(theirs, number)

        return equal if self.sign == "=" else different if self.sign == "!=" else ordered


def is_condition(text: str) -> bool:
    """Whether `Condition.of` takes it."""
    try:
        Condition.of(text)
    except UsageError:
        return False
    return True


def _number(text: str) -> float | None:
    try:
        found = float(text)
    except ValueError:
        return None
    return found if found == found else None
