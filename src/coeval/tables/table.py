"""Tables of any format: columns, rows and the file they came from."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from itertools import chain, islice
from pathlib import Path

from coeval.core.errors import UsageError
from coeval.core.plain import open_file
from coeval.tables.source_bytes import ARROW, PARQUET, SourceBytes, SourceFile, TableRow, file_of, unreadable
from coeval.tables.text_rows import CsvRows, ParquetRows, arrow_rows, csv_rows, json_rows, listed_rows

# Rows of JSON whose keys are the columns; in later rows there may be others, which nobody can name here.
_LOOKED_AT = 100

_OF_JSON = (".json", ".jsonl", ".ndjson")
_OF_CSV = (".csv", ".tsv", ".tab")


@dataclass(slots=True)
class Table:
    """An open table. ``rows`` can be read once; ``finish`` then returns the file's hash."""

    path: Path
    columns: tuple[str, ...]
    rows: Iterator[TableRow]
    finish: Callable[[], SourceFile]
    close: Callable[[], None]


def open_table(path: Path, encoding: str | None = None, delimiter: str | None = None) -> Table:
    """Open a table.

    Raises UsageError: the file cannot be read, is no table, or one without rows.
    """
    kind = _binary(path)
    if kind == "parquet":
        parquet = ParquetRows(path)
        return Table(path, parquet.columns, parquet.rows(), partial(file_of, path), _nothing)
    if kind == "arrow":
        return _looked_at(path, arrow_rows(path), partial(file_of, path), _nothing)
    source = SourceBytes(path, encoding)
    try:
        header, rows = _text_rows(source, delimiter)
        return _looked_at(path, rows, source.finish, source.close, header)
    except UsageError:
        source.close()
        raise


def _looked_at(
    path: Path,
    rows: Iterator[TableRow],
    finish: Callable[[], SourceFile],
    close: Callable[[], None],
    header: tuple[str, ...] = (),
) -> Table:
    """Without a header the columns are those of the first rows, one of which has to be readable."""
    head = list(islice(rows, _LOOKED_AT))
    if not head:
        raise UsageError(f"{path} holds no rows")
    readable = [row.fields for row in head if isinstance(row.fields, dict)]
    if not readable and not header:
        first = head[0]
        raise UsageError(f"{path}:{first.line}: {first.fields}")
    columns = header or tuple(dict.fromkeys(name for fields in readable for name in fields))
    return Table(path, columns, chain(head, rows), finish, close)


def _text_rows(source: SourceBytes, delimiter: str | None) -> CsvRows:
    """Where nothing but the rows tells the columns, the header is empty."""
    suffixes = [suffix.lower() for suffix in source.path.suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    begin = source.start.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1]
    if delimiter is None and suffix in (".tsv", ".tab"):
        delimiter = "\t"
    if delimiter is not None or suffix in _OF_CSV:
        return csv_rows(source, delimiter)
    if begin == b"[" and (suffix in _OF_JSON or not suffix):
        return CsvRows((), listed_rows(source))
    is_json = begin == b"{" or suffix in _OF_JSON
    return CsvRows((), json_rows(source)) if is_json else csv_rows(source, None)


def _binary(path: Path) -> str | None:
    """What a file is that is no text; a pipe is taken for text, since it can be read only once."""
    try:
        with open_file(path) as file:
            start = file.read(6) if file.seekable() else b""
    except OSError as error:
        raise unreadable(path, error) from error
    if start.startswith(PARQUET):
        return "parquet"
    return "arrow" if start.startswith(ARROW) else None


def _nothing() -> None:
    """There is nothing to let go of."""
