"""Comparisons as they are reported: in Python, in tables, in notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.comparison.paired_difference import Test
from coeval.analysis.intervals import ALPHA, scale_of_unit
from coeval.analysis.run_results import SIMULATED
from coeval.core.figures import (
    MISSING,
    NOT_KNOWN,
    format_figure,
    gap_text,
    metric_difference_text,
    metric_text,
    p_value_text,
)
from coeval.core.html_table import Columns, html_lines, html_table, record_columns
from coeval.core.plain import escape_line
from coeval.core.text import join_names, pluralize

# --- Comparison of two sides in one metric

Family: TypeAlias = Literal["overall", "task", "label", "part"]
FAMILIES: tuple[Family, ...] = ("overall", "task", "label", "part")


class Comparison(PairDifference, frozen=True):
    """How b differs from a in one metric of a task (``task`` None: over the tasks, each counting alike).

    Means, ``difference`` = b − a and ``ci95`` are in the metric's ``unit`` (``share`` of 1, ``percent`` or
    ``points``), over ``n`` items that both have. ``missing`` items have no such pair; ``bounds`` is where the
    difference over all items lies, whatever these would score. ``p_adjusted``, ``ci95_adjusted`` and
    ``verdict`` allow for all comparisons of the report (`coeval.analysis.comparison.family`); ``p`` and
    ``ci95`` are of this one alone. ``gate`` says where the comparison above it is not significant, so
    that this one is not tested; None: nowhere. ``…_over_judges`` have judges as a sample too: None where
    nothing can be told, as of one judge; ``judges`` scored both, of which ``agreeing`` by themselves put the
    same one ahead; None: nobody judged. ``minimum_detectable`` is the true difference that
    would be found four times in five at the 5% level, two-sided. ``scale`` is how long the metric's scale is.
    Of a run that grows, p-values and adjusted intervals hold at any look: ``look`` says which this is; empty:
    the only one. ``sentence`` says it all in words. ``identical``: both score the same on every item.
    """

    a: str
    b: str
    task: str | None
    metric: str
    family: Family
    unit: str
    mean_a: float
    mean_b: float
    missing: int
    bounds: tuple[float, float]
    test: Test
    scale: float
    counted: Literal["item", "prompt"] = "item"
    look: str = ""
    sentence: str = ""
    gate: str | None = None
    identical: bool = False

    @property
    def place(self) -> str:
        """Return ``overall``, the task, or the task and a label or part of it."""
        place = "overall" if self.task is None else self.task
        return f"{place}: {self.metric}" if self.family in ("label", "part") else place


def comparison_sentence(comparison: Comparison) -> str:
    """State who leads and by how much, and the gap that would have been detected.

    ``B leads on ifeval: 3.1 ± 1.9 points ahead of A on 541 shared prompts (p = 0.012). With 541 prompts, a
    true gap of 2.6 points would be detected four times in five``
    """
    where = overall_or_on_task_phrase(comparison)
    count = pluralize(comparison.n, f"shared {comparison.counted}")
    if comparison.identical:
        return f"{comparison.a} and {comparison.b} have identical scores {where}: {count}"
    lead = comparison.with_leader_as_b
    names = (comparison.a, comparison.b) if comparison.difference < 0 else (comparison.b, comparison.a)
    if comparison.gate is not None and comparison.p is not None and comparison.p < ALPHA:
        by, (ahead, behind) = f"{format_difference(lead, comparison.unit)} points", names
        why = f"not tested, as they are tied {comparison.gate}"
        text = f"{ahead} is {by} ahead of {behind} {where} on {count}: {why}"
    elif comparison.verdict == "tied":
        text = tie_text(names, lead, count, f" {where}", comparison.unit)
    else:
        text = lead_text(names, lead, count, f" {where}", comparison.unit, at_any_look=bool(comparison.look))
        text += _allowing_for_other_judges_clause(lead)
    if comparison.minimum_detectable is None:
        return text
    return f"{text}. {_detectable_difference_sentence(comparison, comparison.minimum_detectable)}"


def lead_text(
    leader_and_other: tuple[str, str],
    lead: PairDifference,
    counted_items: str,
    scope: str = "",
    unit: str = "share",
    *,
    at_any_look: bool = False,
) -> str:
    """State a lead: ``A leads by these judges: 3.4 ± 2.9 points ahead of B on 167 shared items (p = 0.036)``.
    ``lead`` is that of the first of ``names``, over ``counted_items``."""
    chance = p_value_clause(lead.p_adjusted, at_any_look=at_any_look)
    source = "" if lead.comes_from is None else f"; the lead comes from {lead.comes_from}"
    by = f"{format_difference(lead, unit)} points ahead of {leader_and_other[1]} on {counted_items}{chance}"
    return f"{leader_and_other[0]} {lead.verdict}{scope}: {by}{source}"


def tie_text(
    names: tuple[str, str], gap: PairDifference, counted_items: str, scope: str = "", unit: str = "share"
) -> str:
    """State a tie: ``A (82.8) and B (79.5) are tied: the gap is 3.3 ± 4.1 points on 167 shared items``. The
    p-value is added if the interval alone suggests a lead, as it may where few items differ."""
    low, high = gap.ci95_adjusted
    odds = "" if low <= 0 <= high else p_value_clause(gap.p_adjusted)
    by = f"the gap is {format_difference(gap, unit)} points on {counted_items}{odds}"
    return f"{names[0]} and {names[1]} are tied{scope}: {by}"


def p_value_clause(p: float | None, *, at_any_look: bool = False) -> str:
    """Return `` (p = 0.012)``, or `` (p = 0.012 at any look)`` for a run that grows."""
    return "" if p is None else f" ({p_value_text(p)}{' at any look' if at_any_look else ''})"


def _allowing_for_other_judges_clause(comparison: Comparison) -> str:
    """Describe b's lead with judges as a sample too; empty for one judge, or if nobody judged."""
    if comparison.judges is None or comparison.judges == 1:
        return ""
    if comparison.ci95_over_judges_adjusted is None:
        return "; no item has scores from two judges for both"
    if (by := interval_over_judges_or_unknown(comparison, comparison.unit)) == NOT_KNOWN:
        return f"; allowing for other judges it is {by}"
    if comparison.judges == 2:
        return f"; allowing for other judges {by}, a rough estimate from two"
    return f"; allowing for other judges {by}, {comparison.agreeing} of {comparison.judges} agree"


