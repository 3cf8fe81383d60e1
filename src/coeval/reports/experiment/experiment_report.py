"""A run's report: the five questions, and a lead that a reader may stop after."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator
from statistics import fmean
from urllib.parse import urlencode

import msgspec

from coeval.analysis.measures.judge_measures import PairAgreement
from coeval.analysis.measures.leaders import opening_sentences
from coeval.analysis.measures.pair_measures import (
    PairJudge,
    PairMeasures,
    PairRate,
    strength_and_bias_sentences,
)
from coeval.analysis.measures.pair_scores import SharedScores
from coeval.analysis.measures.ranking import SAME
from coeval.analysis.measures.run_measures import RunMeasures
from coeval.analysis.measures.score_grid import UNSCORED, ScoreGrid
from coeval.analysis.people.calibration import CalibratedPair
from coeval.analysis.people.labelled_rows import AgainstPeople
from coeval.analysis.people.people_measures import PeopleMeasures, people_leader_sentences
from coeval.analysis.readers.run_reader import RunReader
from coeval.analysis.run_results import SIMULATED, sum_costs
from coeval.core.figures import format_points
from coeval.core.plain import escape_line
from coeval.core.records import SEPARATOR, item_number, split_id
from coeval.core.text import pluralize, warning_to_sentence
from coeval.pipeline.upkeep.gaps import build_continue_command
from coeval.reports.charts.plots import HeatMap, heat_map
from coeval.reports.content import Alert, Example, Report, ReportColumn, ReportSection, ReportTable, Sentence
from coeval.reports.experiment.benchmark_section import benchmark_section
from coeval.reports.experiment.cost_section import cost_and_missing_section, value_section
from coeval.reports.experiment.judges_section import judges_section
from coeval.reports.experiment.leading_section import front_table, leading_section, opening_anchors
from coeval.reports.experiment.run_evidence import RunEvidence
from coeval.reports.experiment.where_section import where_students_differ_section
from coeval.reports.measure_table import MeasureTable, columns_by_field
from coeval.reports.result_tables import PAIR_TABLE, PEOPLE_TABLE
from coeval.store.jsonl import read_json_if_whole
from coeval.store.rundir import Meta

# --- Pairs
#
# Who wins where answers are compared two by two?

# A win rate this far from one half has the strongest colour.
_STRONGEST = 0.4


def pairs_section(pairs: PairMeasures, *, without_lead: bool) -> ReportSection:
    """Make the section of strengths, win rates and judges of comparisons; ``without_lead``: the page opens
    with who leads by them."""
    strengths, rates = PAIR_TABLE.fill(pairs.students), _win_rates_both_ways_table(pairs)
    judges = MeasureTable("pair-judges", "Judges of comparisons", ("Judge",), PairJudge).fill(pairs.judges)
    students = list(pairs.students)
    grid = HeatMap(
        rates,
        *("student", "other", "wins"),
        *(students, students),
        shade="ahead",
        least=_STRONGEST,
        format=".1f",
        tooltip=("wins_low", "wins_high", "p", "comparisons"),
    )
    title = "Win rate of the row's student against the column's; a tie is half a win."
    pictures = [heat_map("win-matrix", title, grid)]
    texts = (
        *list(strength_and_bias_sentences(pairs))[3 * without_lead :],
        *_explain_strength_and_failed_pairs(pairs),
    )
    question, tables = "Who wins in comparisons of answers?", (strengths, rates, judges)
    return ReportSection.with_rows(
        "pairs", question, map(escape_line, texts), pictures, tables, strengths.name
    )


def _explain_strength_and_failed_pairs(pairs: PairMeasures) -> Iterator[str]:
    yield (
        "Strength is the expected number of wins in 100 comparisons with the other students, by "
        "Bradley–Terry; a tie is half a win. Intervals are 95%, over items."
    )
    if pairs.failed:
        yield f"{pairs.failed:,} comparisons failed and are not counted."


def _win_rates_both_ways_table(pairs: PairMeasures) -> ReportTable:
    """Make a row for each pair in both directions, so that a matrix has all its cells."""
    declared = columns_by_field(PairRate)
    rows = []
    for (student, other), rate in pairs.rates.items():
        wins = rate.wins
        share, low, high = (wins.value or 0.0, wins.low or 0.0, 1.0 if wins.high is None else wins.high)
        back = wins._replace(value=1 - share, low=1 - high, high=1 - low)
        rows.append((student, other, wins, share - 0.5, rate.p, rate.comparisons))
        rows.append((other, student, back, 0.5 - share, rate.p, rate.comparisons))
    ahead = ReportColumn("ahead", "Above half", "points", "Win rate − one half")
    names = (ReportColumn("student", "Student"), ReportColumn("other", "Against"))
    columns = (*names, declared["wins"], ahead, declared["p"], declared["comparisons"])
    return ReportTable("win-rates", "Students pairwise", columns, tuple(rows))


# --- Examples
#
# Why? The items on which the two best students differ most, each way, in a few words.

# Of a quotation; one word of a language without spaces, or of a model gone astray, may be a page.
_WORDS, _CHARACTERS = 20, 160


def quote_items_separating_best_two(evidence: RunEvidence) -> Iterator[Example]:
    """Yield the item that most favours the leader over the second, then the reverse; of equal ones the first
    by id."""
    order = evidence.measured.measures.ranking.order
    if len(order) < 2:
        return
    first, second = order[:2]
    shared = SharedScores(evidence.measured.grid).shared_means_by_item(first, second)
    for ahead, behind, turned in ((first, second, False), (second, first, True)):
        gaps = {item: (b - a if turned else a - b) for item, (a, b) in shared.items()}
        item = min(gaps, key=lambda item_id: (-round(gaps[item_id], 9), item_id), default=None)
        if item is None or gaps[item] <= SAME:
            continue
        own, other = reversed(shared[item]) if turned else shared[item]
        title = f"For {ahead}: {format_points(own)}, {behind} {format_points(other)}"
        quotes = tuple(_quote_prompt_and_typical_reason(evidence, item, behind))
        yield Example(escape_line(title), quotes, urlencode({"item": item}))


def _quote_prompt_and_typical_reason(evidence: RunEvidence, item: str, student: str) -> Iterator[str]:
    """Quote the prompt, and why the student behind lost points, by the judge who is nearest the mean."""
    text = evidence.reader.read_texts([item]).get(item)
    if text is not None and text.prompt:
        yield f"Prompt: {quote_first_words(text.prompt)}"
    # In hexadecimal, an id can end no text of the query and hold no brace of its template.
    sql = _REASONS.format(item=item.encode().hex(), student=student.encode().hex(), lines="{lines}")
    typical = _typicality_keys_by_judge_and_factor(evidence.measured.grid, item, student)
    reasons = [
        (typical[judge, factor], judge, factor, reason)
        for judge, factor, reason in evidence.reader.query_lines("evaluation", _COLUMNS, sql)
        if (judge, factor) in typical
    ]
    if reasons:
        _, judge, factor, reason = min(reasons)
        source = escape_line(f"{judge} on {student}, {factor}")
        yield f"{source}: {quote_first_words(reason)}"


def _typicality_keys_by_judge_and_factor(
    grid: ScoreGrid, item: str, student: str
) -> dict[tuple[str, str], tuple[float, float]]:
    """Return by judge and factor a sort key, smallest for the most typical score of an answer.

    First, how far the judge's mean is from the answer's mean; then the score, as the lowest cost the points.
    """
    mine = (grid.item == grid.items.ids.index(item)) & (grid.student == grid.students.index(student))
    scores: dict[str, dict[str, float]] = {}
    for factor, levels in zip(grid.factor[mine], grid.levels[mine], strict=True):
        for judge, level in zip(grid.judges, levels, strict=True):
            if level != UNSCORED:
                scores.setdefault(judge, {})[grid.factors[factor]] = float(grid.scale[level])
    if not scores:
        return {}
    mean = fmean(score for factors in scores.values() for score in factors.values())
    return {
        (judge, factor): (round(abs(fmean(factors.values()) - mean), 9), score)
        for judge, factors in scores.items()
        for factor, score in factors.items()
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


def quote_first_words(text: str, most_words: int = _WORDS, most_characters: int = _CHARACTERS) -> str:
    """Quote the first words of a text, in one line."""
    words = text.split()
    start = " ".join(words[:most_words])
    cut = len(words) > most_words or len(start) > most_characters
    return f"“{escape_line(start[:most_characters]).rstrip()}{'…' if cut else ''}”" if start else ""


# --- People
#
# What do people say? Judges beside human labels, and students on the human scale.


def people_section(people: PeopleMeasures) -> ReportSection:
    """Make the section of human labels: students on each human scale, pairs, judges, and people among
    themselves."""
    students = {
        (name, student): calibrated
        for name, scale in people.scales.items()
        for student, calibrated in scale.students.items()
    }
    pairs = {
        (name, *pair): calibrated
        for name, scale in people.scales.items()
        for pair, calibrated in scale.pairs.items()
    }
    tables = (
        PEOPLE_TABLE.fill(students),
        _PEOPLE_PAIR_TABLE.fill(pairs),
        MeasureTable("people-judges", "Judges against people", ("Judge",), AgainstPeople).fill(people.judges),
        _PEOPLE_AGREEMENT_TABLE.fill(people.agreement_by_person_name if people.agreement else {}),
    )
    texts = map(escape_line, people_leader_sentences(people))
    return ReportSection.with_rows("by-people", "What do people say?", texts, (), tables, PEOPLE_TABLE.name)


_PEOPLE_PAIR_TABLE = MeasureTable(
    "people-pairs", "Differences by judges and by people", ("Scale", "Student", "Other"), CalibratedPair
)
_PEOPLE_AGREEMENT_TABLE = MeasureTable(
    "people-agreement", "People pairwise", ("Person", "Other"), PairAgreement
)


# --- Labels of items
#
# What people read in place of an item's id: its number and the first words of its prompt.

# Of a prompt: enough to know it again, in a cell beside figures.
_NAME_WORDS, _NAME_CHARACTERS = 6, 44
_NAME = "item"


def label_items(reader: RunReader, sections: Iterable[ReportSection]) -> dict[str, str]:
    """Label each item that a table of the sections names; raises as `RunReader.texts`.

    Labels are unique. Each teacher numbers its own items, so a number that several teachers use comes with
    the teacher's name; an item whose label would still equal another's keeps its id.
    """
    items = {
        str(row[index])
        for section in sections
        for table in section.tables
        for index, column in enumerate(table.columns)
        if column.name == _NAME
        for row in table.rows
    }
    numbers = Counter(item_number(item) for item in items)
    texts = reader.read_texts(sorted(items)) if items else {}
    labels: dict[str, str] = {}
    for item in sorted(items):
        text = texts.get(item)
        words = (
            quote_first_words(text.prompt or "", _NAME_WORDS, _NAME_CHARACTERS) if text is not None else ""
        )
        several = numbers[item_number(item)] > 1 and item.count(SEPARATOR) > 1
        teacher = f" {split_id(item)[1]}" if several else ""
        labels[item] = f"{escape_line(_format_item_number(item) + teacher)} {words}".rstrip()
    counts = Counter(labels.values())
    return {item: label for item, label in labels.items() if counts[label] == 1}


def _format_item_number(item: str) -> str:
    """Return ``#17``, or for one of the user's own items ``#`` and its id."""
    number = item_number(item)
    return f"#{number}" if number is not None else f"#{item.rpartition(SEPARATOR)[2]}"


