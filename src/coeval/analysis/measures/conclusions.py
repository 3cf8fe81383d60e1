"""What the measures of a run come to, in sentences: who leads, in which tasks somebody else does, and how
sure that is.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from typing import Literal, NamedTuple, TypeAlias

from coeval.analysis.anytime import Looks, p_at_any_look
from coeval.analysis.comparison.paired_difference import paired_difference
from coeval.analysis.intervals import ALPHA
from coeval.analysis.measures.judge_measures import FEWEST_COMMON, JudgeMeasures
from coeval.analysis.measures.label_measures import Labels, LabelStudent
from coeval.analysis.measures.leaders import (
    gap_text,
    is_behind,
    leader_sentences,
    partial_sentences,
    place_sentences,
)
from coeval.analysis.measures.pair_measures import pair_sentences
from coeval.analysis.measures.ranking import Ranking, SharedScores
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import StudentMeasures
from coeval.analysis.measures.teacher_leak import Gain
from coeval.analysis.panel.length_contrasts import length_findings
from coeval.analysis.panel.panel_findings import next_purchases, panel_findings, reliability
from coeval.analysis.run_results import Bounded, missing_label_sentences
from coeval.core.figures import figure, figure_text, kappa_word, points, points_text
from coeval.core.text import listed, numbered

# --- Conclusions of a run in a few sentences

Topic: TypeAlias = Literal["leads", "where", "judges", "cost"]
"""The question that a conclusion answers: who leads, where, whether judges are to be trusted, what is
missing and what to buy next."""


class Conclusion(NamedTuple):
    topic: Topic
    text: str


# The terminal opens with conclusions; more labels than this are a table's work.
_MOST_LABELS = 3


def conclusions(
    measures: RunMeasures,
    beside: Iterable[str],
    related: Iterable[str],
    elsewhere: Iterable[str],
    looks: Looks | None = None,
) -> tuple[Conclusion, ...]:
    """Sentences for people, the most important first; ``beside`` is what no score is of
    (`coeval.analysis.scores.label_task_notes`), ``related`` are the sentences of `family_judges`,
    ``elsewhere`` those of `task_leaders`; ``looks``: as in `leader_sentences`."""
    students, ranks, labels = measures.students, measures.ranking, measures.labels
    compared = measures.pairs
    said: tuple[tuple[Topic, Iterable[str]], ...] = (
        ("leads", pair_sentences(compared) if compared is not None else iter(())),
        (
            "leads",
            leader_sentences(students, ranks, looks) if ranks.order or not (labels or compared) else iter(()),
        ),
        ("leads", beside),
        ("leads", _labels(labels)),
        ("leads", related),
        ("leads", place_sentences(ranks)),
        ("leads", partial_sentences(ranks)),
        ("where", elsewhere),
        ("where", _leaks(measures.leak.families)),
        ("judges", _judges(measures.judges, _kappa(measures)) if ranks.order else iter(())),
        ("judges", panel_findings(measures.judges)),
        ("judges", length_findings(measures.length)),
        ("judges", reliability(measures.g_study)),
        ("cost", next_purchases(measures.next, measures.best)),
        ("cost", _missing(students)),
    )
    return tuple(Conclusion(topic, text) for topic, texts in said for text in texts)


def _labels(labels: Labels) -> Iterator[str]:
    """Of the first few labels, who is right most often."""
    places = [(task, name, found) for task, names in labels.items() for name, found in names.items()]
    for task, name, found in places[:_MOST_LABELS]:
        where = f"{task} ({name})"
        if not (order := found.ranking.order):
            yield f"No answer has been compared with the labels of {where} yet."
            continue
        accuracy = points_text(*found.students[order[0]].accuracy[:3]) or "no score"
        if len(order) == 1:
            yield f"{order[0]} states the right label in {where} with an accuracy of {accuracy}."
            continue
        reported = found.ranking.between(*order[:2])
        said = f"{order[0]} has the highest label accuracy in {where}, {accuracy}"
        if _is_below_another(order[0], found.students):
            said = f"On the items that students share, {order[0]} is right most often in {where}"
        if reported is None:
            yield f"{said}; {order[1]}, the next, shares no scored items with it."
            continue
        by = f"by {gap_text(reported)} points ({numbered(reported.n, 'shared item')})"
        than = f"better than {order[1]}, the next"
        if is_behind(order[0], order[1], reported):
            than = f"behind {order[1]}, the next, where both have answers"
        yield f"{said}: {'' if reported.sure else 'not significantly '}{than}, {by}."
    for task, name, found in places:
        bounds = {one: found.students[one].bounds.accuracy for one in found.ranking.order}
        bounded = (Bounded(one, *ends) for one, ends in bounds.items() if ends is not None)
        yield from missing_label_sentences(f"{task} ({name})", bounded)
    if (more := len(places) - _MOST_LABELS) > 0:
        yield f"{numbered(more, 'more label')}: see coeval analyze labels."


def _leaks(families: Mapping[str, Gain]) -> Iterator[str]:
    for family, found in families.items():
        if found.is_named:
            verb = "gain" if found.size > 0 else "lose"
            by = found.size_text
            yield f"Students of family {family} {verb} {by} on items that its own teachers wrote."


def _kappa(measures: RunMeasures) -> str:
    weighted = measures.panel is not None and measures.panel.kappa_weights is not None
    return "weighted κ" if weighted else "κ"


def _judges(judges: Mapping[str, JudgeMeasures], kappa: str) -> Iterator[str]:
    if len(judges) < 2:
        if judges:
            yield "Only one judge was used, so agreement cannot be measured."
        return
    kappas = {name: found.kappa_mean for name, found in judges.items() if not found.degenerate}
    known = {name: found.value for name, found in kappas.items() if found.value is not None}
    if not known:
        yield f"Agreement between the judges cannot be measured: {_why_unknown(judges)}."
        return
    mean = sum(known.values()) / len(known)
    worst = min(known, key=lambda name: (known[name], name))
    sentence = (
        f"Agreement between the judges is {kappa_word(mean)} (mean {kappa} {figure(mean, 'coefficient')}"
    )
    if len(known) > 2:
        sentence += (
            f"; lowest {worst}, {kappa} {figure_text('coefficient', known[worst], *kappas[worst][1:3])}"
        )
    yield f"{sentence})."


def _why_unknown(judges: Mapping[str, JudgeMeasures]) -> str:
    if any(not found.degenerate for found in judges.values()):
        return "those with enough scores in common gave a single level"
    most = max(found.count for found in judges.values())
    return f"they have at most {numbered(most, 'score')} in common, fewer than {FEWEST_COMMON}"


def _missing(students: Mapping[str, StudentMeasures]) -> Iterator[str]:
    lacking = {name: found.overall.missing or 0 for name, found in students.items()}
    total = sum(lacking.values())
    if not total:
        return
    possible = total + sum(found.valid_evals for found in students.values())
    named = [f"{name} {count:,}" for name, count in sorted(lacking.items(), key=lambda one: -one[1]) if count]
    yield f"Missing: {total:,} of {numbered(possible, 'score')} ({listed(named)})."
    common = [
        (found.headline_common.value, name)
        for name, found in students.items()
        if found.headline_common is not None and found.headline_common.value is not None
    ]
    if common:
        shown = listed((f"{name} {points(value)}" for value, name in sorted(common, reverse=True)), 3)
        yield (
            "Students have different items or judges, so scores are adjusted for those that a student lacks. "
            f"On the scores that all have: {shown}."
        )


def _is_below_another(name: str, students: Mapping[str, LabelStudent]) -> bool:
    """Whether somebody's accuracy is higher, over other items."""
    own = students[name].accuracy.value or 0.0
    return any((found.accuracy.value or 0.0) > own for found in students.values())


