"""Who leads, what more items would show, and what follows from judges who differ, in sentences.

``coeval analyze``, ``coeval results`` and pages open with these.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from itertools import islice

from coeval.analysis.comparison.comparison_report import (
    chance_text,
    lead_text,
    shown_difference,
    shown_over_judges,
    tied_text,
)
from coeval.analysis.comparison.family import FEWEST_JUDGES, PairDifference
from coeval.analysis.intervals import Looks
from coeval.analysis.measures.label_measures import LabelMeasures, Labels
from coeval.analysis.measures.measure_tree import Measured
from coeval.analysis.measures.pair_measures import pair_sentences
from coeval.analysis.measures.ranking import SAME, Ranking, leading_pair
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.student_measures import StudentScores
from coeval.analysis.run_results import Bounded, missing_label_sentences
from coeval.core.figures import NOT_KNOWN, format_points
from coeval.core.text import join_names, pluralize

# A gap below 0.1 points is shown as none, and twenty times the items is out of reach: no advice then.
_LEAST_GAP, _MOST_TIMES = 0.001, 20
# More labels than this are a table's work.
_MOST_LABELS = 3


def leader_sentences(
    students: Mapping[str, StudentScores], ranks: Ranking, looks: Looks | None = None
) -> Iterator[str]:
    """Who leads; what more items would show where nobody does for certain; what other judges might say.
    ``looks``: those that the ranking's p-values allow for."""
    yield leader_sentence(students, ranks, at_any_look=looks is not None and looks.many)
    if (gap := leading_gap(ranks)) is not None:
        yield from filter(None, (settling_sentence(gap), panel_sentence(ranks, gap)))


def leading_gap(ranks: Ranking) -> PairDifference | None:
    """That of the `leading_pair`; None where they share no items, or nobody can lead."""
    if len(ranks.order) < 2 or _without_leader(ranks):
        return None
    return ranks.between(*leading_pair(ranks))


def leader_sentence(
    students: Mapping[str, StudentScores], ranks: Ranking, *, at_any_look: bool = False
) -> str:
    """Who leads, and how far ahead of the next; ``students`` are those with and without a score."""
    if len(ranks.order) < 2:
        return _alone(students, ranks)
    if said := _without_leader(ranks):
        return said
    scores = {name: shown(students[name].score) for name in ranks.order}
    return _verdict_text(ranks, scores, "has the highest score", at_any_look=at_any_look)


def _verdict_text(
    ranks: Ranking, figures: Mapping[str, str], highest: str, where: str = "", *, at_any_look: bool = False
) -> str:
    """``A leads by these judges: 3.4 ± 2.9 points ahead of B on 167 shared items (p = 0.036).``, or
    ``A (82.8) and B (79.5) are tied: the gap is 3.3 ± 4.1 points on 167 shared items.``"""
    first, second = leading_pair(ranks)
    gap = ranks.between(first, second)
    if gap is None:
        return f"{first} {highest} ({figures[first]}); {second} shares no scored items with it."
    count = pluralize(gap.n, "shared item")
    if gap.significant:
        return f"{lead_text((first, second), gap.leading, count, where, at_any_look=at_any_look)}."
    shown_pair = (f"{first} ({figures[first]})", f"{second} ({figures[second]})")
    if is_behind(first, second, gap):
        by = f"on {count}, {second} is ahead by {shown_difference(gap.leading)} points"
        return f"{' and '.join(shown_pair)} are tied{where}: {by}."
    return f"{tied_text(shown_pair, gap.leading, count, where)}."


def shown(found: Measured) -> str:
    return format_points(found.value or 0.0)


def _alone(students: Mapping[str, StudentScores], ranks: Ranking) -> str:
    """What can be said of one student, or of none."""
    if not ranks.order:
        return "No student has a score yet."
    [first] = ranks.order
    score = f"{first} scores {shown(students[first].score)}"
    if len(students) > 1:
        return f"{score}, the only student with a score so far."
    return f"{score}, the only student: add another to compare."


def _without_leader(ranks: Ranking) -> str:
    """Why no student leads; empty if one may."""
    first = ranks.order[0]
    if first in ranks.partial:
        return "No student leads over all tasks: none does all of them. Compare students by task."
    if ranks.ranges[first][0] > 1:
        return "No student leads: pairs of students, on the scores that both have, contradict each other."
    return ""


def settling_sentence(gap: PairDifference) -> str:
    """How many items would settle a gap of this size, by these judges if there are any, four times in five;
    empty where it is settled."""
    least, by = gap.minimum_detectable, abs(gap.difference)
    if gap.significant:
        return ""
    if least is None:
        return "One shared item cannot show a gap: more are needed."
    if by < _LEAST_GAP:
        return "The gap is too small to settle with more items."
    if (least / by) ** 2 > _MOST_TIMES:
        return (
            f"The gap is too small to settle with more items: {_MOST_TIMES} times as many would not be "
            "enough."
        )
    needed = max(int(float(f"{gap.n * (least / by) ** 2:.2g}")), gap.n + 1)
    by_whom = "" if gap.judges is None else " with these judges"
    return f"If the gap is real, about {needed:,} items would show it{by_whom} (now {gap.n:,})."


def _judges_must(gap: PairDifference) -> bool:
    """Check whether the interval over judges includes zero even with `_MOST_TIMES` the items."""
    wide = gap.ci95_over_judges_adjusted
    if abs(gap.difference) < _LEAST_GAP or wide is None:
        return False
    of_items, of_both = ((high - low) / 2 for low, high in (gap.ci95_adjusted, wide))
    return gap.difference**2 <= of_both**2 - of_items**2 * (1 - 1 / _MOST_TIMES)


