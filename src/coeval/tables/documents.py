"""Passages of a user's documents (Markdown, text, HTML, PDF), from which teachers write items.

Lengths and offsets are characters of a document's text: that of the file, or what HTML or a PDF shows of it.
"""

from __future__ import annotations

import itertools
import os
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from typing import NamedTuple

import msgspec

from coeval.core.entry_points import install_command
from coeval.core.errors import UsageError
from coeval.core.plain import escape_line
from coeval.core.text import digest, join_names, pluralize

# A line of a table may be as long.
LARGEST_FILE = 64 << 20
# Characters of all documents of a task: they are in memory, with their passages.
LARGEST_TEXT = 256 << 20
# A heading alone holds no fact to ask about.
_FEWEST_LETTERS = 20
_TEXT, _HTML = frozenset({".md", ".markdown", ".txt", ".rst"}), frozenset({".html", ".htm"})
_BLANK_LINE = re.compile(r"\n[ \t\r]*\n")
# Tags, comments and declarations. Each is matched to its end or else to that of the page: a match that failed
# there would be tried for every later tag.
_MARKUP = re.compile(
    r"""<(?:!--.*?(?:--\s*+(?=>)|\Z)
        |!\[cdata\[.*?(?:\]\s*+\]\s*+(?=>)|\Z)
        |[!?][^>]*+
        |/\s*+(?P<end>[a-z][^\s/>]*+)[^>]*+
        |/[^>]*+
        |(?P<start>[a-z][^\s/>]*+)(?:=\s*+(?:"[^"]*+"|'[^']*+')|[^>])*+
    )(?P<closed>>)?""",
    re.IGNORECASE | re.DOTALL | re.VERBOSE,
)
_UNSEEN = frozenset({"script", "style", "template", "noscript", "title"})
_RAW = ("script", "style")
_INLINE = frozenset({
    "a", "abbr", "b", "bdi", "cite", "code", "em", "i", "kbd", "mark", "q", "s", "small", "span",
    "strong", "sub", "sup", "time", "u", "var", "wbr",
})  # fmt: skip
# Characters of a tag or a comment without an end that a download that broke off may leave.
_LONGEST_TAIL = 1000
_SENTENCE = re.compile(r"(?<=[.!?])\s+|(?<=[。！？])")


class DocumentPassage(msgspec.Struct, frozen=True):
    """``source`` is its file and offset (``returns.md#800``), ``key`` a hash of its text."""

    source: str
    text: str
    key: str


class CutDocuments(NamedTuple):
    """Distinct passages, in the order of file names; ``said`` says what was left out."""

    passages: tuple[DocumentPassage, ...]
    said: tuple[str, ...]


def read_documents(path: Path, chunk: int) -> CutDocuments:
    """Read a file or a folder, and cut its texts into passages of at most ``chunk`` characters.

    Files of other kinds, those that are too large or not UTF-8, and links that lead out of the folder are
    left out. Raises UsageError: there is no such file or folder, or nothing in it makes a passage.
    """
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    found: dict[str, DocumentPassage] = {}
    left_out: dict[str, list[str]] = {}
    whole = 0
    for file in _files(path):
        below = file.relative_to(path if path.is_dir() else path.parent).as_posix()
        name = escape_line(os.fsencode(below).decode("utf-8", "replace"))
        try:
            text = _text_of(file, path)
        except (_LeftOut, OSError) as error:
            reason = str(error) if isinstance(error, _LeftOut) else error.strerror or type(error).__name__
            left_out.setdefault(reason, []).append(name)
            continue
        whole += len(text)
        if whole > LARGEST_TEXT:
            raise UsageError(f"{path} holds more than {LARGEST_TEXT:,} characters of text; name a part of it")
        for start, end in spans(text, chunk):
            passage = DocumentPassage(f"{name}#{start}", text[start:end], digest(text[start:end])[:12])
            found.setdefault(passage.key, passage)
    said = tuple(
        f"{path}: {pluralize(len(names), 'file')} left out ({reason}): {join_names(names, 4)}"
        for reason, names in left_out.items()
    )
    if not found:
        nothing = f"nothing in {path} makes a passage of {_FEWEST_LETTERS} letters"
        raise UsageError("; ".join((nothing, *said)))
    return CutDocuments(tuple(found.values()), said)


def spans(text: str, chunk: int) -> Iterator[tuple[int, int]]:
    """Start and end of each passage, cut at the end of a paragraph, else of a sentence, else of a word.

    A passage that is half full ends before a heading, or before a paragraph chosen by its own hash, so that
    an edit moves the cuts near it and no others.
    """
    start = end = None
    for at, to in _units(text, chunk):
        unit = text[at:to]
        if start is not None and end is not None:
            half = 2 * (end - start) >= chunk
            if to - start > chunk or (half and (unit.startswith("#") or digest(unit)[0] in "0123")):
                yield from _worth(text, start, end)
                start = None
        start, end = at if start is None else start, to
    if start is not None and end is not None:
        yield from _worth(text, start, end)


