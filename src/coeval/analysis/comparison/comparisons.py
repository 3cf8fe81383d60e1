"""Pairwise comparisons of sides: overall, by task, by factor; with p-values that allow for their number.

`coeval.analysis.comparison.family` says what is tested together.
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

from coeval.analysis.answer_costs import costs_by_model
from coeval.analysis.comparison.comparison_report import (
    FAMILIES,
    ComparedSide,
    Comparison,
    ComparisonReport,
    Family,
    comparison_sentence,
    overall_or_on_task_phrase,
)
from coeval.analysis.comparison.family import (
    FamilyMember,
    PairDifference,
    adjust_family,
    find_factor_behind_lead,
    prepare_family_member,
)
from coeval.analysis.comparison.paired_difference import Difference, pool_judge_scatter
from coeval.analysis.comparison.pairing import Pairing, ScoredPairs, pair_sides
from coeval.analysis.comparison.side import Side, one_side_judge_notes, read_sides
from coeval.analysis.doubtful_answers import CutOffAnswers, cut_off_cause, limit_to_raise_text
from coeval.analysis.intervals import ALPHA, combine_looks
from coeval.analysis.measures.ranking import rank_students, weigh_factor_parts
from coeval.analysis.panel.mean_squares import JudgeScatter, JudgeValues
from coeval.analysis.panel.panel_findings import (
    RelatedJudges,
    find_related_judges,
    related_judges_sentence,
    verdict_phrase,
)
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


def _cut_or_empty_answer_caveats(sides: Sequence[Side]) -> Iterator[str]:
    theirs = f"Part of the difference{'s' if len(sides) > 2 else ''} may come from that"
    if reported := _answer_counts_text(sides, [side.answers.cut for side in sides]):
        counts = [CutOffAnswers(s.label, s.answers.cut, s.answers.good, s.answers.by_window) for s in sides]
        many = [count for count in counts if count.are_too_many]
        yield f"{cut_off_cause(counts).capitalize()}: {reported}. {theirs}" + (
            f": {limit_to_raise_text(many)} before trusting it." if many else "."
        )
    cut = sum(side.answers.empty_cut for side in sides)
    if reported := _answer_counts_text(sides, [side.answers.empty for side in sides]):
        of_these = f" (of all these, cut off: {cut:,})" if cut else ""
        yield f"Empty, and counted like all others: {reported}{of_these}. {theirs}."


def _lacking_task_caveats(groups: Sequence[Sequence[Side]]) -> Iterator[str]:
    lacking = [
        f"{side.label} ({join_names(tasks, _MOST_NAMED)})"
        for group in groups
        for side, tasks in _sides_lacking_tasks(group)
    ]
    if lacking:
        yield (
            f"No score in tasks that others have: {join_names(lacking, _MOST_NAMED)}. These tasks are "
            "not in their differences; overall is over the other tasks."
        )


def _answer_counts_text(sides: Sequence[Side], counts: Sequence[int]) -> str:
    """List how many answers of each side are meant, most first; empty if there are none."""
    if not any(counts):
        return ""
    order = sorted(zip(counts, sides, strict=True), key=lambda counted: -counted[0])
    named = [(count, side) for count, side in order if count or len(sides) <= _ALL_NAMED]
    parts = [f"{count:,} of {side.answers.good:,} answers of {side.label}" for count, side in named]
    return join_names(parts, _MOST_NAMED) + (", none of the others" if len(named) < len(sides) else "")


def _sides_lacking_tasks(group: Sequence[Side]) -> Iterator[tuple[Side, list[str]]]:
    """Yield each side that has items but no score in tasks in which another side has scores."""
    everywhere = frozenset[str]().union(*(side.scored_tasks for side in group))
    for side in group:
        scored = side.scored_tasks
        if scored and (tasks := sorted((everywhere & {item.task for item in side.items}) - scored)):
            yield side, tasks


# --- Sides of a comparison: students of a run, or models of several folders


def match_sides(readers: Sequence[Reader], names: Sequence[str] = ()) -> list[list[Side]]:
    """Return the groups of sides to compare pairwise, in the order of the folders and ``names``.

    From one folder, its students, or those named. From several, the student named for each (one name stands
    for all folders); without names, each folder's only student, or else each student that is in all folders,
    compared with itself.

    Raises UsageError if there are no two sides, or it is not clear which two; the message lists the students.
    """
    models = [reader.answering_models() for reader in readers]
    if len(readers) == 1:
        [reader], [students] = readers, models
        if not students:
            raise UsageError(f"{reader.folder} holds no answers yet: there is nothing to compare")
        chosen = [_resolve_student(name, reader, students) for name in names] or list(students)
        if len(students) == 1:
            only = students[0] or "one model"
            raise UsageError(
                f"{reader.folder} holds answers of {only} alone: name a second folder to compare it with"
            )
        if len(set(chosen)) < 2:
            raise UsageError(
                f"{reader.folder} holds answers of {join_names(students)}: name two students of it with "
                f"{STUDENTS}, or a second folder"
            )
        costs = costs_by_model(reader)
        return [[*read_sides(reader, {name: name for name in chosen}, costs).values()]]
    groups = _group_models_across_folders(readers, models, names)
    labels = [_label_sides(readers, group, len(groups)) for group in groups]
    sides = [
        read_sides(
            reader,
            {group[at]: labels_of[at] for group, labels_of in zip(groups, labels, strict=True)},
            costs_by_model(reader),
        )
        for at, reader in enumerate(readers)
    ]
    return [[of_folder[model] for of_folder, model in zip(sides, group, strict=True)] for group in groups]


def _group_models_across_folders(
    readers: Sequence[Reader], models: Sequence[Sequence[str]], names: Sequence[str]
) -> list[list[str]]:
    """Return groups of models to compare, one model for each folder."""
    if names:
        if len(names) not in (1, len(readers)):
            raise UsageError(
                f"{STUDENTS} names {len(names)} for {len(readers)} folders; name one for each, or one for all"
            )
        expanded = names if len(names) > 1 else list(names) * len(readers)
        folders = zip(expanded, readers, models, strict=True)
        return [[_resolve_student(name, reader, students) for name, reader, students in folders]]
    if all(len(students) == 1 for students in models):
        return [[students[0] for students in models]]
    everywhere = [name for name in models[0] if all(name in students for students in models)]
    if not everywhere:
        held = "; ".join(
            f"{r.folder}: {join_names(students) or 'nobody'}"
            for r, students in zip(readers, models, strict=True)
        )
        raise UsageError(f"no student is in all folders ({held}); name one for each with {STUDENTS}")
    return [[name] * len(readers) for name in everywhere]


def _resolve_student(name: str, reader: Reader, students: Sequence[str]) -> str:
    """Return the student with this full or short name; raise UsageError with the closest name otherwise."""
    # as tables and pages call it
    by_short_name = {short: full for full, short in short_names(students).items()}
    if name in students or name in by_short_name:
        return name if name in students else by_short_name[name]
    close = get_close_matches(name, [*students, *by_short_name], n=1)
    hint = f"did you mean {close[0]}?" if close else f"there are {join_names(students) or 'none yet'}"
    raise UsageError(f"{STUDENTS}: {name}: {reader.folder} holds no answers of it; {hint}")


def _label_sides(readers: Sequence[Reader], group: Sequence[str], group_count: int) -> list[str]:
    """Label sides by their models if these differ, else by their folders, or by both."""
    if len(set(group)) == len(group) and all(group):
        return list(group)
    tails = short_paths(reader.folder.resolve() for reader in readers)
    names = [tails[str(reader.folder.resolve())] for reader in readers]
    if group_count == 1 and len(set(names)) == len(names):
        return names
    labels = [f"{name}:{model}" if model else name for name, model in zip(names, group, strict=True)]
    if len(set(labels)) < len(labels):
        raise UsageError(
            f"the same folder is named twice: {join_names(names)}; name another, or name it once with "
            f"{STUDENTS} A,B"
        )
    return labels


SCORE = "score"
"""The metric of a run: the mean over judges and factors."""


class ComparedRow(NamedTuple):
    """Two sides' paired scores in one metric, overall (task None) or in a task; ``parts``: one per task."""

    task: str | None
    metric: str
    family: Family
    unit: str
    parts: Sequence[ScoredPairs]
    judged: Sequence[JudgeValues]
    counted: Literal["item", "prompt"] = "item"
    is_label: bool = False

    @property
    def branch(self) -> Family:
        """Return the family, or "label": labels have 5% of their own, even as the only scores of a task."""
        return "label" if self.is_label else self.family