# --- Experiment report

_SECTIONS = (where_students_differ_section, judges_section, benchmark_section)


def experiment_report(evidence: RunEvidence) -> Report:
    """Make the report of a run, finished or not."""
    reader = evidence.reader
    meta = read_json_if_whole(reader.run.meta, Meta)
    status = "" if meta is None else reader.run.status(meta)
    front = front_table(evidence)
    sections = tuple(_add_conclusions(evidence, _make_sections(evidence, front)))
    return Report(
        kind="experiment",
        title=escape_line(meta.experiment_id if meta is not None else reader.run.path.resolve().name),
        facts=tuple(_list_sizes_cost_and_status(evidence, meta)),
        lead=tuple(_leader_and_judge_sentences(evidence)),
        sections=sections,
        alerts=tuple(_find_alerts(evidence, status)),
        front=front,
        examples=tuple(quote_items_separating_best_two(evidence)),
        labels=evidence.short_names_by_model,
        item_labels=label_items(reader, sections),
    )


def _leader_and_judge_sentences(evidence: RunEvidence) -> Iterator[Sentence]:
    """Yield at most three sentences on who leads, the last on judges if these do not mention agreement."""
    measured = evidence.measured
    texts = opening_sentences(measured.measures, measured.grid.looks)
    for text, anchor in zip(texts, _anchors_by_leader_sentence(measured.measures), strict=False):
        yield Sentence(escape_line(text), anchor)
    of_judges = (conclusion.text for conclusion in measured.conclusions if conclusion.topic == "judges")
    if len(texts) == 1 and measured.measures.ranking.order and (text := next(of_judges, "")):
        yield Sentence(escape_line(text), "judges")