def _detectable_difference_sentence(pair: Comparison, least: float) -> str:
    """State the power: ``With 541 prompts, a true gap of 2.6 points would be detected four times in five``"""
    gap = f"a true gap of {gap_text(least, pair.unit)} points" if least < pair.scale else "no true gap"
    return f"With {pluralize(pair.n, pair.counted)}, {gap} would be detected four times in five"


def overall_or_on_task_phrase(comparison: Comparison) -> str:
    """Return ``overall``, ``on haiku`` or ``on haiku (plot)``."""
    where = "overall" if comparison.task is None else f"on {comparison.task}"
    return f"{where} ({comparison.metric})" if comparison.family in ("label", "part") else where


def format_difference(comparison: PairDifference, unit: str = "share") -> str:
    """Write a difference with its adjusted interval in points: ``3.1 ± 1.9``; lopsided ``3.1 [0.4, 4.2]``."""
    return metric_difference_text(comparison.difference, *comparison.ci95_adjusted, unit)


def interval_alone_text(middle: float, low: float, high: float, unit: str = "share") -> str:
    """Write the interval alone, in points: ``± 9.7``, or ``[−4.1, 12.5]`` if it is lopsided."""
    text = metric_difference_text(middle, low, high, unit)
    return text[text.index("±" if "±" in text else "[") :]


LEGEND = (
    "Points: 0–100. b − a: with the interval matching p, over n shared "
    "items; {}p: adjusted for all pairs; a task is tested "
    "if overall is significant, a factor if its task is, a label by itself. least: the true difference "
    "detected four times in five."
)


class ComparedSide(msgspec.Struct, frozen=True):
    """A side as the report lists it. ``usd_per_1000``: mean cost of its answers; ``seconds``: median latency;
    None: not on record."""

    folder: str
    model: str
    usd_per_1000: float | None
    seconds: float | None


