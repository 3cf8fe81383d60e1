"""Sentences on who leads, what more items would show, what follows from judges who differ, and what has no
score: ``coeval analyze``, ``coeval results`` and pages open with these.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping, Sequence
from itertools import islice

import numpy as np

from coeval.analysis.comparison.comparison_report import (
    format_difference,
    interval_over_judges_or_unknown,
    lead_text,
    p_value_clause,
    tie_text,
)
from coeval.analysis.comparison.family import FEWEST_JUDGES, PairDifference
from coeval.analysis.intervals import Looks
from coeval.analysis.measures.label_measures import LabelMeasures, Labels
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.pair_measures import strength_and_bias_sentences
from coeval.analysis.measures.ranking import SAME, Ranking, leader_and_rival
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.measures.student_measures import StudentScores
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import BoundedScore, missing_labels_may_reorder_sentences
from coeval.core.figures import NOT_KNOWN, format_points
from coeval.core.text import join_names, pluralize
from coeval.store.rundir import PAIRS

# A gap below 0.1 points is shown as none, and twenty times the items is out of reach: no advice then.
_LEAST_GAP, _MOST_TIMES = 0.001, 20
# More labels than this are a table's work.
_MOST_LABELS = 3


def leader_tie_and_judges_sentences(
    students: Mapping[str, StudentScores], ranks: Ranking, looks: Looks | None = None
) -> Iterator[str]:
    """Say who leads; how many items would settle a tie; what other judges might say. ``looks``: those
    that the ranking's p-values allow for."""
    yield leader_sentence(students, ranks, at_any_look=looks is not None and looks.is_repeated)
    if (gap := leader_rival_difference(ranks)) is not None:
        yield from filter(None, (items_needed_sentence(gap), whether_judges_agree_sentence(ranks, gap)))


def leader_rival_difference(ranks: Ranking) -> PairDifference | None:
    """Return the difference of the `leader_and_rival`; None where they share no items, or nobody can lead."""
    if len(ranks.order) < 2 or _why_no_leader(ranks):
        return None
    return ranks.difference(*leader_and_rival(ranks))


def leader_sentence(
    students: Mapping[str, StudentScores], ranks: Ranking, *, at_any_look: bool = False
) -> str:
    """Say who leads, and how far ahead of the next. ``students``: with and without a score."""
    if len(ranks.order) < 2:
        return _fewer_than_two_students_sentence(students, ranks)
    if reason := _why_no_leader(ranks):
        return reason
    scores = {name: mean_in_points(students[name].score) for name in ranks.order}
    return _lead_or_tie_sentence(ranks, scores, "has the highest score", at_any_look=at_any_look)


def _lead_or_tie_sentence(
    ranks: Ranking, points: Mapping[str, str], highest: str, scope: str = "", *, at_any_look: bool = False
) -> str:
    """Say ``A leads by these judges: 3.4 ± 2.9 points ahead of B on 167 shared items (p = 0.036).``, or ``A
    (82.8) and B (79.5) are tied: the gap is 3.3 ± 4.1 points on 167 shared items.``"""
    first, second = leader_and_rival(ranks)
    gap = ranks.difference(first, second)
    if gap is None:
        return f"{first} {highest} ({points[first]}); {second} shares no scored items with it."
    count = pluralize(gap.n, "shared item")
    if gap.significant:
        return f"{lead_text((first, second), gap.with_leader_as_b, count, scope, at_any_look=at_any_look)}."
    shown_pair = (f"{first} ({points[first]})", f"{second} ({points[second]})")
    if contradicts_order(first, second, gap):
        lead = f"on {count}, {second} is ahead by {format_difference(gap.with_leader_as_b)} points"
        return f"{' and '.join(shown_pair)} are tied{scope}: {lead}."
    return f"{tie_text(shown_pair, gap.with_leader_as_b, count, scope)}."


def mean_in_points(measured: Measured) -> str:
    return format_points(measured.value or 0.0)


def _fewer_than_two_students_sentence(students: Mapping[str, StudentScores], ranks: Ranking) -> str:
    if not ranks.order:
        return "No student has a score yet."
    [first] = ranks.order
    score = f"{first} scores {mean_in_points(students[first].score)}"
    if len(students) > 1:
        return f"{score}, the only student with a score so far."
    return f"{score}, the only student: add another to compare."


def _why_no_leader(ranks: Ranking) -> str:
    """Say why no student leads; '' if one may."""
    first = ranks.order[0]
    if first in ranks.partial:
        return "No student leads over all tasks: none does all of them. Compare students by task."
    if ranks.ranges[first][0] > 1:
        return "No student leads: pairs of students, on the scores that both have, contradict each other."
    return ""


