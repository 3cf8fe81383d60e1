"""Tables of any format: columns, rows and the file they came from."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from glob import escape
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from coeval.core.errors import Misshapen, Undecodable, UsageError
from coeval.core.foreign import decode, decode_utf8, make_lines_decoder
from coeval.core.regular_files import open_file
from coeval.core.text import join_names, pluralize
from coeval.tables.item_map import NamedLabel
from coeval.tables.source_bytes import (
    LONGEST_LINE_BYTES,
    PARQUET,
    SourceBytes,
    SourceFile,
    TableRow,
    hash_file,
    make_read_error,
)

# --- Rows of text files: JSON lines, a JSON array, CSV and similar
#
# A bad row is reported by its line and skipped; only what leaves nothing to read (an unknown encoding, a
# line of CSV beyond `LONGEST_LINE_BYTES`) raises.

_DELIMITERS = ",;\t|"
# The first line of a table that is meant for Excel.
_DELIMITER_LINE = re.compile(r'"?sep=([^\w\s]|\t)"?\s*', re.IGNORECASE)
# A string that is never closed ends with the text, so that no part of it is read twice.
_STRING_OR_NAN = re.compile(rb'("[^"\\]*(?:\\.[^"\\]*)*"?)|-?\b(?:NaN|Infinity)\b', re.DOTALL)
# A JSON array is decoded whole, and its objects take several times its bytes.
_LARGEST_LIST = 512 << 20
_TOO_LONG = f"it is longer than {LONGEST_LINE_BYTES >> 20} MiB"
_NOT_UTF8 = "save the file as UTF-8, or name its encoding (cp1252, as Excel writes, or latin-1)"


def read_json_lines(source: SourceBytes) -> Iterator[TableRow]:
    """Read an object per line; blank lines are skipped. Fractions keep their spelling."""
    read = make_lines_decoder(dict[str, Any], fractions=str)
    number = 0
    for group in source.read_line_groups():
        objects = read([_replace_nan(line) if line is not None else b"" for line in group])
        for line, row in zip(group, objects, strict=True):
            number += 1
            if not isinstance(row, Undecodable):
                yield TableRow(number, row)
            elif line is None:
                yield TableRow(number, _TOO_LONG)
            elif line.strip():
                yield TableRow(number, _explain_bad_line(line, row))


def _replace_nan(text: bytes) -> bytes:
    """Replace NaN and Infinity, which Python writes and JSON lacks, by null: they are missing values."""
    if b"NaN" not in text and b"Infinity" not in text:
        return text
    return _STRING_OR_NAN.sub(lambda match: match[1] or b"null", text)


def _explain_bad_line(line: bytes, error: Undecodable) -> str:
    try:
        decode_utf8(line)
    except Undecodable as reason:
        return f"{reason}; {_NOT_UTF8}"
    return "it is not a JSON object" if isinstance(error, Misshapen) else f"it is not JSON: {error}"


def read_json_array(source: SourceBytes) -> Iterator[TableRow]:
    """Read the objects of a JSON array, numbered from 1; raises UsageError: it is none, or too large."""
    parts, size = [], 0
    while part := source.read_next_part():
        size += len(part)
        if size > _LARGEST_LIST:
            raise UsageError(
                f"{source.path} is one JSON list of more than 512 MB; write an object a line instead"
            )
        parts.append(part)
    try:
        rows = decode(_replace_nan(b"".join(parts)), list[msgspec.Raw])
    except Undecodable as error:
        raise UsageError(f"{source.path} is not a list of JSON objects: {error}") from error
    read = make_lines_decoder(dict[str, Any], fractions=str)
    for number, raw in enumerate(rows, 1):
        text = bytes(raw)
        [row] = read([text])
        yield TableRow(number, _explain_bad_line(text, row) if isinstance(row, Undecodable) else row)


class _TextLines(Iterator[str]):
    """Lines for the CSV reader. ``number`` counts them; ``flaw`` says what is wrong since `take_flaw`."""

    def __init__(self, source: SourceBytes) -> None:
        self.number = 0
        self.flaw = ""
        self._path = source.path
        self._lines = (line for group in source.read_line_groups() for line in group)

    def __next__(self) -> str:
        line = next(self._lines)
        self.number += 1
        if line is None:
            raise UsageError(f"{self._path}:{self.number}: {_TOO_LONG}")
        try:
            return f"{decode_utf8(line)}\n"
        except Undecodable as error:
            self.flaw = f"{error}; {_NOT_UTF8}"
            return f"{line.decode(errors='replace')}\n"

    def take_flaw(self) -> str:
        flaw, self.flaw = self.flaw, ""
        return flaw


class HeaderAndRows(NamedTuple):
    """Column names (empty for JSON), rows that can be read once, and the cell delimiter ("": not CSV)."""

    header: tuple[str, ...]
    rows: Iterator[TableRow]
    delimiter: str = ""


def read_csv(source: SourceBytes, delimiter: str | None) -> HeaderAndRows:
    """Read a header and the rows below; cells are text, empty ones None. ``delimiter``: None for the one most
    frequent in the header. Raises UsageError: there is no header, or it names a column twice."""
    csv.field_size_limit(max(csv.field_size_limit(), LONGEST_LINE_BYTES))
    lines = _TextLines(source)
    filled = (line for line in lines if line.strip())
    first = next(filled, None)
    if first is not None and (named := _DELIMITER_LINE.fullmatch(first)):
        delimiter, first = delimiter or named[1], next(filled, None)
    if first is None:
        raise UsageError(f"{source.path} is empty; a CSV begins with the names of its columns")
    outside_quotes = "".join(first.split('"')[::2])
    delimiter = delimiter or max(_DELIMITERS, key=outside_quotes.count)
    reader = csv.reader(chain([first], lines), delimiter=delimiter, strict=True)
    try:
        header = [name.strip() for name in next(reader)]
    except csv.Error as error:
        raise UsageError(f"{source.path}:{lines.number}: {_explain_csv_error(error)}") from error
    if repeated := [name for name, count in Counter(header).items() if count > 1 and name]:
        raise UsageError(f"{source.path} has more than one column {join_names(repeated)}; rename all but one")
    if lines.flaw:
        raise UsageError(f"{source.path}:{lines.number}: {lines.flaw}")
    return HeaderAndRows(tuple(header), _read_csv_rows(header, reader, lines), delimiter)


def _read_csv_rows(header: list[str], reader: Iterator[list[str]], lines: _TextLines) -> Iterator[TableRow]:
    """Yield the rows below the header; one of another length or with broken quotes has a reason instead."""
    while True:
        begin = lines.number + 1
        try:
            cells = next(reader, None)
        except csv.Error as error:
            yield TableRow(begin, _explain_csv_error(error))
            continue
        if cells is None:
            return
        if flaw := lines.take_flaw():
            yield TableRow(begin, flaw)
        elif len(cells) == len(header):
            yield TableRow(begin, {name: cell or None for name, cell in zip(header, cells)})  # noqa: B905  they are equal
        elif cells:
            yield TableRow(begin, f"it has {pluralize(len(cells), 'cell')}, and the header {len(header)}")


def _explain_csv_error(error: csv.Error) -> str:
    reason = str(error)
    if "unexpected end of data" in reason:
        return "a quote is opened here that is never closed"
    if "new-line character" in reason:
        return "its lines end in a carriage return alone; save the file with \\n or \\r\\n line ends"
    if "field larger" in reason:
        return f"a cell of it is longer than {LONGEST_LINE_BYTES >> 20} MiB: a quote may be open"
    return f"its quotes do not match: {reason}; within a quoted cell, quotes are written twice"


# --- Table

# Rows of JSON whose keys are the columns; keys that only later rows have cannot be mapped.
_HEAD_ROWS = 100

_JSON_SUFFIXES = (".json", ".jsonl", ".ndjson")
_CSV_SUFFIXES = (".csv", ".tsv", ".tab")


@dataclass(slots=True)
class Table:
    """An open table. ``rows`` can be read once, ``finish`` then hashes the file; ``delimiter``: a CSV's."""

    path: Path
    columns: tuple[str, ...]
    rows: Iterator[TableRow]
    finish: Callable[[], SourceFile]
    close: Callable[[], None]
    delimiter: str = ""


