"""Every two of several sides held against each other: overall, by task, by factor; with p-values that allow
for their number.

What is tested together, and what it comes to, is `coeval.analysis.comparison.family`'s.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import replace
from difflib import get_close_matches
from itertools import combinations, groupby
from operator import attrgetter
from typing import Literal, NamedTuple, TypeAlias

import msgspec

from coeval.analysis.answer_costs import model_costs
from coeval.analysis.comparison.comparison_report import (
    FAMILIES,
    ComparedSide,
    Comparison,
    ComparisonReport,
    Family,
    sentence,
    where_of,
)
from coeval.analysis.comparison.family import (
    FamilyMember,
    PairDifference,
    adjust_family,
    family_member,
    lead_factor,
)
from coeval.analysis.comparison.paired_difference import Difference, spread_over_judges
from coeval.analysis.comparison.pairing import Pairing, ScoredPairs, pair
from coeval.analysis.comparison.side import Side, judged_apart, read_sides
from coeval.analysis.doubtful_answers import CutOffAnswers, cut_off_at, cut_off_remedy
from coeval.analysis.intervals import ALPHA, joined
from coeval.analysis.measures.ranking import factor_parts, ranking
from coeval.analysis.panel.mean_squares import ByJudge, JudgeScatter
from coeval.analysis.panel.panel_findings import RelatedJudges, outcome, related_judges, related_sentence
from coeval.analysis.readers.reader import Reader
from coeval.core.errors import UsageError
from coeval.core.figures import format_points
from coeval.core.options import STUDENTS
from coeval.core.shown_names import short_names, short_paths
from coeval.core.text import join_names

# --- Caveats: answers cut off or empty, missing scores, judges of one family

# Sides up to which each is named, whatever there is to say of it; of many, the first are, so that a sentence
# with long names stays below 200 characters.
_ALL_NAMED, _MOST_NAMED = 2, 2


def answer_doubts(groups: Sequence[Sequence[Side]]) -> Iterator[str]:
    """``groups``: all pairs within each are compared."""
    sides = [side for group in groups for side in group]
    theirs = f"Part of the difference{'s' if len(sides) > 2 else ''} may come from that"
    if reported := _on_each(sides, [side.answers.cut for side in sides]):
        counts = [CutOffAnswers(s.label, s.answers.cut, s.answers.good, s.answers.by_window) for s in sides]
        many = [count for count in counts if count.too_many]
        yield f"{cut_off_at(counts).capitalize()}: {reported}. {theirs}" + (
            f": {cut_off_remedy(many)} before trusting it." if many else "."
        )
    cut = sum(side.answers.empty_cut for side in sides)
    if reported := _on_each(sides, [side.answers.empty for side in sides]):
        of_these = f" (of all these, cut off: {cut:,})" if cut else ""
        yield f"Empty, and counted like all others: {reported}{of_these}. {theirs}."
    lacking = [
        f"{side.label} ({join_names(tasks, _MOST_NAMED)})"
        for group in groups
        for side, tasks in _lacking(group)
    ]
    if lacking:
        yield (
            f"No score in tasks that others have: {join_names(lacking, _MOST_NAMED)}. Such a task is in no "
            "difference of theirs; overall is over the others."
        )


def _on_each(sides: Sequence[Side], counts: Sequence[int]) -> str:
    """How many of each side's answers, most first; empty: none of anybody's."""
    if not any(counts):
        return ""
    order = sorted(zip(counts, sides, strict=True), key=lambda each: -each[0])
    named = [each for each in order if each[0] or len(sides) <= _ALL_NAMED]
    parts = [f"{count:,} of {side.answers.good:,} answers of {side.label}" for count, side in named]
    return join_names(parts, _MOST_NAMED) + (", none of the others" if len(named) < len(sides) else "")


def _lacking(group: Sequence[Side]) -> Iterator[tuple[Side, list[str]]]:
    """Who has no score in tasks that another one has, among those whose items it has too."""
    everywhere = frozenset[str]().union(*(side.scored_tasks for side in group))
    for side in group:
        found = side.scored_tasks
        if found and (tasks := sorted((everywhere & {item.task for item in side.items}) - found)):
            yield side, tasks


# --- Sides of a comparison: students of a run, or models of several folders


def line_up(readers: Sequence[Reader], named: Sequence[str] = ()) -> list[list[Side]]:
    """Return the groups to compare pairwise, in the order of the folders and names.

    Of one folder, its students, or those that are ``named``. Of several, who answered in each: the one that
    is named for it (one name stands for all folders); without names, its only one, or else each student that
    is in all of them, against itself.

    Raises UsageError: there are no two, or it is not clear which two; the message says who there is.
    """
    models = [reader.models() for reader in readers]
    if len(readers) == 1:
        [reader], [there] = readers, models
        if not there:
            raise UsageError(f"{reader.folder} holds no answers yet: there is nothing to compare")
        chosen = [_known(name, reader, there) for name in named] or list(there)
        if len(there) == 1:
            raise UsageError(
                f"{reader.folder} holds answers of {there[0] or 'one model'} alone: name a second folder to "
                "compare it with"
            )
        if len(set(chosen)) < 2:
            raise UsageError(
                f"{reader.folder} holds answers of {join_names(there)}: name two students of it with "
                f"{STUDENTS}, or a second folder"
            )
        costs = model_costs(reader)
        return [[*read_sides(reader, {name: name for name in chosen}, costs).values()]]
    groups = _across(readers, models, named)
    labels = [_labels(readers, group, len(groups)) for group in groups]
    sides = [
        read_sides(
            reader,
            {group[at]: named[at] for group, named in zip(groups, labels, strict=True)},
            model_costs(reader),
        )
        for at, reader in enumerate(readers)
    ]
    return [[of_folder[model] for of_folder, model in zip(sides, group, strict=True)] for group in groups]


def _across(
    readers: Sequence[Reader], models: Sequence[Sequence[str]], named: Sequence[str]
) -> list[list[str]]:
    """Of each group, the model in each folder."""
    if named:
        if len(named) not in (1, len(readers)):
            raise UsageError(
                f"{STUDENTS} names {len(named)} for {len(readers)} folders; name one for each, or one for all"
            )
        needed = named if len(named) > 1 else list(named) * len(readers)
        each = zip(needed, readers, models, strict=True)
        return [[_known(name, reader, there) for name, reader, there in each]]
    if all(len(there) == 1 for there in models):
        return [[there[0] for there in models]]
    everywhere = [name for name in models[0] if all(name in there for there in models)]
    if not everywhere:
        held = "; ".join(
            f"{r.folder}: {join_names(there) or 'nobody'}" for r, there in zip(readers, models, strict=True)
        )
        raise UsageError(f"no student is in all folders ({held}); name one for each with {STUDENTS}")
    return [[name] * len(readers) for name in everywhere]


def _known(name: str, reader: Reader, there: Sequence[str]) -> str:
    shown = {short: full for full, short in short_names(there).items()}  # as tables and pages call it
    if name in there or name in shown:
        return name if name in there else shown[name]
    close = get_close_matches(name, [*there, *shown], n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {join_names(there) or 'none yet'}"
    raise UsageError(f"{STUDENTS}: {name}: {reader.folder} holds no answers of it; {hint}")


def _labels(readers: Sequence[Reader], group: Sequence[str], groups: int) -> list[str]:
    """The models' names where these tell them apart, else the folders' names, or both."""
    if len(set(group)) == len(group) and all(group):
        return list(group)
    tails = short_paths(reader.folder.resolve() for reader in readers)
    names = [tails[str(reader.folder.resolve())] for reader in readers]
    if groups == 1 and len(set(names)) == len(names):
        return names
    labels = [f"{name}:{model}" if model else name for name, model in zip(names, group, strict=True)]
    if len(set(labels)) < len(labels):
        raise UsageError(
            f"the same folder is named twice: {join_names(names)}; give another, or it once with {STUDENTS} "
            "A,B"
        )
    return labels


SCORE = "score"
"""The metric of a run: the mean over judges and factors."""


class ComparedRow(NamedTuple):
    task: str | None
    metric: str
    family: Family
    unit: str
    parts: Sequence[ScoredPairs]
    judged: Sequence[ByJudge]
    counted: Literal["item", "prompt"] = "item"
    is_label: bool = False

    @property
    def branch(self) -> Family:
        """Its family, or that of labels, which have 5% of their own also where they are all a task has."""
        return "label" if self.is_label else self.family


PairedRow: TypeAlias = tuple[Side, Side, ComparedRow]
"""Two sides, and a row of their comparison."""


class ComparedPair(NamedTuple):
    """Two sides; ``comparisons``: of each of the ``rows``, what the family of all pairs says."""

    a: Side
    b: Side
    pairing: Pairing
    rows: Sequence[ComparedRow]
    comparisons: Sequence[Comparison]

    def comparison(self, row: ComparedRow) -> Comparison:
        return self.comparisons[next(at for at, one in enumerate(self.rows) if one is row)]


def compare_sides(groups: Sequence[Sequence[Side]], notes: Sequence[str] = ()) -> ComparisonReport:
    """Every two of each group: the overall scores of all pairs first, then tasks, then parts.

    Raises UsageError: nothing is scored on both sides; the message says what each has.
    """
    pairs, sides = compared_pairs(groups), [side for group in groups for side in group]
    found = [each for one in pairs for each in one.comparisons]
    said = [*notes, *pair_notes(pairs, sides)]
    if not found:
        raise UsageError(
            "; ".join(["nothing to compare: no item has a score on both sides", *dict.fromkeys(said)])
        )
    said += [f"{name} is no mean of items: it is not compared" for side in sides for name in side.fitted]
    return ComparisonReport(
        tuple(one for family in FAMILIES for one in found if one.family == family),
        {
            side.label: ComparedSide(
                str(side.folder), side.model, *(side.cost[2:] if side.cost is not None else (None, None))
            )
            for side in sides
        },
        tuple(group[0].label for group in groups),
        tuple(dict.fromkeys(said)),
        tuple(doubts_of(pairs, groups)),
        any(side.simulated for side in sides),
        shared=any(map(_are_shared, pairs)),
    )


def _are_shared(one: ComparedPair) -> bool:
    """Whether means of a pair are another figure than the scores of its sides: they have other items or
    judges, or their scores are adjusted for what another student lacks."""
    a, b, pairing, _, comparisons = one
    if not pairing.evenly_covered((pairing.a, pairing.b)) or a.scored_tasks != b.scored_tasks:
        return True
    if (
        a.grids is not b.grids
        or "factor" not in a.grids
        or pairing.evenly_covered(a.grids["factor"].grid.students)
    ):
        return False
    scores = ranking(a.grids["factor"].grid).scores
    means = [
        (side.model, found.task, mean)
        for found in comparisons
        if found.metric == SCORE
        for side, mean in ((a, found.mean_a), (b, found.mean_b))
    ]
    return any(
        format_points(mean)
        != format_points(
            (scores[name].score if task is None else scores[name].score_by_task[task]).value or 0.0
        )
        for name, task, mean in means
    )


def compared_pairs(groups: Sequence[Sequence[Side]]) -> list[ComparedPair]:
    """Every two of each group, all rows tested as one family."""
    pairings = [(a, b, pair(a, b)) for group in groups for a, b in combinations(group, 2)]
    pairs = [ComparedPair(*each, [*compared_rows(each[2])], ()) for each in pairings]
    paired = [(one.a, one.b, row) for one in pairs for row in one.rows]
    tested = Counter(row.branch for _, _, row in paired if sum(len(part.pairs.a) for part in row.parts) > 1)
    members = [
        _member(*each, max(tested[each[2].branch], 1), scatter)
        for each, scatter in zip(paired, _scatters(groups, paired), strict=True)
    ]
    found = iter(_tested(paired, members))
    return [one._replace(comparisons=[next(found) for _ in one.rows]) for one in pairs]


def pair_notes(pairs: Sequence[ComparedPair], sides: Sequence[Side]) -> Iterator[str]:
    """What does not fit of these pairs of the ``sides``."""
    yield from (note for one in pairs for note in one.pairing.notes)
    yield from judged_apart([apart for one in pairs for apart in one.pairing.apart], sides)


def doubts_of(pairs: Sequence[ComparedPair], groups: Sequence[Sequence[Side]]) -> Iterator[str]:
    """What speaks against taking the differences as they are."""
    yield from _family_doubts(pairs)
    yield from answer_doubts(groups)


def _family_doubts(pairs: Sequence[ComparedPair]) -> Iterator[str]:
    """A sentence for each leader and judges of its family: overall, or else of the tasks that they judge."""
    alike: dict[tuple[str, RelatedJudges, bool], list[str]] = {}
    for compared in pairs:
        a, b, pairing, rows, _ = compared
        by_others: dict[tuple[str, ...], list[ComparedRow]] = {}
        leading = [row for row in rows if row.family == "overall"] or [r for r in rows if r.family == "task"]
        for row in leading:
            found = compared.comparison(row)
            leader, other = (b, a) if found.difference > 0 else (a, b)
            tasks = pairing.judged if row.task is None else [row.task]
            judges = sorted({judge for task in tasks for judge in pairing.judged.get(task, ())})
            related = related_judges(leader.model, other.model, judges, {**a.families, **b.families})
            if related is None or not found.difference:
                continue
            if related.apart not in by_others:
                others = pair(*(side.without(related.apart) for side in (a, b)))
                by_others[related.apart] = list(compared_rows(others))
            same = [
                one
                for one in by_others[related.apart]
                if one[:3] == row[:3] and len(one.parts) == len(row.parts)
            ]
            texts = [
                f"{outcome(a.label, b.label, comparison_of(a, b, one))} {where_of(found)}" for one in same
            ]
            alike.setdefault((leader.label, related, bool(same)), []).extend(texts)
    for (label, related, _), texts in alike.items():
        yield related_sentence(label, related, join_names(texts, 1) if texts else "")


def compared_rows(pairing: Pairing) -> Iterator[ComparedRow]:
    """The rows of a pair that hold anything."""
    scored: dict[str, tuple[ScoredPairs, ByJudge]] = {}
    rows: list[ComparedRow] = []
    for task, of_task in groupby(pairing.metrics, key=attrgetter("task")):
        metrics = list(of_task)
        factors = [name for name in metrics if name.measure == "factor"]
        if factors and (whole := pairing.scored(task)) is not None:
            scored[task] = whole, pairing.by_judge(task)
            rows.append(ComparedRow(task, SCORE, "task", "share", [whole], [scored[task][1]]))
        for name in metrics:
            found = pairing.scored(task, name)
            if found is None or (factors == [name] and task in scored):  # the only factor is the score
                continue
            family: Family = "task" if name.headline else "part"
            if name.measure == "label":  # in no score: with a share of the level of its own
                family = "label" if factors else "task"
            counted: Literal["item", "prompt"] = "prompt" if name.measure == "metric" else "item"
            judged, label = [pairing.by_judge(task, name)], name.measure == "label"
            rows.append(ComparedRow(task, name.metric, family, name.unit, [found], judged, counted, label))
    if len(scored) > 1:
        parts, by_judge = zip(*scored.values(), strict=True)
        yield ComparedRow(None, SCORE, "overall", "share", parts, by_judge)
    yield from rows


def comparison_of(a: Side, b: Side, row: ComparedRow) -> Comparison:
    """That of a single row, a family of its own."""
    member = _member(a, b, row, 1, spread_over_judges({(): row.judged}, 1)[()])
    [tested] = adjust_family([member])
    return _comparison((a, b, row), member, tested)


def _member(a: Side, b: Side, row: ComparedRow, tests: int, scatter: JudgeScatter | None) -> FamilyMember:
    """``tests``: how many comparisons answer the same question, this one among them."""
    strata, looks = [part.pairs for part in row.parts], joined((a.looks, b.looks))
    member = family_member(strata, row.judged, scatter, looks, tests)
    return member._replace(width=row.parts[0].scale.width)


def _comparison(paired: PairedRow, member: FamilyMember, tested: PairDifference) -> Comparison:
    (a, b, row), found = paired, member.found
    scale = row.parts[0].scale
    low = sum(part.low for part in row.parts) / len(row.parts)
    high = sum(part.high for part in row.parts) / len(row.parts)
    return Comparison(
        **msgspec.structs.asdict(tested),
        a=a.label,
        b=b.label,
        task=row.task,
        metric=row.metric,
        family=row.family,
        unit=row.unit,
        mean_a=scale.scores(found.mean_a),
        mean_b=scale.scores(found.mean_b),
        missing=sum(part.missing for part in row.parts),
        bounds=(low * scale.width, high * scale.width),
        test=found.test,
        scale=scale.width,
        counted=row.counted,
        look=member.looks.name if member.looks is not None else "",
        identical=found.identical,
    )


def _scatters(groups: Sequence[Sequence[Side]], paired: Sequence[PairedRow]) -> list[JudgeScatter | None]:
    """Of each row, what judges add to its error: the same for all pairs of a group in a task and metric, and
    for those of a folder's other students."""
    found: list[JudgeScatter | None] = [None] * len(paired)
    group_of = {side.label: number for number, group in enumerate(groups) for side in group}
    alike: dict[tuple[int, Family, str | None, str], dict[tuple[str, str], Sequence[ByJudge]]] = {}
    places = []
    for a, b, row in paired:
        place = (group_of[a.label], row.family, row.task, row.metric)
        alike.setdefault(place, {})[a.label, b.label] = row.judged
        places.append(place)
    for number, group in enumerate(groups):
        for beside in _beside(group):
            for row in compared_rows(beside):
                if (place := (number, row.family, row.task, row.metric)) in alike:
                    alike[place][beside.a, beside.b] = row.judged
    for place, judged in alike.items():
        of_pairs = spread_over_judges(judged, len({name for two in judged for name in two}) - 1)
        for at, (a, b, _) in enumerate(paired):
            if places[at] == place:
                found[at] = of_pairs[a.label, b.label]
    return found


