"""Who leads, and is it sure?"""

from __future__ import annotations

from collections.abc import Iterator
from urllib.parse import urlencode

from coeval.analysis.measures.measured import Branch, Measured
from coeval.analysis.measures.ranking import ALPHA
from coeval.analysis.run_results import LabelAccuracy, label_columns
from coeval.core.plain import plain
from coeval.core.text import listed, numbered
from coeval.reports.charts.forest_plot import forest_plot
from coeval.reports.charts.heat_map import NOTEWORTHY, HeatMap, heat_map
from coeval.reports.content.report_content import (
    Cell,
    Picture,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    section_of,
)
from coeval.reports.experiment.label_tables import label_picture, label_table
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.standings import (
    ALL,
    order_sentences,
    rank_text,
    standing_toggles,
    standings,
)

__all__ = ["leading_section"]

_SCORE = (
    "Mean over tasks, of the mean over items, of the mean over judges and factors; with its 95 % interval. "
    "Adjusted where a student lacks judges or items that others have"
)
_MISSING = "Scores that are possible and are not there, those of failed answers too; labels are in no score"
_AT = "The score if all that failed or is missing had scored {}; – where nothing is missing"
_ACCURACY = "Share of right labels, of the whole run whatever the filter; in no score"
_MOST_LABELS = 3
"""Label columns beside the scores; of more, the table of labels has all."""
_BY_LABEL = "No judge scored an answer: students are ranked by how often they state the right label."
_COULD = "The true difference that would be detected four times in five, among so many pairs"


def leading_section(evidence: RunEvidence) -> ReportSection:
    """Students by their headline, every two of them on the same items, and how often labels are right."""
    tree, students = evidence.measured.tree, evidence.students
    scores, differences, labels = _students(evidence), _differences(tree), label_table(evidence)
    ways = standings(tree, list(tree["judges"]))
    pictures = []
    if tree["ranking"]["order"]:
        forest = Picture(
            "forest",
            "Scores with their 95 % intervals. The band is the leader's; at the right stand the ranks that "
            "each may have.",
            ways.name,
            forest_plot(ways.name, students, evidence.measured.grid.tasks, evidence.models, ALL),
            standing_toggles(tree),
        )
        pictures.append(forest)
    if differences.rows:
        grid = HeatMap(
            table=differences.name,
            row="better",
            column="other",
            value="difference",
            shade="difference",
            rows=students[:-1],
            columns=students[1:],
            most=differences.largest("difference", NOTEWORTHY),
            format="+.3f",
            dot="sure",
            tooltip=("difference_low", "difference_high", "p", "n", "could_be_seen"),
        )
        pictures.append(
            Picture(
                "matrix",
                "Every two students. By how much that of a row is ahead of that of a column, over the "
                "items that both "
                "have. A dot: surely so, after Holm's adjustment for the number of pairs.",
                differences.name,
                heat_map(grid),
            )
        )
    if labels.rows:
        pictures.append(label_picture(labels, evidence.models))
    judged = bool(tree["ranking"]["order"]) or not labels.rows
    tables = (scores, differences, ways, labels) if judged else (labels,)
    said = (*order_sentences(tree), *_how_ranked(tree["ranking"])) if judged else (_BY_LABEL,)
    sentences = [Sentence(text, ways.name if judged else labels.name) for text in said]
    sentences += [Sentence(text) for text in _pictured(evidence)]
    return section_of("leads", "Who leads, and is it sure?", sentences, pictures, tables)


def _pictured(evidence: RunEvidence) -> Iterator[str]:
    """What pictures call those whose labels the run's file gives."""
    called = [
        f"{plain(name)} is {evidence.labels[name]}" for name in evidence.models if name in evidence.labels
    ]
    if called:
        yield f"In pictures, {listed(called)}."


def _how_ranked(ranking: Branch) -> Iterator[str]:
    """The rule, which the lead's sentences follow too; they stand right above this section."""
    if count := len(ranking["differences"]):
        pairs = "the one difference" if count == 1 else f"all {count} differences"
        yield f"Ranks follow from {pairs} between two students on the same items, adjusted for their number."
    else:
        yield "Nobody can be compared yet: fewer than two students have scores of the same items."


