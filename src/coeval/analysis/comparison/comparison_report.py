"""What a comparison came to, as it is handed on: for Python, for tables, for notebooks."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import groupby
from typing import Any, Literal, NamedTuple, TypeAlias

import msgspec

from coeval.analysis.comparison.family import PairDifference
from coeval.analysis.comparison.paired_difference import Test
from coeval.analysis.intervals import ALPHA
from coeval.analysis.run_results import SIMULATED
from coeval.core.figures import NOT_KNOWN, gap_text, metric_difference_text, metric_text
from coeval.core.html_table import Columns, html_lines, html_table, record_columns
from coeval.core.plain import escape_line
from coeval.core.text import format_probability, join_names, p_value_text, pluralize

# --- Comparison of two sides in one metric

Family: TypeAlias = Literal["overall", "task", "label", "part"]
FAMILIES: tuple[Family, ...] = ("overall", "task", "label", "part")


class Comparison(PairDifference, frozen=True):
    """How b differs from a in one metric of a task (``task`` None: over the tasks, each counting alike).

    Means, ``difference`` = b − a and ``ci95`` are in the metric's ``unit`` (``share`` of 1, ``percent`` or
    ``points``), over ``n`` items that both have. ``missing`` items have no such pair; ``bounds`` is where the
    difference over all items lies, whatever these would score. ``p_adjusted``, ``ci95_adjusted`` and
    ``verdict`` allow for all comparisons of the report (`coeval.analysis.comparison.family`); ``p`` and
    ``ci95`` are of this one alone. ``gate`` says where (`where_of`) the comparison above it is not
    significant, so that this one is not tested; None: nowhere. ``…_over_judges`` have judges as a sample too:
    None where nothing can be told, as of one judge; ``judges`` scored both, of which ``agreeing`` by
    themselves put the same one ahead; None: nobody judged. ``minimum_detectable`` is the true difference that
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
        """``overall``, the task, or the task and a label or part of it."""
        place = "overall" if self.task is None else self.task
        return f"{place}: {self.metric}" if self.family in ("label", "part") else place


def sentence(one: Comparison) -> str:
    """Who leads and by how much, and what would have been detected.

    ``B leads on ifeval: 3.1 ± 1.9 points ahead of A on 541 shared prompts (p = 0.012). With 541 prompts, a
    true gap of 2.6 points would be detected four times in five``
    """
    where, count = where_of(one), pluralize(one.n, f"shared {one.counted}")
    if one.identical:
        return f"{one.a} and {one.b} have identical scores {where}: {count}"
    lead = one.leading
    names = (one.a, one.b) if one.difference < 0 else (one.b, one.a)
    if one.gate is not None and one.p is not None and one.p < ALPHA:
        by, (ahead, behind) = f"{shown_difference(lead, one.unit)} points", names
        why = f"not tested, as they are tied {one.gate}"
        said = f"{ahead} is {by} ahead of {behind} {where} on {count}: {why}"
    elif one.verdict == "tied":
        said = tied_text(names, lead, count, f" {where}", one.unit)
    else:
        said = lead_text(names, lead, count, f" {where}", one.unit, at_any_look=bool(one.look))
        said += _judges_say(lead)
    if one.minimum_detectable is None:
        return said
    return f"{said}. {detected(one, one.minimum_detectable)}"


def lead_text(
    names: tuple[str, str],
    lead: PairDifference,
    count: str,
    where: str = "",
    unit: str = "share",
    *,
    at_any_look: bool = False,
) -> str:
    """``A leads by these judges: 3.4 ± 2.9 points ahead of B on 167 shared items (p = 0.036)``; ``lead`` is
    that of the first of ``names``, over ``count``."""
    chance = chance_text(lead.p_adjusted, at_any_look=at_any_look)
    source = "" if lead.comes_from is None else f"; the lead comes from {lead.comes_from}"
    by = f"{shown_difference(lead, unit)} points ahead of {names[1]} on {count}{chance}"
    return f"{names[0]} {lead.verdict}{where}: {by}{source}"


