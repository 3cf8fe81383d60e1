"""The most telling items of a folder, as many as fit into a page that is mailed."""

from __future__ import annotations

import zlib
from collections.abc import Iterator
from itertools import islice, permutations, zip_longest

import msgspec
import numpy as np

from coeval.analysis.intervals import Floats
from coeval.analysis.readers.whole_items import ItemDetail, ShownAnswer, ShownJudgment
from coeval.reports.items.item_browser import ItemBrowser
from coeval.reports.items.item_rows import FLAGS, ItemFacets, ItemFigures, ItemRow

# Of whom pairs are counted: beyond them nobody asks who lost to whom, and pairs grow with the square.
_MOST_STUDENTS = 12
# So many of each kind are looked at.
_EACH = 200
# Ordered pairs of students, whose items that part them are kept: six students have 30.
_MOST_PAIRS = 40
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
    left, misses, figures = most_bytes, 0, source.figures()
    kept: dict[int, tuple[ItemRow, ItemDetail]] = {}
    for row in _telling(source, figures):
        found = source.whole(row)
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
    counts = [(*pair, int((margin > 0).sum())) for pair, margin in _margins(source, figures)]
    lost = sorted(count for count in counts if count[2])
    return ItemSelection(rows, details, source.facets.items, source.facets, lost)


def _telling(source: ItemBrowser, figures: ItemFigures) -> Iterator[ItemRow]:
    """Items in the order in which they are chosen, each once."""
    lost = (np.where(margin > 0, -margin, np.nan) for _, margin in _margins(source, figures))
    worst = np.fmin.reduce(figures.scores, initial=np.nan)
    orders = [-figures.disagreement, worst, *islice(lost, _MOST_PAIRS)]
    ordered = [np.argsort(by, kind="stable")[: np.isfinite(by).sum()][:_EACH].tolist() for by in orders]
    flagged = (figures.flagged.get(flag, ()) for flag in FLAGS)
    of_each = [*ordered, *(some[:_EACH] for some in (figures.failed, *flagged, range(source.facets.items)))]
    turns = (no for turn in zip_longest(*of_each) for no in turn if no is not None)
    chosen = list(dict.fromkeys(turns))
    for start in range(0, len(chosen), _EACH):
        yield from source.numbered(chosen[start : start + _EACH])


def _margins(source: ItemBrowser, figures: ItemFigures) -> Iterator[tuple[tuple[str, str], Floats]]:
    """By how much the second of two students scored more than the first, (I,), of any two of the best."""
    best = list(zip(source.facets.students, figures.scores, strict=True))[:_MOST_STUDENTS]
    for (loser, less), (winner, more) in permutations(best, 2):
        yield (loser, winner), more - less


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
