"""The most telling items of a folder, as many as fit into a page that is mailed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import permutations, zip_longest

import msgspec

from coeval.analysis.readers.whole_items import ItemDetail, ShownAnswer, ShownJudgment
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import FLAGS, ItemChoice, ItemFacets, ItemRow, LostTo

# So many of each kind are looked at.
_EACH = 200
# Ordered pairs of students, whose items that part them are kept: six students have 30.
_MOST_PAIRS = 40
# Rows of so many items: ids are unique in a task alone.
_MOST_ALIKE = 10_000
# So many items that do not fit any more are tried.
_MOST_MISSES = 20
# Characters of a text that a page holds: with what says so, no more than it shows at once (answers.js).
_LONGEST = 19_900


class ItemSelection(msgspec.Struct, frozen=True):
    """``rows`` and ``details`` of the same items, in the order of their numbers; ``total``: how many there
    are in all; ``facets`` are those of all, and so is ``lost``: on how many items the first of two students
    scored less than the second."""

    rows: list[ItemRow]
    details: list[ItemDetail]
    total: int
    facets: ItemFacets
    lost: list[tuple[str, str, int]] = []


def select_items(source: ItemBrowser, most_bytes: int) -> ItemSelection:
    """Items until their details, each compressed by itself, take ``most_bytes``.

    In turn: those that judges differ most about, those with the lowest scores, those on which one student
    lost most to another, those of which something failed, those with a flag, and the first ones.

    Raises StoreError: a file cannot be read.
    """
    left, misses = most_bytes, 0
    kept: dict[int, tuple[ItemRow, ItemDetail]] = {}
    for row in _telling(source):
        found = source.detail(row.item, row.task)
        if found is None:
            continue
        detail = shortened(found)
        size = len(zlib.compress(msgspec.json.encode([row, detail]), 1))
        if size > left:
            misses += 1
            if misses == _MOST_MISSES:
                break
            continue
        left -= size
        kept[row.row] = row, detail
    order = sorted(kept)
    rows, details = [kept[no][0] for no in order], [kept[no][1] for no in order]
    return ItemSelection(rows, details, source.facets.items, source.facets, source.lost_counts())


def _telling(source: ItemBrowser) -> Iterator[ItemRow]:
    """Items in the order in which they are chosen, each once, with the scores of all students."""
    pairs = list(permutations(source.facets.students, 2))[:_MOST_PAIRS]
    choices = [
        ItemChoice(order="disagreement"),
        ItemChoice(order="worst"),
        *(ItemChoice(lost=LostTo(*pair)) for pair in pairs),
        ItemChoice(failed=True),
        *(ItemChoice(flags=(flag,)) for flag in FLAGS),
        ItemChoice(),
    ]
    of_each = [source.rows(choice, 0, _EACH).rows for choice in choices]
    turns = (row for turn in zip_longest(*of_each) for row in turn if row is not None)
    chosen = list({row.row: row for row in turns}.values())
    for start in range(0, len(chosen), _EACH):
        some = chosen[start : start + _EACH]
        items = tuple({row.item for row in some})
        whole = {row.row: row for row in source.rows(ItemChoice(items=items), 0, _MOST_ALIKE).rows}
        yield from (whole[row.row] for row in some if row.row in whole)


def shortened(detail: ItemDetail) -> ItemDetail:
    """With texts that are too long for a page cut, and saying so."""
    return msgspec.structs.replace(
        detail,
        prompt=_cut(detail.prompt),
        reference=_cut(detail.reference),
        evidence=tuple(filter(None, map(_cut, detail.evidence))),
        answers=[_shortened_answer(answer) for answer in detail.answers],
    )


def _shortened_answer(answer: ShownAnswer) -> ShownAnswer:
    return msgspec.structs.replace(
        answer,
        text=_cut(answer.text),
        reasoning=_cut(answer.reasoning),
        judgments=[_shortened_judgment(judgment) for judgment in answer.judgments],
    )


def _shortened_judgment(judgment: ShownJudgment) -> ShownJudgment:
    reasons = {factor: _cut(reason) or "" for factor, reason in judgment.reasons.items()}
    return msgspec.structs.replace(judgment, reasons=reasons, words=_cut(judgment.words))


def _cut(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}\n… {len(text) - _LONGEST:,} more characters; coeval view shows them"
