"""One person's labelling of a run: which answers are drawn, what is asked of them, and the levels given."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path
from threading import Lock
from typing import NamedTuple

import msgspec

from coeval.analysis.measures.score_grid import ScoreGrid, read_score_grid
from coeval.analysis.people.label_questions import (
    DrawnAnswer,
    LabelQuestion,
    ShownTexts,
    assign_answers,
    draw_answers,
    judged_factors_by_task,
    labels_of_person,
    make_empty_labels,
    make_questions_on_unchanged_texts,
    pick_answers,
    question_id,
)
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.store.human_labels import HumanLabel, add_labels, judge_id_of_valid_name, read_labels
from coeval.store.rundir import RunDir

USUAL_N = 200
"""Answers of a first draw: ± 6 points for a student's own third of them at the usual scatter."""


class LabelRequest(NamedTuple):
    """Which answers a person wants to label.

    ``n``: how many (None: those drawn before, else `USUAL_N`); ``factors``: empty for all; ``among``: who
    else labels them, with which ``overlap``. ``draws``: False neither draws anything new without ``n``, nor
    limits the questions to these ``n``. ``items``: in place of a draw, all answers to these, picked by hand.
    """

    by: str
    n: int | None = None
    factors: tuple[str, ...] = ()
    seed: int = 0
    among: tuple[str, ...] = ()
    overlap: float = 0.2
    draws: bool = True
    items: tuple[str, ...] = ()


class LabelSession:
    """The questions of one person, in the order of the draw, and the levels given so far.

    Raises UsageError: nothing can be labelled, or the request names something unknown; StoreError: the run
    cannot be read, or its labels not be written.
    """

    def __init__(self, folder: RunDir, request: LabelRequest) -> None:
        """Draw what the request adds, record it, and read the person's questions and levels."""
        self.path: Path = folder.path
        self.by = request.by
        judge = judge_id_of_valid_name(request.by)
        with open_run_reader(folder) as (reader, _):
            grid = read_score_grid(reader)
            _refuse_pairwise_only(reader, grid)
            factors = judged_factors_by_task(grid, request.factors)
            recorded = labels_of_person(read_labels(self.path), judge)
            drawn = _keep_drawn_labels(recorded, factors)
            part = _pick_or_draw_answers(grid, factors, request, has_drawn_before=bool(drawn))
            answers = {key.answer for key, _ in part} | {label.response_id for label in drawn}
            texts = ShownTexts(reader, answers, grid)
            needed = make_empty_labels(texts, part, factors, judge)
            asked_for = list(_fill_in_current_levels(texts, needed, recorded))
            if not request.items:
                existing = frozenset(recorded)
                if new := [label for label in asked_for if label not in existing]:
                    add_labels(self.path, new)
                asked_for = _keep_drawn_labels(labels_of_person(read_labels(self.path), judge), factors)
                if request.n is not None and request.draws:
                    first = {key.answer for key, _ in part}
                    asked_for = [label for label in asked_for if label.response_id in first]
            self.questions = tuple(make_questions_on_unchanged_texts(grid, texts, asked_for))
        if not self.questions:
            raise UsageError(f"{self.path}: no answer to label; judge some first")
        self._by_id = {question.id: question for question in self.questions}
        self._lock = Lock()
        by_time = sorted(self.questions, key=lambda question: question.label.labeled_at)
        # The last label comes last.
        self._levels = {
            question.id: question.label.level for question in by_time if question.label.level is not None
        }

    @property
    def levels_by_id(self) -> dict[str, str]:
        return dict(self._levels)

    @property
    def next_question(self) -> LabelQuestion | None:
        """Return the first question without a level."""
        return next((question for question in self.questions if question.id not in self._levels), None)

    def record_level(self, question_id: str, level: str) -> None:
        """Record a level. Raises UsageError: there is no such question, or level of its scale."""
        question = self._by_id.get(question_id)
        known_level = question.scale.level(level) if question is not None else None
        if question is None or known_level is None:
            raise UsageError("no such question, or its scale has no such level")
        self.append_labels([question.label_with_level(known_level)])

    def append_labels(self, labels: Iterable[HumanLabel]) -> None:
        """Append labels of the session's questions, such as those of a sheet."""
        ids = {question.label.key: question.id for question in self.questions}
        with self._lock:
            for label in add_labels(self.path, labels):
                name = ids[label.key]
                self._levels.pop(name, None)
                if label.level is not None:
                    self._levels[name] = label.level

    def withdraw_last_label(self) -> LabelQuestion | None:
        """Withdraw the last label and return its question, or None if there is none."""
        if not self._levels:
            return None
        question = self._by_id[next(reversed(self._levels))]
        self.append_labels([question.label_with_level(None)])
        return question


def _refuse_pairwise_only(reader: RunReader, grid: ScoreGrid) -> None:
    """Raise UsageError if judges only compare answers, so that people's levels have nothing to be compared
    with."""
    plans = reader.planned.tasks.values() if reader.planned is not None else ()
    if any(plan.compares for plan in plans) and not any(design.judged_factors for design in grid.designs):
        raise UsageError(
            f"{reader.folder}: judges compare its answers pairwise, and people label single answers; a task "
            "with `judging: scores` can be labelled"
        )


def read_levels_by_question(folder: RunDir, by: str) -> dict[str, str]:
    """Read a person's levels, by question; raises as `read_labels` and `judge_id_of_valid_name` do."""
    labels = labels_of_person(read_labels(folder.path), judge_id_of_valid_name(by))
    return {
        question_id(label.response_id, label.factor, label.judge_model_id): label.level
        for label in labels
        if label.level is not None
    }


def _pick_or_draw_answers(
    grid: ScoreGrid, factors: dict[str, tuple[str, ...]], request: LabelRequest, *, has_drawn_before: bool
) -> list[DrawnAnswer]:
    """Draw the answers that a person's request adds; ``has_drawn_before``: some were drawn before."""
    if request.items:
        return pick_answers(grid, factors, request.items)
    n = request.n
    if n is None and not has_drawn_before:
        if not request.draws:
            raise UsageError(f"nothing was drawn for {request.by}; --by names who the sheet was for")
        n = USUAL_N
    part = draw_answers(grid, factors, n, request.seed) if n is not None else []
    return assign_answers(part, request.among, request.by, request.overlap)


def _fill_in_current_levels(
    texts: ShownTexts, needed: Iterable[HumanLabel], recorded: Iterable[HumanLabel]
) -> Iterator[HumanLabel]:
    """Yield the needed labels, with recorded levels unless the texts have changed. A label picked by hand
    that is drawn now keeps its level."""
    by_key = {label.key: label for label in recorded}
    for label in needed:
        before = by_key.get(label.key)
        if before is None or not texts.is_current(before):
            yield label
        elif before.drawn is None and label.drawn is not None:
            yield msgspec.structs.replace(before, drawn=label.drawn)
        else:
            yield before


def _keep_drawn_labels(labels: Iterable[HumanLabel], factors: dict[str, tuple[str, ...]]) -> list[HumanLabel]:
    """Return the labels of answers that were drawn, of these factors."""
    drawn = (label for label in labels if label.drawn is not None)
    return [label for label in drawn if label.factor in factors.get(label.task_id, ())]
