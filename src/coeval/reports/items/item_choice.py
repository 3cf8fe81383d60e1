"""Which items are asked for, as it stands in an address: ``student=gpt&task=triage&order=worst``.

``student task teacher judge factor item`` are names; ``attribute=NAME=VALUE`` is what an item was sampled
with. What one key names several times is a union, keys cut each other; each attribute is a key of its own.
``student``, ``judge`` and ``factor`` also say which scores the means are made of. ``q`` are words that all
have to occur; ``order`` is one of `ORDERS`; ``lost=A,B`` are the items on which A scored less than B;
``failed=1`` those of which something failed, ``marked=1`` those that somebody marked; ``flag`` is one of
`FLAGS`.
"""

from __future__ import annotations

from typing import Literal, TypeAlias, get_args
from urllib.parse import parse_qsl

import msgspec

from coeval.core.errors import UsageError
from coeval.core.text import listed

__all__ = ["FLAGS", "ORDERS", "ItemChoice", "ItemOrder", "LostTo", "item_choice"]

ItemOrder: TypeAlias = Literal["id", "worst", "disagreement", "difficulty"]
ORDERS: tuple[ItemOrder, ...] = get_args(ItemOrder)
"""``worst``: by the lowest score of an answer, ``difficulty``: by the mean of all, both least first;
``disagreement``: by how far judges are apart. What has none of it stands last."""

FLAGS = ("all_pass", "all_fail", "reversed", "near_duplicate")

_MOST_FIELDS = 1_000
_MOST_WORDS = 20
_NAMES = {
    "student": "students",
    "task": "tasks",
    "teacher": "teachers",
    "judge": "judges",
    "factor": "factors",
    "item": "items",
    "flag": "flags",
}


class LostTo(msgspec.Struct, frozen=True):
    """``loser`` scored less than ``winner``."""

    loser: str
    winner: str


class ItemChoice(msgspec.Struct, frozen=True):
    """Empty: all of them. ``attributes``: values by name; ``words`` are in lower case."""

    students: tuple[str, ...] = ()
    tasks: tuple[str, ...] = ()
    teachers: tuple[str, ...] = ()
    judges: tuple[str, ...] = ()
    factors: tuple[str, ...] = ()
    items: tuple[str, ...] = ()
    flags: tuple[str, ...] = ()
    attributes: dict[str, tuple[str, ...]] = {}
    words: tuple[str, ...] = ()
    order: ItemOrder = "id"
    lost: LostTo | None = None
    failed: bool = False
    marked: bool = False


def item_choice(query: str) -> ItemChoice:
    """The choice that a query says.

    Raises
    ------
    UsageError
        it has an unknown key, or a value that is none; the message names both.
    """
    try:
        pairs = parse_qsl(query, keep_blank_values=True, max_num_fields=_MOST_FIELDS)
    except ValueError:
        raise UsageError(f"a choice of items has at most {_MOST_FIELDS:,} parts; choose fewer") from None
    names: dict[str, list[str]] = {key: [] for key in _NAMES}
    attributes: dict[str, tuple[str, ...]] = {}
    given: dict[str, str] = {}
    for key, value in pairs:
        if key in names:
            names[key].append(value)
        elif key == "attribute":
            name, told, wanted = value.partition("=")
            if not told:
                raise UsageError(f"attribute={value}: write attribute=NAME=VALUE")
            attributes[name] = (*attributes.get(name, ()), wanted)
        elif key in ("q", "order", "lost", "failed", "marked"):
            given[key] = value
        else:
            known = ", ".join([*_NAMES, "attribute", "q", "order", "lost", "failed", "marked"])
            raise UsageError(f"{key}: items are not chosen by this; there are {known}")
    return ItemChoice(
        **{field: tuple(dict.fromkeys(names[key])) for key, field in _NAMES.items()},
        attributes=attributes,
        words=tuple(given.get("q", "").lower().split()[:_MOST_WORDS]),
        order=_order(given.get("order", "id")),
        lost=_lost(given["lost"]) if "lost" in given else None,
        failed=given.get("failed", "0") == "1",
        marked=given.get("marked", "0") == "1",
    )


def _order(name: str) -> ItemOrder:
    for order in ORDERS:
        if order == name:
            return order
    raise UsageError(f"order={name}: items are ordered by {listed(ORDERS)}")


def _lost(value: str) -> LostTo:
    loser, told, winner = value.partition(",")
    if not told:
        raise UsageError(f"lost={value}: write lost=A,B for the items on which A scored less than B")
    return LostTo(loser, winner)
