"""Rows out of Parquet (read by DuckDB) and out of what ``save_to_disk`` of `datasets` writes (Arrow)."""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import Any

from coeval.core.errors import UsageError
from coeval.tables.table_row import TableRow

_AT_ONCE = 1_000
"""Rows; those of a data set may hold whole books."""


class ParquetRows:
    """A Parquet file's rows, in order and in bounded memory.

    Raises
    ------
    UsageError
        it is damaged.
    """

    def __init__(self, path: Path) -> None:
        import duckdb

        self._path = path
        self._error = duckdb.Error
        settings: dict[str, str | bool | int | float | list[str]] = {
            "autoinstall_known_extensions": False,
            "threads": 1,
        }
        self._db = duckdb.connect(":memory:", config=settings)
        try:
            found = self._db.execute("SELECT * FROM read_parquet(?)", [escape(str(path))])
        except duckdb.Error as error:
            raise self._damaged(error) from error
        self.columns = tuple(column[0] for column in found.description or ())

    def rows(self) -> Iterator[TableRow]:
        number = 0
        try:
            while group := self._db.fetchmany(_AT_ONCE):
                for values in group:
                    number += 1
                    yield TableRow(number, dict(zip(self.columns, values, strict=True)))
        except self._error as error:
            raise self._damaged(error) from error
        finally:
            self._db.close()

    def _damaged(self, error: Exception) -> UsageError:
        return UsageError(f"cannot read {self._path}: {str(error).partition(chr(10))[0]}")


def arrow_rows(path: Path) -> Iterator[TableRow]:
    """The rows of an Arrow file or stream.

    Raises
    ------
    UsageError
        pyarrow is not installed, or the file is damaged.
    """
    try:
        import pyarrow
    except ImportError:
        raise UsageError(
            f"{path} is an Arrow file, which needs pyarrow (pip install pyarrow); or write it as Parquet, "
            "which needs nothing: dataset.to_parquet('items.parquet')"
        ) from None
    number = 0
    try:
        with pyarrow.memory_map(str(path)) as file:
            for batch in _batches(pyarrow, file):
                batch.validate(full=True)  # what a damaged one holds is not looked at unchecked
                for start in range(0, batch.num_rows, _AT_ONCE):
                    for row in batch.slice(start, _AT_ONCE).to_pylist():
                        number += 1
                        yield TableRow(number, row)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _batches(pyarrow: Any, file: Any) -> Iterator[Any]:
    if file.read(6) == b"ARROW1":
        opened = pyarrow.ipc.open_file(file)
        yield from (opened.get_batch(at) for at in range(opened.num_record_batches))
    else:
        file.seek(0)
        yield from pyarrow.ipc.open_stream(file)