class PlainReport(msgspec.Struct, frozen=True):
    """A report that is plain data as well."""

    def as_dict(self) -> dict[str, Any]:
        """Return plain data, ready for JSON: what ``--json`` prints."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data


class ComparisonReport(PlainReport, frozen=True):
    """Pairwise comparisons of sides on the same items, as `coeval.compare` returns them.

    ``comparisons``: overall first, then by task, by label, by factor and further metric. ``sides``: by
    label; ``bases``: those that the others are tested against for being worse; ``doubts``: reasons not to
    take differences as they are; ``notes``: anything else about the comparison, one sentence each.
    ``simulated``: simulated models took part. ``shared``: the means of a pair cover only the scores that
    both sides have, as some sides have others too; else they are the sides' scores.
    """

    comparisons: tuple[Comparison, ...]
    sides: dict[str, ComparedSide]
    bases: tuple[str, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    simulated: bool = False
    shared: bool = False

    def mean_headings(self, a: str, b: str, difference: str = "") -> list[str]:
        """Return the headings of the columns for a's mean, b's mean and their difference."""
        end = ", shared" if self.shared else ""
        return [f"{a}{end}", f"{b}{end}", difference or f"{b} − {a}"]

    @property
    def legend(self) -> str:
        """Explain the columns of the tables of comparisons."""
        judged = any(pair.ci95_over_judges is not None for pair in self.comparisons)
        text = LEGEND.format("judges: the interval that allows for other judges. " * judged)
        return f"{text} shared: over the items and judges that both have." if self.shared else text

    @property
    def sentences(self) -> tuple[str, ...]:
        """State who is better and by how much; by factor and further metric only if there is nothing else."""
        main = [pair.sentence for pair in self.comparisons if pair.family != "part"]
        return tuple(main or (pair.sentence for pair in self.comparisons))

    @property
    def missing(self) -> tuple[str, ...]:
        """State, for each task with unscored items, the range of the difference over all items."""
        return tuple(
            _range_with_missing_items_sentence(pair)
            for pair in self.comparisons
            if pair.missing and pair.family == "task"
        )

    def table(self) -> Columns:
        """Return the comparisons as columns, for ``pandas.DataFrame`` or ``polars.DataFrame``: a row for
        each, a column for each field of `Comparison`; its intervals are ``low`` and ``high``,
        ``bounds_low`` and ``bounds_high``."""
        spread: Columns = {}
        for name, values in record_columns(Comparison, self.comparisons).items():
            if name != "bounds" and not name.startswith("ci95"):
                spread[name] = values
                continue
            pairs = [getattr(comparison, name) or (None, None) for comparison in self.comparisons]
            for at, end in enumerate(("low", "high")):
                column = f"bounds_{end}" if name == "bounds" else name.replace("ci95", end)
                spread[column] = [pair[at] for pair in pairs]
        return spread

    def __repr__(self) -> str:
        first, *more = self.sentences
        return f"ComparisonReport({first!r}{f', and {len(more)} more' if more else ''})"

    def _repr_html_(self) -> str:
        """Show sentences, doubts, a table for each pair, and notes; names and notes are escaped."""
        parts = [html_lines((*[SIMULATED] * self.simulated, *self.sentences, *self.doubts))]
        for (a, b), of_pair in group_by_pair(self.comparisons):
            rows = [(comparison.place, *comparison_cells(comparison)) for comparison in of_pair]
            parts.append(html_table("", ("task", *self.mean_headings(a, b), "p", "n", "least"), rows))
        return "".join(parts) + html_lines((*self.missing, *self.notes, self.legend))


def group_by_pair(comparisons: Sequence[Comparison]) -> Iterator[tuple[tuple[str, str], list[Comparison]]]:
    """Group comparisons by pair: overall first, then each task with its parts."""
    by_pair: dict[tuple[str, str], list[Comparison]] = {}
    for pair in comparisons:
        by_pair.setdefault((pair.a, pair.b), []).append(pair)
    for sides, of_pair in by_pair.items():
        of_pair.sort(key=lambda pair: (pair.task or "", FAMILIES.index(pair.family), pair.metric))
        yield sides, of_pair


def comparison_cells(pair: Comparison) -> tuple[str, ...]:
    """Return a table row: both scores, their difference, p, n and the least that would be detected."""
    least = pair.minimum_detectable
    return (
        metric_text(pair.mean_a, pair.unit),
        metric_text(pair.mean_b, pair.unit),
        format_difference(pair, pair.unit),
        MISSING if pair.p_adjusted is None else format_figure(pair.p_adjusted, "probability"),
        f"{pair.n:,}",
        MISSING if least is None or least >= pair.scale else gap_text(least, pair.unit),
    )


def spans_scale(interval: tuple[float, float], unit: str = "share") -> bool:
    """Check whether the interval of a difference is as wide as its scale, and so says nothing."""
    width = scale_of_unit(unit).width
    return interval[0] <= -width and interval[1] >= width


def interval_over_judges_or_unknown(comparison: PairDifference, unit: str = "share") -> str:
    """Write the adjusted interval over items and judges: ``± 9.7``, or ``[−4.1, 12.5]`` if it is lopsided; as
    wide as the scale, it is called unknown."""
    wide = comparison.ci95_over_judges_adjusted
    if wide is None:
        return MISSING
    if spans_scale(wide, unit):
        return NOT_KNOWN
    return interval_alone_text(comparison.difference, *wide, unit)


def _range_with_missing_items_sentence(gap: Comparison) -> str:
    low, high = (gap_text(bound, gap.unit) for bound in gap.bounds)
    items = gap.n + gap.missing
    return (
        f"{gap.task}: {gap.missing:,} of {items:,} {gap.counted}s lack a score of {gap.a} or {gap.b}: "
        f"whatever these would score, {gap.b} − {gap.a} over all lies between {low} and {high} points"
    )


# --- Who leads among several sides, in sentences and against each of the others

# Sentences about who leads, before tables and pictures.
_MOST_LEADING = 2
# Characters of a sentence.
_LONGEST_SENTENCE = 200


def sort_by_total_lead(comparisons: Sequence[Comparison], labels: Sequence[str]) -> list[str]:
    """Sort sides by the sum of their gaps to the others, as shares of the scale, in the first family."""
    ahead = dict.fromkeys(labels, 0.0)
    for comparison in comparisons:
        if comparison.family == comparisons[0].family:
            ahead[comparison.b] += comparison.difference / comparison.scale
            ahead[comparison.a] -= comparison.difference / comparison.scale
    return sorted(ahead, key=lambda label: -ahead[label])


class LeadingSentence(NamedTuple):
    """``place``: `Comparison.place` of what the sentence states; empty if it sums up several."""

    text: str
    place: str = ""


def leaders_or_summary(comparisons: Sequence[Comparison], group_count: int) -> Iterator[LeadingSentence]:
    """State the leader and the next in the first family of comparisons, in each of a few tasks or over many.
    ``groups``: within each of which pairs are compared."""
    first = [pair for pair in comparisons if pair.family == comparisons[0].family]
    of_metrics: dict[tuple[str | None, str], list[Comparison]] = {}
    for pair in first:
        of_metrics.setdefault((pair.task, pair.metric), []).append(pair)
    leading = first[:_MOST_LEADING] if group_count > 1 else [*map(_leader_against_next, of_metrics.values())]
    if len(leading) > _MOST_LEADING:
        yield LeadingSentence(_count_of_tasks_led_sentence(leading))
        return
    for pair in leading:
        yield LeadingSentence(_sentence_without_power_unless_tied(pair), pair.place)


def significant_count_sentence(comparisons: Sequence[Comparison]) -> str:
    """State how many pairs differ significantly in the first family of comparisons."""
    first = [pair for pair in comparisons if pair.family == comparisons[0].family]
    tasks = {pair.task for pair in first}
    count = sum(pair.significant for pair in first)
    where = f" over {len(tasks)} tasks" if len(tasks) > 1 else ""
    return f"{count:,} of {len(first):,} pairwise differences{where} are significant."


def _leader_against_next(comparisons: Sequence[Comparison]) -> Comparison:
    """Return the leader's comparison with the next best of those that share items with it."""
    sides = dict.fromkeys(side for pair in comparisons for side in (pair.a, pair.b))
    leader, *others = sort_by_total_lead(comparisons, list(sides))
    of_leader = [pair for pair in comparisons if leader in (pair.a, pair.b)]
    return min(of_leader, key=lambda pair: others.index(pair.a if pair.b == leader else pair.b))


