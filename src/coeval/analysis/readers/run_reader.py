"""The reader of a run folder; its views are those of `coeval.analysis.load`.

``answers`` holds those whose item exists and did not fail, ``judgments`` and ``scores`` those whose answer
is good too; ``orphans`` counts the others. Model, teacher and task of a judgment are those of its answer
and item, so both layouts read alike.

With a plan, the views exclude what `left_out` names: a planned task's items by teachers, its judgments by
judges and its factors that the plan has lost. All students and tasks stay. They also exclude everything
made from items beyond a task's total, which `beyond_total` counts.

A million judgments load in seconds and about 300 MB: ids become 128-bit hashes, names an ENUM, texts stay
on disk.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence, Set
from functools import cached_property
from pathlib import Path
from typing import Any, ClassVar, NamedTuple, TypeVar

import msgspec
import numpy as np
from numpy.typing import NDArray

from coeval.analysis.doubtful_answers import SampleCopies, mark_stand_in_students
from coeval.analysis.measures.near_duplicates import find_earlier_duplicates, first_of_duplicate_group
from coeval.analysis.planned_names import KINDS, ItemsBeyondTotal, Kind, LeftOut, Planned
from coeval.analysis.readers.reader import (
    EMPTY_SQL,
    SERVED_COLUMNS,
    SERVED_SQL,
    TRUNCATED_SQL,
    Reader,
    RepeatedJson,
    Stage,
    Twin,
    text_columns,
)
from coeval.analysis.readers.run_records import FILTERED_SQL, RECORD_KINDS, discarded_draft_notes
from coeval.analysis.readers.whole_items import RunItems, WholeItems
from coeval.core.errors import UsageError
from coeval.core.records import (
    CHECK,
    EXACT_MATCH,
    LEVEL_VALUE,
    PROMPT_SQL,
    RESPONSE_SQL,
    SAMPLE,
    SCORES_SQL,
    Evaluation,
    Preference,
    Record,
    is_good_sql,
    level_sql,
    parent_id,
    strip_names,
)
from coeval.core.scale import HIGH_MEDIUM_LOW
from coeval.core.text import pluralize
from coeval.store.jsonl import read_decodable_lines, read_json_if_whole
from coeval.store.legacy import is_legacy, read_declared_attributes, read_legacy
from coeval.store.record_index import index_record_states
from coeval.store.rundir import PAIRS, RunDir

# --- Tables of a run's JSONL files
#
# ``coded`` and ``coded_judgments`` are the scores and judgments once more without a text, for measures over
# millions: datapoints by their row, names as codes of the ENUM.

_VALUE = level_sql("level", {level: str(value) for level, value in LEVEL_VALUE.items()})
_VALUES = (
    'list_concat(levels, [CASE WHEN value BETWEEN 0 AND 1 THEN value END FOR value IN map_values("values")])'
)
# Those that were asked for and did not come stand last, and have no value.
_FACTORS = (
    'list_concat(score_factors, map_keys("values"), [factor FOR factor IN missing IF factor IS NOT NULL])'
)

STAGES = (
    Stage(
        "data_generation",
        "datapoint",
        text_columns("id task_id teacher_model_id prompt reference_response status")
        | {"sampled_target_attributes": "MAP(VARCHAR, VARCHAR)", "passage_filtered": "MAP(VARCHAR, BIGINT)"},
        "starts_with(id, task_id || '__' || teacher_model_id || '__')",
        f"""md5_number(id) AS key, id, task_id AS task, teacher_model_id AS teacher,
            sampled_target_attributes AS attributes, passage_filtered, hash(prompt) AS content,
            hash(reference_response) AS reference,
            NOT {is_good_sql(PROMPT_SQL)} AS failed""",
        {"task": "term", "teacher": "term"},
    ),
    Stage(
        "response_collection",
        "response",
        text_columns(
            f"id datapoint_id student_model_id finish_reason response reply_id status {SERVED_COLUMNS}"
        )
        | {"sample": "INTEGER", "truncated": "BOOLEAN"},
        "id = datapoint_id || '__' || student_model_id || "
        f"CASE WHEN sample > 0 THEN '{SAMPLE}' || (sample::BIGINT + 1) ELSE '' END",
        f"""md5_number(id) AS key, id, md5_number(datapoint_id) AS datapoint, student_model_id AS student,
            greatest(coalesce(sample, 0), 0) AS sample, {TRUNCATED_SQL}, {EMPTY_SQL},
            length(response)::INTEGER AS length, hash(response) AS said, reply_id, {SERVED_SQL},
            NOT {is_good_sql(RESPONSE_SQL)} AS failed""",
        {"student": "term", "served_by": "term"},
    ),
    Stage(
        "evaluation",
        "evaluation",
        text_columns(f"id response_id judge_model_id recipe input_hash criteria status {SERVED_COLUMNS}")
        | {
            "values": "MAP(VARCHAR, DOUBLE)",
            "label_scores": "MAP(VARCHAR, STRUCT(expected VARCHAR, predicted VARCHAR, match BOOLEAN))",
            "missing": "VARCHAR[]",
        },
        "id = response_id || '__' || judge_model_id AND score_factors IS NOT NULL AND "
        "(label_scores IS NULL OR "
        "len([label FOR label IN map_values(label_scores) IF label.match IS NULL]) = 0)",
        f"""md5_number(id) AS key, md5_number(response_id) AS response, judge_model_id AS judge,
            {_FACTORS} AS factors, {_VALUES} AS given, label_scores, hash(recipe) AS method,
            CASE WHEN recipe <> '' AND input_hash <> '' THEN hash(recipe, input_hash, criteria) END
                AS question, {SERVED_SQL},
            NOT {is_good_sql(SCORES_SQL)} AS failed""",
        {"judge": "term", "factors": "term[]", "served_by": "term"},
        RepeatedJson(
            "scores",
            "MAP(VARCHAR, VARCHAR)",
            "struct_pack(score_factors := map_keys(scores), "
            f"levels := [{_VALUE}::DOUBLE FOR level IN map_values(scores)])",
        ),
    ),
)

SEARCHED = (
    Stage(
        "data_generation",
        "item_words",
        text_columns("id prompt reference_response status"),
        "id IS NOT NULL",
        f"md5_number(id) AS key, id AS item, NOT {is_good_sql(PROMPT_SQL)} AS failed, "
        "lower(concat_ws(chr(10), id, prompt, reference_response)) AS text",
        {},
    ),
    Stage(
        "response_collection",
        "answer_words",
        text_columns("id datapoint_id response status"),
        "id IS NOT NULL",
        f"md5_number(id) AS key, datapoint_id AS item, "
        f"NOT {is_good_sql(RESPONSE_SQL)} AS failed, lower(response) AS text",
        {},
    ),
)


def score_views_sql(*, has_checks: bool) -> str:
    """Build the views ``scores`` and ``coded``; with checks, without judges' scores of their factors."""
    join, counts = "", f"a.judge <> '{CHECK}'"
    if has_checks:
        join = "LEFT JOIN checks c ON c.task = a.term AND c.factor = a.factor"
        counts = f"(a.judge = '{CHECK}') = (c.factor IS NOT NULL)"
    rest = f"""ANTI JOIN left_out l ON l.kind = 'factor' AND l.task = a.term AND l.name = a.factor {join}
    WHERE a.factor IS NOT NULL AND {counts}"""
    return f"""
CREATE OR REPLACE VIEW scores AS
    SELECT a.* EXCLUDE (response, term, given, factor),
           a.factor::VARCHAR AS metric, given AS value, 1.0::DOUBLE AS weight, given IS NULL AS failed
    FROM (
        SELECT * EXCLUDE (judgment, factors, given, label_scores, failed, method),
               unnest(factors) AS factor, unnest(given) AS given
        FROM judged
        WHERE NOT failed AND judge <> '{EXACT_MATCH}'
    ) a {rest};
CREATE OR REPLACE VIEW coded AS
    SELECT a.item, a.term AS task, a.student, a.sample, a.judge, a.factor, a.given AS value
    FROM (
        SELECT item, task AS term, student, sample, judge, unnest(factors) AS factor, unnest(given) AS given
        FROM coded_judgments WHERE NOT failed
    ) a {rest};
"""  # noqa: S608


