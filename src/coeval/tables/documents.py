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

from coeval.core.entry_points import extra_pip_command
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
_HIDDEN = frozenset({"script", "style", "template", "noscript", "title"})
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
    """Distinct passages, in the order of file names; ``omissions`` say which files were left out and why."""

    passages: tuple[DocumentPassage, ...]
    omissions: tuple[str, ...]


def read_documents(path: Path, longest_passage: int) -> CutDocuments:
    """Read a file or a folder, and cut its texts into passages of at most so many characters. Skips other
    kinds of file, those that are too large or not UTF-8, and links out of the folder. Raises UsageError:
    the path does not exist, or no file makes a passage."""
    if not path.exists():
        raise UsageError(f"there is no file or folder {path}")
    passages: dict[str, DocumentPassage] = {}
    skipped: dict[str, list[str]] = {}
    characters = 0
    for file in _list_files(path):
        below = file.relative_to(path if path.is_dir() else path.parent).as_posix()
        name = escape_line(os.fsencode(below).decode("utf-8", "replace"))
        try:
            text = _read_text(file, path)
        except (_SkippedFile, OSError) as error:
            reason = str(error) if isinstance(error, _SkippedFile) else error.strerror or type(error).__name__
            skipped.setdefault(reason, []).append(name)
            continue
        characters += len(text)
        if characters > LARGEST_TEXT:
            raise UsageError(f"{path} holds more than {LARGEST_TEXT:,} characters of text; name a part of it")
        for start, end in cut_passages(text, longest_passage):
            passage = DocumentPassage(f"{name}#{start}", text[start:end], digest(text[start:end])[:12])
            passages.setdefault(passage.key, passage)
    omissions = tuple(
        f"{path}: {pluralize(len(names), 'file')} left out ({reason}): {join_names(names, 4)}"
        for reason, names in skipped.items()
    )
    if not passages:
        nothing = f"nothing in {path} makes a passage of {_FEWEST_LETTERS} letters"
        raise UsageError("; ".join((nothing, *omissions)))
    return CutDocuments(tuple(passages.values()), omissions)


def cut_passages(text: str, longest_passage: int) -> list[tuple[int, int]]:
    """Return start and end of each passage, cut at the end of a paragraph, else of a sentence, else of a
    word. A passage that is half full ends before a heading, or before a paragraph chosen by its hash, so that
    an edit moves only the cuts near it."""
    spans: list[tuple[int, int]] = []
    for at, to in _split_text(text, longest_passage):
        unit, start, end = text[at:to], *(spans[-1] if spans else (at, at))
        is_half_full = 2 * (end - start) >= longest_passage
        may_end = unit.startswith("#") or digest(unit)[0] in "0123"
        if not spans or to - start > longest_passage or (is_half_full and may_end):
            spans.append((at, to))
        else:
            spans[-1] = start, to
    return [(a, b) for a, b in spans if sum(map(str.isalnum, text[a:b])) >= _FEWEST_LETTERS]


def _split_text(text: str, longest_passage: int) -> Iterator[tuple[int, int]]:
    """Yield the spans of paragraphs; of longer ones their sentences; of longer sentences pieces."""
    ends = [*(blank.start() for blank in _BLANK_LINE.finditer(text)), len(text)]
    for begin, end in zip([0, *ends], ends, strict=False):
        for at, to in _split_paragraph(text, begin, end, longest_passage):
            piece = text[at:to]
            first = at + len(piece) - len(piece.lstrip())
            if piece.strip():
                yield first, first + len(piece.strip())


def _split_paragraph(text: str, begin: int, end: int, longest_passage: int) -> Iterator[tuple[int, int]]:
    if end - begin <= longest_passage:
        yield begin, end
        return
    cuts = [begin, *(cut.end() for cut in _SENTENCE.finditer(text, begin, end)), end]
    for at, to in itertools.pairwise(cuts):
        while to - at > longest_passage:
            blank = text.rfind(" ", at + 1, at + longest_passage)
            middle = blank if blank > 0 else at + longest_passage
            yield at, middle
            at = middle
        yield at, to


