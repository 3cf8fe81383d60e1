"""Measures from a run's human labels, and sentences about them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated

from coeval.analysis.comparison.comparison_report import interval_alone_text
from coeval.analysis.measures.agreement import Reweighting
from coeval.analysis.measures.judge_measures import PairAgreement
from coeval.analysis.measures.measure_tree import Measured, Record, ShownAs
from coeval.analysis.measures.score_grid import ScoreGrid
from coeval.analysis.people import calibration, labelled_rows
from coeval.analysis.people.calibration import HumanScale
from coeval.analysis.people.label_questions import ShownTexts
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.figures import format_figure, format_points, kappa_word
from coeval.core.text import join_names, pluralize
from coeval.store.human_labels import HUMAN, count_damaged_labels, read_labels


class PeopleMeasures(Record, frozen=True):
    """Measures from human labels; counts are of (answer, factor, person). Only ``labels`` enter estimates:
    those drawn by chance, of texts that are unchanged."""

    labels: Annotated[int, ShownAs("Labels drawn by chance", elsewhere="people")]
    asked: Annotated[int, ShownAs("Drawn by chance, labelled or not", elsewhere="people")]
    hand_picked: Annotated[int, ShownAs("Labels picked by hand, in no estimate", elsewhere="people")]
    stale: Annotated[int, ShownAs("Labels of changed texts, in no estimate", elsewhere="people")]
    unfit: Annotated[
        int, ShownAs("Labels with a level that the scale lacks, in no estimate", elsewhere="people")
    ]
    damaged: Annotated[int, ShownAs("Damaged lines of labels.jsonl", elsewhere="people")]
    later: Annotated[
        int,
        ShownAs(
            "Items added or answered after the labels were drawn; excluded from estimates", elsewhere="people"
        ),
    ]
    people: Annotated[tuple[str, ...], ShownAs("Who labelled", elsewhere="people")]
    scales: Annotated[Mapping[str, HumanScale], ShownAs("By all factors, and by each", elsewhere="people")]
    judges: Annotated[
        Mapping[str, labelled_rows.AgainstPeople], ShownAs("Judges against people", elsewhere="people-judges")
    ]
    agreement: Annotated[
        Mapping[tuple[str, str], PairAgreement], ShownAs("People pairwise", elsewhere="people-agreement")
    ]

    @property
    def whole_scale(self) -> HumanScale | None:
        """Return the scale of all judged factors, else that of the one that people labelled."""
        return next(iter(self.scales.values()), None)

    @property
    def agreement_by_person_name(self) -> dict[tuple[str, str], PairAgreement]:
        return {
            (first.removeprefix(HUMAN), second.removeprefix(HUMAN)): agreement
            for (first, second), agreement in self.agreement.items()
        }

    @property
    def whole_scale_name(self) -> str:
        return next(iter(self.scales), calibration.ALL_FACTORS)


def measure_people(
    reader: RunReader, grid: ScoreGrid, reweighting: Reweighting | None = None
) -> PeopleMeasures | None:
    """Measure a run's human labels, None if there are none. Raises StoreError: a file cannot be read."""
    labels = [label for label in read_labels(reader.run.path).values() if label.response_id]
    given_labels = [label for label in labels if label.is_persons_level]
    if not given_labels:
        return None
    texts = ShownTexts(reader, {label.response_id for label in given_labels}, grid)
    current = [label for label in given_labels if texts.is_current(label)]
    fitting = [label for label in current if texts.has_level_of_scale(label)]
    drawn = [label for label in fitting if label.drawn is not None]
    matched = labelled_rows.match_labels_to_rows(grid, drawn)
    rows, later = labelled_rows.exclude_items_added_after_draw(grid, matched, drawn)
    reweighting = reweighting or Reweighting(len(grid.items.ids), cluster=grid.items.alike)
    return PeopleMeasures(
        labels=len(drawn),
        asked=sum(label.drawn is not None for label in labels),
        hand_picked=len(fitting) - len(drawn),
        stale=len(given_labels) - len(current),
        unfit=len(current) - len(fitting),
        damaged=count_damaged_labels(reader.run.path),
        later=later,
        people=tuple(sorted({label.person for label in given_labels})),
        scales=calibration.calibrate_human_scales(grid, rows),
        judges=labelled_rows.compare_judges_with_people(grid, rows, reweighting),
        agreement=labelled_rows.compare_people_pairwise(grid, rows, reweighting),
    )


