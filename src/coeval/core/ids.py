"""Ids of records: made, and taken apart, here.

An item is ``task__teacher__n``, a response ``item__student``, an evaluation ``response__judge``. Names hold
no ``__`` (V-04); the part that an ingested item keeps of its own id may.
"""

from __future__ import annotations

from coeval.core.records import EXACT_MATCH

SEPARATOR = "__"


def item_prefix(task: str, teacher: str) -> str:
    """What the ids of a teacher's items of a task begin with."""
    return f"{task}__{teacher}__"


def task_prefix(task: str) -> str:
    """What the ids of a task's records begin with."""
    return f"{task}__"


def item_id(task: str, teacher: str, n: int) -> str:
    """``n`` counts from 1."""
    return f"{task}__{teacher}__{n:05d}"


def item_number(item: str) -> int | None:
    """The n of an item's id; None where an ingested item keeps its own id in its place."""
    number = item.rpartition(SEPARATOR)[2]
    return int(number) if number.isdecimal() else None


def proposal_id(task: str, teacher: str, kind: str) -> str:
    return f"{task}__{teacher}__{kind}"


def response_id(item: str, student: str) -> str:
    return f"{item}__{student}"


def evaluation_id(response: str, judge: str = EXACT_MATCH) -> str:
    """That of a judge's evaluation, or of the comparison of labels."""
    return f"{response}__{judge}"


def judgment_id(item: str, what: str) -> str:
    """Of a benchmark: ``what`` is judged of the answer to an item."""
    return f"{item}__{what}"


def id_fields(key: str) -> list[str]:
    """The names that an id is made of, in order; an ingested item's own id may be several of them."""
    return key.split(SEPARATOR)


def parent_id(key: str) -> str:
    """The id of what a response or an evaluation was made from."""
    return key.rpartition(SEPARATOR)[0]


def item_of(key: str, names: int) -> str:
    """The item's part of an id that goes on with so many ``names``."""
    return key.rsplit(SEPARATOR, names)[0]


def maker(key: str) -> str:
    """The name of the student of a response, or of the judge of an evaluation."""
    return key.rpartition(SEPARATOR)[2]