def tied_text(
    names: tuple[str, str], gap: PairDifference, count: str, where: str = "", unit: str = "share"
) -> str:
    """``A (82.8) and B (79.5) are tied: the gap is 3.3 ± 4.1 points on 167 shared items``; a p-value where
    the interval alone would let one expect otherwise: it is made otherwise where few items differ."""
    low, high = gap.ci95_adjusted
    odds = "" if low <= 0 <= high else chance_text(gap.p_adjusted)
    by = f"the gap is {shown_difference(gap, unit)} points on {count}{odds}"
    return f"{names[0]} and {names[1]} are tied{where}: {by}"


def chance_text(p: float | None, *, at_any_look: bool = False) -> str:
    """`` (p = 0.012)``, or `` (p = 0.012 at any look)`` of a run that grows"""
    return "" if p is None else f" ({p_value_text(p)}{' at any look' if at_any_look else ''})"


def _judges_say(one: Comparison) -> str:
    """A clause on b's lead with judges as a sample; empty of one judge, or where nobody judged."""
    if one.judges is None or one.judges == 1:
        return ""
    if one.ci95_over_judges_adjusted is None:
        return "; no item has scores from two judges for both"
    if (by := shown_over_judges(one, one.unit, one.scale)) == NOT_KNOWN:
        return f"; allowing for other judges it is {by}"
    if one.judges == 2:
        return f"; allowing for other judges {by}, a rough guess from two"
    return f"; allowing for other judges {by}, {one.agreeing} of {one.judges} agree"


def detected(one: Comparison, least: float) -> str:
    """``With 541 prompts, a true gap of 2.6 points would be detected four times in five``"""
    gap = f"a true gap of {gap_text(least, one.unit)} points" if least < one.scale else "no true gap"
    return f"With {pluralize(one.n, one.counted)}, {gap} would be detected four times in five"


def where_of(one: Comparison) -> str:
    """``overall``, ``on haiku`` or ``on haiku (plot)``"""
    where = "overall" if one.task is None else f"on {one.task}"
    return f"{where} ({one.metric})" if one.family in ("label", "part") else where


def shown_difference(one: PairDifference, unit: str = "share") -> str:
    """``3.1 ± 1.9``, or ``3.1 [0.4, 4.2]`` where the interval is lopsided; in points, adjusted."""
    return metric_difference_text(one.difference, *one.ci95_adjusted, unit)


def half_text(middle: float, low: float, high: float, unit: str = "share") -> str:
    """The interval alone, in points: ``± 9.7``, or ``[−4.1, 12.5]`` where it is lopsided."""
    text = metric_difference_text(middle, low, high, unit)
    return text[text.index("±" if "±" in text else "[") :]


LEGEND = (
    "In points: hundredths of the metric's scale. b − a: with the interval that belongs to p, over n shared "
    "items; {}p: adjusted for all pairs; a task is tested "
    "where overall is significant, a factor where its task is, a label by itself. least: the true difference "
    "that would be detected four times in five."
)
_NONE = "–"


class ComparedSide(msgspec.Struct, frozen=True):
    """``usd_per_1000`` and ``seconds`` are of its answers, mean and median; None: not on record."""

    folder: str
    model: str
    usd_per_1000: float | None
    seconds: float | None


