"""How the files of ``eval-framework`` become tables, and the tables the views that `load` describes."""

from __future__ import annotations

from coeval.analysis.pairwise.arena import VERDICTS
from coeval.analysis.readers.reader import EMPTY_SQL, Stage
from coeval.core.good import RESPONSE_SQL, VALUE_SQL, good_sql
from coeval.core.records import LEVEL_VALUE

_KEY = "md5_number(filename || chr(10) || id) AS key, filename AS file, id"

_JSON = "try_cast(value AS JSON)"
_PATHS = "['$.verdict', '$.preference', '$.switched', '$.criteria_met']"
_SAID = f"json_extract_string({_JSON}, {_PATHS})"
_OF_LEVELS = ", ".join(f"'{level}'" for level in LEVEL_VALUE)
_LEVELS = (
    f"map_from_entries([entry FOR entry IN map_entries(try_cast({_JSON} AS MAP(VARCHAR, VARCHAR)))"
    f" IF entry.value IN ({_OF_LEVELS})])"
)
"""Of what a judgment says, what can be held against another's: not its reasons."""

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
            length(response) AS characters, hash(response) AS words,
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
            "input_hash": "VARCHAR",
            "value": "VARCHAR",
            "status": "VARCHAR",
        },
        "id IS NOT NULL AND item IS NOT NULL",
        f"""{_KEY}, item, judge, recipe, {_SAID} AS said, {_LEVELS} AS levels,
            CASE WHEN input_hash <> '' THEN hash(input_hash) END AS content,
            NOT {good_sql(VALUE_SQL)} AS failed""",
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
    SELECT id AS answer, id AS item, task, NULL::VARCHAR AS teacher, sample, p.model, failed, truncated, empty
    FROM answer JOIN place p USING (file);
CREATE VIEW lengths AS
    SELECT id AS item, task, sample, characters, words
    FROM answer JOIN place p USING (file) WHERE NOT failed;
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
"""``lengths``: of each good answer, in characters, and a hash of its ``words``. ``said``: what each good
judgment says; ``stands``: of a judge's recipes, this is the one that was scored last, or else one of them.
``compared``: the model's share of a win against the baseline; ``first``: it was shown first. ``graded``:
levels 0 to 2 (a comparison lost, drawn, won; a criterion not met, met; a rubric's).
"""
