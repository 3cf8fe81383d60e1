"""What a run's report says: the five questions, and what a reader may stop after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import fmean
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.judge_measures import PairAgreement
from coeval.analysis.measures.leaders import opening
from coeval.analysis.measures.pair_measures import PairJudge, PairMeasures, PairRate, pair_sentences
from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.ranking import SAME
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.people.calibration import CalibratedPair
from coeval.analysis.people.labelled_rows import AgainstPeople
from coeval.analysis.people.people_measures import PeopleMeasures, people_sentences
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import SIMULATED, bill
from coeval.core.figures import format_points
from coeval.core.plain import escape_line
from coeval.core.records import SEPARATOR, id_fields, item_number
from coeval.core.text import pluralize
from coeval.pipeline.upkeep.gaps import continue_command
from coeval.reports.content import (
    Alert,
    Example,
    Report,
    ReportColumn,
    ReportSection,
    ReportTable,
    Sentence,
    make_section,
    warning_to_sentence,
)
from coeval.reports.experiment.benchmark_section import benchmark_section
from coeval.reports.experiment.cost_section import cost_section, value_section
from coeval.reports.experiment.judges_section import judges_section
from coeval.reports.experiment.leading_section import front_table, leading_section, score_anchors
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import where_section
from coeval.reports.measure_table import TableHeading, columns_by_field, measure_table
from coeval.reports.plots import HeatMap, heat_map
from coeval.reports.result_tables import pair_table, people_table
from coeval.store.jsonl import read_json_if_whole
from coeval.store.rundir import Meta

# --- Pairs
#
# Who wins where answers are compared two by two?

# A win rate this far from one half has the strongest colour.
_STRONGEST = 0.4


def pairs_section(found: PairMeasures, *, opened: bool) -> ReportSection:
    """Strengths, who wins against whom, and how judges compare; ``opened``: the page says who leads."""
    strengths, rates = pair_table(found.students), _rates(found)
    judges = measure_table(
        TableHeading("pair-judges", "Judges of comparisons", ("Judge",)), PairJudge, found.judges
    )
    students = list(found.students)
    grid = HeatMap(
        rates,
        *("student", "other", "wins"),
        *(students, students),
        shade="ahead",
        least=_STRONGEST,
        format=".1f",
        tooltip=("wins_low", "wins_high", "p", "comparisons"),
    )
    title = "How often the student of a row wins against that of a column, ties half."
    pictures = [heat_map("win-matrix", title, grid)]
    said = list(pair_sentences(found))[3 * opened :]
    sentences = [Sentence(escape_line(text), strengths.name) for text in (*said, *_how(found))]
    question = "Who wins where answers are compared?"
    return make_section("pairs", question, sentences, pictures, (strengths, rates, judges))


def _how(found: PairMeasures) -> Iterator[str]:
    yield (
        "Strength is the expected number of wins in 100 comparisons with the other students, by "
        "Bradley–Terry; a tie is half a win. Intervals are 95%, over items."
    )
    if found.failed:
        yield f"{found.failed:,} comparisons failed and are not counted."


def _rates(found: PairMeasures) -> ReportTable:
    """Both ways, so that a matrix has all its cells."""
    columns = columns_by_field(PairRate)
    rows = []
    for (one, other), rate in found.rates.items():
        wins = rate.wins
        share, low, high = (wins.value or 0.0, wins.low or 0.0, 1.0 if wins.high is None else wins.high)
        back = wins._replace(value=1 - share, low=1 - high, high=1 - low)
        rows.append((one, other, wins, share - 0.5, rate.p, rate.comparisons))
        rows.append((other, one, back, 0.5 - share, rate.p, rate.comparisons))
    ahead = ReportColumn("ahead", "Beyond half", "points", "The win rate less one half")
    return ReportTable(
        "win-rates",
        "Students pairwise",
        (
            ReportColumn("student", "Student"),
            ReportColumn("other", "Against"),
            columns["wins"],
            ahead,
            columns["p"],
            columns["comparisons"],
        ),
        tuple(rows),
    )


# --- Examples
#
# Why? The items on which the two best students differ most, each way, in a few words.

# Of a quotation; one word of a language without spaces, or of a model gone astray, may be a page.
_WORDS, _CHARACTERS = 20, 160


def examples(evidence: RunEvidence) -> Iterator[Example]:
    """The item that speaks most for the leader, then the one most for the next; of equal gaps, the first
    by its id."""
    order = evidence.measured.measures.ranking.order
    if len(order) < 2:
        return
    first, second = order[:2]
    shared = SharedScores(evidence.measured.grid).means_by_item(first, second)
    for ahead, behind, turned in ((first, second, False), (second, first, True)):
        gaps = {item: (b - a if turned else a - b) for item, (a, b) in shared.items()}
        item = min(gaps, key=lambda one: (-round(gaps[one], 9), one), default=None)
        if item is None or gaps[item] <= SAME:
            continue
        own, other = reversed(shared[item]) if turned else shared[item]
        title = f"For {ahead}: {format_points(own)}, {behind} {format_points(other)}"
        yield Example(escape_line(title), tuple(_quotes(evidence, item, behind)), urlencode({"item": item}))


def _quotes(evidence: RunEvidence, item: str, student: str) -> Iterator[str]:
    """The prompt, and why the student that is behind lost points: by the judge who is nearest the mean."""
    text = evidence.reader.texts([item]).get(item)
    if text is not None and text.prompt:
        yield f"Prompt: {quoted(text.prompt)}"
    # In hexadecimal, an id can end no text of the query and hold no brace of its template.
    sql = _REASONS.format(item=item.encode().hex(), student=student.encode().hex(), lines="{lines}")
    typical = _typical(evidence.measured.grid, item, student)
    given = [
        (typical[judge, factor], judge, factor, reason)
        for judge, factor, reason in evidence.reader.of_lines("evaluation", _COLUMNS, sql)
        if (judge, factor) in typical
    ]
    if given:
        _, judge, factor, reason = min(given)
        yield f"{escape_line(judge)} on {escape_line(student)}, {escape_line(factor)}: {quoted(reason)}"


def _typical(grid: ScoreGrid, item: str, student: str) -> dict[tuple[str, str], tuple[float, float]]:
    """By judge and factor, how little a score speaks for the answer's mean: how far the judge's own mean is
    from it, and among the judge's scores the lowest first, as they cost the points."""
    mine = (grid.item == grid.items.ids.index(item)) & (grid.student == grid.students.index(student))
    scores: dict[str, dict[str, float]] = {}
    for factor, levels in zip(grid.factor[mine], grid.levels[mine], strict=True):
        for judge, level in zip(grid.judges, levels, strict=True):
            if level != UNSCORED:
                scores.setdefault(judge, {})[grid.factors[factor]] = float(grid.scale[level])
    if not scores:
        return {}
    mean = fmean(score for of in scores.values() for score in of.values())
    return {
        (judge, factor): (round(abs(fmean(of.values()) - mean), 9), score)
        for judge, of in scores.items()
        for factor, score in of.items()
    }


