"""The reader of what ``eval-framework`` wrote: the views of `coeval.analysis.load`, and the figures.

``scores`` are those that each benchmark gives an item, by metric: the mean of ``value`` weighted by
``weight`` is that metric in ``summary.json`` (HealthBench's is clipped to its scale). Where a benchmark
scores a prompt without an answer (IFEval: nothing is followed), ``failed`` says so beside the value.
Judgments are those of the recipe that was scored last.
"""

from __future__ import annotations

from itertools import chain
from pathlib import Path
from typing import ClassVar, NamedTuple, TypeVar

import msgspec

from coeval.analysis.doubtful_answers import Incomparable
from coeval.analysis.pairwise.arena import VERDICTS
from coeval.analysis.readers.reader import (
    EMPTY_SQL,
    SERVED_COLUMNS,
    SERVED_SQL,
    TRUNCATED_SQL,
    Reader,
    SampleMetricFigure,
    Stage,
    text_columns,
)
from coeval.analysis.readers.whole_items import OutputItems, OutputTaskFolder, WholeItems
from coeval.core.errors import StoreError, UsageError
from coeval.core.records import LEVEL_VALUE, RESPONSE_SQL, VALUE_SQL, is_good_sql
from coeval.core.text import join_names
from coeval.store.jsonl import read_json
from coeval.store.output_folder import JUDGMENTS, RESPONSES, SCORES, SUMMARY, list_output_tasks, sample_index
from coeval.store.rundir import refuse_foreign

# --- Tables of an ``eval-framework`` folder

_KEY = "md5_number(filename || chr(10) || id) AS key, filename AS file, id"

_JSON = "try_cast(value AS JSON)"
_PATHS = "['$.verdict', '$.preference', '$.switched', '$.criteria_met']"
_VERDICT_FIELDS = f"json_extract_string({_JSON}, {_PATHS})"
_OF_LEVELS = ", ".join(f"'{level}'" for level in LEVEL_VALUE)
# Of what a judgment says, what can be held against another's: not its reasons.
_LEVELS = (
    f"map_from_entries([entry FOR entry IN map_entries(try_cast({_JSON} AS MAP(VARCHAR, VARCHAR)))"
    f" IF entry.value IN ({_OF_LEVELS})])"
)

STAGES = (
    Stage(
        "answers",
        "answer",
        text_columns(f"id model input_hash response finish_reason status {SERVED_COLUMNS}")
        | {"truncated": "BOOLEAN"},
        "id IS NOT NULL",
        f"""{_KEY}, {SERVED_SQL}, model, {TRUNCATED_SQL}, {EMPTY_SQL},
            hash(response) AS words,
            CASE WHEN input_hash <> '' THEN hash(input_hash) END AS content,
            NOT {is_good_sql(RESPONSE_SQL)} AS failed""",
        {"model": "term", "served_by": "term"},
    ),
    Stage(
        "judgments",
        "judgment",
        text_columns(f"id item judge recipe input_hash value status {SERVED_COLUMNS}"),
        "id IS NOT NULL AND item IS NOT NULL",
        f"""{_KEY}, {SERVED_SQL}, item, judge, recipe, {_VERDICT_FIELDS} AS said, {_LEVELS} AS levels,
            CASE WHEN input_hash <> '' THEN hash(input_hash) END AS content,
            NOT {is_good_sql(VALUE_SQL)} AS failed""",
        {"judge": "term", "recipe": "term", "served_by": "term"},
    ),
    Stage(
        "scores",
        "score",
        text_columns("id") | {"scores": "MAP(VARCHAR, DOUBLE)", "weights": "MAP(VARCHAR, DOUBLE)"},
        "id IS NOT NULL AND scores IS NOT NULL",
        f"{_KEY}, scores, weights, false AS failed",
        {},
    ),
)

SEARCHED = Stage(
    "answers",
    "answer_words",
    text_columns("id prompt response status"),
    "id IS NOT NULL",
    f"md5_number(filename || chr(10) || id) AS key, id AS item, "
    f"NOT {is_good_sql(RESPONSE_SQL)} AS failed, lower(concat_ws(chr(10), id, prompt, response)) AS text",
    {},
)

PLACES = """
CREATE OR REPLACE TABLE place AS SELECT
    unnest(?::VARCHAR[]) AS file, unnest(?::VARCHAR[]) AS folder, unnest(?::VARCHAR[]) AS task,
    unnest(?::INTEGER[]) AS sample, unnest(?::VARCHAR[]) AS model, unnest(?::VARCHAR[]) AS judge,
    unnest(?::VARCHAR[]) AS judged_by
"""
"""Which task and sample each file is of, who answered, and who judged by which recipe, if anybody did."""

