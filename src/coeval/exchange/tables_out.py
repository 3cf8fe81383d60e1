"""Tables: a row for each score with its answer, and a row for each figure."""

from __future__ import annotations

import csv
import io
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

import duckdb

from coeval.exchange.exported import AnswerOut, Export, FigureOut, GivenScore
from coeval.store.jsonl import store_error, write_bytes_atomic

_ANSWER = tuple(name for name in AnswerOut._fields if name not in ("attributes", "scores"))
_TYPES = {
    "sample": "INTEGER",
    "input_tokens": "BIGINT",
    "output_tokens": "BIGINT",
    "n": "BIGINT",
    "failed": "BIGINT",
}
_NUMBERS = ("cost_usd", "latency_s", "value", "low", "high", "standard_error")


def write_csv(found: Export, out: Path) -> list[Path]:
    """Write ``scores.csv`` and ``figures.csv``; an empty cell is a missing value."""
    paths = [out / "scores.csv", out / "figures.csv"]
    _create(out)
    write_bytes_atomic(paths[0], _csv(*_scores(found)))
    write_bytes_atomic(paths[1], _csv(FigureOut._fields, _figures(found)))
    return paths


def write_parquet(found: Export, out: Path) -> list[Path]:
    """Write ``scores.parquet`` and ``figures.parquet``."""
    paths = [out / "scores.parquet", out / "figures.parquet"]
    _create(out)
    _parquet(paths[0], *_scores(found))
    _parquet(paths[1], FigureOut._fields, _figures(found))
    return paths


def _create(out: Path) -> None:
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise store_error("create", out, error) from error


def _scores(found: Export) -> tuple[list[str], list[tuple[Any, ...]]]:
    """Names of columns, and rows; an item's attributes are columns ``attribute_NAME``."""
    answers = list(found.answers())
    attributes = sorted({name for answer in answers for name in answer.attributes})
    rows = [
        (*answer[: len(_ANSWER)], *map(answer.attributes.get, attributes), *score)
        for answer in answers
        for score in answer.scores or (GivenScore(None, "", None),)
    ]
    return [*_ANSWER, *(f"attribute_{name}" for name in attributes), *GivenScore._fields], rows


def _figures(found: Export) -> Iterator[tuple[Any, ...]]:
    for figure in found.figures(overall=True, parts=True):
        yield tuple(", ".join(filter(None, cell)) if isinstance(cell, tuple) else cell for cell in figure)


def _csv(names: Sequence[str], rows: Iterable[Sequence[Any]]) -> bytes:
    text = io.StringIO()
    writer = csv.writer(text)
    writer.writerow(names)
    writer.writerows(rows)
    return text.getvalue().encode("utf-8", "surrogatepass")


def _parquet(path: Path, names: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    columns = [f'"{name}" {"DOUBLE" if name in _NUMBERS else _TYPES.get(name, "VARCHAR")}' for name in names]
    with duckdb.connect() as database:
        database.execute(f"CREATE TABLE exported ({', '.join(columns)})")
        whole = [tuple(row) for row in rows]
        if whole:
            database.executemany(f"INSERT INTO exported VALUES ({', '.join('?' * len(names))})", whole)  # noqa: S608
        database.table("exported").write_parquet(str(path))
