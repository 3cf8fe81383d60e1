"""What the records of a run took, by phase and model."""

from __future__ import annotations

from coeval.analysis.readers.run_reader import RunReader
from coeval.reports.content.report_content import Cell, ReportColumn, ReportTable

__all__ = ["spending_table"]

_PHASES = (
    ("data_generation", "teacher_model_id", "items"),
    ("response_collection", "student_model_id", "answers"),
    ("evaluation", "judge_model_id", "judgments"),
)


def spending_table(reader: RunReader) -> ReportTable:
    """Of the records that tell their usage, every line counted: what was made anew was paid for too."""
    rows: list[tuple[Cell, ...]] = []
    for phase, model, what in _PHASES:
        files = [str(path.absolute()) for path in reader.run.files(phase)]
        if files:
            rows += [(what, *found) for found in reader.rows(_SPENT.format(model=model), [files])]
    return ReportTable(
        "phases",
        "By phase and model",
        (
            ReportColumn("what", "What"),
            ReportColumn("model", "Model"),
            ReportColumn("records", "Records", "count"),
            ReportColumn("input", "Tokens in", "count"),
            ReportColumn("output", "Tokens out", "count"),
            ReportColumn("cost", "Cost", "usd"),
            ReportColumn("latency", "Seconds each", "seconds", "Mean time from request to answer"),
        ),
        tuple(rows),
        note="Of the records on disk; probes, samples and retries stand in the table by model alone.",
    )


_SPENT = """
SELECT {model}, count(*), sum(usage.input_tokens)::BIGINT, sum(usage.output_tokens)::BIGINT,
       sum(usage.cost_usd), avg(latency_s)
FROM read_json(?::VARCHAR[], format = 'newline_delimited', ignore_errors = true, columns = {{
    {model}: 'VARCHAR', latency_s: 'DOUBLE',
    usage: 'STRUCT(input_tokens BIGINT, output_tokens BIGINT, cost_usd DOUBLE)'}})
WHERE usage IS NOT NULL AND {model} IS NOT NULL GROUP BY ALL ORDER BY ALL
"""