def open_table(path: Path, encoding: str | None = None, delimiter: str | None = None) -> Table:
    """Open a table. Without a header, its columns are the keys of the first rows. Raises UsageError: the file
    cannot be read, is no table, or has no readable rows."""
    if _is_parquet(path):
        return _open_parquet(path)
    source = SourceBytes(path, encoding)
    try:
        header, rows, delimiter = _read_text_rows(source, delimiter)
        head = list(islice(rows, _HEAD_ROWS))
        columns = _find_columns(path, head, header)
    except UsageError:
        source.close()
        raise
    return Table(path, columns, chain(head, rows), source.finish_and_hash, source.close, delimiter)


def _find_columns(path: Path, head: list[TableRow], header: tuple[str, ...]) -> tuple[str, ...]:
    """Return the header, else the keys of the first rows; raises UsageError if no row can be read."""
    if not head:
        raise UsageError(f"{path} holds no rows")
    readable = [row.fields for row in head if isinstance(row.fields, dict)]
    if not readable and not header:
        raise UsageError(f"{path}:{head[0].line}: {head[0].fields}")
    return header or tuple(dict.fromkeys(name for fields in readable for name in fields))


def _read_text_rows(source: SourceBytes, delimiter: str | None) -> HeaderAndRows:
    """Read CSV or JSON, chosen by suffix and first character."""
    suffixes = [suffix.lower() for suffix in source.path.suffixes if suffix.lower() != ".gz"]
    suffix = suffixes[-1] if suffixes else ""
    begin = source.start.lstrip(b"\xef\xbb\xbf\xff\xfe\x00 \t\r\n")[:1]
    if delimiter is None and suffix in (".tsv", ".tab"):
        delimiter = "\t"
    if delimiter is not None or suffix in _CSV_SUFFIXES:
        return read_csv(source, delimiter)
    if begin == b"[" and (suffix in _JSON_SUFFIXES or not suffix):
        return HeaderAndRows((), read_json_array(source))
    is_json = begin == b"{" or suffix in _JSON_SUFFIXES
    return HeaderAndRows((), read_json_lines(source)) if is_json else read_csv(source, None)


