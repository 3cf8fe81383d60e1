"""Records become columns that data frames take as they are."""

from __future__ import annotations

from coeval.core.html_table import record_columns
from coeval.core.records import Datapoint, Evaluation, Failure, Usage


def judgment(key: str, **fields: object) -> Evaluation:
    names = {name: name for name in ("response_id", "datapoint_id", "task_id", "teacher_model_id")}
    return Evaluation(id=key, student_model_id="s", judge_model_id="j", **names, **fields)  # type: ignore[arg-type]


def test_every_column_has_a_value_for_every_record() -> None:
    table = record_columns(
        Evaluation,
        [
            judgment("a", scores={"plot": "High"}, usage=Usage(7, 5)),
            judgment("b", scores={"style": "Low"}, missing=("plot", "end")),
            judgment("c", scores={}, status="failed", error=Failure("timeout", "none came")),
        ],
    )
    assert {len(column) for column in table.values()} == {3}
    assert table["id"] == ["a", "b", "c"]
    assert (table["scores.plot"], table["scores.style"]) == (["High", None, None], [None, "Low", None])
    assert table["usage.output_tokens"] == [5, None, None]
    assert table["error.kind"] == [None, None, "timeout"]
    assert table["missing"] == ["", "plot, end", ""]


def test_columns_of_fields_are_there_without_records() -> None:
    assert {"id", "prompt", "usage.cost_usd", "error.message", "status"} <= record_columns(
        Datapoint, []
    ).keys()
    assert not any(record_columns(Datapoint, []).values())


def test_a_column_holds_one_type_of_scalars() -> None:
    table = record_columns(
        Evaluation, [judgment(str(n), scores={f"f{n}": "Low"}, latency_s=n / 2) for n in range(9)]
    )
    kinds = [{type(value) for value in column if value is not None} for column in table.values()]
    assert all(kind in ({str}, {int}, {float}, {bool}, set()) for kind in kinds)
