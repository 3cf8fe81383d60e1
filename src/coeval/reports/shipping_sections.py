"""The first sections of a page of training runs: which checkpoint to ship, and run against run."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from urllib.parse import urlencode

from coeval.analysis.measures.measured import Measured
from coeval.analysis.training.best_checkpoint import signed_points
from coeval.analysis.training.checkpoint_choice import CheckpointChoice, RunDifference
from coeval.analysis.training.sweep_comparison import SweepComparison, checkpoint_text, peers_text
from coeval.core.figures import points_per, share_of_scale
from coeval.core.plain import fitted_names, plain
from coeval.reports.comparison_plot import difference_forest
from coeval.reports.content import (
    Cell,
    Picture,
    PictureToggle,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
)
from coeval.reports.curve_plot import curve_plot

OVERALL = "overall"
# Characters of a run's name beside a row.
_LONGEST_RUN = 24
# Runs whose last steps have a column of their own.
_MOST_RUNS = 4


def shipping_section(
    found: SweepComparison, runs: Sequence[str], held: Collection[tuple[str, str]]
) -> ReportSection:
    """The best checkpoint of each task with those tied with it; over several tasks, their mean as a curve."""
    pictures, tables = [], [_choices(found, runs, held)]
    if found.overall:
        means = _overall(found, runs)
        title = "Mean over the tasks, each counting alike, by step. Band: 95% over all checkpoints together."
        plot = curve_plot(means, runs, "mean over tasks, points", banded=True)
        pictures.append(Picture(OVERALL, title, means.name, plot))
        tables.append(means)
    notes = tuple(Sentence(plain(f"{note[:1].upper()}{note[1:]}.")) for note in found.notes)
    return ReportSection("ship", "Which checkpoint do I ship?", notes, tuple(pictures), tuple(tables))


def _choices(found: SweepComparison, runs: Sequence[str], held: Collection[tuple[str, str]]) -> ReportTable:
    several = len(found.folders) > 1
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for one in found.choices:
        if one.task is not None and any(task == one.task for task, _ in held):
            links[len(rows)] = urlencode({"task": one.task})
        best = plain(checkpoint_text(one.best, several=several))
        tied = plain(peers_text(one, several=several)) if one.peers else "none"
        last = [_last_step(found, run, one) for run in runs[:_MOST_RUNS]]
        place = OVERALL if one.task is None else plain(one.task)
        rows.append((place, best, *_scores(one), tied, *last, one.n_items, one.of))
    gain = "The last step less the one before, paired by item"
    return ReportTable(
        "ship-table",
        "Best checkpoints",
        (
            ReportColumn("task", "Task"),
            ReportColumn("best", "Best checkpoint"),
            ReportColumn("score", "Score", "points"),
            ReportColumn("corrected", "Corrected", "points", "After correcting for picking the best"),
            ReportColumn("tied", "Statistically tied", "text", "Pairwise tests, adjusted for their number"),
            *(
                ReportColumn(
                    f"last-{at}", f"{plain(run)}: last step" if several else "Last step", "text", gain
                )
                for at, run in enumerate(runs[:_MOST_RUNS])
            ),
            ReportColumn("n", "Items", "count", "That all checkpoints have"),
            ReportColumn("of", "Checkpoints", "count"),
        ),
        tuple(rows),
        links=links,
    )


def _scores(one: CheckpointChoice) -> tuple[Cell, Cell]:
    """The mean and what is left of it after the correction, in hundredths of points."""
    corrected = None
    if one.corrected is not None and one.ci95 is not None:
        score, low, high = (share_of_scale(each, one.unit) for each in (one.corrected, *one.ci95))
        corrected = Measured(score, low, high, one.n_items, None)
    return share_of_scale(one.mean, one.unit), corrected


def _last_step(found: SweepComparison, run: str, one: CheckpointChoice) -> str | None:
    change = found.change(run, one.task)
    if change is None:
        return None
    gap = signed_points(change.difference, *change.ci95, change.unit)
    return f"{change.trend}, {gap} (step {change.step} − {change.before})"


def _overall(found: SweepComparison, runs: Sequence[str]) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    for one in found.overall:
        band = Measured(one.mean, *one.band, one.n_items, None)
        rows.append((plain(one.run), one.step, OVERALL, one.mean, band, one.n_items, True))
    return ReportTable(
        "overall-means",
        "Means over the tasks",
        (
            ReportColumn("run", "Run"),
            ReportColumn("step", "Step", "count"),
            ReportColumn("task", "Task"),
            ReportColumn(
                "mean", "Mean", "points", "Over the tasks, each counting alike, as shares of scales"
            ),
            ReportColumn("band", "Band", "points", "95% simultaneously over all checkpoints of the run"),
            ReportColumn("n_items", "Items", "count"),
            ReportColumn("comparable", "Like the others"),
        ),
        tuple(sorted(rows, key=lambda row: runs.index(str(row[0])) if row[0] in runs else 0)),
    )


# --- Run against run


def runs_sections(found: SweepComparison) -> Iterator[ReportSection]:
    """The differences of runs at equal steps, from the one that a reader chooses; none of a single run."""
    if not found.differences:
        return
    table = _differences(found)
    runs = dict.fromkeys(run for one in found.differences for run in (one.a, one.b))
    short = fitted_names(map(plain, runs), _LONGEST_RUN)
    others = dict.fromkeys(short.values(), "the run of the row")
    if len(others) == 2:
        one, other = others
        others = {one: other, other: one}
    plot = difference_forest(table, others)
    title = (
        "Run against run at equal steps: differences with their 95% intervals, paired by item. Filled: "
        "significant after adjustment for all steps and tasks."
    )
    places = tuple(dict.fromkeys(str(row[2]) for row in table.rows))
    toggles = [PictureToggle("baseline", tuple(others))]
    if len(places) > 1:
        toggles.append(PictureToggle("of", places))
    picture = Picture("runs-plot", title, table.name, plot, tuple(toggles))
    yield ReportSection("runs", "Which run is better, at equal steps?", (), (picture,), (table,))


def _differences(found: SweepComparison) -> ReportTable:
    runs = dict.fromkeys(run for one in found.differences for run in (one.a, one.b))
    short = fitted_names(map(plain, runs), _LONGEST_RUN)
    rows: list[tuple[Cell, ...]] = []
    for base in runs:
        for one in found.differences:
            if base in (one.a, one.b):
                side = short[plain(one.b if base == one.a else one.a)]
                row = f"step {one.step}" if len(runs) == 2 else f"step {one.step} · {side}"
                place = OVERALL if one.task is None else plain(one.task)
                rows.append((row, short[plain(base)], place, *_figures(one, base)))
    return ReportTable(
        "runs-table",
        "Run against run",
        (
            ReportColumn("row", "Of"),
            ReportColumn("baseline", "Baseline"),
            ReportColumn("of", "Task"),
            ReportColumn("mean", "Score", "points"),
            ReportColumn("mean_baseline", "Baseline's", "points"),
            ReportColumn("difference", "Difference", "gap", "Less the baseline, paired by item"),
            ReportColumn("p", "p", "probability", "Adjusted for all steps, tasks and pairs of runs"),
            ReportColumn("sure", "Significant", "text", "p below 0.05 after the adjustment"),
            ReportColumn("n", "Items", "count"),
            ReportColumn(
                "could_be_seen", "Detectable", "points", "The true difference found four times in five"
            ),
        ),
        tuple(rows),
        chosen={"baseline": str(rows[0][1]), "of": str(rows[0][2])},
    )


def _figures(one: RunDifference, base: str) -> tuple[Cell, ...]:
    sign, by = (1 if base == one.a else -1), points_per(one.unit) / 100
    means = (one.mean_b, one.mean_a) if sign > 0 else (one.mean_a, one.mean_b)
    low, high = sorted(sign * bound for bound in one.ci95)
    middle = sign * one.difference
    difference = Measured(by * middle, by * low, by * high, one.n_items, None)
    least = None if one.minimum_detectable is None else by * one.minimum_detectable
    counts = (one.p_adjusted, one.significant, one.n_items, least)
    return (*(share_of_scale(mean, one.unit) for mean in means), difference, *counts)
