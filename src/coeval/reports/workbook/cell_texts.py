"""Foreign text as a cell of a workbook holds it: text, whatever it begins with, and no more than fits."""

from __future__ import annotations

import re
import unicodedata

__all__ = ["CUT", "LONGEST", "cut_mark", "cut_sql", "looks_like_formula", "sheet_text"]

LONGEST = 32_767
"""UTF-16 units of a cell, beyond which Excel calls a file damaged."""
_TURNING = frozenset(
    "\u061c\u200e\u200f\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\ufeff\ufffe\uffff"
)


def sheet_text(text: str) -> str:
    """Without control characters and what turns lines around, and cut, with a mark that says so; line breaks
    and tabs stay."""
    shown = text if text.isprintable() else "".join(filter(_kept, text.replace("\r\n", "\n")))
    if len(shown) * 2 <= LONGEST:  # whatever the characters are
        return shown
    units = shown.encode("utf-16-le", "replace")
    if len(units) // 2 <= LONGEST:
        return shown
    mark = cut_mark(len(text))
    kept = units[: 2 * (LONGEST - len(mark))].decode("utf-16-le", "ignore")
    return kept + mark


def cut_mark(length: int) -> str:
    """Behind the beginning of a text of so many characters."""
    return f" … [cut: {length:,} characters in all]"


CUT = re.compile(r" … \[cut: [\d,]+ characters in all\]\Z")
_MARK = 60
"""Characters that the mark takes at most."""


def cut_sql(column: str) -> str:
    """A text as an expression of DuckDB: of one that fits into no cell the beginning, with the mark; so that
    no page of rows is larger than it need be. Characters beyond U+FFFF count twice in a cell."""
    kept = f"left({column}, {LONGEST - _MARK})"
    wide = f"regexp_matches({kept}, '[\\x{{10000}}-\\x{{10FFFF}}]')"
    cut = f"left({column}, CASE WHEN {wide} THEN {LONGEST // 2 - _MARK} ELSE {LONGEST - _MARK} END)"
    mark = f"' … [cut: ' || format('{{:,}}', length({column})) || ' characters in all]'"
    return f"CASE WHEN length({column}) > {LONGEST} THEN {cut} || {mark} ELSE {column} END"


def looks_like_formula(text: str) -> bool:
    """Whether a program might take it for one when a person edits it."""
    return text.lstrip()[:1] in ("=", "+", "-", "@") and bool(text.strip())


def _kept(character: str) -> bool:
    if character in "\n\t":
        return True
    return character not in _TURNING and unicodedata.category(character) not in ("Cc", "Cs")
