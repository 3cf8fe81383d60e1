"""How the files of ``eval-framework`` become tables, and the tables the views that `load` describes."""

from __future__ import annotations

from coeval.analysis.readers.reader import EMPTY_SQL, Stage
from coeval.core.good import RESPONSE_SQL, VALUE_SQL, good_sql

_KEY = "md5_number(filename || chr(10) || id) AS key, filename AS file, id"

STAGES = (
    Stage(
        "answers",
        "answer",
        {
            "id": "VARCHAR",
            "model": "VARCHAR",
            "input_hash": "VARCHAR",
            "response": "VARCHAR",
            "truncated": "BOOLEAN",
            "status": "VARCHAR",
        },
        "id IS NOT NULL",
        f"""{_KEY}, model, coalesce(truncated, false) AS truncated, {EMPTY_SQL},
            CASE WHEN input_hash <> '' THEN hash(input_hash) END AS content,
            NOT {good_sql(RESPONSE_SQL)} AS failed""",
        {"model": "term"},
    ),
    Stage(
        "judgments",
        "judgment",
        {
            "id": "VARCHAR",
            "item": "VARCHAR",
            "judge": "VARCHAR",
            "recipe": "VARCHAR",
            "value": "VARCHAR",
            "status": "VARCHAR",
        },
        "id IS NOT NULL AND item IS NOT NULL",
        f"{_KEY}, item, judge, recipe, NOT {good_sql(VALUE_SQL)} AS failed",
        {"judge": "term", "recipe": "term"},
    ),
    Stage(
        "scores",
        "score",
        {"id": "VARCHAR", "scores": "MAP(VARCHAR, DOUBLE)", "weights": "MAP(VARCHAR, DOUBLE)"},
        "id IS NOT NULL AND scores IS NOT NULL",
        f"{_KEY}, scores, weights, false AS failed",
        {},
    ),
)

PLACES = """
CREATE OR REPLACE TABLE place AS SELECT
    unnest(?::VARCHAR[]) AS file, unnest(?::VARCHAR[]) AS folder, unnest(?::VARCHAR[]) AS task,
    unnest(?::INTEGER[]) AS sample, unnest(?::VARCHAR[]) AS model, unnest(?::VARCHAR[]) AS judge,
    unnest(?::VARCHAR[]) AS judged_by
"""
"""Which task and sample each file is of, who answered, and who judged by which recipe, if anybody did."""

VIEWS = """
UPDATE place SET model = found.model
    FROM (
        SELECT p.folder, any_value(a.model)::VARCHAR AS model
        FROM answer a JOIN place p USING (file) GROUP BY ALL
    ) found
    WHERE found.folder = place.folder AND place.model IS NULL;
CREATE VIEW answers AS
    SELECT id AS answer, id AS item, task, NULL::VARCHAR AS teacher, sample, p.model, failed, truncated, empty
    FROM answer JOIN place p USING (file);
CREATE VIEW judgments AS
    SELECT id AS judgment, item AS answer, item, task, NULL::VARCHAR AS teacher, sample, model,
           j.judge::VARCHAR AS judge, failed
    FROM judgment j JOIN place p USING (file)
    WHERE p.judged_by IS NULL OR j.recipe::VARCHAR = p.judged_by;
CREATE VIEW scores AS
    WITH one AS (
        SELECT p.*, s.id, s.weights, unnest(map_entries(s.scores)) AS score
        FROM score s JOIN place p USING (file)
    ), good AS (
        SELECT folder, id FROM answer JOIN place USING (file) WHERE NOT failed
    )
    SELECT o.id AS answer, o.id AS item, task, NULL::VARCHAR AS teacher, sample, model, judge,
           score.key AS metric, score.value AS value, coalesce(weights[score.key], 1.0) AS weight,
           score.value IS NULL OR g.id IS NULL AS failed
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
"""