def _worth(text: str, start: int, end: int) -> Iterator[tuple[int, int]]:
    if sum(map(str.isalnum, text[start:end])) >= _FEWEST_LETTERS:
        yield start, end


def _units(text: str, chunk: int) -> Iterator[tuple[int, int]]:
    """Paragraphs; of one that is longer than a passage, its sentences; of such a sentence, pieces."""
    ends = [*(blank.start() for blank in _BLANK_LINE.finditer(text)), len(text)]
    for begin, end in zip([0, *ends], ends, strict=False):
        for at, to in _pieces(text, begin, end, chunk):
            piece = text[at:to]
            first = at + len(piece) - len(piece.lstrip())
            if piece.strip():
                yield first, first + len(piece.strip())


def _pieces(text: str, begin: int, end: int, chunk: int) -> Iterator[tuple[int, int]]:
    if end - begin <= chunk:
        yield begin, end
        return
    cuts = [begin, *(cut.end() for cut in _SENTENCE.finditer(text, begin, end)), end]
    for at, to in itertools.pairwise(cuts):
        while to - at > chunk:
            blank = text.rfind(" ", at + 1, at + chunk)
            middle = blank if blank > 0 else at + chunk
            yield at, middle
            at = middle
        yield at, to


class _LeftOut(Exception):
    """Why a file makes no passages."""


def _files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def _text_of(file: Path, root: Path) -> str:
    """Raises _LeftOut, OSError."""
    kind = file.suffix.lower()
    if kind not in _TEXT | _HTML | {".pdf"}:
        raise _LeftOut("neither Markdown, text, HTML nor PDF")
    if root.is_dir() and not file.resolve().is_relative_to(root.resolve()):
        raise _LeftOut("a link out of the folder")
    if not file.is_file():
        raise _LeftOut("no regular file")
    if file.stat().st_size > LARGEST_FILE:
        raise _LeftOut(f"more than {LARGEST_FILE >> 20} MiB")
    if kind == ".pdf":
        return _pdf_text(file)
    data = file.read_bytes()
    if b"\0" in data:
        raise _LeftOut("binary")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _LeftOut("not UTF-8") from None
    return _html_text(text) if kind in _HTML else text


def _html_text(text: str) -> str:
    """Return what a page shows; blocks are paragraphs. Time grows with the length, however broken the markup:
    the standard library's parser takes a minute for 100 KiB of tags that never end.

    Raises _LeftOut: a tag, a comment or a script never ends.
    """
    texts: list[str] = []
    at = unseen = 0
    while markup := _MARKUP.search(text, at):
        if not unseen:
            texts.append(_decode_references(text[at : markup.start()]))
        at, closed = markup.end(), markup["closed"]
        start, end = markup["start"], markup["end"]
        if tag := (start or end or "").lower():
            alone = bool(start) and markup[0].endswith("/>")
            if tag in _UNSEEN and not alone:
                unseen = unseen + 1 if start else max(0, unseen - 1)
            if tag not in _INLINE:
                texts.append(" " if tag in ("td", "th") else "\n")
            if tag in _RAW and start and not alone:
                closed = re.compile(rf"</\s*+{tag}[\s/>]", re.IGNORECASE).search(text, at)
                at = closed.start() if closed else len(text)
        if not closed and len(text) - markup.start() > _LONGEST_TAIL:
            raise _LeftOut("HTML with an unclosed tag, comment or script")
    if not unseen:
        texts.append(_decode_references(text[at:]))
    lines = (" ".join(line.split()) for line in "".join(texts).split("\n"))
    return "\n\n".join(filter(None, lines))


def _decode_references(text: str) -> str:
    try:
        return unescape(text).replace("\n", " ")
    except ValueError:  # &#9…; of more digits than Python reads
        return text


def _pdf_text(file: Path) -> str:
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError
    except ImportError:
        raise _LeftOut(f"a PDF needs pypdf: {install_command('pdf')}") from None
    try:
        text = "\n\n".join(page.extract_text() for page in PdfReader(file).pages)
    except (FileNotDecryptedError, DependencyError):
        raise _LeftOut("an encrypted PDF") from None
    except (PyPdfError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise _LeftOut("a damaged PDF") from None
    if not text.strip():
        raise _LeftOut("a PDF without text, such as a scan")
    return text
