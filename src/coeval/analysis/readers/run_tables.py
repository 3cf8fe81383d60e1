"""How the JSONL files of a run become tables, and the tables the views that `load` describes.

``coded`` and ``coded_judgments`` are the scores and judgments once more without a text, for measures over
millions: datapoints by their row, names as codes of the ENUM.
"""

from __future__ import annotations

from coeval.analysis.readers.reader import EMPTY_SQL, Stage
from coeval.core.good import PROMPT_SQL, RESPONSE_SQL, SCORES_SQL, good_sql, level_sql
from coeval.core.records import EXACT_MATCH, LEVEL_VALUE

_VALUE = level_sql("level", {level: f"{2 * value:.0f}" for level, value in LEVEL_VALUE.items()})
_HALVES = f"[{_VALUE} FOR level IN map_values(scores)]"
_FACTORS = "list_concat(map_keys(scores), [factor FOR factor IN missing IF factor IS NOT NULL])"
"""Those that were asked for and did not come stand last, and have no level."""

STAGES = (
    Stage(
        "data_generation",
        "datapoint",
        {
            "id": "VARCHAR",
            "task_id": "VARCHAR",
            "teacher_model_id": "VARCHAR",
            "sampled_target_attributes": "MAP(VARCHAR, VARCHAR)",
            "prompt": "VARCHAR",
            "reference_response": "VARCHAR",
            "status": "VARCHAR",
        },
        "starts_with(id, task_id || '__' || teacher_model_id || '__')",
        f"""md5_number(id) AS key, id, task_id AS task, teacher_model_id AS teacher,
            sampled_target_attributes AS attributes, hash(prompt) AS content,
            hash(reference_response) AS reference,
            NOT {good_sql(PROMPT_SQL)} AS failed""",
        {"task": "term", "teacher": "term"},
    ),
    Stage(
        "response_collection",
        "response",
        {
            "id": "VARCHAR",
            "datapoint_id": "VARCHAR",
            "student_model_id": "VARCHAR",
            "truncated": "BOOLEAN",
            "response": "VARCHAR",
            "status": "VARCHAR",
        },
        "id = datapoint_id || '__' || student_model_id",
        f"""md5_number(id) AS key, id, md5_number(datapoint_id) AS datapoint, student_model_id AS student,
            coalesce(truncated, false) AS truncated, {EMPTY_SQL}, length(response)::INTEGER AS length,
            NOT {good_sql(RESPONSE_SQL)} AS failed""",
        {"student": "term"},
    ),
    Stage(
        "evaluation",
        "evaluation",
        {
            "id": "VARCHAR",
            "response_id": "VARCHAR",
            "judge_model_id": "VARCHAR",
            "scores": "MAP(VARCHAR, VARCHAR)",
            "label_scores": "MAP(VARCHAR, STRUCT(expected VARCHAR, predicted VARCHAR, match BOOLEAN))",
            "missing": "VARCHAR[]",
            "recipe": "VARCHAR",
            "input_hash": "VARCHAR",
            "criteria": "VARCHAR",
            "status": "VARCHAR",
        },
        "id = response_id || '__' || judge_model_id AND scores IS NOT NULL AND "
        "(label_scores IS NULL OR "
        "len([label FOR label IN map_values(label_scores) IF label.match IS NULL]) = 0)",
        f"""md5_number(id) AS key, md5_number(response_id) AS response, judge_model_id AS judge,
            {_FACTORS} AS factors, {_HALVES}::TINYINT[] AS levels, label_scores, hash(recipe) AS method,
            CASE WHEN recipe <> '' AND input_hash <> '' THEN hash(recipe, input_hash, criteria) END
                AS question,
            NOT {good_sql(SCORES_SQL)} AS failed""",
        {"judge": "term", "factors": "term[]"},
    ),
)

VIEWS = f"""
CREATE TABLE left_out (kind VARCHAR, task term, name term);
CREATE VIEW planned AS
    SELECT d.*, d.rowid AS place FROM datapoint d ANTI JOIN left_out l
        ON l.kind = 'teacher' AND l.task = d.task AND l.name = d.teacher;
CREATE VIEW items AS
    SELECT id AS item, task::VARCHAR AS task, teacher::VARCHAR AS teacher, attributes, failed FROM planned;
CREATE VIEW answers AS
    SELECT r.id AS answer, d.id AS item, d.task::VARCHAR AS task, d.teacher::VARCHAR AS teacher, 0 AS sample,
           r.student::VARCHAR AS model, r.failed, r.truncated, r.empty
    FROM response r JOIN planned d ON r.datapoint = d.key
    WHERE NOT d.failed;
CREATE VIEW judged AS
    SELECT r.id || '__' || e.judge AS judgment, r.id AS answer, d.id AS item, d.task::VARCHAR AS task,
           d.teacher::VARCHAR AS teacher, 0 AS sample, r.student::VARCHAR AS model,
           e.judge::VARCHAR AS judge, e.failed,
           d.task AS term, e.factors, e.levels, e.label_scores, e.method
    FROM evaluation e JOIN response r ON e.response = r.key JOIN planned d ON r.datapoint = d.key
        ANTI JOIN left_out l ON l.kind = 'judge' AND l.task = d.task AND l.name = e.judge
    WHERE NOT d.failed AND NOT r.failed;
CREATE VIEW judgments AS
    SELECT * EXCLUDE (term, factors, levels, label_scores, method) FROM judged;
CREATE VIEW scores AS
    SELECT a.* EXCLUDE (judgment, term, level, factor),
           factor::VARCHAR AS metric, level / 2.0::DOUBLE AS value, 1.0::DOUBLE AS weight,
           level IS NULL AS failed
    FROM (
        SELECT * EXCLUDE (factors, levels, label_scores, failed, method),
               unnest(factors) AS factor, unnest(levels) AS level
        FROM judged
        WHERE NOT failed AND judge <> '{EXACT_MATCH}'
    ) a ANTI JOIN left_out l ON l.kind = 'factor' AND l.task = a.term AND l.name = a.factor
    WHERE factor IS NOT NULL;
CREATE VIEW coded_judgments AS
    SELECT d.place AS item, d.task, r.student, e.judge, e.factors, e.levels, e.failed, e.question
    FROM evaluation e JOIN response r ON e.response = r.key JOIN planned d ON r.datapoint = d.key
        ANTI JOIN left_out l ON l.kind = 'judge' AND l.task = d.task AND l.name = e.judge
    WHERE NOT d.failed AND NOT r.failed AND e.judge <> '{EXACT_MATCH}';
CREATE VIEW coded AS
    SELECT a.item, a.task, a.student, a.judge, a.factor, a.level
    FROM (
        SELECT item, task, student, judge, unnest(factors) AS factor, unnest(levels) AS level
        FROM coded_judgments WHERE NOT failed
    ) a ANTI JOIN left_out l ON l.kind = 'factor' AND l.task = a.task AND l.name = a.factor
    WHERE factor IS NOT NULL;
CREATE VIEW labels AS
    SELECT * EXCLUDE (label), label.key AS attribute, label.value.expected AS expected,
           label.value.predicted AS predicted, label.value.match AS match
    FROM (
        SELECT * EXCLUDE (judgment, term, judge, factors, levels, label_scores, failed, method),
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
    SELECT DISTINCT task, model, judge, method FROM judged WHERE NOT failed AND judge <> '{EXACT_MATCH}';
"""  # noqa: S608

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