_A_WINS = " ".join(f"WHEN '{label}' THEN {wins}" for label, (wins, _) in VERDICTS.items())
_VALUES = " ".join(f"WHEN '{level}' THEN {2 * value:.0f}" for level, value in LEVEL_VALUE.items())

VIEWS = f"""
UPDATE place SET model = found.model
    FROM (
        SELECT p.folder, any_value(a.model)::VARCHAR AS model
        FROM answer a JOIN place p USING (file) GROUP BY ALL
    ) found
    WHERE found.folder = place.folder AND place.model IS NULL;
CREATE VIEW answers AS
    SELECT id AS answer, id AS item, task, NULL::VARCHAR AS teacher, sample, p.model, failed, truncated,
           windowed, empty
    FROM answer JOIN place p USING (file);
CREATE VIEW wordings AS
    SELECT id AS item, task, sample, words
    FROM answer JOIN place p USING (file) WHERE NOT failed;
CREATE VIEW judgments AS
    SELECT id AS judgment, item AS answer, item, task, NULL::VARCHAR AS teacher, sample, model,
           j.judge::VARCHAR AS judge, failed
    FROM judgment j JOIN place p USING (file)
    WHERE p.judged_by IS NULL OR j.recipe::VARCHAR = p.judged_by;
CREATE VIEW served AS
    SELECT 'student' AS role, p.task, p.model, a.served_by, a.served_as
    FROM answer a JOIN place p USING (file) WHERE NOT a.failed
    UNION ALL
    SELECT 'judge', p.task, j.judge, j.served_by, j.served_as
    FROM judgment j JOIN place p USING (file)
    WHERE NOT j.failed AND j.judge IS NOT NULL AND (p.judged_by IS NULL OR j.recipe::VARCHAR = p.judged_by);
CREATE VIEW scores AS
    WITH one AS (
        SELECT p.*, s.id, s.weights, unnest(map_entries(s.scores)) AS score
        FROM score s JOIN place p USING (file)
    ), answered AS (
        SELECT folder FROM answer JOIN place USING (file)
    ), good AS (
        SELECT folder, id FROM answer JOIN place USING (file) WHERE NOT failed
    )
    SELECT o.id AS answer, o.id AS item, task, NULL::VARCHAR AS teacher, sample, model, judge,
           score.key AS metric, score.value AS value, coalesce(weights[score.key], 1.0) AS weight,
           score.value IS NULL OR g.id IS NULL AND o.folder IN (FROM answered) AS failed
    FROM one o LEFT JOIN good g ON g.folder = o.folder AND g.id = o.id;
CREATE VIEW items AS
    SELECT item, task, NULL::VARCHAR AS teacher, NULL::MAP(VARCHAR, VARCHAR) AS attributes, false AS failed
    FROM (
        SELECT item, task FROM answers
        UNION
        SELECT id AS item, task FROM score JOIN place USING (file)
    );
CREATE VIEW contents AS
    SELECT task, item, any_value(content) AS content, NULL::UBIGINT AS reference, NULL::UBIGINT AS made_for
    FROM (SELECT task, id AS item, content FROM answer JOIN place USING (file)) GROUP BY ALL;
CREATE VIEW methods AS
    SELECT DISTINCT task, model, judge, hash(judged_by) AS method FROM place WHERE judge IS NOT NULL;
CREATE VIEW said AS
    SELECT p.task, p.sample, p.model, j.judge::VARCHAR AS judge, j.item, j.content, j.levels,
           j.recipe::VARCHAR IS NOT DISTINCT FROM coalesce(
               max(j.recipe::VARCHAR) FILTER (j.recipe::VARCHAR = p.judged_by) OVER same,
               min(j.recipe::VARCHAR) OVER same
           ) AS stands,
           CASE WHEN ends_with(j.id, 'model-first') THEN true
                WHEN ends_with(j.id, 'baseline-first') THEN false
                ELSE try_cast(j.said[3] AS BOOLEAN) END AS first,
           CASE j.said[1] {_A_WINS} END AS a_wins, try_cast(j.said[2] AS DOUBLE) AS preference,
           try_cast(j.said[4] AS BOOLEAN) AS met
    FROM judgment j JOIN place p USING (file)
    WHERE NOT j.failed AND j.judge IS NOT NULL
    WINDOW same AS (PARTITION BY p.folder, j.judge);
CREATE VIEW compared AS
    SELECT * EXCLUDE (levels, a_wins, preference, met),
           CASE WHEN a_wins IS NULL THEN preference - 1 WHEN first THEN a_wins ELSE 1 - a_wins END AS share
    FROM said WHERE first IS NOT NULL AND (a_wins IS NOT NULL OR preference BETWEEN 1 AND 2);
CREATE VIEW graded AS
    SELECT task, sample, model, judge, item, content, stands, 'verdict' AS factor,
           (1 + sign(share - 0.5))::TINYINT AS level
    FROM compared
    UNION ALL
    SELECT task, sample, model, judge, item, content, stands, 'criterion', CASE WHEN met THEN 2 ELSE 0 END
    FROM said WHERE met IS NOT NULL
    UNION ALL
    SELECT task, sample, model, judge, item, content, stands, level.key, CASE level.value {_VALUES} END
    FROM (SELECT *, unnest(map_entries(levels)) AS level FROM said);
"""  # noqa: S608
"""``wordings``: a hash of each good answer's ``words``. ``said``: what each good judgment says; ``stands``:
of a judge's recipes, this is the one that was scored last, or else one of them.
``compared``: the model's share of a win against the baseline; ``first``: it was shown first. ``graded``:
levels 0 to 2 (a comparison lost, drawn, won; a criterion not met, met; a rubric's).
"""