_COLUMNS = {
    "datapoint_id": "VARCHAR",
    "student_model_id": "VARCHAR",
    "judge_model_id": "VARCHAR",
    "reasons": "MAP(VARCHAR, VARCHAR)",
}
_REASONS = """
SELECT judge, reason.key, reason.value FROM (
    SELECT judge_model_id AS judge, unnest(map_entries(reasons)) AS reason FROM {lines}
    WHERE lower(hex(datapoint_id)) = '{item}' AND lower(hex(student_model_id)) = '{student}'
) WHERE trim(reason.value) <> '' ORDER BY ALL
"""


def quoted(text: str, most: int = _WORDS, longest: int = _CHARACTERS) -> str:
    """Quote the first words of a text, in one line."""
    words = text.split()
    shown = " ".join(words[:most])
    cut = len(words) > most or len(shown) > longest
    return f"“{escape_line(shown[:longest]).rstrip()}{'…' if cut else ''}”" if shown else ""


# --- People
#
# What do people say? Judges beside human labels, and students on the human scale.


def people_section(found: PeopleMeasures) -> ReportSection:
    """Both scales in one table, then pairs, judges, and people among themselves."""
    students = {(scale, name): one for scale, of in found.scales.items() for name, one in of.students.items()}
    pairs = {(scale, *pair): one for scale, of in found.scales.items() for pair, one in of.pairs.items()}
    tables = [
        people_table(students),
        measure_table(
            TableHeading(
                "people-pairs", "Differences by judges and by people", ("Scale", "Student", "Other")
            ),
            CalibratedPair,
            pairs,
        ),
        measure_table(
            TableHeading("people-judges", "Judges against people", ("Judge",)), AgainstPeople, found.judges
        ),
    ]
    if found.agreement:
        named = TableHeading("people-agreement", "People pairwise", ("Person", "Other"))
        tables.append(measure_table(named, PairAgreement, found.between))
    sentences = [Sentence(escape_line(text), "people") for text in people_sentences(found)]
    return make_section("by-people", "What do people say?", sentences, (), tuple(tables))


