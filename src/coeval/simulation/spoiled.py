"""Replies gone wrong, in the ways that real models go wrong."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

import msgspec

from coeval.core.records import LEVELS
from coeval.simulation.ask import Fenced, OfferedChoice, Reply
from coeval.simulation.draws import Draws
from coeval.simulation.marks import REFUSAL

Spoil: TypeAlias = Callable[[Any], str]


def written(reply: Reply) -> str:
    """The text of a reply: compact JSON for an object."""
    match reply:
        case OfferedChoice():
            return reply.text
        case Fenced():
            return f"```json\n{msgspec.json.encode(reply.value).decode()}\n```"
        case str():
            return reply
        case _:
            return msgspec.json.encode(reply).decode()


def spoil(reply: Reply, draws: Draws) -> str:
    """One of the ways that fit the reply: objects, objects of levels, a bare level, a choice, a text."""
    if isinstance(reply, OfferedChoice):
        return draws.pick("way to go wrong", _OF_A_CHOICE)(reply)
    if isinstance(reply, Fenced):
        return draws.pick("way to go wrong", _OF_AN_OBJECT + _OF_A_GRADE)(reply.value)
    if isinstance(reply, str):
        ways = _OF_A_LEVEL if reply in LEVELS else _OF_A_TEXT
        ways = _OF_A_VERDICT if "[[" in reply else ways
    elif reply and all(value in LEVELS for value in reply.values()):
        ways = _OF_AN_OBJECT + _OF_LEVELS
    else:
        ways = _OF_AN_OBJECT
    return draws.pick("way to go wrong", ways)(reply)


def _fenced(reply: dict[str, Any]) -> str:
    """Repairable: a fence, a comma too many, and talk around it."""
    return f"Here is the JSON:\n```json\n{written(reply)[:-1]},}}\n```\nLet me know if it should change."


def _cut(reply: Reply) -> str:
    text = written(reply)
    return text[: len(text) * 2 // 3]


def _refused(_: Reply) -> str:
    return REFUSAL


def _talked(_: Reply) -> str:
    return "There are good points and weak ones here, and much depends on what one looks for."


def _lowered(reply: dict[str, str]) -> str:
    return written({name: level.lower() for name, level in reply.items()})


def _numbered(reply: dict[str, str]) -> str:
    """A grade out of ten in the place of the first level."""
    return written({**reply, next(iter(reply)): "8/10"})


def _shortened(reply: dict[str, str]) -> str:
    """The last factor is missing."""
    return written(dict(list(reply.items())[:-1]))


def _ungraded(reply: dict[str, Any]) -> str:
    """A string where a number or a truth value belongs."""
    return written({name: f"{value}" for name, value in reply.items()})


def _beyond(reply: dict[str, Any]) -> str:
    """A number off the scale, which is also no truth value."""
    return written({name: value if isinstance(value, str) else 42 for name, value in reply.items()})


def _doubled(reply: str) -> str:
    """Two verdicts that contradict each other."""
    return f"It could be [[A>B]], or else [[B>A]]. {reply.partition('[[')[0]}"


def _undecided(reply: str) -> str:
    return reply.partition("[[")[0] + "that both have their merits."


_OF_AN_OBJECT: tuple[Spoil, ...] = (_fenced, _cut, _refused, _talked)
_OF_LEVELS: tuple[Spoil, ...] = (_lowered, _numbered, _shortened)
_OF_A_LEVEL: tuple[Spoil, ...] = (str.lower, lambda _: "8/10", _refused, _talked)
_OF_A_GRADE: tuple[Spoil, ...] = (_ungraded, _beyond)
_OF_A_VERDICT: tuple[Spoil, ...] = (_refused, _talked, _doubled, _undecided)
_OF_A_CHOICE: tuple[Spoil, ...] = (_refused, _talked, lambda _: "Both")
_OF_A_TEXT: tuple[Spoil, ...] = (_refused, _cut)
