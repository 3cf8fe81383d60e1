"""Whether a candidate may take the place of a base: shown to lose less than a policy allows, or not.

A candidate is GO where it is shown of *every* critical task that it loses no more than ``max_drop``: that is
an intersection–union test, whose error is that of its weakest part, so tasks need no correction (Berger
1982). Several candidates do: each is a chance of a false GO, so the error is shared out among them.
``docs/gate.md`` explains the rule, ``python -m evidence.gate`` measures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from difflib import get_close_matches
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias, TypedDict

import msgspec

from coeval.analysis.comparison.comparison_report import Comparison, where_of
from coeval.analysis.comparison.comparisons import (
    SCORE,
    ComparedPair,
    ComparedRow,
    compared_pairs,
    doubts_of,
    pair_notes,
)
from coeval.analysis.comparison.lower_bound import ONE_SIDED, beyond_p_value, bound_over_all, items_needed
from coeval.analysis.comparison.paired_difference import holm
from coeval.analysis.comparison.side import Side, judged_apart
from coeval.analysis.intervals import ALPHA, Looks, alpha_at_any_look, joined, p_at_any_look
from coeval.core.errors import GAPS, WORSE, UsageError
from coeval.core.figures import difference_text, format_points
from coeval.core.settings import Setting
from coeval.core.text import join_names, pluralize

# --- Policy

Tier: TypeAlias = Literal["critical", "supporting", "advisory"]
Verdict: TypeAlias = Literal["GO", "INCONCLUSIVE", "NO-GO"]
Points: TypeAlias = Annotated[float, msgspec.Meta(ge=0, lt=100)]
Count: TypeAlias = Annotated[int, msgspec.Meta(ge=1)]

# Points: less is smaller than what a run of hundreds of items can show, and looks like a share of the scale.
_SMALLEST = 0.5
OVERALL = "overall"
"""What a policy calls the mean over tasks."""


class TaskRule(TypedDict, total=False):
    """What a policy says of one task, where that differs from the rest."""

    tier: Tier
    max_drop: Points
    min_items: Count
    metric: str


class GatePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a candidate may lose. A task that ``tasks`` does not name is critical; ``overall`` is supporting,
    since what holds of all tasks holds of their mean."""

    max_drop: Annotated[Points, Setting("Points of a hundred that a task may lose.", "policy")]
    min_items: Annotated[Count, Setting("Items below which a task is never GO.", "policy")] = 1
    tasks: Annotated[
        dict[str, Tier | TaskRule], Setting("By task: its tier, or what else differs.", "policy")
    ] = {}

    def rule(self, task: str | None) -> TaskRule:
        """That of a task, None for overall, with nothing left open but ``metric``."""
        usual: Tier = "supporting" if task is None else "critical"
        own = self.tasks.get(OVERALL if task is None else task, usual)
        said: TaskRule = {"tier": own} if isinstance(own, str) else own
        return {"tier": usual, "max_drop": self.max_drop, "min_items": self.min_items, **said}

    @property
    def named(self) -> set[str]:
        """The tasks it names."""
        return self.tasks.keys() - {OVERALL}

    def small_drops(self) -> Iterator[str]:
        """Warn of a drop that may be meant as a share of the scale."""
        own = {
            f" of {name}": self.rule(name)["max_drop"]
            for name in self.tasks
            if "max_drop" in self.tasks[name]
        }
        for place, drop in {"": self.max_drop, **own}.items():
            if 0 < drop < _SMALLEST:
                share = f"{100 * drop:g}"
                way = f"for {share} points write {share}"
                yield f"max_drop{place}: {drop:g} means {drop:g} of 100 points; {way}"


# --- Verdicts