def _count_of_tasks_led_sentence(leading: Sequence[Comparison]) -> str:
    """State who leads in how many tasks, and in how many of those significantly; ``leading``: for each task,
    the leader's comparison with the next best."""
    leads: dict[str, list[bool]] = {}
    for pair in leading:
        leads.setdefault(pair.b if pair.difference > 0 else pair.a, []).append(pair.significant)
    parts = [
        f"{side} in {len(flags)} (significantly ahead of the next in {sum(flags)})"
        for side, flags in sorted(leads.items(), key=lambda counted: -len(counted[1]))
    ]
    n = len(leading)
    texts = (f"Of {n} tasks, the highest score is that of {join_names(parts, most)}." for most in (3, 2, 1))
    return next((text for text in texts if len(text) <= _LONGEST_SENTENCE), f"See the {n} tasks below.")


def _sentence_without_power_unless_tied(comparison: Comparison) -> str:
    """State a comparison without its power, or with the detectable gap alone if it is a tie."""
    text = comparison_sentence(comparison)
    short = text.rpartition(". With ")[0] or text
    gap = comparison.minimum_detectable
    least = "" if gap is None or gap >= comparison.scale else gap_text(gap, comparison.unit)
    return escape_line(
        f"{short} (detectable: {least})." if least and not comparison.significant else f"{short}."
    )


def with_base_as_a(pair: Comparison, base: str) -> Comparison:
    if base == pair.a:
        return pair
    least, most = pair.bounds
    return msgspec.structs.replace(
        pair.swapped, a=pair.b, b=pair.a, mean_a=pair.mean_b, mean_b=pair.mean_a, bounds=(-most, -least)
    )