def items_needed_sentence(gap: PairDifference) -> str:
    """Say how many items would settle such a gap four times in five, by these judges; '' if it is settled."""
    detectable, gap_size = gap.minimum_detectable, abs(gap.difference)
    if gap.significant:
        return ""
    if detectable is None:
        return "One shared item cannot show a gap: more are needed."
    if gap_size < _LEAST_GAP:
        return "The gap is too small to settle with more items."
    if (detectable / gap_size) ** 2 > _MOST_TIMES:
        return (
            f"The gap is too small to settle with more items: {_MOST_TIMES} times as many would not be "
            "enough."
        )
    items = max(int(float(f"{gap.n * (detectable / gap_size) ** 2:.2g}")), gap.n + 1)
    by_whom = "" if gap.judges is None else " with these judges"
    return f"If the gap is real, about {items:,} items would show it{by_whom} (now {gap.n:,})."


def _cannot_be_settled_by_items(gap: PairDifference) -> bool:
    """Check whether the interval over judges includes zero even with `_MOST_TIMES` the items."""
    over_judges = gap.ci95_over_judges_adjusted
    if abs(gap.difference) < _LEAST_GAP or over_judges is None:
        return False
    of_items, of_both = ((high - low) / 2 for low, high in (gap.ci95_adjusted, over_judges))
    return gap.difference**2 <= of_both**2 - of_items**2 * (1 - 1 / _MOST_TIMES)


def whether_judges_agree_sentence(ranks: Ranking, gap: PairDifference) -> str:
    """Say whether judges agree about the `leader_and_rival`; '' where no judge scored."""
    if gap.judges is None:
        return ""
    first, second = leader_and_rival(ranks)
    own_gap = gap.with_leader_as_b
    if own_gap.ci95_over_judges_adjusted is None:
        if gap.judges == 1:
            agreement = "was used" if ranks.one_judge else f"scored both {first} and {second}"
            return f"Only one judge {agreement}, so agreement cannot be measured."
        return "Too few items have scores from two judges for both students, so agreement cannot be measured."
    ahead = second if contradicts_order(first, second, gap) else first
    judges, agreeing = gap.judges, gap.agreeing or 0
    agreement = f"{agreeing:,} of {judges:,} judges put {ahead} ahead"
    if agreeing == judges:
        agreement = f"{'Both' if judges == 2 else f'All {judges:,}'} judges put {ahead} ahead"
    elif abs(gap.difference) <= SAME:
        agreement = f"The {judges:,} judges together put neither ahead"
    clause = p_value_clause(gap.p_over_judges_adjusted) if gap.verdict == "leads" else ""
    if not clause and _cannot_be_settled_by_items(gap):
        clause = ": more items cannot settle it, more judges can"
    caveat = "; two judges give only a rough estimate" if judges == 2 else ""
    if (interval := interval_over_judges_or_unknown(own_gap)) != NOT_KNOWN:
        interval = f"{format_points(own_gap.difference)} {interval} points"
    noun = "lead" if gap.significant else "gap"
    return f"{agreement}; allowing for other judges, the {noun} is {interval}{clause}{caveat}."


def some_tasks_only_sentences(ranks: Ranking) -> Iterator[str]:
    """Name those whose means are over some of the tasks only, and who therefore do not lead."""
    partial = ranks.partial
    if partial and len(partial) < len(ranks.order):
        verb = "has" if len(partial) == 1 else "have"
        yield (
            f"{join_names(partial)} {verb} only some of the tasks, so no student is compared with "
            f"{'it' if len(partial) == 1 else 'them'} over all tasks."
        )


def significant_pair_count_sentences(ranks: Ranking) -> Iterator[str]:
    """Count significant pairwise differences, and name who may lead as well."""
    order = ranks.order
    pairs = len(order) * (len(order) - 1) // 2  # those that share no score too: nothing is sure of them
    if len(order) < 3 or not ranks.differences:
        return
    significant = sum(gap.significant for gap in ranks.differences.values())
    clause = _also_over_judges_clause(ranks, significant, pairs)
    if significant in (0, pairs):
        amount = "All" if significant else "None of the"
        yield f"{amount} {pairs:,} pairwise differences between students are significant{clause}."
        return
    verb = "is" if significant == 1 else "are"
    yield f"{significant:,} of {pairs:,} pairwise differences between students {verb} significant{clause}."
    ranks_tied = [
        rank
        for rank, name in enumerate(order, start=1)
        if rank > 1 and name in ranks.ranges and ranks.verdict(order[0], name) == "tied"
    ]
    if len(ranks_tied) > 1:
        yield f"Not significantly behind {order[0]}: {_format_ranks(ranks_tied)}."


def _also_over_judges_clause(ranks: Ranking, significant: int, pairs: int) -> str:
    """Say how many significant differences stay so with judges as a sample; '' if unknown, or if none is."""
    if not significant or all((gap.judges or 0) < FEWEST_JUDGES for gap in ranks.differences.values()):
        return ""
    both = sum(gap.verdict == "leads" for gap in ranks.differences.values())
    number = "none" if not both else "all" if both == significant == pairs else f"{both:,}"
    return f", {number} of them also when judges are treated as a sample"