PairedRow: TypeAlias = tuple[Side, Side, ComparedRow]
"""Two sides a and b, and a row of their comparison."""


class ComparedPair(NamedTuple):
    """Two sides; ``comparisons``: the result of each of ``rows``, tested in the family of all pairs."""

    a: Side
    b: Side
    pairing: Pairing
    rows: Sequence[ComparedRow]
    comparisons: Sequence[Comparison]

    def row_comparison(self, row: ComparedRow) -> Comparison:
        return self.comparisons[next(at for at, own in enumerate(self.rows) if own is row)]


def compare_sides(groups: Sequence[Sequence[Side]], notes: Sequence[str] = ()) -> ComparisonReport:
    """Compare the pairs of each group: overall scores of all pairs first, then tasks, then parts. Raises
    UsageError if nothing is scored on both sides; the message says what each has."""
    pairs, sides = compare_pairs(groups), [side for group in groups for side in group]
    comparisons = [comparison for pair in pairs for comparison in pair.comparisons]
    all_notes = [*notes, *mismatch_notes(pairs, sides)]
    if not comparisons:
        raise UsageError(
            "; ".join(["nothing to compare: no item has a score on both sides", *dict.fromkeys(all_notes)])
        )
    all_notes += [f"{name} is not a mean of items: not compared" for side in sides for name in side.fitted]
    return ComparisonReport(
        tuple(sorted(comparisons, key=lambda comparison: FAMILIES.index(comparison.family))),
        {
            side.label: ComparedSide(
                str(side.folder), side.model, *(side.cost[2:] if side.cost is not None else (None, None))
            )
            for side in sides
        },
        tuple(group[0].label for group in groups),
        tuple(dict.fromkeys(all_notes)),
        tuple(comparison_caveats(pairs, groups)),
        any(side.simulated for side in sides),
        shared=any(map(_means_differ_from_scores, pairs)),
    )