VIEWS = f"""
CREATE TABLE left_out (kind VARCHAR, task term, name term);
CREATE TABLE checks (task term, factor term);
CREATE VIEW planned AS
    SELECT d.*, d.rowid AS place FROM datapoint d ANTI JOIN left_out l
        ON l.kind = 'teacher' AND l.task = d.task AND l.name = d.teacher;
CREATE VIEW items AS
    SELECT id AS item, task::VARCHAR AS task, teacher::VARCHAR AS teacher, attributes, failed FROM planned;
CREATE VIEW answers AS
    SELECT r.id AS answer, d.id AS item, d.task::VARCHAR AS task, d.teacher::VARCHAR AS teacher, r.sample,
           r.student::VARCHAR AS model, r.failed, r.truncated, r.windowed, r.empty
    FROM response r JOIN planned d ON r.datapoint = d.key
    WHERE NOT d.failed;
CREATE VIEW judged AS
    SELECT r.id || '__' || e.judge AS judgment, r.id AS answer, d.id AS item, d.task::VARCHAR AS task,
           d.teacher::VARCHAR AS teacher, r.sample, r.student::VARCHAR AS model,
           e.judge::VARCHAR AS judge, e.failed,
           e.response, d.task AS term, e.factors, e.given, e.label_scores, e.method
    FROM evaluation e JOIN response r ON e.response = r.key JOIN planned d ON r.datapoint = d.key
        ANTI JOIN left_out l ON l.kind = 'judge' AND l.task = d.task AND l.name = e.judge
    WHERE NOT d.failed AND NOT r.failed;
CREATE VIEW judgments AS
    SELECT * EXCLUDE (response, term, factors, given, label_scores, method) FROM judged;
CREATE VIEW served AS
    SELECT 'student' AS role, d.task, r.student AS model, r.served_by, r.served_as
    FROM response r JOIN planned d ON r.datapoint = d.key WHERE NOT r.failed AND NOT d.failed
    UNION ALL
    SELECT 'judge', d.task, e.judge, e.served_by, e.served_as
    FROM evaluation e JOIN response r ON e.response = r.key JOIN planned d ON r.datapoint = d.key
    WHERE NOT e.failed AND NOT r.failed AND NOT d.failed;
CREATE VIEW coded_judgments AS
    SELECT d.place AS item, d.task, r.student, r.sample, e.judge, e.factors, e.given, e.failed, e.question
    FROM evaluation e JOIN response r ON e.response = r.key JOIN planned d ON r.datapoint = d.key
        ANTI JOIN left_out l ON l.kind = 'judge' AND l.task = d.task AND l.name = e.judge
    WHERE NOT d.failed AND NOT r.failed AND e.judge <> '{EXACT_MATCH}';
CREATE VIEW labels AS
    SELECT * EXCLUDE (label), label.key AS attribute, label.value.expected AS expected,
           label.value.predicted AS predicted, label.value.match AS match
    FROM (
        SELECT * EXCLUDE (judgment, response, term, judge, factors, given, label_scores, failed, method),
               unnest(map_entries(label_scores)) AS label
        FROM judged
        WHERE NOT failed AND judge = '{EXACT_MATCH}'
    )
    WHERE label.value.match IS NOT NULL;
CREATE VIEW contents AS
    SELECT task::VARCHAR AS task, id AS item, content, reference,
           hash(list_sort(map_entries(attributes))) AS made_for
    FROM planned WHERE NOT failed;
CREATE VIEW methods AS
    SELECT DISTINCT task, model, judge, method FROM judged
    WHERE NOT failed AND judge NOT IN ('{EXACT_MATCH}', '{CHECK}');
{score_views_sql(has_checks=False)}
"""  # noqa: S608