# --- Labels of items
#
# What people read in place of an item's id: its number and the first words of its prompt.

# Of a prompt: enough to know it again, in a cell beside figures.
_NAME_WORDS, _NAME_CHARACTERS = 6, 44
_NAME = "item"


def item_labels(reader: RunReader, sections: Iterable[ReportSection]) -> dict[str, str]:
    """Label each item that a table of the sections names; raises as `RunReader.texts`.

    No two labels are alike: teachers number their items each for itself, so that a number that several have
    stands with its teacher's name; an item that would look like another keeps its id.
    """
    items = {
        str(row[place])
        for section in sections
        for table in section.tables
        for place, column in enumerate(table.columns)
        if column.name == _NAME
        for row in table.rows
    }
    numbers = Counter(item_number(item) for item in items)
    texts = reader.texts(sorted(items)) if items else {}
    found: dict[str, str] = {}
    for item in sorted(items):
        text = texts.get(item)
        words = quoted(text.prompt or "", _NAME_WORDS, _NAME_CHARACTERS) if text is not None else ""
        of = f" {id_fields(item)[1]}" if numbers[item_number(item)] > 1 and item.count(SEPARATOR) > 1 else ""
        found[item] = f"{escape_line(_number(item) + of)} {words}".rstrip()
    alike = Counter(found.values())
    return {item: label for item, label in found.items() if alike[label] == 1}


def _number(item: str) -> str:
    """``#17``, or of an item of the user's own ``#`` and its own id."""
    number = item_number(item)
    return f"#{number}" if number is not None else f"#{item.rpartition(SEPARATOR)[2]}"


# --- Experiment report

_SECTIONS = (where_section, judges_section, benchmark_section)


def experiment_report(evidence: RunEvidence) -> Report:
    """The report of a run, of whatever is there."""
    reader = evidence.reader
    meta = read_json_if_whole(reader.run.meta, Meta)
    status = "" if meta is None else reader.run.status(meta)
    front = front_table(evidence)
    sections = tuple(_with_conclusions(evidence, _sections(evidence, front)))
    return Report(
        kind="experiment",
        title=escape_line(meta.experiment_id if meta is not None else reader.run.path.resolve().name),
        facts=tuple(_facts(evidence, meta)),
        lead=tuple(_lead(evidence)),
        sections=sections,
        alerts=tuple(_alerts(evidence, status)),
        front=front,
        examples=tuple(examples(evidence)),
        labels=evidence.labels,
        item_labels=item_labels(reader, sections),
    )


def _lead(evidence: RunEvidence) -> Iterator[Sentence]:
    """Three at most: where judges' agreement is no part of who leads, what is known of it."""
    measured = evidence.measured
    said = opening(measured.measures, measured.grid.looks)
    for text, anchor in zip(said, _anchors(measured.measures), strict=False):
        yield Sentence(escape_line(text), anchor)
    of_judges = (found.text for found in measured.conclusions if found.topic == "judges")
    if len(said) == 1 and measured.measures.ranking.order and (text := next(of_judges, "")):
        yield Sentence(escape_line(text), "judges")