def _means_differ_from_scores(pair: ComparedPair) -> bool:
    """Check whether the means of a pair differ from the scores of its sides: these have other items or
    judges, or their scores are adjusted for what another student lacks."""
    a, b, pairing, _, comparisons = pair
    if not pairing.has_equal_coverage((pairing.a, pairing.b)) or a.scored_tasks != b.scored_tasks:
        return True
    factors = a.grids.get("factor") if a.grids is b.grids else None
    if factors is None or pairing.has_equal_coverage(factors.grid.students):
        return False
    scores = rank_students(factors.grid).scores
    for comparison in comparisons:
        for side, mean in ((a, comparison.mean_a), (b, comparison.mean_b)):
            if comparison.metric == SCORE:
                own, task = scores[side.model], comparison.task
                score = own.score if task is None else own.score_by_task[task]
                if format_points(mean) != format_points(score.value or 0.0):
                    return True
    return False


def compare_pairs(groups: Sequence[Sequence[Side]]) -> list[ComparedPair]:
    """Compare the pairs of each group, all rows tested as one family."""
    pairings = [(a, b, pair_sides(a, b)) for group in groups for a, b in combinations(group, 2)]
    pairs = [ComparedPair(a, b, pairing, [*_list_compared_rows(pairing)], ()) for a, b, pairing in pairings]
    paired = [(pair.a, pair.b, row) for pair in pairs for row in pair.rows]
    tested = Counter(row.branch for _, _, row in paired if sum(len(part.pairs.a) for part in row.parts) > 1)
    members = [
        _build_family_member(a, b, row, max(tested[row.branch], 1), scatter)
        for (a, b, row), scatter in zip(paired, _pool_row_scatters(groups, paired), strict=True)
    ]
    comparisons = iter(_adjust_and_describe(paired, members))
    return [pair._replace(comparisons=[next(comparisons) for _ in pair.rows]) for pair in pairs]


def mismatch_notes(pairs: Sequence[ComparedPair], sides: Sequence[Side]) -> Iterator[str]:
    """Report what differs between the sides of each pair besides their scores: items, judges, rubrics."""
    yield from (mismatch.message for pair in pairs for mismatch in pair.pairing.mismatches)
    yield from one_side_judge_notes([judges for pair in pairs for judges in pair.pairing.one_side], sides)


def comparison_caveats(pairs: Sequence[ComparedPair], groups: Sequence[Sequence[Side]]) -> Iterator[str]:
    """Warn of what speaks against taking the differences as they are."""
    yield from _own_family_judge_caveats(pairs)
    yield from _cut_or_empty_answer_caveats([side for group in groups for side in group])
    yield from _lacking_task_caveats(groups)