def _format_ranks(numbers: Sequence[int]) -> str:
    """Write ranks as ``places 2 to 4, 6``."""
    runs: list[list[int]] = []
    for number in numbers:
        if runs and runs[-1][-1] == number - 1:
            runs[-1].append(number)
        else:
            runs.append([number])
    return f"places {join_names(f'{run[0]} to {run[-1]}' if len(run) > 1 else f'{run[0]}' for run in runs)}"


def contradicts_order(first: str, second: str, gap: PairDifference) -> bool:
    """Check whether a pair's own difference (sign: of the later name) contradicts the order of all pairs."""
    return (gap.difference if first > second else -gap.difference) < -SAME


def opening_sentences(measures: RunMeasures, looks: Looks | None) -> list[str]:
    """Return at most three sentences that open a page: on scores, else on comparisons or labels."""
    if measures.ranking.order or not (measures.labels or measures.pairs):
        sentences = leader_tie_and_judges_sentences(measures.students, measures.ranking, looks)
    elif measures.pairs is not None:
        sentences = strength_and_bias_sentences(measures.pairs)
    else:
        sentences = label_leader_and_missing_sentences(measures.labels)
    return list(islice(sentences, 3))


# --- Runs without judged scores


def label_leader_and_missing_sentences(labels: Labels) -> Iterator[str]:
    """Say for the first few labels who is right most often; then what is missing of any."""
    labelled = [
        (f"{task} ({name})", measures) for task, names in labels.items() for name, measures in names.items()
    ]
    for name_in_task, measures in labelled[:_MOST_LABELS]:
        if measures.ranking.order:
            yield label_leader_sentence(measures, name_in_task)
        else:
            yield f"No answer has been compared with the labels of {name_in_task} yet."
    for name_in_task, measures in labelled:
        bounds = {student: measures.students[student].bounds for student in measures.ranking.order}
        bounded = (BoundedScore(student, *ends) for student, ends in bounds.items() if ends is not None)
        yield from missing_labels_may_reorder_sentences(name_in_task, bounded)
    if (more := len(labelled) - _MOST_LABELS) > 0:
        yield f"{pluralize(more, 'more label')}: see coeval analyze labels."


def label_leader_sentence(measures: LabelMeasures, label: str) -> str:
    """Say who states a label most often; needs a student that has been compared with it."""
    right = {name: mean_in_points(measures.students[name].accuracy) for name in measures.ranking.order}
    if len(right) == 1:
        [(first, share)] = right.items()
        return f"{first} states the right {label} in {share}% of its answers, the only student."
    return _lead_or_tie_sentence(measures.ranking, right, f"is right most often in {label}", f" in {label}")


# --- What has no score


def label_only_notes(grid: ScoreGrid, labelled: Collection[str]) -> Iterator[str]:
    """Say how many items have no score, as their tasks have labels alone; ``labelled``: tasks with labels."""
    counts = np.bincount(grid.items.task, minlength=len(grid.tasks)).tolist()
    items = dict(zip(grid.tasks, counts, strict=True))
    scored = {grid.tasks[task] for task in np.unique(grid.task[grid.scored])}
    alone = {
        task: count for task, count in items.items() if count and task in labelled and task not in scored
    }
    if scored and alone:
        own, other = sum(items[task] for task in scored), sum(alone.values())
        yield (
            f"Scores are over {own:,} of {own + other:,} items; the other {other:,} ({join_names(alone)}) "
            "have labels, reported as accuracy."
        )


def failed_or_factor_unscored_notes(reader: RunReader, grid: ScoreGrid) -> Iterator[str]:
    """Say that everything failed, or which factors no answer of a student has a score of in a task."""
    if not grid.scored.any() and not reader.run.files(PAIRS):
        [(scored_count, *failed)] = reader.rows(_FAILURES)
        lost = [pluralize(n, noun) for n, noun in zip(failed, ("answer", "judgment"), strict=True) if n]
        if lost and not scored_count:
            yield f"No scores: {' and '.join(lost)} failed."
    counts, scored = grid.sum_scores().units > 0, grid.scored
    for task_code, (task, design) in enumerate(zip(grid.tasks, grid.designs, strict=True)):
        students_by_missing: dict[tuple[str, ...], list[str]] = {}
        for student_code, student in enumerate(grid.students if design.weights else ()):
            rows = (grid.task == task_code) & (grid.student == student_code) & scored
            if rows.any() and not counts[rows].any():
                scored_factors = {grid.factors[factor] for factor in np.unique(grid.factor[rows])}
                students_by_missing.setdefault(tuple(sorted(design.factors - scored_factors)), []).append(
                    student
                )
        for lacking, students in students_by_missing.items():
            yield (
                f"{join_names(students)}: no score in {task}, because no answer is scored in "
                f"{join_names(lacking) or 'every factor'}."
            )


_FAILURES = """
SELECT (SELECT count(*) FROM scores WHERE value IS NOT NULL) + (SELECT count(*) FROM labels),
       (SELECT count(*) FROM answers WHERE failed), (SELECT count(*) FROM judgments WHERE failed)
"""
