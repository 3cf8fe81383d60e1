"""Who stands where: by all scores, without those that students gave themselves, and over the robust set."""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple
from urllib.parse import urlencode

from coeval.analysis.measures.measured import Branch
from coeval.core.text import listed, numbered
from coeval.reports.charts.forest_plot import EACH_TASK, OVERALL
from coeval.reports.content.report_content import Cell, PictureToggle, ReportColumn, ReportTable

__all__ = ["ALL", "ROBUST", "WITHOUT_OWN", "order_sentences", "rank_text", "standing_toggles", "standings"]

_FEWEST = 5
"""Items: over fewer, an order is chance."""
ALL, WITHOUT_OWN, ROBUST = "all scores", "without own", "robust set"


class _Standing(NamedTuple):
    """Students by some of the scores, as they are ranked; ``words`` say which in a sentence."""

    name: str
    words: str
    students: Branch
    ranking: Branch
    query: tuple[tuple[str, str], ...] = ()

    @property
    def order(self) -> list[str]:
        """Best first; those without a score stand last, by name."""
        found: list[str] = self.ranking["order"]
        return [*found, *(name for name in self.students if name not in found)]


def _standings(tree: Branch) -> Iterator[_Standing]:
    """Those that there are; that of all scores first."""
    yield _Standing(ALL, "", tree["students"] | tree["ranking"]["scores"], tree["ranking"])
    others, robust = tree["without_own"], tree["robust"]
    if others["applicable"]:
        words = "Without the scores that students gave themselves"
        yield _Standing(WITHOUT_OWN, words, others["students"], others["ranking"])
    if robust["applicable"]:
        items = numbered(robust["datapoints"], "item")
        words = f"On the {items} selected because the best-agreeing judges agree on them,"
        query = tuple(("judge", judge) for judge in robust["judges"])
        query += tuple(("teacher", teacher) for teacher in robust["teachers"])
        students = robust["students"] | robust["ranking"]["scores"]
        yield _Standing(ROBUST, words, students, robust["ranking"], query)


def order_sentences(tree: Branch) -> Iterator[str]:
    """Whether the order stays where some scores are left out; nothing where pairs contradict each other, so
    that the first is surely not the best."""
    first, *others = _standings(tree)
    if len(first.ranking["order"]) < 2:
        return
    for other in others:
        if other.name == ROBUST and tree["robust"]["datapoints"] < _FEWEST:
            yield f"{other.words} there is too little to order students by."
        elif not (order := other.ranking["order"]):
            yield f"{other.words} nobody has a score."
        elif other.ranking["ranges"].get(order[0], [1])[0] > 1:
            continue
        elif order == first.ranking["order"]:
            yield f"{other.words} the order is the same."
        else:
            yield f"{other.words} the order is {listed(order)}."


def standing_toggles(tree: Branch) -> tuple[PictureToggle, ...]:
    """What can be chosen of `standings`."""
    scores = tuple(standing.name for standing in _standings(tree))
    several = any(len(found["headline_by_task"]) > 1 for found in tree["students"].values())
    found = (PictureToggle("by", (OVERALL, EACH_TASK) if several else ()), PictureToggle("scores", scores))
    return tuple(toggle for toggle in found if len(toggle.choices) > 1)


def standings(tree: Branch, judges: list[str]) -> ReportTable:
    """For each choice of scores the students over all tasks, and then task by task; best first."""
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}

    def add(standing: _Standing, task: str | None, student: str, *cells: Cell) -> None:
        query = [("student", student), *([("task", task)] if task is not None else []), *standing.query]
        if standing.name == WITHOUT_OWN and student in judges:
            query += [("judge", judge) for judge in judges if judge != student]
        links[len(rows)] = urlencode(query)
        rows.append((standing.name, task, student, *cells))

    for standing in _standings(tree):
        students, ranges = standing.students, standing.ranking["ranges"]
        for name in standing.order:
            headline = students[name]["headline"]
            add(standing, None, name, rank_text(ranges.get(name)), headline, headline.n)
        tasks = sorted({task for found in students.values() for task in found["headline_by_task"]})
        for task in tasks if len(tasks) > 1 else ():
            scored = [
                (students[name]["headline_by_task"][task], name)
                for name in standing.order
                if task in students[name]["headline_by_task"]
            ]
            scored.sort(key=lambda one: (one[0].value is None, -(one[0].value or 0.0), one[1]))
            for score, name in scored:
                add(standing, task, name, None, score, score.n)
    return ReportTable(
        "standings",
        "Students by task, and by some of the scores",
        (
            ReportColumn(
                "scores", "Scores", "text", "All, those of others alone, or those of the robust set"
            ),
            ReportColumn("task", "Task"),
            ReportColumn("student", "Student"),
            ReportColumn("ranks", "Ranks", "text", "After who is surely better, before who is surely worse"),
            ReportColumn("score", "Score", "score", "Mean over items of the mean over judges and factors"),
            ReportColumn("n", "Items", "count"),
        ),
        tuple(rows),
        note="A row without a task is the mean over tasks. Without own: scores follow from the differences "
        "between any two by judges who are neither. Robust set: its items were selected by these scores, so "
        "it has no ranks.",
        links=links,
    )


def rank_text(ranks: list[int] | None) -> str | None:
    """``2`` or ``2–4``."""
    if ranks is None:
        return None
    low, high = ranks
    return f"{low}" if low == high else f"{low}–{high}"