def _anchors_by_leader_sentence(measures: RunMeasures) -> tuple[str, ...]:
    """Return the tables that show the figures of the lead's sentences."""
    if measures.ranking.order:
        return opening_anchors(measures.ranking)
    if measures.pairs is not None:
        return "strengths", "strengths", "pair-judges"
    return ("differences", "labels", "labels") if measures.labels else ("leads",) * 3


def _make_sections(evidence: RunEvidence, front: ReportTable | None) -> Iterator[ReportSection]:
    """Yield the sections that apply to the run, in the order of the page."""
    measures = evidence.measured.measures
    scored = bool(measures.ranking.order or measures.labels) or measures.pairs is None
    if measures.pairs is not None:
        yield pairs_section(measures.pairs, without_lead=not measures.ranking.order)
    if measures.people is not None:
        yield people_section(measures.people)
    if scored:
        yield leading_section(evidence)
    if front is not None and (value := value_section(evidence, front)) is not None:
        yield value
    if scored:
        for section in _SECTIONS:
            yield section(evidence)
    yield cost_and_missing_section(evidence)


def _add_conclusions(evidence: RunEvidence, sections: Iterator[ReportSection]) -> Iterator[ReportSection]:
    """Put the conclusions on each section's question first, except those that open the page."""
    measures, concluded = evidence.measured.measures, evidence.measured.conclusions
    opened = {*opening_sentences(measures, evidence.measured.grid.looks)}
    opened |= set(strength_and_bias_sentences(measures.pairs)) if measures.pairs is not None else set()
    texts: dict[str, list[str]] = {}
    for conclusion in concluded:
        if conclusion.text not in opened:
            texts.setdefault(conclusion.topic, []).append(escape_line(conclusion.text))
    for section in sections:
        present = {sentence.text for sentence in section.sentences}
        new = [
            Sentence(text, section.anchor) for text in texts.get(section.anchor, ()) if text not in present
        ]
        yield msgspec.structs.replace(section, sentences=(*new, *section.sentences))


