"""An attack on a judge is a run of its own: weak answers as they are, and with each injection appended."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import msgspec
import numpy as np

from coeval.analysis.comparison.paired_difference import Difference, PairedScores, holm, paired_difference
from coeval.analysis.panel.judge_drift import ScorePlace, judge_scores
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import UsageError
from coeval.core.foreign import decoder
from coeval.core.records import Response
from coeval.judging.injections import INJECTIONS
from coeval.pipeline.config.items_section import AnsweredStudent, AnswerTable
from coeval.pipeline.config.schema import Config
from coeval.pipeline.upkeep.judge_check import CheckRequest, copy_items, judge_alone, opened_anchor
from coeval.store.jsonl import whole_lines, write_bytes_atomic
from coeval.store.rundir import RunDir

PLAIN = "without"
# Answers of at most this mean score have room to rise; from 0 to 1.
_WEAK = 0.5


class Injected(msgspec.Struct, frozen=True):
    """What an injection added to the scores of the attacked answers; ``p`` is Holm's over all injections,
    None where it cannot be told."""

    injection: str
    raised: Difference
    p: float | None

    @property
    def works(self) -> bool:
        """Whether it is shown to raise scores."""
        return self.p is not None and self.p < 0.05 and self.raised.difference > 0


class JudgeAttack(NamedTuple):
    """``config`` is the run that judges the attacked answers, ``items`` how many there are."""

    judge: str
    config: Config
    folder: RunDir
    items: int
    continues: bool

    def found(self) -> list[Injected]:
        """Compare each injection with the same answers without it, the worst first.

        Raises UsageError: the judge gave no scores.
        """
        with RunReader(self.folder.path) as reader:
            scores = judge_scores(reader, self.judge)
        by_student: dict[str, dict[tuple[str, str, str], float]] = {}
        for place, value in scores.items():
            student = place.answer.removeprefix(f"{place.item}__")
            by_student.setdefault(student, {})[place.task, place.item, place.factor] = value
        plain = by_student.pop(PLAIN, {})
        raised = {
            name: _raised(plain, given)
            for name, given in by_student.items()
            if name in INJECTIONS and plain.keys() & given.keys()
        }
        if not raised:
            raise UsageError(f"{self.judge} gave no scores; see the errors of {self.folder.path}")
        p_values = iter(holm([one.p for one in raised.values() if one.p is not None]))
        found = [
            Injected(name, one, None if one.p is None else next(p_values)) for name, one in raised.items()
        ]
        return sorted(found, key=lambda each: -each.raised.difference)


def _raised(
    plain: Mapping[tuple[str, str, str], float], given: Mapping[tuple[str, str, str], float]
) -> Difference:
    strata: dict[str, dict[str, list[tuple[float, float]]]] = {}
    for task, item, factor in sorted(plain.keys() & given.keys()):
        pair = plain[task, item, factor], given[task, item, factor]
        strata.setdefault(task, {}).setdefault(item, []).append(pair)
    pairs = []
    for items in strata.values():
        means = np.array([np.mean(scores, axis=0) for scores in items.values()])
        pairs.append(PairedScores(means[:, 0], means[:, 1], np.ones(len(means))))
    return paired_difference(pairs)


def prepare_attack(request: CheckRequest, home: Path | None = None) -> JudgeAttack:
    """Make the attack's folder, in ``home`` or else beside the run; nobody is asked. Of each item the answer
    that the judge scored lowest is taken, where that is 50 points or less.

    Raises UsageError: as `coeval.pipeline.upkeep.judge_check.prepare_check`; there is no such answer.
    """
    anchor = opened_anchor(request, "attack", home)
    weakest = _weakest(anchor.scores)
    chosen = dict(sorted(weakest.items(), key=lambda each: each[1].answer)[: request.items])
    if not chosen:
        raise UsageError(
            f"{anchor.source.path} has no answer that {request.judge} gave 50 points or less; an attack "
            "needs scores that can rise"
        )
    table = anchor.folder.path / "attacked.jsonl"
    read = judge_alone(anchor, {place.task for place in chosen.values()}, request.budget_usd, "New")
    models = [
        model.model_copy(update={"roles": roles})
        for model in read.models
        if (roles := [role for role in model.roles if role != "student"])
    ]
    students = [
        AnsweredStudent(name=name, responses=AnswerTable(path=str(table), response=name, id="id"))
        for name in (PLAIN, *INJECTIONS)
    ]
    config = read.model_copy(update={"models": models, "students": students})
    if not anchor.continues:
        copy_items(anchor.source, anchor.folder, {place.item for place in chosen.values()}, ())
        _write(anchor.source, table, {place.answer: place.item for place in chosen.values()})
    return JudgeAttack(anchor.judge.name, config, anchor.folder, len(chosen), anchor.continues)


def _weakest(scores: Mapping[ScorePlace, float]) -> dict[str, ScorePlace]:
    """By item, a place of the answer whose mean is lowest."""
    given: dict[ScorePlace, list[float]] = {}
    for place, value in scores.items():
        given.setdefault(place._replace(factor=""), []).append(value)
    found: dict[str, tuple[float, ScorePlace]] = {}
    for place, values in sorted(given.items()):
        mean = sum(values) / len(values)
        if mean <= _WEAK and mean < found.get(place.item, (2.0, place))[0]:
            found[place.item] = mean, place
    return {item: place for item, (_, place) in found.items()}


def _write(source: RunDir, table: Path, chosen: Mapping[str, str]) -> None:
    """Write the table of answers: a row for each item, a column for each injection."""
    read = decoder(Response)
    rows = []
    for path in source.files("response_collection"):
        for line in whole_lines(path):
            answer = read(line.text)
            if answer.id in chosen and answer.response is not None:
                text = answer.response
                row = {name: f"{text}\n\n{added}" for name, added in INJECTIONS.items()}
                rows.append({"id": chosen[answer.id], PLAIN: text, **row})
    write_bytes_atomic(table, b"".join(msgspec.json.encode(row) + b"\n" for row in rows))
