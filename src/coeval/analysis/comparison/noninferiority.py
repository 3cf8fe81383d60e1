"""Gate a candidate that may replace a base: is it shown to lose less than a policy allows?

A candidate is GO where it is shown of *every* critical task that it loses no more than ``max_drop``: that is
an intersection–union test, whose error is that of its weakest part, so tasks need no correction (Berger
1982). Several candidates do: each is a chance of a false GO, so the error is shared out among them.
``docs/gate.md`` explains the rule, ``python -m evidence.gate`` measures it.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from typing import Annotated, Literal, NamedTuple, TypeAlias, TypedDict

import msgspec

from coeval.analysis.comparison import comparisons, lower_bound
from coeval.analysis.comparison.comparison_report import Comparison, PlainReport, overall_or_on_task_phrase
from coeval.analysis.comparison.comparisons import ComparedPair
from coeval.analysis.comparison.paired_difference import holm_adjust_by_name
from coeval.analysis.comparison.side import Side, one_side_judge_notes
from coeval.analysis.intervals import ALPHA, Looks, alpha_at_any_look, combine_looks, p_value_at_any_look
from coeval.core.errors import GAPS, WORSE, UsageError
from coeval.core.figures import format_points, plus_minus_or_bracketed
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
    """A policy's settings for one task that differ from the rest."""

    tier: Tier
    max_drop: Points
    min_items: Count
    metric: str