def people_leader_sentences(people: PeopleMeasures) -> Iterator[str]:
    """Say who leads on the human scale, how biased judges are, and what is left to label."""
    scale = people.whole_scale
    if scale is None:
        yield "No randomly drawn answer is labelled yet; labels picked by hand enter no estimate."
        return
    by = "" if people.whole_scale_name == calibration.ALL_FACTORS else f" ({people.whole_scale_name})"
    among = calibration.list_compared_students(scale)
    scope = "" if len(among) == len(scale.students) else f" with labels of its own ({join_names(among)})"
    leader = calibration.find_clear_leader(scale)
    if leader is not None:
        yield (
            f"By people's labels{by}, {leader} leads: significantly better than every other student{scope}."
        )
    elif scale.pairs:
        yield f"By people's labels{by}, no student{scope} is significantly ahead of all others."
    if (panel := people.judges.get(labelled_rows.PANEL)) is not None:
        yield from _panel_bias_sentence(panel)
    for (first_person, second_person), agreed in people.agreement_by_person_name.items():
        if agreed.spa.value is not None and agreed.kappa.value is not None:
            yield (
                f"{first_person} and {second_person} give the same level in {100 * agreed.spa.value:.0f}% of "
                f"{pluralize(agreed.count, 'label')} that both gave ({_kappa_with_word(agreed.kappa)})."
            )
    yield from _limits_of_estimates_sentences(people, scale)


def labels_needed_sentences(scale: HumanScale) -> Iterator[str]:
    """Say how many labels ± 3 points take; nothing where no student has enough labels to tell."""
    needed = {name: student.needed for name, student in scale.students.items() if student.weight is not None}
    counts = [count for count in needed.values() if count is not None]
    if counts and len(counts) == len(needed):
        labelled = sum(scale.students[name].labels for name in needed)
        labels = f"about {sum(counts):,} labelled answers; the run has {labelled:,}"
        yield f"± 3 points for each student takes {labels}."
    elif needed:
        yield "± 3 points for each student takes more labels than the run has answers: add items."


def _limits_of_estimates_sentences(people: PeopleMeasures, scale: HumanScale) -> Iterator[str]:
    """Say what limits the estimates: missing, stale, damaged and hand-picked labels."""
    if scale.unlabelled:
        yield (
            f"These figures are over {join_names(scale.tasks)}; no labels yet: "
            f"{join_names(scale.unlabelled)}."
        )
    yield from labels_needed_sentences(scale)
    unknown = [name for name, student in scale.students.items() if student.people.value is None]
    if unknown:
        yield f"{join_names(unknown)}: too few labels for a score on the human scale."
    if people.labels < people.asked:
        yield (
            f"{people.labels:,} of {people.asked:,} drawn labels are entered; leaving out "
            "hard answers on purpose biases the estimate."
        )
    if people.later:
        yield (
            f"{pluralize(people.later, 'item')}, or answers to them, were added after the labels were "
            "drawn: figures on the human scale exclude these."
        )
    if people.stale:
        yield f"{pluralize(people.stale, 'label')} of texts that have changed since: in no estimate."
    if people.unfit:
        yield f"{pluralize(people.unfit, 'label')} with a level that the scale lacks: in no estimate."
    if people.damaged:
        yield f"{pluralize(people.damaged, 'line')} of labels.jsonl damaged: in no estimate."
    if people.hand_picked:
        yield f"{pluralize(people.hand_picked, 'label')} picked by hand: in no estimate."


def _panel_bias_sentence(panel: labelled_rows.AgainstPeople) -> Iterator[str]:
    """Say how much higher or lower than people all judges score, and whether significantly."""
    value, low, high = panel.bias[:3]
    if value is None or low is None or high is None:
        return
    more = "more" if value > 0 else "less"
    if value < 0:
        value, low, high = -value, -high, -low
    labels, kappa = pluralize(panel.count, "label"), _kappa_with_word(panel.kappa)
    how = f"({interval_alone_text(value, low, high)}; {labels}, {kappa})"
    doubt = "Judges show no significant bias: they give" if low <= 0 else "Judges give"
    yield f"{doubt} {format_points(value)} points {more} than people {how}."


def _kappa_with_word(kappa: Measured) -> str:
    """Return ``κ 0.52, moderate``."""
    if kappa.value is None:
        return "κ –"
    return f"κ {format_figure(kappa.value, 'coefficient')}, {kappa_word(kappa.value)}"