class GatedTask(msgspec.Struct, frozen=True):
    """The verdict on a task (None: over the tasks) in one metric.

    ``difference`` is candidate − base and ``lower`` its lower bound, one-sided, were all that is ``missing``
    as bad as it can be; both, like ``max_drop``, are shares of the metric's scale. ``items_needed`` would
    decide it four times in five, if the difference is as seen. ``fits``: the same items, judges and recipes
    on both sides. ``reasons`` say why it is not GO. ``place``: ``overall`` or the task, and a metric that is
    not its score. ``other_judges``: whether a GO or NO-GO would be the same with judges as a sample, by the
    bound or interval over items and judges; None: nobody judged, or nothing is decided.
    """

    task: str | None
    metric: str
    place: str
    tier: Tier
    verdict: Verdict
    max_drop: float
    difference: float | None
    lower: float | None
    p_adjusted: float | None
    n: int
    missing: int
    items_needed: int | None
    fits: bool
    reasons: tuple[str, ...]
    sentence: str = ""
    other_judges: Literal["same", "open", "unknown"] | None = None
    lower_over_judges: float | None = None

    @property
    def holds_back(self) -> bool:
        """Whether it blocks a GO."""
        if self.verdict == "GO" or self.tier == "advisory":
            return False
        # what does not fit of a mean over tasks is theirs, and holds back where they decide
        unfit = self.task is not None and not (self.n and self.fits)
        return self.tier == "critical" or self.verdict == "NO-GO" or unfit


class GatedCandidate(msgspec.Struct, frozen=True):
    """The verdict on one candidate, and its tasks."""

    base: str
    candidate: str
    verdict: Verdict
    tasks: tuple[GatedTask, ...]

    @property
    def sentence(self) -> str:
        """What is shown of it, and where it is not."""
        if self.verdict == "GO":
            open_still = [one for one in self.tasks if one.tier == "supporting" and one.verdict != "GO"]
            but = self._reasons(open_still)
            tail = f"; open, and not required: it {but}" if but else ""
            return f"GO: {self.candidate} may take the place of {self.base}{tail}"
        said = self._reasons(one for one in self.tasks if one.holds_back and one.verdict == self.verdict)
        return f"{self.verdict}: {self.candidate} {said}"

    def _reasons(self, tasks: Iterable[GatedTask]) -> str:
        by_reason: dict[str, list[str]] = {}
        for one in tasks:
            by_reason.setdefault(self._because(one), []).append(one.place)
        return "; ".join(f"{reason} in {join_names(places)}" for reason, places in by_reason.items())

    def _because(self, task: GatedTask) -> str:
        if task.verdict == "NO-GO":
            return f"loses more than allowed to {self.base}"
        if not task.n:
            return f"has no score to hold against {self.base}"
        if not task.fits:
            return f"does not fit {self.base}"
        if task.lower is not None and task.lower < -task.max_drop:
            return f"may lose more than allowed to {self.base}"
        return "has too few items"


class GateReport(msgspec.Struct, frozen=True):
    """The verdicts on all candidates, as `coeval.gate` returns them. ``level``: that of each lower bound."""

    verdict: Verdict
    candidates: tuple[GatedCandidate, ...]
    level: float
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def exit_code(self) -> int:
        """0 GO, 3 INCONCLUSIVE, 4 NO-GO: that of the worst candidate."""
        return {"GO": 0, "INCONCLUSIVE": GAPS, "NO-GO": WORSE}[self.verdict]

    @property
    def unscored(self) -> tuple[GatedTask, ...]:
        """What decides and has no score to hold against the base's."""
        tasks = (one for each in self.candidates for one in each.tasks)
        return tuple(one for one in tasks if one.holds_back and not one.n)

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: what ``coeval gate --json`` prints."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


def gate_sides(
    groups: Sequence[Sequence[Side]], policy: GatePolicy, notes: Sequence[str] = (), *, sure: bool = True
) -> GateReport:
    """Compare all others of each group with its first one.

    A task is NO-GO where the candidate's loss is significantly more than the allowed drop (Holm over all that
    decides), GO where its lower bound lies above that drop, both sides fit and have enough items, and
    INCONCLUSIVE otherwise. A candidate is NO-GO where any critical or supporting task is; GO where all
    critical ones are and no supporting one lacks scores or does not fit.

    Raises UsageError: there is no candidate, nothing critical, or a metric of overall. ``sure``: losses need
    be significant.
    """
    if metric := policy.rule(None).get("metric"):
        raise UsageError(f"{OVERALL} is the mean of the tasks' scores: leave out its metric, {metric}")
    bases = {group[0].label for group in groups}
    held = [one for one in compared_pairs(groups) if one.a.label in bases]
    if not held:
        raise UsageError("there is no candidate to hold against the base: name a second folder")
    alpha = ONE_SIDED / len(held)
    drafts = [list(_drafts(one, policy)) for one in held]
    tested = [draft for of_one in drafts for draft in of_one if draft.tested]
    looks = [joined((one.a.looks, one.b.looks)) for one in held]
    each = zip(drafts, looks, strict=True)
    beyond = holm([draft.p_beyond(at) for of_one, at in each for draft in of_one if draft.tested])
    worse = {id(draft) for draft, p in zip(tested, beyond, strict=True) if p < ALPHA}
    candidates = []
    for one, of_one, at in zip(held, drafts, looks, strict=True):
        level = _level(alpha, at)
        tasks = tuple(_gated(draft, id(draft) in worse, level, sure) for draft in of_one)
        if not any(task.tier == "critical" for task in tasks):
            raise UsageError("the policy calls no task critical, so nothing would have to be shown for a GO")
        candidates.append(GatedCandidate(one.a.label, one.b.label, _verdict(tasks), tasks))
    verdicts = {one.verdict for one in candidates}
    sides = [side for group in groups for side in group]
    return GateReport(
        next(one for one in ("NO-GO", "INCONCLUSIVE", "GO") if one in verdicts),
        tuple(candidates),
        1 - alpha,
        tuple(dict.fromkeys([*notes, *pair_notes(held, sides)])),
        tuple(doubts_of(held, groups)),
        any(side.simulated for side in sides),
    )