class _SummaryFigure(msgspec.Struct, frozen=True):
    """A metric's figure in a summary."""

    value: float | None = None
    standard_error: float | None = None
    ci95: tuple[float, float] | None = None
    n: int = 0
    unit: str = ""


class _SummaryJudge(msgspec.Struct, frozen=True):
    """The judge that a summary names."""

    model: str = ""
    recipe: str = ""


class _Summary(msgspec.Struct, frozen=True):
    """The fields that we read from a ``summary.json``."""

    task: str = ""
    model: str = ""
    metrics: dict[str, _SummaryFigure] = {}
    n_expected: int = 0
    n_failed: dict[str, int] = {}
    counted: str = ""
    comparable: bool = True
    compared_with: str = ""
    reasons: tuple[str, ...] = ()
    remarks: tuple[str, ...] = ()
    missing: dict[str, int] = {}
    not_measured: str = ""
    complete: bool = False
    judge: _SummaryJudge | None = None


SummaryT = TypeVar("SummaryT")


def read_task_summary(task: Path, kind: type[SummaryT]) -> SummaryT:
    """Read a task's ``summary.json`` as a record of this kind; its defaults before the task has been scored.
    Raises StoreError: the file cannot be read."""
    return read_json(task / SUMMARY, kind, missing=kind())


def has_scores(task: Path) -> bool:
    return (task / SCORES).is_file()


class TaskCounts(NamedTuple):
    """Counts of a task's answers or judgments; ``planned`` is None until the task has been summed up."""

    planned: int | None
    good: int
    failed: int


_COUNT = """
SELECT task, sample, count(*) FILTER (NOT failed), count(*) FILTER (failed) FROM {} GROUP BY task, sample
"""


