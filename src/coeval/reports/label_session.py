"""One person's labelling of a run: what is drawn, what is asked, what is given."""

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
    draw,
    judged_factors,
    of_person,
    picked,
    question_id,
    questions,
    share_out,
    to_label,
)
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.store.human_labels import HumanLabel, add_labels, person_judge_id, read_labels
from coeval.store.rundir import RunDir

USUAL_N = 200
"""Answers of a first draw: ± 6 points for a student's own third of them at the usual scatter."""


class LabelRequest(NamedTuple):
    """What a person asks for: ``n`` answers (None: those drawn before, else `USUAL_N`), some ``factors``
    (empty: all), and who else labels them (``among``) with which ``overlap``. ``draws``: whether something
    is drawn where ``n`` says nothing, and only those ``n`` are asked for where it says something. ``items``:
    in place of a draw, all answers to these, picked by hand."""

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

    Raises UsageError: nothing can be labelled, or what is asked for is unknown; StoreError: the run cannot
    be read, or its labels not be written.
    """

    def __init__(self, folder: RunDir, request: LabelRequest) -> None:
        self.path: Path = folder.path
        self.by = request.by
        judge = person_judge_id(request.by)
        with open_run_reader(folder) as (reader, _):
            grid = read_score_grid(reader)
            _refuse_compared(reader, grid)
            factors = judged_factors(grid, request.factors)
            known = of_person(read_labels(self.path), judge)
            drawn = [label for label in known if label.drawn is not None and _asks(label, factors)]
            part = _part(grid, factors, request, begun=bool(drawn))
            answers = {key.answer for key, _ in part} | {one.response_id for one in drawn}
            texts = ShownTexts(reader, answers, grid)
            asked_for = list(_current(texts, to_label(texts, part, factors, judge), known))
            if not request.items:
                there = frozenset(known)
                if new := [label for label in asked_for if label not in there]:
                    add_labels(self.path, new)
                every = of_person(read_labels(self.path), judge)
                asked_for = [label for label in every if label.drawn is not None and _asks(label, factors)]
                if request.n is not None and request.draws:
                    first = {key.answer for key, _ in part}
                    asked_for = [label for label in asked_for if label.response_id in first]
            self.questions = tuple(questions(grid, texts, asked_for))
        if not self.questions:
            raise UsageError(f"{self.path}: no answer to label; judge some first")
        self._by_id = {one.id: one for one in self.questions}
        self._lock = Lock()
        labelled = [one for one in self.questions if one.label.level is not None]
        self._given = {one.id: one.label.level for one in labelled if one.label.level is not None}
        self._order = [one.id for one in sorted(labelled, key=lambda one: one.label.labeled_at)]

    @property
    def given(self) -> dict[str, str]:
        """Level by question."""
        return dict(self._given)

    @property
    def next(self) -> LabelQuestion | None:
        """The first question without a level."""
        return next((one for one in self.questions if one.id not in self._given), None)

    def give(self, name: str, level: str) -> None:
        """Keep a level.

        Raises UsageError: there is no such question, or level of its scale.
        """
        question = self._by_id.get(name)
        found = question.scale.level(level) if question is not None else None
        if question is None or found is None:
            raise UsageError("there is no such question, or its scale has no such level")
        self.keep([question.at(found)])

    def keep(self, labels: Iterable[HumanLabel]) -> None:
        """Append labels of the session's questions, such as those of a sheet."""
        ids = {one.label.key: one.id for one in self.questions}
        with self._lock:
            for label in add_labels(self.path, labels):
                name = ids[label.key]
                self._given.pop(name, None)
                if name in self._order:
                    self._order.remove(name)
                if label.level is not None:
                    self._given[name] = label.level
                    self._order.append(name)

    def undo(self) -> LabelQuestion | None:
        """Take the last label back and return its question; None: there is none."""
        if not self._order:
            return None
        question = self._by_id[self._order[-1]]
        self.keep([question.at(None)])
        return question


def _refuse_compared(reader: RunReader, grid: ScoreGrid) -> None:
    """
    Raises UsageError: judges only compare answers, so that no level of a single one can be held against
    people's.
    """
    plans = reader.planned.tasks.values() if reader.planned is not None else ()
    if any(plan.compares for plan in plans) and not any(design.judged_factors for design in grid.designs):
        raise UsageError(
            f"{reader.folder}: judges compare its answers pairwise, and people label single answers; a task "
            "with `judging: scores` can be labelled"
        )


def recorded_levels(folder: RunDir, by: str) -> dict[str, str]:
    """Read a person's levels, by question; raises as `read_labels`, and UsageError as `person_judge_id`."""
    labels = of_person(read_labels(folder.path), person_judge_id(by))
    return {
        question_id(label.response_id, label.factor, label.judge_model_id): label.level
        for label in labels
        if label.level is not None
    }


def _part(
    grid: ScoreGrid, factors: dict[str, tuple[str, ...]], request: LabelRequest, *, begun: bool
) -> list[DrawnAnswer]:
    """The answers that a person's request adds; ``begun``: some were drawn before."""
    if request.items:
        return picked(grid, factors, request.items)
    n = request.n
    if n is None and not begun:
        if not request.draws:
            raise UsageError(f"nothing was drawn for {request.by}; --by names who the sheet was for")
        n = USUAL_N
    part = draw(grid, factors, n, request.seed) if n is not None else []
    return share_out(part, request.among, request.by, request.overlap)


def _current(
    texts: ShownTexts, needed: Iterable[HumanLabel], known: Iterable[HumanLabel]
) -> Iterator[HumanLabel]:
    """The labels that are needed, as they are known already unless the texts have changed. What was picked by
    hand and is drawn now keeps its level."""
    by_key = {label.key: label for label in known}
    for label in needed:
        before = by_key.get(label.key)
        if before is None or not texts.shows(before):
            yield label
        elif before.drawn is None and label.drawn is not None:
            yield msgspec.structs.replace(before, drawn=label.drawn)
        else:
            yield before


def _asks(label: HumanLabel, factors: dict[str, tuple[str, ...]]) -> bool:
    return label.factor in factors.get(label.task_id, ())
