"""What a reader keeps no texts of, read once more from a folder's files: records that count, as a table."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from tempfile import TemporaryDirectory

import duckdb

from coeval.analysis.readers.long_lines import without_long_lines
from coeval.analysis.readers.reader import Reader, Stage, literally, source
from coeval.core.good import counting_sql

__all__ = ["make_record_table"]


def make_record_table(reader: Reader, stage: Stage, paths: Sequence[Path], wanted: str = "true") -> None:
    """Make the table of a stage, whose select has ``key`` and ``failed``, of the lines that are ``wanted``,
    an expression over its columns. Of an id's lines the one that counts is kept. Raises as DuckDB does."""
    with TemporaryDirectory(prefix="coeval-") as copies:
        try:
            _read(reader, stage, paths, wanted)
        except duckdb.InvalidInputException:  # a line is too long
            shortened = [
                without_long_lines(path, stage.columns, Path(copies) / str(place))
                for place, path in enumerate(paths)
            ]
            _read(reader, stage, shortened, wanted)


def _read(reader: Reader, stage: Stage, paths: Sequence[Path], wanted: str) -> None:
    files = [literally(path) for path in paths]
    reader.rows(
        f"CREATE OR REPLACE TABLE {stage.table} AS SELECT {stage.select} FROM {source(stage, files)} "  # noqa: S608
        f"WHERE {stage.required} AND {wanted}",
        [files] if files else [],
    )
    reader.rows(f"DELETE FROM {stage.table} WHERE rowid NOT IN ({counting_sql(stage.table)})")  # noqa: S608
