"""The cells of a workbook's first sheet, as a person saved it: texts, numbers, and formulas as such."""

from __future__ import annotations

import io
import re
from collections.abc import Callable
from typing import TypeAlias
from xml.parsers import expat
from zipfile import ZipFile

_TEXTS, _SHEET = "xl/sharedStrings.xml", "xl/worksheets/sheet1.xml"
_PLACE = re.compile(r"([A-Z]{1,3})(\d{1,7})")
# A sheet of labels has eight columns at most.
_MOST_COLUMNS = 50


SheetRow: TypeAlias = tuple[int, dict[int, str]]
"""A row's number from 1, and its cells by column from 0."""


def workbook_cells(data: bytes, most: int) -> list[SheetRow]:
    """Return the rows of the first sheet that hold anything; a formula has ``=`` before it.

    ``most``: bytes that a part may have once it is unpacked.

    Raises ValueError: it is no workbook, too large, or declares entities; BadZipFile.
    """
    with ZipFile(io.BytesIO(data)) as archive:
        sizes = {info.filename: info.file_size for info in archive.infolist()}
        if _SHEET not in sizes:
            raise ValueError("it holds no first sheet")
        if max(sizes.get(_TEXTS, 0), sizes[_SHEET]) > most:
            raise ValueError(f"a part of it has more than {most >> 20} MiB")
        texts = _shared(archive.read(_TEXTS)) if _TEXTS in sizes else []
        return _rows(archive.read(_SHEET), texts)


def _parse(
    data: bytes,
    begin: Callable[[str, dict[str, str]], None],
    end: Callable[[str], None],
    text: Callable[[str], None],
) -> None:
    parser = expat.ParserCreate(namespace_separator=" ")
    parser.buffer_text = True

    def refuse(*_: object) -> None:
        raise ValueError("it declares entities, as no workbook does")

    parser.StartDoctypeDeclHandler = refuse
    parser.StartElementHandler = lambda name, attributes: begin(name.rpartition(" ")[2], attributes)
    parser.EndElementHandler = lambda name: end(name.rpartition(" ")[2])
    parser.CharacterDataHandler = text
    try:
        parser.Parse(data, True)
    except expat.ExpatError as error:
        raise ValueError(f"its XML is damaged: {error}") from error


class _Shared:
    """Texts that cells share, with the runs of a formatted one joined; phonetic ones are left out."""

    def __init__(self) -> None:
        self.texts: list[str] = []
        self._inside: list[str] = []

    def begin(self, name: str, _: dict[str, str]) -> None:
        self._inside.append(name)
        if name == "si":
            self.texts.append("")

    def end(self, _: str) -> None:
        self._inside.pop()

    def text(self, part: str) -> None:
        if self._inside[-1:] == ["t"] and "rPh" not in self._inside and self.texts:
            self.texts[-1] += part


def _shared(data: bytes) -> list[str]:
    found = _Shared()
    _parse(data, found.begin, found.end, found.text)
    return found.texts


class _Sheet:
    """Rows of cells as they come."""

    def __init__(self, texts: list[str]) -> None:
        self.rows: dict[int, dict[int, str]] = {}
        self._texts = texts
        self._at: tuple[int, int] | None = None
        self._kind = self._value = self._formula = ""
        self._open = ""

    def begin(self, name: str, attributes: dict[str, str]) -> None:
        self._open = name
        if name == "c":
            place = _PLACE.fullmatch(attributes.get("r", ""))
            self._at = None if place is None else (int(place[2]), _column(place[1]))
            self._kind, self._value, self._formula = attributes.get("t", "n"), "", ""
        elif name == "f":
            self._formula = "="

    def text(self, part: str) -> None:
        if self._open in ("v", "t"):
            self._value += part
        elif self._open == "f":
            self._formula += part

    def end(self, name: str) -> None:
        self._open = ""
        if name == "c" and self._at is not None and self._at[1] < _MOST_COLUMNS:
            row, column = self._at
            self.rows.setdefault(row, {})[column] = self._formula or self._shown()

    def _shown(self) -> str:
        if self._kind == "s":
            at = int(self._value) if self._value.isdecimal() else -1
            return self._texts[at] if 0 <= at < len(self._texts) else ""
        if self._kind == "b":
            return "true" if self._value == "1" else "false"
        return self._value.removesuffix(".0") if self._kind == "n" else self._value


def _rows(data: bytes, texts: list[str]) -> list[SheetRow]:
    found = _Sheet(texts)
    _parse(data, found.begin, found.end, found.text)
    return sorted(found.rows.items())


def _column(letters: str) -> int:
    """0 of A, 26 of AA."""
    place = 0
    for letter in letters:
        place = place * 26 + ord(letter) - 64
    return place - 1