def worse_lines(found: GateReport, delta: float, *, sure: bool = True) -> Iterator[str]:
    """State who is worse, who has no score, and the loss that is not excluded."""
    every = [(each, one) for each in found.candidates for one in each.tasks]
    for _, one in every:
        if one.verdict == "NO-GO":
            yield f"gate failed: {one.sentence.removeprefix('NO-GO: ')}"
    if found.verdict != "NO-GO" and not found.unscored:
        how = ", and significantly so" if sure else ", significantly or not"
        yield f"gate passed: no side is worse by more than {100 * delta:.4g}% of the scale{how}"
    for each, one in every:
        if not one.n and one.holds_back:
            why = "; ".join(reason.removeprefix(f"{one.place}: ") for reason in one.reasons)
            yield f"the gate says nothing of {one.place} for {each.candidate}: {why}"
    bounds = [(one.lower, each, one) for each, one in every if one.lower is not None]
    if bounds and found.verdict != "NO-GO":
        lower, each, one = min(bounds, key=lambda bound: bound[0])
        if lower < -delta:
            yield (
                f"a loss of up to {format_points(-lower)} points of {each.candidate} in {one.place} is not "
                "excluded; coeval gate passes only what is shown to lose less"
            )


def _verdict(tasks: Sequence[GatedTask]) -> Verdict:
    back = {one.verdict for one in tasks if one.holds_back}
    return "NO-GO" if "NO-GO" in back else "INCONCLUSIVE" if back else "GO"


# --- Tasks of one candidate


class _Level(NamedTuple):
    """That of a lower bound: ``claimed`` is its error at all looks together, ``alpha`` that of a single test
    that achieves it; ``words`` name the claim."""

    claimed: float
    alpha: float
    words: str


def _level(claimed: float, looks: Looks | None) -> _Level:
    alpha = alpha_at_any_look(claimed, looks)
    at = "" if looks is None else " at any look"
    return _Level(claimed, alpha, f"{100 * (1 - claimed):.4g}% sure{at}")


class _Draft(NamedTuple):
    """A task and its rule; ``row`` and ``found`` are None where no item is scored on both sides. ``why``:
    what does not fit."""

    task: str | None
    metric: str
    rule: TaskRule
    row: ComparedRow | None
    found: Comparison | None
    why: tuple[str, ...]

    @property
    def decides(self) -> bool:
        return self.rule["tier"] != "advisory"

    @property
    def tested(self) -> bool:
        return self.found is not None and self.decides

    def p_beyond(self, looks: Looks | None) -> float:
        """Test that the loss is no more than allowed, or that there is none."""
        if self.row is None or self.found is None or self.found.p is None:
            return 1.0
        strata = [part.pairs for part in self.row.parts]
        return max(self.found.p, p_at_any_look(beyond_p_value(strata, self.rule["max_drop"] / 100), looks))

    @property
    def place(self) -> str:
        """``overall``, the task, or the task and a label or other metric that has no scores of both."""
        named = bool(self.metric) and self.metric != SCORE
        return f"{self.task}: {self.metric}" if self.task and named else self.task or OVERALL