def _own_family_judge_caveats(pairs: Sequence[ComparedPair]) -> Iterator[str]:
    """Warn of each leader that judges of its own model family scored: overall, or else in single tasks."""
    outcomes: dict[tuple[str, RelatedJudges, bool], list[str]] = {}
    for compared in pairs:
        a, b, pairing, rows, _ = compared
        by_others: dict[tuple[str, ...], list[ComparedRow]] = {}
        leading = [row for row in rows if row.family == "overall"] or [r for r in rows if r.family == "task"]
        for row in leading:
            comparison = compared.row_comparison(row)
            leader, other = (b, a) if comparison.difference > 0 else (a, b)
            tasks = pairing.judged if row.task is None else [row.task]
            judges = sorted({judge for task in tasks for judge in pairing.judged.get(task, ())})
            related = find_related_judges(leader.model, other.model, judges, {**a.families, **b.families})
            if related is None or not comparison.difference:
                continue
            if related.apart not in by_others:
                others = pair_sides(*(side.excluding_judges(related.apart) for side in (a, b)))
                by_others[related.apart] = list(_list_compared_rows(others))
            where = overall_or_on_task_phrase(comparison)
            texts = [
                f"{verdict_phrase(a.label, b.label, _compare_row_alone(a, b, same))} {where}"
                for same in by_others[related.apart]
                if same[:3] == row[:3] and len(same.parts) == len(row.parts)
            ]
            outcomes.setdefault((leader.label, related, bool(texts)), []).extend(texts)
    for (label, related, _), texts in outcomes.items():
        yield related_judges_sentence(label, related, join_names(texts, 1) if texts else "")


def _list_compared_rows(pairing: Pairing) -> Iterator[ComparedRow]:
    """Yield the rows of a pair in which any item is paired."""
    scored: dict[str, tuple[ScoredPairs, JudgeValues]] = {}
    rows: list[ComparedRow] = []
    for task, of_task in groupby(pairing.metrics, key=attrgetter("task")):
        metrics = list(of_task)
        factors = [name for name in metrics if name.measure == "factor"]
        if factors and (whole := pairing.build_scored_pairs(task)) is not None:
            scored[task] = whole, pairing.b_minus_a_by_judge(task)
            rows.append(ComparedRow(task, SCORE, "task", "share", [whole], [scored[task][1]]))
        for name in metrics:
            pairs = pairing.build_scored_pairs(task, name)
            if pairs is None or (factors == [name] and task in scored):  # the only factor is the score
                continue
            family: Family = "task" if name.headline else "part"
            if name.measure == "label":  # in no score: with a share of the level of its own
                family = "label" if factors else "task"
            counted: Literal["item", "prompt"] = "prompt" if name.measure == "metric" else "item"
            judged, label = [pairing.b_minus_a_by_judge(task, name)], name.measure == "label"
            rows.append(ComparedRow(task, name.metric, family, name.unit, [pairs], judged, counted, label))
    if len(scored) > 1:
        parts, by_judge = zip(*scored.values(), strict=True)
        yield ComparedRow(None, SCORE, "overall", "share", parts, by_judge)
    yield from rows


def _compare_row_alone(a: Side, b: Side, row: ComparedRow) -> Comparison:
    """Compare one row of two sides, as a family of its own."""
    member = _build_family_member(a, b, row, 1, pool_judge_scatter({(): row.judged}, 1)[()])
    [tested] = adjust_family([member])
    return _build_comparison((a, b, row), member, tested)


def _build_family_member(
    a: Side, b: Side, row: ComparedRow, tests: int, scatter: JudgeScatter | None
) -> FamilyMember:
    """Build the row's family member; ``tests``: how many comparisons answer the same question."""
    strata, looks = [part.pairs for part in row.parts], combine_looks((a.looks, b.looks))
    member = prepare_family_member(strata, row.judged, scatter, looks, tests)
    return member._replace(width=row.parts[0].scale.width)


def _build_comparison(paired: PairedRow, member: FamilyMember, tested: PairDifference) -> Comparison:
    """Join a row, its single test and its adjusted test in the record that is reported."""
    (a, b, row), single = paired, member.difference
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
        mean_a=scale.to_scores(single.mean_a),
        mean_b=scale.to_scores(single.mean_b),
        missing=sum(part.missing for part in row.parts),
        bounds=(low * scale.width, high * scale.width),
        test=single.test,
        scale=scale.width,
        counted=row.counted,
        look=member.looks.in_words if member.looks is not None else "",
        identical=single.identical,
    )


