"""One task of one sample: its records, what is missing, and the works that make it."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import chain
from typing import NamedTuple

import msgspec

from coeval.analysis.doubtful_answers import CutOffAnswers, EmptyAnswers
from coeval.benchmarks.benchmark import (
    Answer,
    Ask,
    Benchmark,
    Item,
    Judgment,
    Scored,
    TaskRecords,
    count_failures,
    why_value_missing,
)
from coeval.benchmarks.run.task_folder import (
    JUDGMENTS_EACH,
    AnswerWork,
    JudgmentWork,
    SuppliedCounts,
    TaskFolder,
    hash_messages,
    is_good_and_current,
)
from coeval.core.errors import MODEL_FAILURE_KINDS, CoevalError, describe_error
from coeval.core.model import WINDOW
from coeval.core.records import is_good
from coeval.engine.model_work import Asking, RoleModel
from coeval.store.record_index import count_attempts

log = logging.getLogger("coeval")


class RecordCounts(msgspec.Struct, frozen=True):
    """Good answers of all prompts, and good judgments of those these answers need."""

    answers: int
    prompts: int
    judgments: int
    judgments_needed: int


class OwedJudgment(NamedTuple):
    """A judgment to make; ``earlier`` is its failed or outdated record, if any."""

    item: Item
    ask: Ask
    earlier: Judgment | None


@dataclass(slots=True)
class TaskRun:
    """A task with its records. ``n_prompts`` is the benchmark's size, ``items`` those to score. ``tested`` is
    None where stored answers are judged, ``judge`` where nothing is judged. ``given``: the coverage of the
    file that the answers come from. ``problem`` is why the task failed; the others go on."""

    label: str
    task: str
    run: int | None
    benchmark: Benchmark
    items: Sequence[Item]
    n_prompts: int
    folder: TaskFolder
    tested: RoleModel | None
    judge: RoleModel | None = None
    given: SuppliedCounts | None = None
    problem: str | None = None
    answers: dict[str, Answer] = field(default_factory=dict)
    judgments: dict[str, Judgment] = field(default_factory=dict)
    needed: dict[str, None] = field(default_factory=dict)

    @property
    def judging(self) -> str:
        """Return the name of the judgments' phase in a progress display."""
        return f"{self.label} judging"

    def read_current_or_failed_answers(self) -> None:
        """Read the recorded answers that are up to date, and the failed ones."""
        recorded = self.folder.read_counted_answers(self.tested)
        for item in self.items:
            record = recorded.get(item.id)
            # Without a tested model, stored answers are judged whatever they were asked with.
            if record is not None and (
                not is_good(record)
                or self.tested is None
                or is_good_and_current(record, self.tested.recipe.hash, hash_messages(item.messages))
            ):
                self.answers[item.id] = record

    def list_answer_works(self, asking: Asking) -> list[AnswerWork]:
        if self.tested is None:
            return []
        weight = 1 + (JUDGMENTS_EACH if self.judge is not None else 0)
        return [
            AnswerWork(asking, self.tested, item.id, count_attempts(earlier), self.label, item, weight)
            for item in self.items
            if why_value_missing(earlier := self.answers.get(item.id)) is not None
        ]

    def read_judgments(self) -> None:
        self.judgments = {} if self.judge is None else self.folder.read_judgments(self.judge)
        self.needed = {}

    def list_judgment_works(self, asking: Asking, items: Sequence[Item]) -> list[JudgmentWork]:
        """List the works of missing judgments of these items; outdated judgments are forgotten."""
        if self.judge is None:
            return []
        owed = self._find_owed_and_note_needed(self.judge, items)
        n_owed = Counter(judgment.item.id for judgment in owed)
        return [
            JudgmentWork(
                phase=self.judging,
                role_model=self.judge,
                asking=asking,
                key=needed.id,
                tried=count_attempts(record),
                item=item.id,
                needed=needed,
                alone=n_owed[item.id] == 1,
            )
            for item, needed, record in owed
        ]

    def _find_owed_and_note_needed(self, judge: RoleModel, items: Sequence[Item]) -> list[OwedJudgment]:
        """Find judgments that are missing or outdated; add every needed one, owed or not, to ``needed``."""
        if self.problem is not None:
            return []
        owed = []
        for item in items:
            answer = self.answers.get(item.id)
            if answer is None or not is_good(answer):
                continue
            for needed in self._list_asks(item, answer):
                self.needed[needed.id] = None
                record = self.judgments.get(needed.id)
                if is_good_and_current(record, judge.recipe.hash, hash_messages(needed.request().messages)):
                    continue
                if record is not None and is_good(record):
                    del self.judgments[needed.id]
                owed.append(OwedJudgment(item, needed, record))
        return owed

    def count_future_judgments(self, item: Item) -> int:
        """Estimate the judgments of an answer not made yet."""
        if self.judge is None or self.problem is not None:
            return 0
        return len(self._list_asks(item, Answer(id=item.id)))

    def _list_asks(self, item: Item, answer: Answer) -> Sequence[Ask]:
        asks: list[Ask] = []
        with self.catch_errors():
            asks += self.benchmark.asks(item, answer)
        return asks

    def recorded_answers(self) -> list[Answer]:
        """Return the records of the items to score, failed ones included, in order."""
        return [record for item in self.items if (record := self.answers.get(item.id)) is not None]

    def recorded_judgments(self) -> list[Judgment]:
        """Return the records of the required judgments, failed ones included."""
        return [record for key in self.needed if (record := self.judgments.get(key)) is not None]

    def count_cut_off(self) -> CutOffAnswers:
        """Count good answers that are cut off, by max_tokens or their server's window."""
        good = self._good_answers()
        by_window = sum(record.truncated and record.finish_reason == WINDOW for record in good)
        return CutOffAnswers(self.label, sum(record.truncated for record in good), len(good), by_window)

    def count_empty(self) -> EmptyAnswers:
        good = self._good_answers()
        empty = [record for record in good if not (record.response or "").strip()]
        cut = sum(record.truncated for record in empty)
        return EmptyAnswers(self.label, len(empty), cut, len(good), given=self.given is not None)

    def _good_answers(self) -> list[Answer]:
        return [record for record in self.recorded_answers() if is_good(record)]

    def is_every_record_good_or_failed(self) -> bool:
        """Check whether every planned record is on disk, good or failed."""
        answers = self.items if self.tested is not None and self.given is None else ()
        if any(item.id not in self.answers for item in answers):
            return False
        if self.judge is not None:  # of the last answers, no judgment may have been begun
            self._find_owed_and_note_needed(self.judge, self.items)
        return self.problem is not None or self.judgments.keys() >= self.needed.keys()

    def count_good(self) -> RecordCounts:
        owed = [] if self.judge is None else self._find_owed_and_note_needed(self.judge, self.items)
        unanswered = [item for item in self.items if why_value_missing(self.answers.get(item.id)) is not None]
        return RecordCounts(
            answers=len(self.items) - len(unanswered),
            prompts=len(self.items),
            judgments=len(self.needed) - len(owed),
            judgments_needed=len(self.needed) + sum(map(self.count_future_judgments, unanswered)),
        )

    def count_missing_by_reason(self) -> dict[str, int]:
        """Count records without a value by reason: answers, and judgments known to be required."""
        answers = (self.answers.get(item.id) for item in self.items)
        return count_failures(chain(answers, map(self.judgments.get, self.needed)))

    def describe_failures_of_most_records(self) -> str:
        """Count, by reason, the failures of settings and connection, if more than half of the answers or of
        the required judgments have failed by them; else return an empty text."""
        answers = {item.id: self.answers.get(item.id) for item in self.items if self.given is None}
        judgments = {key: self.judgments.get(key) for key in self.needed}
        for what, records in (("", answers), (" judgments", judgments)):
            failed = {
                why: n
                for why, n in count_failures(records.values()).items()
                if why not in MODEL_FAILURE_KINDS
            }
            if 2 * sum(failed.values()) > len(records):
                return ", ".join(f"{count:,} {why}" for why, count in failed.items()) + what
        return ""

    def score_and_write_extra(self) -> Scored | None:
        """Compute the figures and write the benchmark's own files; None if there is a ``problem``. A task
        with `describe_failures_of_most_records` has no figures: half an outage is no score."""
        judgments = {key: self.judgments[key] for key in self.needed if key in self.judgments}
        records = TaskRecords(self.items, self.answers, judgments)
        scored: Scored | None = None
        with self.catch_errors():
            scored = self.benchmark.score(records)
            if self.describe_failures_of_most_records():
                return scored.without_figures()
            self.benchmark.write_extra(self.folder.path, records, scored)
        return scored if self.problem is None else None

    @contextmanager
    def catch_errors(self) -> Iterator[None]:
        """Turn an error of the benchmark's own code into this task's ``problem``."""
        try:
            yield
        except CoevalError as error:
            self.problem = str(error)
        except Exception as bug:  # one task's bug must not cost the others their scores
            self.problem = f"internal error: {describe_error(bug)}"
            log.warning("%s: %s", self.label, self.problem, exc_info=bug)
