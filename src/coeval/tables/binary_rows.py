"""Rows out of Parquet (read by DuckDB) and out of what ``save_to_disk`` of `datasets` writes (Arrow).

Both keep class labels as numbers. Their names stand in the file itself, under ``huggingface``, or in the
``dataset_info.json`` beside it.
"""

from __future__ import annotations

from collections.abc import Iterator
from glob import escape
from pathlib import Path
from typing import Any

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decode
from coeval.core.plain_file import file_bytes
from coeval.tables.field_path import NamedLabel
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
            about = "SELECT value FROM parquet_kv_metadata(?) WHERE key = 'huggingface'"
            kept = self._db.execute(about, [escape(str(path))]).fetchone()
            found = self._db.execute("SELECT * FROM read_parquet(?)", [escape(str(path))])
        except duckdb.Error as error:
            raise self._damaged(error) from error
        self.columns = tuple(column[0] for column in found.description or ())
        self._labels = _labels(path, kept[0] if kept is not None else None)

    def rows(self) -> Iterator[TableRow]:
        number = 0
        try:
            while group := self._db.fetchmany(_AT_ONCE):
                for values in group:
                    number += 1
                    row = dict(zip(self.columns, values, strict=True))
                    yield TableRow(number, _with_names(row, self._labels) if self._labels else row)
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
            labels: dict[str, Any] | None = None
            for batch in _batches(pyarrow, file):
                if labels is None:
                    labels = _labels(path, (batch.schema.metadata or {}).get(b"huggingface"))
                batch.validate(full=True)  # what a damaged one holds is not looked at unchecked
                for start in range(0, batch.num_rows, _AT_ONCE):
                    for row in batch.slice(start, _AT_ONCE).to_pylist():
                        number += 1
                        yield TableRow(number, _with_names(row, labels) if labels else row)
    except (pyarrow.ArrowException, OSError) as error:
        raise UsageError(f"cannot read {path}: {error}") from error


def _batches(pyarrow: Any, file: Any) -> Iterator[Any]:
    if file.read(6) == b"ARROW1":
        opened = pyarrow.ipc.open_file(file)
        yield from (opened.get_batch(at) for at in range(opened.num_record_batches))
    else:
        file.seek(0)
        yield from pyarrow.ipc.open_stream(file)


def _labels(path: Path, kept: bytes | None) -> dict[str, Any]:
    """The features of columns that hold class labels, by what the file keeps of them, else by what lies
    beside it; none where neither can be read."""
    try:
        about = decode(kept, dict[str, Any]) if kept is not None else {}
        features = about.get("info", {}).get("features")
        if features is None:
            features = decode(file_bytes(path.parent / "dataset_info.json"), dict[str, Any]).get("features")
    except (OSError, Undecodable, AttributeError):
        return {}
    if not isinstance(features, dict):
        return {}
    return {column: feature for column, feature in features.items() if _holds_labels(feature)}


def _holds_labels(feature: Any) -> bool:
    match feature:
        case {"_type": "ClassLabel", "names": list()}:
            return True
        case dict():
            return any(map(_holds_labels, feature.values()))
        case list():
            return any(map(_holds_labels, feature))
        case _:
            return False


def _with_names(row: dict[str, Any], labels: dict[str, Any]) -> dict[str, Any]:
    return row | {column: _named(row[column], feature) for column, feature in labels.items() if column in row}


def _named(value: Any, feature: Any) -> Any:
    """A value with its class labels named; one of -1 is none (`datasets.ClassLabel`: hidden ones of a test
    split). Lists and mappings are gone into as `datasets` describes them."""
    match feature, value:
        case {"_type": "ClassLabel", "names": list(names)}, int():
            if 0 <= value < len(names):
                return NamedLabel(value, str(names[value]))
            return None if value == -1 else value
        case (([inner] | {"_type": str(), "feature": inner}), list()):
            return [_named(each, inner) for each in value]
        case {"_type": str(), "feature": dict(inner)}, dict():  # a list of mappings is kept as one of lists
            return {key: _named(part, [inner.get(key)]) for key, part in value.items()}
        case dict(), dict():
            return {key: _named(part, feature.get(key)) for key, part in value.items()}
        case _:
            return value
