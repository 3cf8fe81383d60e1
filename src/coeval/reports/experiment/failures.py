"""What failed in a run, by phase, model and reason."""

from __future__ import annotations

from coeval.analysis.readers.run_reader import RunReader
from coeval.reports.content.report_content import Cell, ReportColumn, ReportTable

__all__ = ["failure_table"]

_PHASES = (
    ("data_generation", "datapoint", "teacher_model_id", "items"),
    ("response_collection", "response", "student_model_id", "answers"),
    ("evaluation", "evaluation", "judge_model_id", "judgments"),
)


def failure_table(reader: RunReader) -> ReportTable:
    """Records that failed and did not come good later; files are looked through only where there are any."""
    rows: list[tuple[Cell, ...]] = []
    for phase, table, model, what in _PHASES:
        [(failed,)] = reader.rows(f"SELECT count(*) FROM {table} WHERE failed")  # noqa: S608
        if failed:
            files = [str(path.absolute()) for path in reader.run.files(phase)]
            sql = _REASONS.format(table=table, model=model)
            rows += [(what, *found) for found in reader.rows(sql, [files])]
    return ReportTable(
        "failures",
        "What failed",
        (
            ReportColumn("what", "What"),
            ReportColumn("model", "Model"),
            ReportColumn("reason", "Reason"),
            ReportColumn("count", "Failed", "count"),
        ),
        tuple(rows),
    )


_REASONS = """
SELECT model, reason, count(*) FROM (
    SELECT md5_number(id) AS key, any_value({model}) AS model,
           coalesce(last(error.kind), 'nothing usable') AS reason
    FROM read_json(?::VARCHAR[], format = 'newline_delimited', ignore_errors = true, columns = {{
        id: 'VARCHAR', {model}: 'VARCHAR', status: 'VARCHAR', error: 'STRUCT(kind VARCHAR)'}})
    WHERE id IS NOT NULL GROUP BY ALL
) SEMI JOIN (SELECT key FROM {table} WHERE failed) USING (key)
GROUP BY ALL ORDER BY count(*) DESC, model, reason
"""