class _SkippedFile(Exception):
    """A file that makes no passages; the message says why."""


def _list_files(path: Path) -> Iterator[Path]:
    if not path.is_dir():
        yield path
        return
    for folder, below, names in os.walk(path):
        below[:] = sorted(name for name in below if not name.startswith("."))
        yield from (Path(folder, name) for name in sorted(names) if not name.startswith("."))


def _read_text(file: Path, root: Path) -> str:
    """Read a document's text; raises _SkippedFile or OSError."""
    kind = file.suffix.lower()
    if kind not in _TEXT | _HTML | {".pdf"}:
        raise _SkippedFile("neither Markdown, text, HTML nor PDF")
    if root.is_dir() and not file.resolve().is_relative_to(root.resolve()):
        raise _SkippedFile("a link out of the folder")
    if not file.is_file():
        raise _SkippedFile("no regular file")
    if file.stat().st_size > LARGEST_FILE:
        raise _SkippedFile(f"more than {LARGEST_FILE >> 20} MiB")
    if kind == ".pdf":
        return _extract_pdf_text(file)
    data = file.read_bytes()
    if b"\0" in data:
        raise _SkippedFile("binary")
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        raise _SkippedFile("not UTF-8") from None
    return _extract_html_text(text) if kind in _HTML else text


def _extract_html_text(text: str) -> str:
    """Return the visible text of a page; blocks become paragraphs. Takes linear time however broken the
    markup: the standard library's parser needs a minute for 100 KiB of unclosed tags. Raises _SkippedFile:
    a tag, a comment or a script never ends."""
    texts: list[str] = []
    at = hidden_depth = 0
    while markup := _MARKUP.search(text, at):
        if not hidden_depth:
            texts.append(_decode_references(text[at : markup.start()]))
        at, closed = markup.end(), markup["closed"]
        start, end = markup["start"], markup["end"]
        if tag := (start or end or "").lower():
            self_closing = bool(start) and markup[0].endswith("/>")
            if tag in _HIDDEN and not self_closing:
                hidden_depth = hidden_depth + 1 if start else max(0, hidden_depth - 1)
            if tag not in _INLINE:
                texts.append(" " if tag in ("td", "th") else "\n")
            if tag in _RAW and start and not self_closing:
                closed = re.compile(rf"</\s*+{tag}[\s/>]", re.IGNORECASE).search(text, at)
                at = closed.start() if closed else len(text)
        if not closed and len(text) - markup.start() > _LONGEST_TAIL:
            raise _SkippedFile("HTML with an unclosed tag, comment or script")
    if not hidden_depth:
        texts.append(_decode_references(text[at:]))
    lines = (" ".join(line.split()) for line in "".join(texts).split("\n"))
    return "\n\n".join(filter(None, lines))


def _decode_references(text: str) -> str:
    try:
        return unescape(text).replace("\n", " ")
    except ValueError:  # &#9…; of more digits than Python reads
        return text


def _extract_pdf_text(file: Path) -> str:
    """Return the text of a PDF's pages; raises _SkippedFile if it is encrypted, damaged or a scan."""
    try:
        from pypdf import PdfReader
        from pypdf.errors import DependencyError, FileNotDecryptedError, PyPdfError
    except ImportError:
        raise _SkippedFile(f"a PDF needs pypdf: {extra_pip_command('pdf')}") from None
    try:
        text = "\n\n".join(page.extract_text() for page in PdfReader(file).pages)
    except (FileNotDecryptedError, DependencyError):
        raise _SkippedFile("an encrypted PDF") from None
    except (PyPdfError, ValueError, LookupError, TypeError, AttributeError, ArithmeticError, RecursionError):
        raise _SkippedFile("a damaged PDF") from None
    if not text.strip():
        raise _SkippedFile("a PDF without text, such as a scan")
    return text