def _anchors(measures: RunMeasures) -> tuple[str, str, str]:
    """Of the opening's sentences, the tables that show their figures."""
    if measures.ranking.order:
        return score_anchors(measures.ranking)
    if measures.pairs is not None:
        return "strengths", "strengths", "pair-judges"
    return ("differences", "labels", "labels") if measures.labels else ("leads",) * 3


def _sections(evidence: RunEvidence, front: ReportTable | None) -> Iterator[ReportSection]:
    measures = evidence.measured.measures
    scored = bool(measures.ranking.order or measures.labels) or measures.pairs is None
    if measures.pairs is not None:
        yield pairs_section(measures.pairs, opened=not measures.ranking.order)
    if (people := measures.people) is not None:
        yield people_section(people)
    if scored:
        yield leading_section(evidence)
    if front is not None and (valued := value_section(evidence, front)) is not None:
        yield valued
    if scored:
        for section in _SECTIONS:
            yield section(evidence)
    yield cost_section(evidence)


def _with_conclusions(evidence: RunEvidence, sections: Iterator[ReportSection]) -> Iterator[ReportSection]:
    """Each with what is concluded of its question, first; but for who leads, with which the page opens."""
    measures, concluded = evidence.measured.measures, evidence.measured.conclusions
    opened = {*opening(measures, evidence.measured.grid.looks)}
    opened |= set(pair_sentences(measures.pairs)) if measures.pairs is not None else set()
    said: dict[str, list[str]] = {}
    for found in concluded:
        if found.text not in opened:
            said.setdefault(found.topic, []).append(escape_line(found.text))
    for section in sections:
        known = {one.text for one in section.sentences}
        new = [Sentence(text, section.anchor) for text in said.get(section.anchor, ()) if text not in known]
        yield msgspec.structs.replace(section, sentences=(*new, *section.sentences))


_AT_WORK = ("running", "stopped", "interrupted")


def _alerts(evidence: RunEvidence, status: str) -> Iterator[Alert]:
    """What a reader has to know before any figure, with the command that mends it."""
    if evidence.reader.simulated:
        yield Alert(warning_to_sentence(SIMULATED))
    served = evidence.reader.served()
    yield from (Alert(escape_line(warning_to_sentence(one.warning))) for one in served if one.warning)
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
        yield Alert(escape_line(warning_to_sentence(missing.sentences[0])))
    for note in missing.notes:
        yield Alert(escape_line(warning_to_sentence(note)))
    if (looks := evidence.measured.grid.looks) is not None and looks.many:
        yield Alert(
            f"{looks.name.capitalize()} at a run that grows: differences are called significant only if they "
            "would be at any look."
        )


def _facts(evidence: RunEvidence, meta: Meta | None) -> Iterator[str]:
    grid, pairs = evidence.measured.grid, evidence.measured.measures.pairs
    students, judges = list(grid.students), list(grid.judges)
    if pairs is not None:
        students += [name for name in pairs.students if name not in students]
        judges += [name for name in pairs.judges if name not in judges]
    counts = (
        (len(grid.tasks), "task"),
        (len(grid.teachers), "teacher"),
        (len(students), "student"),
        (len(judges), "judge"),
    )
    yield " · ".join(pluralize(count, noun) for count, noun in counts if count)
    [(answers,)] = evidence.reader.rows("SELECT count(*) FROM answers WHERE NOT failed")
    units, items = evidence.measured.measures.units, len(grid.items.ids)
    of_answers = f"{pluralize(answers, 'answer')} to {pluralize(items, 'item')}"
    yield f"{pluralize(units, 'score')} of {of_answers}" if units else of_answers
    if pairs is not None:
        made = sum(one.comparisons for one in pairs.judges.values())
        yield pluralize(made, "comparison")
    failed = sum(one.failed for one in evidence.results.students if one.task is None)
    if failed:
        yield f"{pluralize(failed, 'record')} failed"
    if reported := bill(evidence.results.costs):
        yield str(reported)
    if meta is not None:
        yield f"{escape_line(evidence.reader.run.status(meta))}, {escape_line(meta.updated_at)[:10]}"