class _TaskLeader(NamedTuple):
    """Who has the highest score in a task, and that of the leader over all."""

    task: str
    name: str
    score: float
    leaders: float


def task_leaders(grid: ScoreGrid, ranks: Ranking) -> Iterator[str]:
    """A sentence. Scores are those of each task alone, as the ranking adjusts them; p-values are multiplied
    by the number of tasks and of others, of whom the highest was picked (Bonferroni)."""
    if len(ranks.order) < 2:
        return
    leader, *others = ranks.order
    found = list(_leaders(ranks))
    elsewhere = [one for one in found if one.name != leader]
    if not elsewhere:
        if len(found) > 1:
            tasks = "both tasks" if len(found) == 2 else f"all {len(found)} tasks"
            yield f"{leader} has the highest score in {tasks}."
        return
    picked = len(found) * len(others)
    reported = [
        f"{one.name} in {one.task} ({points(one.score)}, {leader} {points(one.leaders)}: "
        f"{_sureness(grid, leader, one, picked)})"
        for one in elsewhere
    ]
    yield f"Other students have the highest score in some tasks: {listed(reported)}."


def _leaders(ranks: Ranking) -> Iterator[_TaskLeader]:
    """Of each task that the leader has a score in; of equals, the leader first."""
    leader = ranks.order[0]
    for task, own in ranks.scores[leader].headline_by_task.items():
        if own.value is None:
            continue
        score, _, name = max(
            (found.value, name == leader, name)
            for name in ranks.order
            if (found := ranks.scores[name].headline_by_task.get(task)) is not None
            and found.value is not None
        )
        yield _TaskLeader(task, name, score, own.value)


def _sureness(grid: ScoreGrid, leader: str, one: _TaskLeader, picked: int) -> str:
    shared = SharedScores(grid).paired(leader, one.name).get(one.task)
    p = paired_difference([shared]).p if shared is not None else None
    if p is None:
        return "no test possible"
    return "significant" if p_at_any_look(p, grid.looks) * picked < ALPHA else "not significant"