def _drafts(held: ComparedPair, policy: GatePolicy) -> Iterator[_Draft]:
    on_either = {item.task for side in held[:2] for item in side.items}
    of_tasks: list[_Draft] = []
    lacking: dict[str, str] = {}
    for task in sorted(on_either | policy.named):
        rule = policy.rule(task)
        why = [one.said for one in held.pairing.mismatches if one.task == task]
        why += judged_apart([one for one in held.pairing.apart if one.task == task], held[:2])
        if why:
            lacking[task] = "does not fit on both sides"
        metric = rule.get("metric")
        of_task = [row for row in held.rows if row.task == task]
        chosen = [
            row for row in of_task if (row.family == "task" if metric is None else row.metric == metric)
        ]
        if not chosen and metric is None:  # the headline is fitted to all items: the next one stands in
            chosen = [row for row in of_task if row.counted == "prompt"][:1]
        labels = [row for row in of_task if row.family == "label" and metric is None]
        of_tasks += (  # labels are in no score: what is lost there shows nowhere else
            _Draft(task, row.metric, rule, row, held.comparison(row), tuple(why))
            for row in (*chosen, *labels)
        )
        if not chosen:
            lacks = f"{task}: no item has a score of both {held.a.label} and {held.b.label}"
            if task not in on_either:
                near = get_close_matches(task, on_either, n=1)
                hint = f"; did you mean {near[0]}?" if near else ""
                lacks = f"{task}: neither side has this task, which the policy names{hint}"
            elif metric is not None and of_task:
                there = join_names(row.metric for row in of_task)
                lacks = f"{task}: no item has a {metric} of both; there is {there}"
            elif task in held.a.compared | held.b.compared:
                lacks = f"{task}: its answers are compared pairwise; a gate needs scores (judging: scores)"
            of_tasks.append(_Draft(task, metric or "", rule, None, None, (*why, lacks)))
        if metric is None:
            of_tasks += _unpaired_labels(held, task, rule, {row.metric for row in (*chosen, *labels)})
        if not any(row.metric == SCORE and row.family == "task" for row in of_task):
            lacking[task] = "has no score of both"
    yield from _overall(held, policy, lacking)
    yield from of_tasks


def _unpaired_labels(held: ComparedPair, task: str, rule: TaskRule, paired: Set[str]) -> Iterator[_Draft]:
    """Labels of a task without an item that has both sides' label, next to ``paired`` scores or labels."""
    for one in held.pairing.metrics if paired else ():
        if one.task == task and one.measure == "label" and one.metric not in paired:
            lacks = f"no item has the label {one.metric} of both {held.a.label} and {held.b.label}"
            yield _Draft(task, one.metric, rule, None, None, (lacks,))


def _overall(held: ComparedPair, policy: GatePolicy, lacking: Mapping[str, str]) -> Iterator[_Draft]:
    """The mean over tasks, which is that of one task where only one is scored; ``lacking``: by task, why the
    mean says nothing of it. Benchmarks' metrics have no mean."""
    found = [(row, held.comparison(row)) for row in held.rows if row.task is None]
    if not found and OVERALL in policy.tasks:
        whole = [row for row in held.rows if row.family == "task" and row.metric == SCORE]
        found = [
            (row, msgspec.structs.replace(held.comparison(row), task=None, family="overall")) for row in whole
        ]
    measures: dict[str, set[str]] = {}
    for one in held.pairing.metrics:
        measures.setdefault(one.task, set()).add(one.measure)
    by_reason: dict[str, list[str]] = {}
    for task, reason in lacking.items():
        if "factor" in measures.get(task, {"factor"}):
            by_reason.setdefault(reason, []).append(task)
    why = [f"{join_names(tasks)} {reason}" for reason, tasks in by_reason.items()]
    rule = policy.rule(None)
    for row, comparison in found:
        yield _Draft(None, row.metric, rule, row, comparison, tuple(why))
    if not found and OVERALL in policy.tasks:
        none = "metrics of benchmarks and labels have no mean over tasks"
        yield _Draft(None, SCORE, rule, None, None, tuple(why or [none]))