class ComparisonReport(msgspec.Struct, frozen=True):
    """Every two of several sides on the same items, as `coeval.compare` returns it.

    ``comparisons``: overall first, then by task, by label, by factor and further metric. ``sides``: by
    label; ``bases``: those that others are held against when it is asked who is worse;
    ``doubts``: what speaks against taking differences as they are, and ``notes``: what else is to be known of
    the comparison, one sentence each. ``simulated``: simulated models took part. ``shared``: means are over
    the scores that both sides of a pair have, as some have others too; else they are the scores.
    """

    comparisons: tuple[Comparison, ...]
    sides: dict[str, ComparedSide]
    bases: tuple[str, ...]
    notes: tuple[str, ...] = ()
    doubts: tuple[str, ...] = ()
    simulated: bool = False
    shared: bool = False

    def headings(self, a: str, b: str, difference: str = "") -> tuple[str, str, str]:
        """Those of two sides' means and their difference."""
        end = ", shared" if self.shared else ""
        return f"{a}{end}", f"{b}{end}", difference or f"{b} − {a}"

    @property
    def legend(self) -> str:
        """What tables of comparisons hold."""
        judged = any(one.ci95_over_judges is not None for one in self.comparisons)
        said = LEGEND.format("judges: the interval that allows for other judges. " * judged)
        return f"{said} shared: over the items and judges that both have." if self.shared else said

    @property
    def sentences(self) -> tuple[str, ...]:
        """Who is better and by how much, overall, by task and by label; of factors and further metrics where
        there is nothing else."""
        main = [one.sentence for one in self.comparisons if one.family != "part"]
        return tuple(main or (one.sentence for one in self.comparisons))

    @property
    def missing(self) -> tuple[str, ...]:
        """Of each task in which items lack a score: where the difference over all of them lies."""
        return tuple(_of_missing(one) for one in self.comparisons if one.missing and one.family == "task")

    def as_dict(self) -> dict[str, Any]:
        """Plain data, ready for JSON: what ``coeval compare --json`` prints."""
        data: dict[str, Any] = msgspec.to_builtins(self)
        return data

    def table(self) -> Columns:
        """The comparisons as columns, for ``pandas.DataFrame`` or ``polars.DataFrame``: a row for each, a
        column for each field of `Comparison`; its intervals are ``low`` and ``high``, ``bounds_low`` and
        ``bounds_high``."""
        spread: Columns = {}
        for name, values in record_columns(Comparison, self.comparisons).items():
            if name != "bounds" and not name.startswith("ci95"):
                spread[name] = values
                continue
            pairs = [getattr(one, name) or (None, None) for one in self.comparisons]
            for at, end in enumerate(("low", "high")):
                column = f"bounds_{end}" if name == "bounds" else name.replace("ci95", end)
                spread[column] = [pair[at] for pair in pairs]
        return spread

    def __repr__(self) -> str:
        first, *more = self.sentences
        return f"ComparisonReport({first!r}{f', and {len(more)} more' if more else ''})"

    def _repr_html_(self) -> str:
        """Sentences, doubts, a table for each pair, notes; names and notes are escaped."""
        parts = [html_lines((*[SIMULATED] * self.simulated, *self.sentences, *self.doubts))]
        for (a, b), found in by_pair(self.comparisons):
            rows = [(one.place, *shown_comparison(one)) for one in found]
            parts.append(html_table("", ("task", *self.headings(a, b), "p", "n", "least"), rows))
        return "".join(parts) + html_lines((*self.missing, *self.notes, self.legend))


def by_pair(comparisons: Sequence[Comparison]) -> Iterator[tuple[tuple[str, str], list[Comparison]]]:
    """Of each pair: what is overall, then each task with its parts."""
    order = {pair: n for n, pair in enumerate(dict.fromkeys((one.a, one.b) for one in comparisons))}
    families = {family: n for n, family in enumerate(FAMILIES)}
    found = sorted(
        comparisons, key=lambda one: (order[one.a, one.b], one.task or "", families[one.family], one.metric)
    )
    for pair, of_pair in groupby(found, key=lambda one: (one.a, one.b)):
        yield pair, list(of_pair)


def shown_comparison(one: Comparison) -> tuple[str, ...]:
    """Both scores, their difference, p, n and the least that would be detected, as they stand in a table."""
    least = one.minimum_detectable
    return (
        metric_text(one.mean_a, one.unit),
        metric_text(one.mean_b, one.unit),
        shown_difference(one, one.unit),
        _NONE if one.p_adjusted is None else format_probability(one.p_adjusted),
        f"{one.n:,}",
        _NONE if least is None or least >= one.scale else gap_text(least, one.unit),
    )


def shown_over_judges(one: PairDifference, unit: str = "share", scale: float = 1.0) -> str:
    """``± 9.7``, or ``[−4.1, 12.5]`` where it is lopsided: the adjusted interval that allows for other
    judges. As wide as the scale, it says nothing."""
    wide = one.ci95_over_judges_adjusted
    if wide is None:
        return _NONE
    if wide[0] <= -scale and wide[1] >= scale:
        return NOT_KNOWN
    return half_text(one.difference, *wide, unit)