def _is_parquet(path: Path) -> bool:
    """Check a file's first bytes; a pipe is taken for text, since it can be read only once."""
    try:
        with open_file(path) as file:
            return file.seekable() and file.read(len(PARQUET)) == PARQUET
    except OSError as error:
        raise make_read_error(path, error) from error


# --- Parquet
#
# `datasets` keeps class labels as numbers, and their names in the file itself, under ``huggingface``.

# Rows; those of a data set may hold whole books.
_ROWS_PER_FETCH = 1_000


def _open_parquet(path: Path) -> Table:
    """Open a Parquet file; rows come in order and in bounded memory. Raises UsageError: it is damaged."""
    import duckdb

    db = duckdb.connect(":memory:", config={"autoinstall_known_extensions": False, "threads": 1})

    def make_error(error: duckdb.Error) -> UsageError:
        return UsageError(f"cannot read {path}: {str(error).partition(chr(10))[0]}")

    try:
        query = "SELECT value FROM parquet_kv_metadata(?) WHERE key = 'huggingface'"
        metadata = db.execute(query, [escape(str(path))]).fetchone()
        result = db.execute("SELECT * FROM read_parquet(?)", [escape(str(path))])
    except duckdb.Error as error:
        raise make_error(error) from error
    columns = tuple(column[0] for column in result.description or ())
    labels = _read_label_names(metadata[0]) if metadata is not None else {}
    labels = {column: labels[column] for column in columns if column in labels}

    def rows() -> Iterator[TableRow]:
        groups = iter(partial(db.fetchmany, _ROWS_PER_FETCH), [])
        try:
            for number, values in enumerate(chain.from_iterable(groups), 1):
                row = dict(zip(columns, values, strict=True))
                for column, names in labels.items():
                    row[column] = _name_label(row[column], names)
                yield TableRow(number, row)
        except duckdb.Error as error:
            raise make_error(error) from error

    return Table(path, columns, rows(), partial(hash_file, path), db.close)


def _read_label_names(metadata: bytes) -> dict[str, list[str]]:
    """Return the names of class labels by column, as `datasets` writes them; empty if unreadable."""
    try:
        features = decode(metadata, _HubMetadata).info.features
    except Undecodable:
        return {}
    return {
        column: [str(name) for name in names]
        for column, feature in features.items()
        if isinstance(feature, dict)
        and feature.get("_type") == "ClassLabel"
        and isinstance(names := feature.get("names"), list)
    }


class _Info(msgspec.Struct):
    features: dict[str, Any] = {}


class _HubMetadata(msgspec.Struct):
    info: _Info = msgspec.field(default_factory=_Info)


def _name_label(value: Any, names: list[str]) -> Any:
    """Name a class label; -1 means a hidden label of a test split (`datasets.ClassLabel`): None."""
    if isinstance(value, int) and 0 <= value < len(names):
        return NamedLabel(value, names[value])
    return None if value == -1 else value