class OutputReader(Reader):
    """The records of an output folder, or of one task's folder in it. Raises UsageError: it is neither;
    StoreError: a file cannot be read at all."""

    views: ClassVar = ("items", "answers", "judgments", "scores")
    stages: ClassVar = STAGES
    view_sql: ClassVar = VIEWS
    searched: ClassVar = (SEARCHED,)

    def __init__(self, folder: str | Path) -> None:
        path = Path(folder)
        tasks = list_output_tasks(path)
        sampled = {task.name for task in tasks if task.parent != path}
        self._tasks = [task for task in tasks if task.parent != path or task.name not in sampled]
        self._left_out_tasks = [task for task in tasks if task not in self._tasks] if tasks != [path] else []
        if not self._tasks:
            raise UsageError(f"{path} holds no results of eval-framework")
        for task in self._tasks:
            refuse_foreign(task, ())
        self._unread_notes: list[str] = []
        self._summaries = {task: self._read_summary_or_note(task) for task in self._tasks}
        super().__init__(path)
        with self._close_on_failure():
            self._load_files(
                {
                    "answers": [task / RESPONSES for task in self._tasks if (task / RESPONSES).is_file()],
                    "judgments": [path for task in self._tasks for path in sorted(task.glob(JUDGMENTS))],
                    "scores": [task / SCORES for task in self._tasks if has_scores(task)],
                }
            )

    @property
    def metrics(self) -> tuple[SampleMetricFigure, ...]:
        """Return the metrics by task and sample, the benchmark's headline first."""
        return tuple(
            SampleMetricFigure(
                model=summary.model,
                task=_task_name(task, summary),
                sample=sample_index(task),
                metric=name,
                value=figure.value,
                low=figure.ci95[0] if figure.ci95 is not None else None,
                high=figure.ci95[1] if figure.ci95 is not None else None,
                standard_error=figure.standard_error,
                n=figure.n,
                unit=figure.unit,
                counted=summary.counted,
                expected=summary.n_expected,
                failed=sum(summary.n_failed.values()),
                not_measured=summary.not_measured,
            )
            for task, summary in self._summaries.items()
            for name, figure in summary.metrics.items()
        )

    def answering_models(self) -> tuple[str, ...]:
        return tuple(filter(None, super().answering_models())) or ("",)

    def model_condition_sql(self, model: str) -> tuple[str, list[str]]:  # noqa: ARG002  there is one
        return "true", []  # all of the folder is one model's

    def items(self) -> WholeItems:
        return OutputItems(self.rows, self.task_folders())

    def task_folders(self) -> list[OutputTaskFolder]:
        """Return the tasks' folders, by task and sample."""
        rows = self.rows(
            "SELECT folder, any_value(task), any_value(sample), any_value(model), any_value(judged_by) "
            "FROM place GROUP BY folder ORDER BY any_value(task), any_value(sample), folder"
        )
        return [OutputTaskFolder(Path(folder), *others) for folder, *others in rows]

    def fill_item_text_table(self) -> None:
        for folder in self.task_folders():
            self._insert_item_texts(SEARCHED, folder.answers, folder.task)

    def count_answers_and_judgments(self) -> dict[str, TaskCounts]:
        """Count each task's answers, and its judgments if any. What is planned is known once the task has
        been summed up: of answers where prompts are counted, of judgments where nothing is missing."""
        good_and_failed = {
            view: {
                (task, sample): good_failed for task, sample, *good_failed in self.rows(_COUNT.format(view))
            }
            for view in ("answers", "judgments")
        }
        has_samples = len({sample_index(task) for task in self._summaries}) > 1
        counts: dict[str, TaskCounts] = {}
        for task, summary in self._summaries.items():
            key = (_task_name(task, summary), sample_index(task))
            label = f"run_{key[1]} {key[0]}" if has_samples else key[0]
            good, failed = good_and_failed["answers"].get(key, (0, 0))
            planned = summary.n_expected if summary.counted == "prompts" and summary.n_expected else None
            counts[label] = TaskCounts(good if summary.complete else planned, good, failed)
            if key in good_and_failed["judgments"]:
                good, failed = good_and_failed["judgments"][key]
                counts[f"{label} judging"] = TaskCounts(good if summary.complete else None, good, failed)
        return counts

    def status_when_idle(self) -> str:
        """Return the status of a folder that no process is writing to: "completed" where nothing is missing,
        "incomplete" where the run has ended and records are missing, else "stopped"."""
        summaries = self._summaries.values()
        if not all(summary.task for summary in summaries):
            return "stopped"
        return "completed" if all(summary.complete for summary in summaries) else "incomplete"

    def notes(self) -> tuple[str, ...]:
        notes = [*super().notes(), *self._unread_notes]
        notes += [
            f"{self._display_name(task)} is left out: it holds one sample of each prompt; run_0/ and the "
            "following hold others; name that folder to see it"
            for task in self._left_out_tasks
        ]
        for task, summary in self._summaries.items():
            label = self._display_name(task)
            if not summary.metrics:
                notes.append(f"{label}: no figures yet: repeat the command without --inference-only")
            if summary.missing:
                reasons = join_names(f"{count:,} {reason}" for reason, count in summary.missing.items())
                what = "not measured" if summary.not_measured else "records without a value"
                notes.append(f"{label}: {what}: {reasons}")
            notes += [f"{label}: {remark}" for remark in summary.remarks]
            if summary.metrics and not summary.comparable and not summary.not_measured:
                reasons = "; ".join(summary.reasons)
                notes.append(Incomparable(label, summary.compared_with, reasons).sentence)
        return tuple(notes)

    def _read_summary_or_note(self, task: Path) -> _Summary:
        try:
            return read_task_summary(task, _Summary)
        except StoreError as error:
            self._unread_notes.append(f"{error}; its figures are left out")
            return _Summary()

    def _make_table_of_files(self) -> None:
        rows = []
        for path in chain.from_iterable(self._files.values()):
            task = path.parent
            summary = self._summaries[task]
            judge = summary.judge or _SummaryJudge()
            identity = (summary.model or None, judge.model or None, judge.recipe or None)
            rows.append(
                (str(path.absolute()), str(task), _task_name(task, summary), sample_index(task), *identity)
            )
        self.rows(PLACES, [list(column) for column in zip(*rows, strict=True)] or [[]] * 7)

    def _display_name(self, path: Path) -> str:
        return str(path.relative_to(self.folder)) if path != self.folder else path.name


def _task_name(task: Path, summary: _Summary) -> str:
    return summary.task or task.name