class GatePolicy(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The losses that a candidate is allowed. A task that ``tasks`` does not name is critical; ``overall`` is
    supporting, since what holds for all tasks holds for their mean."""

    max_drop: Annotated[Points, Setting("Points of a hundred that a task may lose.", "policy")]
    min_items: Annotated[Count, Setting("Items below which a task is never GO.", "policy")] = 1
    tasks: Annotated[
        dict[str, Tier | TaskRule], Setting("By task: its tier, or what else differs.", "policy")
    ] = {}

    def task_rule(self, task: str | None) -> TaskRule:
        """Return the rule of a task, None for overall, with defaults for all but ``metric``."""
        default: Tier = "supporting" if task is None else "critical"
        own = self.tasks.get(OVERALL if task is None else task, default)
        rule: TaskRule = {"tier": own} if isinstance(own, str) else own
        return {"tier": default, "max_drop": self.max_drop, "min_items": self.min_items, **rule}

    def drop_mistaken_for_share_warnings(self) -> Iterator[str]:
        """Warn of a drop that may be meant as a share of the scale."""
        changed = {
            f" of {name}": self.task_rule(name)["max_drop"]
            for name in self.tasks
            if "max_drop" in self.tasks[name]
        }
        for of_task, drop in {"": self.max_drop, **changed}.items():
            if 0 < drop < _SMALLEST:
                share = f"{100 * drop:g}"
                remedy = f"for {share} points write {share}"
                yield f"max_drop{of_task}: {drop:g} means {drop:g} of 100 points; {remedy}"


# --- Verdicts


class GatedTask(msgspec.Struct, frozen=True):
    """The verdict on a task (None: overall) in one metric.

    ``difference`` is candidate − base and ``lower`` its one-sided lower bound if all ``missing`` items are
    as bad as can be; both, like ``max_drop``, are shares of the metric's scale. ``items_needed`` would decide
    it four times in five, if the difference is as observed. ``fits``: both sides have the same items, judges
    and recipes. ``reasons``: why it is not GO. ``place``: ``overall`` or the task, and a metric that is not
    its score. ``other_judges``: whether a GO or NO-GO would be the same with judges as a sample, by the bound
    or interval over items and judges; None: nobody judged, or nothing is decided.
    """

    task: str | None
    metric: str
    place: str
    tier: Tier
    verdict: Verdict
    max_drop: float
    difference: float | None = None
    lower: float | None = None
    p_adjusted: float | None = None
    n: int = 0
    missing: int = 0
    items_needed: int | None = None
    fits: bool = False
    reasons: tuple[str, ...] = ()
    sentence: str = ""
    other_judges: Literal["same", "open", "unknown"] | None = None
    lower_over_judges: float | None = None

    @property
    def blocks_go(self) -> bool:
        """Check whether the verdict keeps the candidate from a GO."""
        if self.verdict == "GO" or self.tier == "advisory":
            return False
        # a mean over tasks does not fit because some task does not, and that task blocks if it decides
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
        """State the verdict, and the tasks that decide it or stay open."""
        if self.verdict == "GO":
            open_tasks = [task for task in self.tasks if task.tier == "supporting" and task.verdict != "GO"]
            reasons = self._reasons_with_places(open_tasks)
            tail = f"; undecided, but not required: it {reasons}" if reasons else ""
            return f"GO: {self.candidate} may replace {self.base}{tail}"
        blocking = [task for task in self.tasks if task.blocks_go and task.verdict == self.verdict]
        return f"{self.verdict}: {self.candidate} {self._reasons_with_places(blocking)}"

    def _reasons_with_places(self, tasks: Iterable[GatedTask]) -> str:
        places_by_reason: dict[str, list[str]] = {}
        for task in tasks:
            places_by_reason.setdefault(self._task_reason(task), []).append(task.place)
        return "; ".join(f"{reason} in {join_names(places)}" for reason, places in places_by_reason.items())

    def _task_reason(self, task: GatedTask) -> str:
        if task.verdict == "NO-GO":
            return f"loses more than allowed against {self.base}"
        if not task.n:
            return f"has no scores to compare with {self.base}"
        if not task.fits:
            return f"does not match {self.base}"
        if task.lower is not None and task.lower < -task.max_drop:
            return f"may lose more than allowed against {self.base}"
        return "has too few items"


class GateReport(PlainReport, frozen=True):
    """The verdicts on all candidates, as `coeval.gate` returns them. ``level``: of each lower bound."""

    verdict: Verdict
    candidates: tuple[GatedCandidate, ...]
    level: float
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    simulated: bool = False

    @property
    def exit_code(self) -> int:
        """Return the exit code of the worst candidate's verdict."""
        return {"GO": 0, "INCONCLUSIVE": GAPS, "NO-GO": WORSE}[self.verdict]

    @property
    def unscored_deciding_tasks(self) -> tuple[GatedTask, ...]:
        """Return the deciding tasks in which no item is scored on both sides."""
        tasks = (task for candidate in self.candidates for task in candidate.tasks)
        return tuple(task for task in tasks if task.blocks_go and not task.n)


def gate_sides(
    groups: Sequence[Sequence[Side]],
    policy: GatePolicy,
    notes: Sequence[str] = (),
    *,
    significant_only: bool = True,
) -> GateReport:
    """Gate all others of each group against its first side.

    A task is NO-GO if the candidate's loss is significantly more than the allowed drop (Holm over all that
    decides), GO if its lower bound lies above that drop, both sides fit and have enough items, and
    INCONCLUSIVE otherwise. A candidate is NO-GO if any critical or supporting task is; GO if all critical
    ones are and no supporting one lacks scores or does not fit. ``significant_only``: a loss must be
    significant for a NO-GO.

    Raises UsageError if there is no candidate, nothing critical, or a metric of overall.
    """
    if metric := policy.task_rule(None).get("metric"):
        raise UsageError(f"{OVERALL} is the mean of the tasks' scores: leave out its metric, {metric}")
    bases = {group[0].label for group in groups}
    pairs = [pair for pair in comparisons.compare_pairs(groups) if pair.a.label in bases]
    if not pairs:
        raise UsageError("there is no candidate to compare with the base; name a second folder")
    alpha = lower_bound.ONE_SIDED / len(pairs)
    drafts = [list(_draft_overall_and_tasks(pair, policy)) for pair in pairs]
    looks = [combine_looks((pair.a.looks, pair.b.looks)) for pair in pairs]
    p_by_draft = {
        id(draft): draft.p_value_of_loss_within_rule(at)
        for of_pair, at in zip(drafts, looks, strict=True)
        for draft in of_pair
        if draft.is_tested
    }
    worse = {draft for draft, p in holm_adjust_by_name(p_by_draft).items() if p < ALPHA}
    candidates = []
    for pair, of_pair, at in zip(pairs, drafts, looks, strict=True):
        words = f"{100 * (1 - alpha):.4g}% sure" + (" at any look" if at is not None else "")
        level = _BoundLevel(alpha_at_any_look(alpha, at), words)
        tasks = tuple(_gate_task(draft, id(draft) in worse, level, significant_only) for draft in of_pair)
        if not any(task.tier == "critical" for task in tasks):
            raise UsageError("the policy calls no task critical, so nothing would have to be shown for a GO")
        blocking = {task.verdict for task in tasks if task.blocks_go}
        verdict: Verdict = "NO-GO" if "NO-GO" in blocking else "INCONCLUSIVE" if blocking else "GO"
        candidates.append(GatedCandidate(pair.a.label, pair.b.label, verdict, tasks))
    verdicts = {candidate.verdict for candidate in candidates}
    sides = [side for group in groups for side in group]
    return GateReport(
        next(verdict for verdict in ("NO-GO", "INCONCLUSIVE", "GO") if verdict in verdicts),
        tuple(candidates),
        1 - alpha,
        tuple(dict.fromkeys([*notes, *comparisons.mismatch_notes(pairs, sides)])),
        tuple(comparisons.comparison_caveats(pairs, groups)),
        any(side.simulated for side in sides),
    )


def gate_messages(report: GateReport, delta: float, *, significant_only: bool = True) -> Iterator[str]:
    """State which candidates lose more than ``delta``, which have no score, and the loss not excluded."""
    tasks = [(candidate.candidate, task) for candidate in report.candidates for task in candidate.tasks]
    for _, task in tasks:
        if task.verdict == "NO-GO":
            yield f"gate failed: {task.sentence.removeprefix('NO-GO: ')}"
    if report.verdict != "NO-GO" and not report.unscored_deciding_tasks:
        how = ", and significantly so" if significant_only else ", significantly or not"
        yield f"gate passed: no side is worse by more than {100 * delta:.4g}% of the scale{how}"
    for name, task in tasks:
        if not task.n and task.blocks_go:
            why = "; ".join(reason.removeprefix(f"{task.place}: ") for reason in task.reasons)
            yield f"the gate cannot judge {task.place} for {name}: {why}"
    bounds = [(task.lower, name, task.place) for name, task in tasks if task.lower is not None]
    if bounds and report.verdict != "NO-GO":
        lower, name, place = min(bounds, key=lambda bound: bound[0])
        if lower < -delta:
            yield (
                f"a loss of up to {format_points(-lower)} points of {name} in {place} is not "
                "excluded; coeval gate passes only what is shown to lose less"
            )


# --- Tasks of one candidate


class _BoundLevel(NamedTuple):
    """The level of a lower bound: ``alpha`` is the error of a single look, and ``words`` name the confidence
    over all looks together."""

    alpha: float
    words: str


class _Draft(NamedTuple):
    """A task and its rule, before the verdict; ``row`` and ``comparison`` are None if no item is scored on
    both sides. ``misfits``: what differs between the sides."""

    task: str | None
    metric: str
    rule: TaskRule
    row: comparisons.ComparedRow | None
    comparison: Comparison | None
    misfits: tuple[str, ...]

    @property
    def is_tested(self) -> bool:
        return self.comparison is not None and self.rule["tier"] != "advisory"

    def p_value_of_loss_within_rule(self, looks: Looks | None) -> float:
        """Return the p-value of "the loss is no more than allowed", and no more than none."""
        if self.row is None or self.comparison is None or self.comparison.p is None:
            return 1.0
        strata = [part.pairs for part in self.row.parts]
        p = lower_bound.p_value_of_loss_within_allowed(strata, self.rule["max_drop"] / 100)
        return max(self.comparison.p, p_value_at_any_look(p, looks))

    @property
    def place(self) -> str:
        """Return ``overall``, the task, or the task and a label or other metric without scores of both."""
        named = bool(self.metric) and self.metric != comparisons.SCORE
        return f"{self.task}: {self.metric}" if self.task and named else self.task or OVERALL


def _draft_overall_and_tasks(pair: ComparedPair, policy: GatePolicy) -> Iterator[_Draft]:
    """Yield what is to be decided of a pair: overall first, then each task, its labels, and missing ones."""
    on_either = {item.task for side in pair[:2] for item in side.items}
    of_tasks: list[_Draft] = []
    lacking: dict[str, str] = {}
    for task in sorted(on_either | (policy.tasks.keys() - {OVERALL})):
        rule = policy.task_rule(task)
        misfits = [mismatch.message for mismatch in pair.pairing.mismatches if mismatch.task == task]
        one_side = [judges for judges in pair.pairing.one_side if judges.task == task]
        misfits += one_side_judge_notes(one_side, pair[:2])
        if misfits:
            lacking[task] = "does not fit on both sides"
        metric = rule.get("metric")
        of_task = [row for row in pair.rows if row.task == task]
        chosen = [
            row for row in of_task if (row.family == "task" if metric is None else row.metric == metric)
        ]
        if not chosen and metric is None:  # the headline is fitted to all items: the next one stands in
            chosen = [row for row in of_task if row.counted == "prompt"][:1]
        labels = [row for row in of_task if row.family == "label" and metric is None]
        of_tasks += (  # labels are in no score: what is lost there shows nowhere else
            _Draft(task, row.metric, rule, row, pair.row_comparison(row), tuple(misfits))
            for row in (*chosen, *labels)
        )
        if not chosen:
            lacks = f"{task}: no item has a score of both {pair.a.label} and {pair.b.label}"
            if task not in on_either:
                close = get_close_matches(task, on_either, n=1)
                hint = f"; did you mean {close[0]}?" if close else ""
                lacks = f"{task}: neither side has this task, which the policy names{hint}"
            elif metric is not None and of_task:
                metrics = join_names(row.metric for row in of_task)
                lacks = f"{task}: no item has a {metric} of both; there is {metrics}"
            elif task in pair.a.compared | pair.b.compared:
                lacks = f"{task}: its answers are compared pairwise; a gate needs scores (judging: scores)"
            of_tasks.append(_Draft(task, metric or "", rule, None, None, (*misfits, lacks)))
        paired = {row.metric for row in (*chosen, *labels)}
        for own in pair.pairing.metrics if metric is None and paired else ():
            if own.task == task and own.measure == "label" and own.metric not in paired:
                lacks = f"no item has the label {own.metric} of both {pair.a.label} and {pair.b.label}"
                of_tasks.append(_Draft(task, own.metric, rule, None, None, (lacks,)))
        if not any(row.metric == comparisons.SCORE and row.family == "task" for row in of_task):
            lacking[task] = "has no score of both"
    yield from _draft_overall(pair, policy, lacking)
    yield from of_tasks


def _draft_overall(pair: ComparedPair, policy: GatePolicy, lacking: Mapping[str, str]) -> Iterator[_Draft]:
    """Yield the mean over tasks, which is that of one task if only one is scored; ``lacking``: by task, why
    the mean leaves it out. Benchmarks' metrics have no mean."""
    rows = [row for row in pair.rows if row.task is None]
    if not rows and OVERALL in policy.tasks:
        rows = [row for row in pair.rows if row.family == "task" and row.metric == comparisons.SCORE]
    measures: dict[str, set[str]] = {}
    for metric in pair.pairing.metrics:
        measures.setdefault(metric.task, set()).add(metric.measure)
    by_reason: dict[str, list[str]] = {}
    for task, reason in lacking.items():
        if "factor" in measures.get(task, {"factor"}):
            by_reason.setdefault(reason, []).append(task)
    misfits = [f"{join_names(tasks)} {reason}" for reason, tasks in by_reason.items()]
    rule = policy.task_rule(None)
    for row in rows:
        overall = msgspec.structs.replace(pair.row_comparison(row), task=None, family="overall")
        yield _Draft(None, row.metric, rule, row, overall, tuple(misfits))
    if not rows and OVERALL in policy.tasks:
        none = "metrics of benchmarks and labels have no mean over tasks"
        yield _Draft(None, comparisons.SCORE, rule, None, None, tuple(misfits or [none]))


def _gate_task(draft: _Draft, is_worse: bool, level: _BoundLevel, significant_only: bool) -> GatedTask:
    """Decide a task; ``is_worse``: its loss is significantly more than allowed."""
    rule, row, comparison, alpha = draft.rule, draft.row, draft.comparison, level.alpha
    drop = rule["max_drop"] / 100
    if row is None or comparison is None:
        return GatedTask(
            draft.task,
            draft.metric,
            draft.place,
            rule["tier"],
            "INCONCLUSIVE",
            drop,
            reasons=draft.misfits,
            sentence=f"INCONCLUSIVE: {'; '.join(draft.misfits)}",
        )
    strata = [part.pairs for part in row.parts]
    difference = comparison.difference / comparison.scale
    lower = lower_bound.lower_bound_with_missing_at_worst(row.parts, alpha)
    few = comparison.n < rule["min_items"]
    reasons = draft.misfits
    if few:
        reasons += (f"fewer than the {rule['min_items']:,} that the policy asks for",)
    if is_worse or (-difference > drop and not significant_only):
        verdict: Verdict = "NO-GO"
    else:
        verdict = "GO" if lower >= -drop and not reasons else "INCONCLUSIVE"
    # where the sides do not fit, no number of items makes it a GO
    is_open = verdict == "INCONCLUSIVE" and not draft.misfits
    needed = lower_bound.count_items_to_decide(strata, drop, alpha) if is_open and lower < -drop else None
    if is_open and (few or needed):
        needed = max(needed or 0, rule["min_items"])
    gated = GatedTask(
        draft.task,
        row.metric,
        comparison.place,
        rule["tier"],
        verdict,
        drop,
        difference,
        lower,
        comparison.p_adjusted,
        comparison.n,
        comparison.missing,
        needed,
        not draft.misfits,
        reasons,
    )
    other, least = _agreement_and_bound_over_judges(gated, comparison)
    gated = msgspec.structs.replace(gated, other_judges=other, lower_over_judges=least)
    sentence = _task_sentence(gated, comparison, level, is_worse) + _other_judges_clause(gated, comparison)
    return msgspec.structs.replace(gated, sentence=sentence)


def _agreement_and_bound_over_judges(
    task: GatedTask, comparison: Comparison
) -> tuple[Literal["same", "open", "unknown"] | None, float | None]:
    """Return whether the verdict is the same with judges as a sample, and the lower bound over them."""
    if not comparison.judges or task.lower is None:
        return None, None
    over = comparison.ci95_over_judges
    if over is None:
        return None if task.verdict == "INCONCLUSIVE" else "unknown", None
    least = min(over[0] / comparison.scale, task.lower)
    if task.verdict == "INCONCLUSIVE":
        return None, least
    allowed = -task.max_drop
    same = over[1] / comparison.scale < allowed if task.verdict == "NO-GO" else least >= allowed
    return "same" if same else "open", least


def _other_judges_clause(task: GatedTask, comparison: Comparison) -> str:
    """Say whether other judges would agree, or why that is unknown."""
    if task.other_judges is None:
        return ""
    if task.other_judges == "unknown":
        two = "no item has scores from two judges for both"
        why = "one judge scored both" if comparison.judges == 1 else two
        return f"; agreement of other judges is unknown: {why}"
    least = f"allowing for other judges at least {format_points(task.lower_over_judges or 0.0)}"
    if comparison.judges == 2:
        return f"; what other judges would say is only a rough estimate from two ({least})"
    if task.other_judges == "open":
        return f"; whether other judges would agree is open ({least})"
    return f"; other judges would agree ({least})"


def _task_sentence(task: GatedTask, comparison: Comparison, level: _BoundLevel, is_significant: bool) -> str:
    where, allowed = overall_or_on_task_phrase(comparison), format_points(task.max_drop)
    n = pluralize(comparison.n, comparison.counted)
    if task.verdict == "NO-GO":
        how = "significantly more than" if is_significant else "not significantly, but more than"
        # in hundredths of the scale, as the allowed loss is, whatever the metric's own unit
        by, low, high = (
            -100 * end / comparison.scale
            for end in (comparison.difference, *reversed(comparison.ci95_adjusted))
        )
        loss = plus_minus_or_bracketed(by, low, high)
        return (
            f"NO-GO: {comparison.b} is worse than {comparison.a} {where} by {loss} points, "
            f"{how} the allowed {allowed}; {n}"
        )
    least = f"at least {format_points(task.lower or 0.0)} ({level.words})"
    seen = (
        f"{comparison.b} − {comparison.a} is {format_points(task.difference or 0.0)} points {where}, {least}"
    )
    if task.verdict == "GO":
        return f"GO: {seen}: a loss of more than {allowed} is excluded; {n}"
    parts = list(task.reasons)
    if (task.lower or 0.0) < -task.max_drop:
        parts.append(f"a loss of more than {allowed} is not excluded")
    if task.missing:
        parts.append(f"{task.missing:,} without a score on either side count as lost: fill these first")
    if task.items_needed:
        needed = pluralize(task.items_needed, comparison.counted)
        parts.append(f"about {needed} would decide it four times in five")
    return f"INCONCLUSIVE: {seen}; {n}; {'; '.join(parts)}"