def _students(evidence: RunEvidence) -> ReportTable:
    tree, order = evidence.measured.tree, evidence.students
    kept_set = tree["robust"]
    robust = kept_set["students"] | kept_set["ranking"]["scores"] if kept_set["applicable"] else {}
    failed = {score.student: score.failed for score in evidence.results.students if score.task is None}
    labelled = [column for column in label_columns(evidence.results) if not column.removed]
    if len(labelled) > _MOST_LABELS:
        labelled = []
    rows: list[tuple[Cell, ...]] = []
    for name in order:
        found = tree["students"][name]
        ranks = rank_text(tree["ranking"]["ranges"].get(name))
        kept: Measured | None = robust[name]["headline"] if name in robust else None
        headline = tree["ranking"]["scores"].get(name, found)["headline"]
        overall = found["overall"]
        counts = (headline.n, found["valid_evals"], failed.get(name, 0), overall.missing)
        beside = (_accuracy(column.accuracies.get(name)) for column in labelled)
        rows.append((name, ranks, headline, *beside, overall, kept, *counts, *_bounds(found)))
    return ReportTable(
        "students",
        "Students",
        (
            ReportColumn("student", "Student"),
            ReportColumn("ranks", "Ranks", "text", "After who is surely better, before who is surely worse"),
            ReportColumn("score", "Score", "score", _SCORE),
            *(
                ReportColumn(f"label-{at}", f"{plain(column.name)} (labels)", "share", _ACCURACY)
                for at, column in enumerate(labelled)
            ),
            ReportColumn(
                "units", "Mean of scores", "score", "Mean over all single scores, of whatever task and item"
            ),
            ReportColumn("robust", "Robust set", "score", _robust_meaning(tree["robust"])),
            ReportColumn("n", "Items", "count"),
            ReportColumn("scores", "Scores", "count"),
            ReportColumn(
                "failed",
                "Failed",
                "count",
                "Answers, judgments and factors without a result, of the whole run whatever the filter",
            ),
            ReportColumn("missing", "Missing", "count", _MISSING),
            ReportColumn("least", "Missing at 0", "score", _AT.format(0)),
            ReportColumn("most", "Missing at 1", "score", _AT.format(1)),
        ),
        tuple(rows),
        links={place: urlencode({"student": name}) for place, name in enumerate(order)},
    )


def _accuracy(label: LabelAccuracy | None) -> Measured | None:
    return None if label is None else Measured(label.accuracy, label.low, label.high, label.n, None)


def _bounds(student: Branch) -> tuple[float | None, float | None]:
    """None where nothing is missing: the score itself is the answer."""
    least, most = student["bounds"]["headline"] or (None, None)
    return (None, None) if least == most else (least, most)


def _robust_meaning(robust: Branch) -> str:
    if not robust["applicable"]:
        return f"Not there: {robust['reason']}"
    items = f"{robust['datapoints']:,} of {numbered(robust['of_datapoints'], 'item')}"
    return f"The score over {items}, selected because the best-agreeing judges agree on them, by them alone"


def _differences(tree: Branch) -> ReportTable:
    rows: list[tuple[Cell, ...]] = []
    links: dict[int, str] = {}
    for better, worse, found in _ordered(tree["ranking"]):
        sure = found["p_adjusted"] is not None and found["p_adjusted"] < ALPHA
        one, could = found["difference"], found["minimum_detectable"]
        links[len(rows)] = urlencode({"lost": f"{better},{worse}"})
        rows.append((better, worse, one, found["p_adjusted"], sure, one.n, could))
    return ReportTable(
        "differences",
        "Every two students on the same items",
        (
            ReportColumn("better", "Student"),
            ReportColumn("other", "Less"),
            ReportColumn("difference", "Difference", "score", "Paired by item, tasks counting alike"),
            ReportColumn("p", "p (Holm)", "probability", "Adjusted for the number of pairs"),
            ReportColumn("sure", "Sure", "text", "p below 0.05 after the adjustment"),
            ReportColumn("n", "Items", "count"),
            ReportColumn("could_be_seen", "Could be seen", "score", _COULD),
        ),
        tuple(rows),
        note="Intervals are each pair's own. p and Sure allow for all pairs, so an interval may leave zero "
        "out where Sure is no. A link leads to the items that the first of the two lost.",
        links=links,
    )


def _ordered(ranking: Branch) -> Iterator[tuple[str, str, Branch]]:
    """Each pair with the one who stands first before the other, and by how much it is ahead."""
    place = {name: at for at, name in enumerate(ranking["order"])}
    pairs = []
    for name, found in ranking["differences"].items():
        first, _, second = name.partition("|")
        if place[first] < place[second]:
            one = found["difference"]
            turned = Measured(-one.value, -one.high, -one.low, one.n, one.missing)
            pairs.append((first, second, {**found, "difference": turned}))
        else:
            pairs.append((second, first, found))
    yield from sorted(pairs, key=lambda pair: (place[pair[0]], place[pair[1]]))