def _pool_row_scatters(
    groups: Sequence[Sequence[Side]], paired: Sequence[PairedRow]
) -> list[JudgeScatter | None]:
    """Return what judges add to the error of each row, pooled over all pairs of a group in a task and metric,
    with those of the folder's other students."""
    group_of = {side.label: number for number, group in enumerate(groups) for side in group}
    gaps_by_key: dict[tuple[int, Family, str | None, str], dict[tuple[str, str], Sequence[JudgeValues]]] = {}
    keys = []
    for a, b, row in paired:
        key = (group_of[a.label], row.family, row.task, row.metric)
        gaps_by_key.setdefault(key, {})[a.label, b.label] = row.judged
        keys.append(key)
    for number, group in enumerate(groups):
        for other_pair in _pair_students_not_compared(group):
            for row in _list_compared_rows(other_pair):
                if (key := (number, row.family, row.task, row.metric)) in gaps_by_key:
                    gaps_by_key[key][other_pair.a, other_pair.b] = row.judged
    pooled = {
        key: pool_judge_scatter(gaps, len({name for pair in gaps for name in pair}) - 1)
        for key, gaps in gaps_by_key.items()
    }
    return [pooled[key][a.label, b.label] for key, (a, b, _) in zip(keys, paired, strict=True)]


def _pair_students_not_compared(group: Sequence[Side]) -> Iterator[Pairing]:
    """Pair a folder's students, except for the pairs that are compared."""
    first, second, *_ = group
    if first.grids is not second.grids:
        return
    compared = {side.model for side in group}
    pairing = pair_sides(first, second)
    scored = {
        name for grid in first.grids.values() for name, own in grid.scored_tasks_by_student.items() if own
    }
    for a, b in combinations(sorted(scored | compared), 2):
        if not {a, b} <= compared:
            yield replace(pairing, a=a, b=b)


def _adjust_and_describe(paired: Sequence[PairedRow], members: Sequence[FamilyMember]) -> list[Comparison]:
    """Adjust the comparisons as one family, and put each in a sentence."""
    parents = _find_parent_indices(paired)
    family = adjust_family(
        [
            member._replace(parent=parent, branch="label" if row.is_label else None)
            for member, parent, (_, _, row) in zip(members, parents, paired, strict=True)
        ]
    )
    comparisons = [_build_comparison(*results) for results in zip(paired, members, family, strict=True)]
    rows_of_pair: dict[tuple[str, str], list[int]] = {}
    for index, (a, b, _) in enumerate(paired):
        rows_of_pair.setdefault((a.label, b.label), []).append(index)
    for index, parent in enumerate(parents):
        closed = parent is not None and (family[parent].p_adjusted or 0.0) >= ALPHA
        gate = overall_or_on_task_phrase(comparisons[parent]) if parent is not None and closed else None
        source = None
        a, b, row = paired[index]
        if parent is None and row.metric == SCORE and "factor" in b.grids and comparisons[index].significant:
            of_pair = [(paired[at][2], members[at].difference) for at in rows_of_pair[a.label, b.label]]
            factors = b.grids["factor"]
            parts = _differences_by_task_and_factor(factors.task_factors, of_pair, row.task)
            source = find_factor_behind_lead(comparisons[index], weigh_factor_parts(factors.grid, parts))
        tested = msgspec.structs.replace(comparisons[index], gate=gate, comes_from=source)
        comparisons[index] = msgspec.structs.replace(tested, sentence=comparison_sentence(tested))
    return comparisons


def _differences_by_task_and_factor(
    factors: Sequence[tuple[str, str]], rows: Sequence[tuple[ComparedRow, Difference]], task: str | None
) -> dict[tuple[str, str], Difference]:
    """Return a pair's differences by task and factor; a task's only factor has that of the task's score."""
    counts = Counter(task_name for task_name, _ in factors)
    differences = {}
    for row, difference in rows:
        if row.task is None or task not in (None, row.task):
            continue
        if row.family == "part":
            differences[row.task, row.metric] = difference
        elif row.metric == SCORE and counts[row.task] == 1:
            differences[next(factor for factor in factors if factor[0] == row.task)] = difference
    return differences


def _find_parent_indices(paired: Sequence[PairedRow]) -> list[int | None]:
    """Return the index of each row's parent test: of a task's score, the overall one of its pair; of a part,
    its task. Labels beside scores and benchmarks' metrics have none, as they are in no score above."""
    overall = {(a.label, b.label): at for at, (a, b, row) in enumerate(paired) if row.family == "overall"}
    tasks: dict[tuple[str, str, str | None], int] = {}
    for at, (a, b, row) in enumerate(paired):
        if row.family == "task":
            tasks.setdefault((a.label, b.label, row.task), at)
    return [
        tasks.get((a.label, b.label, row.task))
        if row.family == "part"
        else overall.get((a.label, b.label))
        if row.family == "task" and row.metric == SCORE
        else None
        for a, b, row in paired
    ]