def _of_missing(one: Comparison) -> str:
    low, high = (gap_text(bound, one.unit) for bound in one.bounds)
    every = one.n + one.missing
    return (
        f"{one.task}: {one.missing:,} of {every:,} {one.counted}s lack a score of {one.a} or {one.b}: "
        f"whatever these would score, {one.b} − {one.a} over all lies between {low} and {high} points"
    )


# --- Who leads among several sides, in sentences and against each of the others

# Sentences about who leads, before tables and pictures.
_MOST_LEADING = 2
# Characters of a sentence.
_LONGEST_SENTENCE = 200


def best_first(comparisons: Sequence[Comparison], labels: Sequence[str]) -> list[str]:
    """Sort sides by how far they are ahead of the others, as a share of each scale, in what stands first."""
    ahead = dict.fromkeys(labels, 0.0)
    for one in comparisons:
        if one.family == comparisons[0].family:
            ahead[one.b] += one.difference / one.scale
            ahead[one.a] -= one.difference / one.scale
    return sorted(ahead, key=lambda label: -ahead[label])


class LeadingSentence(NamedTuple):
    """``place``: of the comparison that it states (`Comparison.place`); empty where it sums up several."""

    text: str
    place: str = ""


def leading_sentences(comparisons: Sequence[Comparison], groups: int) -> Iterator[LeadingSentence]:
    """The leader and the next in what stands first, of few tasks in each.
    ``groups``: within each of which every two are compared."""
    first = [one for one in comparisons if one.family == comparisons[0].family]
    places = list(dict.fromkeys((one.task, one.metric) for one in first))
    if groups > 1:
        leading = first[:_MOST_LEADING]
    elif len(places) > _MOST_LEADING:
        yield LeadingSentence(_by_places(first, places))
        return
    else:
        of = ([one for one in first if (one.task, one.metric) == place] for place in places)
        leading = [_leader_and_next(found) for found in of]
    for one in leading:
        yield LeadingSentence(_short_sentence(one), one.place)


def count_sentence(comparisons: Sequence[Comparison]) -> str:
    """How many pairs differ in what stands first."""
    first = [one for one in comparisons if one.family == comparisons[0].family]
    tasks = {one.task for one in first}
    sure = sum(one.significant for one in first)
    where = f" over {len(tasks)} tasks" if len(tasks) > 1 else ""
    return f"{sure:,} of {len(first):,} pairwise differences{where} are significant."


def _leader_and_next(found: Sequence[Comparison]) -> Comparison:
    """The next is the best of those who share items with the leader."""
    sides = dict.fromkeys(side for one in found for side in (one.a, one.b))
    leader, *others = best_first(found, list(sides))
    held = [one for one in found if leader in (one.a, one.b)]
    return min(held, key=lambda one: others.index(one.a if one.b == leader else one.b))


def _by_places(first: Sequence[Comparison], places: Sequence[tuple[str | None, str]]) -> str:
    """Who leads in how many of the tasks, and in how many of those significantly."""
    leads: dict[str, list[bool]] = {}
    for place in places:
        one = _leader_and_next([each for each in first if (each.task, each.metric) == place])
        leads.setdefault(one.b if one.difference > 0 else one.a, []).append(one.significant)
    parts = [
        f"{side} in {len(sure)} (significantly ahead of the next in {sum(sure)})"
        for side, sure in sorted(leads.items(), key=lambda each: -len(each[1]))
    ]
    texts = (
        f"Of {len(places)} tasks, the highest score is that of {join_names(parts, most)}."
        for most in (3, 2, 1)
    )
    return next(
        (text for text in texts if len(text) <= _LONGEST_SENTENCE), f"See the {len(places)} tasks below."
    )


def _short_sentence(one: Comparison) -> str:
    """What would have been detected belongs to a tie."""
    said = sentence(one)
    short = said.rpartition(". With ")[0] or said
    of = one.minimum_detectable
    least = "" if of is None or of >= one.scale else gap_text(of, one.unit)
    return escape_line(f"{short} (detectable: {least})." if least and not one.significant else f"{short}.")


def against(one: Comparison, base: str) -> Comparison:
    """The same with ``base`` as a."""
    if base == one.a:
        return one
    least, most = one.bounds
    return msgspec.structs.replace(
        one.turned, a=one.b, b=one.a, mean_a=one.mean_b, mean_b=one.mean_a, bounds=(-most, -least)
    )
