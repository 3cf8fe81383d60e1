"""The first screen of a run's page: students with what they score, cost and take; and what is amiss."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from urllib.parse import urlencode

from coeval.analysis.answer_costs import AnswerCost
from coeval.analysis.measures.measured import Measured
from coeval.analysis.run_results import SIMULATED
from coeval.core.plain import plain
from coeval.pipeline.upkeep.batch_jobs import continue_command
from coeval.reports.content import Alert, Cell, ReportColumn, ReportTable, as_sentence
from coeval.reports.experiment.leading_section import rank_text
from coeval.reports.experiment.run_evidence import RunEvidence

FRONT = "front"
SCORE_TITLE = "Score"
_RANKS = "The ranks that a student may have, by all pairwise differences after Holm's adjustment"
_USD = "US dollars per 1,000 answers: mean cost of the answers on record, without retries"
_SECONDS = "Median time from request to answer"
_AT_WORK = ("running", "stopped", "interrupted")


def front_table(evidence: RunEvidence) -> ReportTable | None:
    """Students, best first, with intervals, ranks, cost and time; None where nobody has a figure."""
    title, meaning, found = _figures(evidence)
    if not found:
        return None
    costs = evidence.costs.students
    rows: list[tuple[Cell, ...]] = []
    links = {}
    for name, (measured, ranks) in found.items():
        links[len(rows)] = urlencode({"student": name})
        rows.append((name, measured, rank_text(ranks), *_spent(costs.get(name))))
    return ReportTable(
        FRONT,
        "Students",
        (
            ReportColumn("student", "Student"),
            ReportColumn("score", title, "points", meaning),
            ReportColumn("ranks", "Rank", "text", _RANKS),
            ReportColumn("usd", "$ per 1,000", "usd", _dollars_meaning(costs)),
            ReportColumn("seconds", "Seconds", "seconds", _seconds_meaning(costs)),
        ),
        tuple(rows),
        links=links,
    )


_Figures = Mapping[str, tuple[Measured, tuple[int, int] | None]]


def _figures(evidence: RunEvidence) -> tuple[str, str, _Figures]:
    """What students are ranked by: its title and meaning, and by student its measure and ranks."""
    measures = evidence.measured.measures
    ranking = measures.ranking
    if ranking.order or not (measures.labels or measures.pairs):
        scores = {name: ranking.scores[name].headline for name in ranking.order}
        meaning = "0 to 100, with its 95% interval over items"
        return SCORE_TITLE, meaning, {name: (one, ranking.ranges.get(name)) for name, one in scores.items()}
    if measures.pairs is not None:
        students = measures.pairs.students
        meaning = "Expected wins in 100 comparisons, with its 95% interval over items"
        return "Wins in 100", meaning, {name: (one.strength, one.ranks) for name, one in students.items()}
    task, label, found = next(
        (task, name, found) for task, names in measures.labels.items() for name, found in names.items()
    )
    meaning = f"Answers in 100 that state the right {plain(label)} in {plain(task)}, with its 95% interval"
    ranges = found.ranking.ranges
    return (
        "Accuracy",
        meaning,
        {name: (found.students[name].accuracy, ranges.get(name)) for name in found.ranking.order},
    )


def _spent(cost: AnswerCost | None) -> tuple[float | None, float | None]:
    return (None, None) if cost is None else (cost.usd_per_1000, cost.seconds)


def _dollars_meaning(costs: Mapping[str, AnswerCost]) -> str:
    """With the reason where a student has none."""
    partial = sum(0 < one.priced < one.answers for one in costs.values())
    some = " Of answers whose price is known." if partial else ""
    lacking = any(one.usd_per_1000 is None for one in costs.values()) or not costs
    return _USD + some + (" –: the model's price is not known, or no model was called." if lacking else "")


def _seconds_meaning(costs: Mapping[str, AnswerCost]) -> str:
    lacking = any(one.seconds is None for one in costs.values()) or not costs
    return _SECONDS + (". –: no time is on record, as of answers from a file or a batch" if lacking else "")


def run_alerts(evidence: RunEvidence, status: str) -> Iterator[Alert]:
    """What a reader has to know before any figure, with the command that mends it."""
    if evidence.reader.simulated:
        yield Alert(as_sentence(SIMULATED))
    served = evidence.reader.served()
    yield from (Alert(plain(as_sentence(one.warning))) for one in served if one.warning)
    missing, run = evidence.missing, evidence.reader.run
    if status == "running":
        yield Alert("The run is at work: these figures are of what it has so far.", "")
    elif missing.gaps is not None and missing.gaps.owed:
        phases = ("data_generation", "response_collection", "evaluation")
        counts = [missing.gaps.missing(phase) for phase in phases]  # type: ignore[arg-type]
        nouns = ("items", "answers", "judgments")
        parts = [f"{count:,} {noun}" for count, noun in zip(counts, nouns, strict=True) if count]
        what = f"{' and '.join(parts)} are missing" if parts else "phases 1 and 2 are not finished"
        begun = "The run has not ended" if status in _AT_WORK else "The run is incomplete"
        command, apart, meaning = continue_command(run).partition(" (")
        go_on = f" Continue with {command}; {meaning.rstrip(')')}." if apart else ""
        yield Alert(f"{begun}: {what}.{go_on}", "" if apart else command)
    elif missing.sentences:
        yield Alert(plain(as_sentence(missing.sentences[0])))
    for note in missing.notes:
        yield Alert(plain(as_sentence(note)))
    if (looks := evidence.measured.grid.looks) is not None and looks.many:
        yield Alert(
            f"{looks.name.capitalize()} at a run that grows: differences are called significant only if they "
            "would be at any look."
        )