_CHECKED = Stage(
    "evaluation",
    "checked",
    text_columns("id task_id judge_model_id status") | {"criteria": "MAP(VARCHAR, VARCHAR)"},
    f"judge_model_id = '{CHECK}'",
    f"md5_number(id) AS key, task_id AS task, criteria, NOT {is_good_sql('true')} AS failed",
    {},
)
_CHECKED_BY = """
SELECT DISTINCT task, hashed.key, hashed.value
FROM (SELECT task, unnest(map_entries(criteria)) AS hashed FROM checked WHERE NOT failed)
"""

BEYOND = """
CREATE TABLE beyond AS
SELECT key, task, failed FROM (
    SELECT d.key, d.task, d.failed, p.total,
           CASE WHEN p.supplied THEN row_number() OVER (PARTITION BY d.task, d.teacher ORDER BY d.first)
                ELSE try_cast(regexp_extract(d.id, '__([0-9]+)$', 1) AS BIGINT) END AS place
    FROM (
        SELECT key, any_value(id) AS id, any_value(task) AS task, any_value(teacher) AS teacher,
               bool_and(failed) AS failed, min(rowid) AS first
        FROM datapoint GROUP BY key
    ) d JOIN (
        SELECT unnest(?::VARCHAR[]) AS task, unnest(?::VARCHAR[]) AS teacher, unnest(?::BIGINT[]) AS total,
               unnest(?::BOOLEAN[]) AS supplied
    ) p ON p.task = d.task::VARCHAR AND p.teacher = d.teacher::VARCHAR
)
WHERE place > total
"""
"""What `PlannedTask.holds` says of items, as a table; asked while rows still tell who came first."""