def _beside(group: Sequence[Side]) -> Iterator[Pairing]:
    """All pairs of a folder's students of which one or both are not compared."""
    first, second, *_ = group
    if first.grids is not second.grids:
        return
    compared = {side.model for side in group}
    pairing = pair(first, second)
    scored = {name for grid in first.grids.values() for name in grid.grid.students if grid.scored_tasks[name]}
    for a, b in combinations(sorted(scored | compared), 2):
        if not {a, b} <= compared:
            yield replace(pairing, a=a, b=b)


def _tested(paired: Sequence[PairedRow], members: Sequence[FamilyMember]) -> list[Comparison]:
    """What the family says of each, and in words."""
    above = _above(paired)
    family = adjust_family(
        [
            member._replace(above=parent, branch="label" if row.is_label else None)
            for member, parent, (_, _, row) in zip(members, above, paired, strict=True)
        ]
    )
    found = [_comparison(*each) for each in zip(paired, members, family, strict=True)]
    places: dict[tuple[str, str], list[int]] = {}
    for at, (a, b, _) in enumerate(paired):
        places.setdefault((a.label, b.label), []).append(at)
    for at, parent in enumerate(above):
        closed = parent is not None and (family[parent].p_adjusted or 0.0) >= ALPHA
        gate = where_of(found[parent]) if parent is not None and closed else None
        source = None
        a, b, row = paired[at]
        if parent is None and row.metric == SCORE and "factor" in b.grids and found[at].significant:
            of_pair = [(paired[place][2], members[place].found) for place in places[a.label, b.label]]
            parts = _factor_differences(b.grids["factor"].parts, of_pair, row.task)
            source = lead_factor(found[at], factor_parts(b.grids["factor"].grid, parts))
        tested = msgspec.structs.replace(found[at], gate=gate, comes_from=source)
        found[at] = msgspec.structs.replace(tested, sentence=sentence(tested))
    return found


