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
from coeval.reports.items.item_rows import FLAGS, ItemFacets, ItemRow, ItemScoreArrays

# Of whom pairs are counted: beyond them nobody asks who lost to whom, and pairs grow with the square.
_MOST_STUDENTS = 12
# So many of each kind are looked at.
_MOST_PER_CRITERION = 200
# Ordered pairs of students, whose items that part them are kept: six students have 30.
_MOST_PAIRS = 40
# So many items that do not fit any more are tried.
_MOST_MISSES = 20
# Characters of a text that a page holds: with what says so, no more than it shows at once (answers.js).
_LONGEST = 19_900


class ItemSelection(msgspec.Struct, frozen=True):
    """Selected items: ``rows`` and ``details`` in the order of their numbers. Of all items are ``total``,
    ``facets`` and ``lost``: on how many items the first of two students scored less than the second."""

    rows: list[ItemRow]
    details: list[ItemDetail]
    total: int
    facets: ItemFacets
    lost: list[tuple[str, str, int]] = []


def select_items(source: ItemBrowser, most_bytes: int) -> ItemSelection:
    """Select items until their details, each compressed by itself, take ``most_bytes``. In turn: the largest
    disagreement of judges, the lowest scores, the largest losses of one student to another, failures,
    flags, and the first items. Raises StoreError: a file cannot be read."""
    bytes_left, misses, figures = most_bytes, 0, source.read_score_arrays()
    kept: dict[int, tuple[ItemRow, ItemDetail]] = {}
    for row in _rank_telling_items(source, figures):
        whole = source.read_row_detail(row)
        if whole is None:
            continue
        detail = shorten_detail(whole)
        size = len(zlib.compress(msgspec.json.encode([row, detail]), 1))
        if size > bytes_left:
            misses += 1
            if misses == _MOST_MISSES:
                break
            continue
        bytes_left -= size
        kept[row.row] = row, detail
    order = sorted(kept)
    rows, details = [kept[no][0] for no in order], [kept[no][1] for no in order]
    counts = [(*pair, int((margin > 0).sum())) for pair, margin in _score_margins(source, figures)]
    lost = sorted(count for count in counts if count[2])
    return ItemSelection(rows, details, source.facets.items, source.facets, lost)


def _rank_telling_items(source: ItemBrowser, figures: ItemScoreArrays) -> Iterator[ItemRow]:
    """Yield items in the order in which they are chosen, each once."""
    lost = (np.where(margin > 0, -margin, np.nan) for _, margin in _score_margins(source, figures))
    worst = np.fmin.reduce(figures.scores, initial=np.nan)
    orders = [-figures.disagreement, worst, *islice(lost, _MOST_PAIRS)]
    ordered = [
        np.argsort(by, kind="stable")[: np.isfinite(by).sum()][:_MOST_PER_CRITERION].tolist() for by in orders
    ]
    flagged = (figures.flagged.get(flag, ()) for flag in FLAGS)
    by_criterion = [
        *ordered,
        *(some[:_MOST_PER_CRITERION] for some in (figures.failed, *flagged, range(source.facets.items))),
    ]
    turns = (no for turn in zip_longest(*by_criterion) for no in turn if no is not None)
    chosen = list(dict.fromkeys(turns))
    for start in range(0, len(chosen), _MOST_PER_CRITERION):
        yield from source.read_rows(chosen[start : start + _MOST_PER_CRITERION])


def _score_margins(source: ItemBrowser, figures: ItemScoreArrays) -> Iterator[tuple[tuple[str, str], Floats]]:
    """Yield each pair of the best students, and by how much the second scored more than the first, (I,)."""
    best = list(zip(source.facets.students, figures.scores, strict=True))[:_MOST_STUDENTS]
    for (loser, less), (winner, more) in permutations(best, 2):
        yield (loser, winner), more - less


def shorten_detail(detail: ItemDetail) -> ItemDetail:
    """Cut texts that are too long for a page, with a note."""
    return msgspec.structs.replace(
        detail,
        prompt=_cut_text(detail.prompt),
        reference=_cut_text(detail.reference),
        evidence=tuple(filter(None, map(_cut_text, detail.evidence))),
        answers=[_shorten_answer(answer) for answer in detail.answers],
    )


def _shorten_answer(answer: ShownAnswer) -> ShownAnswer:
    return msgspec.structs.replace(
        answer,
        text=_cut_text(answer.text),
        reasoning=_cut_text(answer.reasoning),
        judgments=[_shorten_judgment(judgment) for judgment in answer.judgments],
    )


def _shorten_judgment(judgment: ShownJudgment) -> ShownJudgment:
    reasons = {factor: _cut_text(reason) or "" for factor, reason in judgment.reasons.items()}
    return msgspec.structs.replace(judgment, reasons=reasons, words=_cut_text(judgment.words))


def _cut_text(text: str | None) -> str | None:
    if text is None or len(text) <= _LONGEST:
        return text
    return f"{text[:_LONGEST]}\n… {len(text) - _LONGEST:,} more characters; coeval view shows them"