RecordT = TypeVar("RecordT", bound=Record | Preference)
_PHASE = {kind: phase for phase, kind in RECORD_KINDS.items()}


class ItemText(msgspec.Struct, frozen=True):
    """The texts of an item, as a line of the file has them."""

    id: str
    prompt: str | None = None
    reference_response: str | None = None
    status: str = "ok"


_RECORDED_FACTORS = """
SELECT task::VARCHAR, judge::VARCHAR, factors::VARCHAR[]
FROM (SELECT DISTINCT term AS task, judge::term AS judge, factors FROM judged)
"""


class RecordedFactors(NamedTuple):
    """The factors that a judge of a task scored in one judgment, or was to score."""

    task: str
    judge: str
    factors: list[str]


class Orphans(msgspec.Struct, frozen=True):
    """Records left out: responses without a good datapoint, evaluations without such a response."""

    responses: int
    evaluations: int


class RunReader(Reader):
    """A run's records. Without ``planned`` all that is on record counts. Raises UsageError: the folder is no
    run; StoreError: a file cannot be read at all."""

    views: ClassVar = ("items", "answers", "judgments", "scores", "labels")
    stages: ClassVar = STAGES
    view_sql: ClassVar = VIEWS
    searched: ClassVar = SEARCHED

    def __init__(self, folder: str | Path, planned: Planned | None = None) -> None:
        self.run = RunDir(folder)
        self.planned = planned
        self._checks: list[tuple[str, str]] = []
        if not self.run.is_run():
            raise UsageError(f"{folder} is not a run: it holds neither meta.json nor any phase's files")
        self.run.refuse_foreign_or_half_replaced()
        super().__init__(self.run.path)
        with self._close_on_failure():
            self._load_files(
                {kind: self.run.files(kind) for kind in (*(stage.files for stage in STAGES), PAIRS)}
            )
            self.orphans = self._count_orphans()
            self.beyond_total = (
                self._drop_items_beyond_total()
            )  # after the count: what is left out is no orphan
            self.beyond_samples = self._drop_samples_beyond_plan()
            self.copies = SampleCopies(self.rows)
            factors = [RecordedFactors(*row) for row in self.rows(_RECORDED_FACTORS)]
            self.left_out = self._exclude_unplanned(factors)
            self._register_checked_factors(factors)
        if planned is not None and (served := self.stand_ins_and_mixtures()):
            labels = mark_stand_in_students(served, planned.labels)
            self.planned = msgspec.structs.replace(planned, labels=labels)

    @property
    def simulated(self) -> bool:
        """Check whether ``meta.json`` says that simulated models took part; older ones do not say."""
        meta = read_json_if_whole(self.run.meta, dict[str, Any])
        return meta is not None and meta.get("simulated") is True

    @cached_property
    def twins(self) -> Mapping[str, Twin]:
        """Return the items that nearly repeat an earlier one, by id; read at the first request."""
        items = self.rows("SELECT task::VARCHAR, id FROM planned WHERE NOT failed ORDER BY id")
        prompts = {
            text.id: text.prompt or "" for text in self._read_texts(frozenset(item for _, item in items))
        }
        of_task: dict[str, list[str]] = {}
        for task, item in items:
            of_task.setdefault(task, []).append(item)
        twins: dict[str, Twin] = {}
        for ids in of_task.values():
            alike = find_earlier_duplicates([prompts.get(item, "") for item in ids])
            first = first_of_duplicate_group(alike, len(ids))
            twins |= {
                ids[duplicate.later]: Twin(ids[duplicate.earlier], ids[first[duplicate.later]])
                for duplicate in alike
            }
        return twins

    def read_texts(self, items: Collection[str]) -> dict[str, ItemText]:
        """Read good items' texts, by id, skipping damaged lines. Raises StoreError: a file cannot be read."""
        return {text.id: text for text in self._read_texts(frozenset(items))}

    def _read_texts(self, item_ids: Set[str]) -> Iterator[ItemText]:
        """Read every good line of these items, in the order of the files."""
        for path in self.run.files("data_generation"):
            for text in read_decodable_lines(path, ItemText):
                if text.id in item_ids and text.status == "ok" and text.prompt is not None:
                    yield text

    def read_records(self, kind: type[RecordT], owner_ids: Collection[str]) -> Iterator[RecordT]:
        """Read the records of a kind by their ids (evaluations by their answers', comparisons of pairs by
        their items'), in either layout. Raises StoreError: a file cannot be read."""
        phase = _PHASE[kind]
        if is_legacy(self.run.path) and phase != PAIRS:
            for record in read_legacy(self.run.path, phase, []):
                whose = record.response_id if isinstance(record, Evaluation) else record.id
                if isinstance(record, kind) and whose in owner_ids:
                    yield record
            return
        index = index_record_states(self.run.files(phase), phase)
        for key in index:
            owner_id = (
                strip_names(key, 2) if phase == PAIRS else parent_id(key) if phase == "evaluation" else key
            )
            if owner_id in owner_ids:
                yield index.load(key, kind)

    def items(self) -> WholeItems:
        return RunItems(self.rows, self.run, self.left_out, self.planned)

    def rubrics(self) -> dict[str, dict[str, str]]:
        rubrics = {}
        for (task,) in self.rows("SELECT DISTINCT task FROM items"):
            rubric = read_json_if_whole(self.run.rubric(task), dict[str, Any])
            if rubric is not None:  # scores are there without it
                rubrics[task] = {
                    factor: f"{text}{self._scale_in_words(task, factor)}" for factor, text in rubric.items()
                }
        return rubrics

    @cached_property
    def check_hashes(self) -> Mapping[tuple[str, str], Set[str]]:
        """Return the hashes of checks, read from the files at the first request: no view holds them."""
        if not self._checks or is_legacy(self.run.path):
            return {}
        self.make_record_table(_CHECKED)
        hashes: dict[tuple[str, str], set[str]] = {}
        for task, factor, check_hash in self.rows(_CHECKED_BY):
            hashes.setdefault((task, factor), set()).add(check_hash)
        self.rows("DROP TABLE checked")
        return hashes

    def _scale_in_words(self, task: str, factor: str) -> str:
        """Describe the scale of a factor; '' for High, Medium and Low."""
        plan = self.planned.tasks.get(task) if self.planned is not None else None
        scale = plan.scales.get(factor, HIGH_MEDIUM_LOW) if plan is not None else HIGH_MEDIUM_LOW
        return "" if scale == HIGH_MEDIUM_LOW else f" ({scale.levels_and_values_text()})"

    @property
    def cluster_items_sql(self) -> str:
        """Return the column that a grouped query needs to pass its items to `item_clusters`."""
        return "list(item ORDER BY item)" if self.twins or self.has_samples else "any_value(NULL)"

    def item_clusters(self, items: Sequence[str] | None) -> NDArray[np.int64] | None:
        """Return a number for each item, shared by near duplicates or by its answers; None: none is."""
        if items is None or not (self.twins or len({*items}) < len(items)):
            return None
        numbers = {item: number for number, item in enumerate(items)}
        first = [self.twins[item].first if item in self.twins else item for item in items]
        return np.array([numbers.setdefault(item, len(numbers)) for item in first], np.int64)

    def target_attributes(self, task: str) -> dict[str, list[str]]:
        """Return the attribute space that phase 1 declared for a task; empty where there is no file."""
        return read_declared_attributes(self.run, task)

    def notes(self) -> tuple[str, ...]:
        notes = super().notes() + discarded_draft_notes(dict(self.rows(FILTERED_SQL)))
        if self.beyond_samples:
            cut = ", ".join(f"{count:,} of {name}" for name, count in self.beyond_samples.items())
            notes += (f"not counted: answers beyond the `samples` of the configuration ({cut})",)
        kinds = ((self.orphans.responses, "answer", "item"), (self.orphans.evaluations, "judgment", "answer"))
        if orphans := [f"{pluralize(n, noun)} without a good {parent}" for n, noun, parent in kinds if n]:
            notes += (f"not counted: {', '.join(orphans)}",)
        return notes + tuple(self.copies.notes(has_samples=self.has_samples))

    def _note_items_beyond_limits(self, stage: Stage) -> None:
        if stage.table != "datapoint":
            return
        limits = [
            (task, teacher, plan.total, teacher in plan.supply)
            for task, plan in (self.planned.tasks.items() if self.planned is not None else ())
            if plan.total is not None
            for teacher in plan.teachers or ()
        ]
        self._db.execute(BEYOND, [list(column) for column in zip(*limits, strict=True)] or [[]] * 4)

    def _count_orphans(self) -> Orphans:
        counts = [
            self.rows(f"SELECT (SELECT count(*) FROM {table}) - (SELECT count(*) FROM {view})")[0][0]  # noqa: S608
            for table, view in (("response", "answers"), ("evaluation", "judged"))
        ]
        return Orphans(*counts)

    def _drop_items_beyond_total(self) -> tuple[ItemsBeyondTotal, ...]:
        """Drop items beyond a task's total, and all made from them, from all views; count them by task."""
        cut = self.rows(
            "SELECT task, count(*) FROM beyond WHERE NOT failed GROUP BY task ORDER BY task::VARCHAR"
        )
        self.rows("DELETE FROM datapoint WHERE key IN (SELECT key FROM beyond)")
        return tuple(ItemsBeyondTotal(task, items) for task, items in cut)

    def _drop_samples_beyond_plan(self) -> dict[str, int]:
        """Drop answers beyond a student's ``samples``, and all made from them; count them by student."""
        planned = self.planned.samples if self.planned is not None else {}
        cut: Counter[str] = Counter()
        for student, samples in sorted(planned.items()):
            beyond = "response WHERE student::VARCHAR = ? AND sample >= ?"
            [(cut[student],)] = self.rows(f"SELECT count(*) FROM {beyond}", [student, samples])  # noqa: S608
            if cut[student]:
                self.rows(f"DELETE FROM {beyond}", [student, samples])  # noqa: S608
        return dict(+cut)

    @cached_property
    def samples_by_student(self) -> Mapping[str, int]:
        """Return the most answers that each student gave to an item."""
        return dict(self.rows("SELECT model, max(sample) + 1 FROM answers GROUP BY model ORDER BY model"))

    @property
    def has_samples(self) -> bool:
        """Check whether a student gave several answers to an item."""
        return max(self.samples_by_student.values(), default=1) > 1

    def _exclude_unplanned(self, recorded_factors: Sequence[RecordedFactors]) -> tuple[LeftOut, ...]:
        """Exclude recorded teachers, judges and factors that the plan has lost from all views; name them."""
        if self.planned is None:
            return ()
        recorded: dict[tuple[str, Kind], set[str]] = {}
        for task, teacher in self.rows("SELECT DISTINCT task, teacher FROM items"):
            recorded.setdefault((task, "teacher"), set()).add(teacher)
        for task, judge, factors in recorded_factors:
            recorded.setdefault((task, "judge"), set()).add(judge)
            recorded.setdefault((task, "factor"), set()).update(factors)
        left_out = []
        for kind in KINDS:
            for task, plan in sorted(self.planned.tasks.items()):
                names = plan.names_of(kind)
                gone = recorded.get((task, kind), set()) - names if names is not None else ()
                left_out += [LeftOut(kind, task, name) for name in sorted(gone)]
        for excluded in left_out:
            self.rows("INSERT INTO left_out VALUES (?, ?, ?)", [excluded.kind, excluded.task, excluded.name])
        return tuple(left_out)

    def _register_checked_factors(self, recorded_factors: Sequence[RecordedFactors]) -> None:
        """Find the factors that checks score; ``scores`` then excludes judges' scores of them."""
        recorded: dict[str, set[str]] = {}
        by_checks: dict[str, set[str]] = {}
        for task, judge, factors in recorded_factors:
            for factors_by_task in (recorded, by_checks) if judge == CHECK else (recorded,):
                factors_by_task.setdefault(task, set()).update(filter(None, factors))
        plans = self.planned.tasks if self.planned is not None else {}
        for task, names in recorded.items():
            planned = plans[task].checks if task in plans else None
            checks = by_checks.get(task, set()) if planned is None else planned
            self._checks += [(task, name) for name in sorted(names & checks)]
        for check in self._checks:
            self.rows("INSERT INTO checks VALUES (?, ?)", check)
        if self._checks:
            self.rows(score_views_sql(has_checks=True))