def _factor_differences(
    factors: Sequence[tuple[str, str]], of_pair: Sequence[tuple[ComparedRow, Difference]], task: str | None
) -> dict[tuple[str, str], Difference]:
    """A pair's differences by task and factor; of a task's only factor, that of its score."""
    counts = Counter(at for at, _ in factors)
    found = {}
    for row, difference in of_pair:
        if row.task is None or task not in (None, row.task):
            continue
        if row.family == "part":
            found[row.task, row.metric] = difference
        elif row.metric == SCORE and counts[row.task] == 1:
            found[next(place for place in factors if place[0] == row.task)] = difference
    return found


def _above(paired: Sequence[PairedRow]) -> list[int | None]:
    """Of a task's score the overall difference of its pair, of a part its task; a label beside scores, or a
    metric of a benchmark, is in no score above it and is tested by itself."""
    overall = {(a.label, b.label): at for at, (a, b, row) in enumerate(paired) if row.family == "overall"}
    tasks: dict[tuple[str, str, str | None], int] = {}
    for at, (a, b, row) in enumerate(paired):
        if row.family == "task":
            tasks.setdefault((a.label, b.label, row.task), at)
    found: list[int | None] = []
    for a, b, row in paired:
        if row.family == "part":
            found.append(tasks.get((a.label, b.label, row.task)))
        elif row.family == "task" and row.metric == SCORE:
            found.append(overall.get((a.label, b.label)))
        else:
            found.append(None)
    return found