def _gated(draft: _Draft, beyond: bool, level: _Level, sure: bool) -> GatedTask:
    """``beyond``: the loss is significantly more than allowed."""
    rule, row, found, alpha = draft.rule, draft.row, draft.found, level.alpha
    drop = rule["max_drop"] / 100
    if row is None or found is None:
        return GatedTask(
            draft.task,
            draft.metric,
            draft.place,
            rule["tier"],
            "INCONCLUSIVE",
            drop,
            *(None, None, None, 0, 0, None, False),
            draft.why,
            f"INCONCLUSIVE: {'; '.join(draft.why)}",
        )
    strata = [part.pairs for part in row.parts]
    difference = found.difference / found.scale
    lower = bound_over_all(row.parts, alpha)
    few = found.n < rule["min_items"]
    why = draft.why
    if few:
        why += (f"fewer than the {rule['min_items']:,} that the policy asks for",)
    if beyond or (-difference > drop and not sure):
        verdict: Verdict = "NO-GO"
    else:
        verdict = "GO" if lower >= -drop and not why else "INCONCLUSIVE"
    # where the sides do not fit, no number of items makes it a GO
    open_to_items = verdict == "INCONCLUSIVE" and not draft.why
    needed = items_needed(strata, drop, alpha) if open_to_items and lower < -drop else None
    if open_to_items and (few or needed):
        needed = max(needed or 0, rule["min_items"])
    gated = GatedTask(
        draft.task,
        row.metric,
        found.place,
        rule["tier"],
        verdict,
        drop,
        difference,
        lower,
        found.p_adjusted,
        found.n,
        found.missing,
        needed,
        not draft.why,
        why,
    )
    other, least = _other_judges(gated, found)
    gated = msgspec.structs.replace(gated, other_judges=other, lower_over_judges=least)
    said = _sentence(gated, found, level, beyond) + _of_judges(gated, found)
    return msgspec.structs.replace(gated, sentence=said)


def _other_judges(
    task: GatedTask, found: Comparison
) -> tuple[Literal["same", "open", "unknown"] | None, float | None]:
    if not found.judges or task.lower is None:
        return None, None
    over = found.ci95_over_judges
    if over is None:
        return None if task.verdict == "INCONCLUSIVE" else "unknown", None
    least = min(over[0] / found.scale, task.lower)
    if task.verdict == "INCONCLUSIVE":
        return None, least
    allowed = -task.max_drop
    same = over[1] / found.scale < allowed if task.verdict == "NO-GO" else least >= allowed
    return "same" if same else "open", least


def _of_judges(task: GatedTask, found: Comparison) -> str:
    """A clause on whether other judges would say the same."""
    if task.other_judges is None:
        return ""
    if task.other_judges == "unknown":
        why = (
            ": one judge scored both"
            if found.judges == 1
            else ": no item has scores from two judges for both"
        )
        return f"; agreement of other judges is unknown{why}"
    least = f"over items and judges at least {format_points(task.lower_over_judges or 0.0)}"
    if found.judges == 2:
        return f"; what other judges would say can only be guessed from two ({least})"
    if task.other_judges == "open":
        return f"; whether other judges would agree is open ({least})"
    return f"; other judges would agree ({least})"


def _sentence(task: GatedTask, found: Comparison, level: _Level, beyond: bool) -> str:
    """The verdict, and what it rests on, in points."""
    where, allowed = where_of(found), format_points(task.max_drop)
    n = pluralize(found.n, found.counted)
    if task.verdict == "NO-GO":
        how = "significantly more than" if beyond else "not significantly, but more than"
        # In points of a hundred, as what is allowed, whatever the metric's own scale.
        by, low, high = (-100 * end / found.scale for end in (found.difference, *reversed(found.ci95)))
        loss = difference_text(by, low, high)
        return (
            f"NO-GO: {found.b} is worse than {found.a} {where} by {loss} points, "
            f"{how} the allowed {allowed}; {n}"
        )
    least = f"at least {format_points(task.lower or 0.0)} ({level.words})"
    seen = f"{found.b} − {found.a} is {format_points(task.difference or 0.0)} points {where}, {least}"
    if task.verdict == "GO":
        return f"GO: {seen}: a loss of more than {allowed} is excluded; {n}"
    parts = list(task.reasons)
    if (task.lower or 0.0) < -task.max_drop:
        parts.append(f"a loss of more than {allowed} is not excluded")
    if task.missing:
        parts.append(f"{task.missing:,} without a score on either side count as lost: fill these first")
    if task.items_needed:
        needed = pluralize(task.items_needed, found.counted)
        parts.append(f"about {needed} would decide it four times in five")
    return f"INCONCLUSIVE: {seen}; {n}; {'; '.join(parts)}"