def panel_sentence(ranks: Ranking, gap: PairDifference) -> str:
    """Say whether judges agree about the `leading_pair`; empty where no judge scored."""
    if gap.judges is None:
        return ""
    first, second = leading_pair(ranks)
    one = gap.leading
    if one.ci95_over_judges_adjusted is None:
        if gap.judges == 1:
            who = "was used" if ranks.one_judge else f"scored both {first} and {second}"
            return f"Only one judge {who}, so agreement cannot be measured."
        return "Too few items have scores from two judges for both students, so agreement cannot be measured."
    ahead = second if is_behind(first, second, gap) else first
    judges, agreeing = gap.judges, gap.agreeing or 0
    who = f"{agreeing:,} of {judges:,} judges put {ahead} ahead"
    if agreeing == judges:
        who = f"{'Both' if judges == 2 else f'All {judges:,}'} judges put {ahead} ahead"
    elif abs(gap.difference) <= SAME:
        who = f"The {judges:,} judges together put neither ahead"
    end = chance_text(gap.p_over_judges_adjusted) if gap.verdict == "leads" else ""
    if not end and _judges_must(gap):
        end = ": more items cannot settle it, more judges can"
    guess = "; two judges give only a rough idea" if judges == 2 else ""
    if (by := shown_over_judges(one)) != NOT_KNOWN:
        by = f"{format_points(one.difference)} {by} points"
    return (
        f"{who}; allowing for other judges, the {'lead' if gap.significant else 'gap'} is {by}{end}{guess}."
    )


def partial_sentences(ranks: Ranking) -> Iterator[str]:
    """Name those whose means are over some of the tasks only, and who therefore do not lead."""
    partial = ranks.partial
    if partial and len(partial) < len(ranks.order):
        verb = "is" if len(partial) == 1 else "are"
        yield (
            f"{join_names(partial)} {verb} to do some of the tasks only, so nobody is compared with "
            f"{'it' if len(partial) == 1 else 'them'} over all tasks."
        )


def place_sentences(ranks: Ranking) -> Iterator[str]:
    """Count significant pairwise differences, and name who may lead as well."""
    order = ranks.order
    pairs = len(order) * (len(order) - 1) // 2  # those that share no score too: nothing is sure of them
    if len(order) < 3 or not ranks.differences:
        return
    sure = sum(gap.significant for gap in ranks.differences.values())
    over = _over_judges(ranks, sure, pairs)
    if sure in (0, pairs):
        which = "All" if sure else "None of the"
        yield f"{which} {pairs:,} pairwise differences between students are significant{over}."
        return
    verb = "is" if sure == 1 else "are"
    yield f"{sure:,} of {pairs:,} pairwise differences between students {verb} significant{over}."
    near = [
        place
        for place, name in enumerate(order, start=1)
        if place > 1 and name in ranks.ranges and ranks.verdict(order[0], name) == "tied"
    ]
    if len(near) > 1:
        yield f"Not significantly behind {order[0]}: {_places(near)}."


def _over_judges(ranks: Ranking, sure: int, pairs: int) -> str:
    """How many of the significant differences are so over judges as well; empty where that is not known, or
    none is significant."""
    if not sure or all((gap.judges or 0) < FEWEST_JUDGES for gap in ranks.differences.values()):
        return ""
    both = sum(gap.verdict == "leads" for gap in ranks.differences.values())
    number = "none" if not both else "all" if both == sure == pairs else f"{both:,}"
    return f", {number} of them also when judges are treated as a sample"


def _places(places: Sequence[int]) -> str:
    """``places 2 to 4, 6``"""
    runs: list[list[int]] = []
    for place in places:
        if runs and runs[-1][-1] == place - 1:
            runs[-1].append(place)
        else:
            runs.append([place])
    return f"places {join_names(f'{run[0]} to {run[-1]}' if len(run) > 1 else f'{run[0]}' for run in runs)}"


def is_behind(first: str, second: str, reported: PairDifference) -> bool:
    """Whether the pair's own difference contradicts an order that follows from all pairs; it is that of the
    name that comes later in the alphabet."""
    return (reported.difference if first > second else -reported.difference) < -SAME


def opening(measures: RunMeasures, looks: Looks | None) -> list[str]:
    """Return what a page opens with, at most three sentences: of scores, else of comparisons or labels."""
    if measures.ranking.order or not (measures.labels or measures.pairs):
        said = leader_sentences(measures.students, measures.ranking, looks)
    elif measures.pairs is not None:
        said = pair_sentences(measures.pairs)
    else:
        said = label_sentences(measures.labels)
    return list(islice(said, 3))


# --- Runs without judged scores


def label_sentences(labels: Labels) -> Iterator[str]:
    """Of the first few labels, who is right most often; then what is missing of any."""
    places = [(f"{task} ({name})", found) for task, names in labels.items() for name, found in names.items()]
    for where, found in places[:_MOST_LABELS]:
        if found.ranking.order:
            yield label_sentence(found, where)
        else:
            yield f"No answer has been compared with the labels of {where} yet."
    for where, found in places:
        bounds = {one: found.students[one].bounds for one in found.ranking.order}
        bounded = (Bounded(one, *ends) for one, ends in bounds.items() if ends is not None)
        yield from missing_label_sentences(where, bounded)
    if (more := len(places) - _MOST_LABELS) > 0:
        yield f"{pluralize(more, 'more label')}: see coeval analyze labels."


def label_sentence(found: LabelMeasures, where: str) -> str:
    """Who states a label most often; some student has been compared with it."""
    right = {name: shown(found.students[name].accuracy) for name in found.ranking.order}
    if len(right) == 1:
        [(first, share)] = right.items()
        return f"{first} states the right {where} in {share}% of its answers, the only student."
    return _verdict_text(found.ranking, right, f"is right most often in {where}", f" in {where}")