_UNFINISHED = ("running", "stopped", "interrupted")


def _find_alerts(evidence: RunEvidence, status: str) -> Iterator[Alert]:
    """Yield warnings that a reader needs before any number, with the command that mends each."""
    if evidence.reader.simulated:
        yield Alert(warning_to_sentence(SIMULATED))
    served = evidence.reader.stand_ins_and_mixtures()
    yield from (Alert(escape_line(warning_to_sentence(model.warning))) for model in served if model.warning)
    missing, run = evidence.missing, evidence.reader.run
    if status == "running":
        yield Alert("The run is in progress: these numbers cover what is finished so far.", "")
    elif missing.gaps is not None and missing.gaps.owed:
        phases = ("data_generation", "response_collection", "evaluation")
        counts = [missing.gaps.count_missing(phase) for phase in phases]  # type: ignore[arg-type]
        nouns = ("items", "answers", "judgments")
        parts = [f"{count:,} {noun}" for count, noun in zip(counts, nouns, strict=True) if count]
        what = f"{' and '.join(parts)} are missing" if parts else "phases 1 and 2 are not finished"
        state = "The run has not ended" if status in _UNFINISHED else "The run is incomplete"
        command, explained, meaning = build_continue_command(run).partition(" (")
        advice = f" Continue with {command}; {meaning.rstrip(')')}." if explained else ""
        yield Alert(f"{state}: {what}.{advice}", "" if explained else command)
    elif missing.sentences:
        yield Alert(escape_line(warning_to_sentence(missing.sentences[0])))
    for note in missing.notes:
        yield Alert(escape_line(warning_to_sentence(note)))
    if (looks := evidence.measured.grid.looks) is not None and looks.is_repeated:
        yield Alert(
            f"{looks.in_words.capitalize()} at unfinished results: the tests allow for looking at any time."
        )


def _list_sizes_cost_and_status(evidence: RunEvidence, meta: Meta | None) -> Iterator[str]:
    """Yield the run's sizes, cost, status and date."""
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
    answers_to_items = f"{pluralize(answers, 'answer')} to {pluralize(items, 'item')}"
    yield f"{pluralize(units, 'score')} of {answers_to_items}" if units else answers_to_items
    if pairs is not None:
        yield pluralize(sum(judge.comparisons for judge in pairs.judges.values()), "comparison")
    failed = sum(row.failed for row in evidence.results.students if row.task is None)
    if failed:
        yield f"{pluralize(failed, 'record')} failed"
    if cost := sum_costs(evidence.results.costs):
        yield str(cost)
    if meta is not None:
        yield f"{escape_line(evidence.reader.run.status(meta))}, {escape_line(meta.updated_at)[:10]}"
