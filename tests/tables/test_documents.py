"""Documents of any kind, healthy or hostile, and their passages."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from coeval.core.errors import UsageError
from coeval.tables import documents
from coeval.tables.documents import cut_passages, read_documents

PARAGRAPH = "Members may return a parcel within thirty days. The desk refunds the price, not the postage."


def write(folder: Path, **files: str | bytes) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, content in files.items():
        path = folder / name.replace("_", ".")
        path.write_bytes(content.encode() if isinstance(content, str) else content)
    return folder


def long_text(paragraphs: int) -> str:
    return "\n\n".join(f"Rule {n}: {PARAGRAPH} It is the rule number {n * 7919}." for n in range(paragraphs))


def test_passages_lie_where_they_say_and_hold_all_of_the_text(tmp_path: Path) -> None:
    text = f"# Returns\n\n{long_text(40)}\n\n## Long\n\n"
    text += " ".join(f"Sentence {n} of some words." for n in range(200))
    text += "\n\n" + "".join(f"{n:05}" for n in range(1000))
    found = read_documents(write(tmp_path, guide_md=text), 800)
    assert found.omissions == ()
    at = 0
    for passage in found.passages:
        name, _, offset = passage.source.partition("#")
        assert name == "guide.md"
        assert text[int(offset) :].startswith(passage.text)
        assert len(passage.text) <= 800
        assert not text[at : int(offset)].strip()  # nothing is left out between them
        at = int(offset) + len(passage.text)
    assert not text[at:].strip()


def test_passages_end_with_a_paragraph_or_a_sentence() -> None:
    text = f"{long_text(30)}\n\n{'A sentence of some words. ' * 200}"
    assert {text[:end].rstrip()[-1] for _, end in cut_passages(text, 800)} == {"."}


@pytest.mark.parametrize("at", [3, 40, 99])
def test_an_edit_changes_the_passages_around_it_alone(at: int) -> None:
    before = long_text(100)
    after = before.replace(f"Rule {at}:", f"Rule {at}, which is new and has become a good deal longer:")
    old, new = ({text[start:end] for start, end in cut_passages(text, 800)} for text in (before, after))
    assert 1 <= len(old - new) <= 4
    assert len(old) > 15


def test_html_is_what_it_shows(tmp_path: Path) -> None:
    page = (
        "<html><head><title>T</title><style>p {}</style><script>alert('no')</script></head><body>"
        f"<h1>Returns</h1><p>Members <b>may</b> return\n a parcel &amp; more.</p><p>{PARAGRAPH}</p></body>"
    )
    (passage,) = read_documents(write(tmp_path, page_html=page), 800).passages
    assert passage.text == f"Returns\n\nMembers may return a parcel & more.\n\n{PARAGRAPH}"


BROKEN = (
    *(
        '<a href="',
        "<a b='",
        "<p c=d ",
        "<b ",
        "</p ",
        "<!--",
        "<!-- --",
        "<!doctype ",
        "<?php ",
        "<![cdata[",
        "<![if ",
    ),
    *("<script>", "<style>i", "<script>var a = '</script", "<a =", '<a = "', "<p" + " " * 99, "<a\tb=/"),
)


@pytest.mark.parametrize("markup", BROKEN)
def test_html_that_never_ends_is_left_out_and_named(tmp_path: Path, markup: str) -> None:
    """In a megabyte, which the parser of the standard library reads for hours."""
    page = f"<p>{PARAGRAPH}</p>" + markup * (1_000_000 // len(markup))
    found = read_documents(write(tmp_path, good_html=f"<p>{PARAGRAPH}</p><b", bad_html=page), 800)
    assert [passage.source for passage in found.passages] == ["good.html#0"]
    assert [line.partition(" left out ")[2] for line in found.omissions] == [
        "(HTML with an unclosed tag, comment or script): bad.html"
    ]


@pytest.mark.parametrize(
    "filler",
    [
        "<b>",
        "<",
        "< ",
        "&",
        "&#",
        "&#9",
        "</>",
        "<!>",
        "<a b='>",
        "<!---->",
        "--",
        "<script></script>",
        "]]",
        '="',
    ],
)
def test_a_megabyte_of_markup_is_read(tmp_path: Path, filler: str) -> None:
    page = filler * (1_000_000 // len(filler)) + f"'><p>{PARAGRAPH}</p><!-- {'x' * 5000} -->"
    assert PARAGRAPH in read_documents(write(tmp_path, page_html=page), 800).passages[-1].text


def test_what_cannot_be_read_is_left_out_and_named(tmp_path: Path) -> None:
    folder = write(
        tmp_path / "handbook",
        good_md=PARAGRAPH,
        empty_md="",
        image_png=b"\x89PNG",
        latin_txt="Öffnungszeiten des Schalters".encode("latin-1"),
        nul_txt=b"text\0text" + PARAGRAPH.encode(),
        damaged_pdf=b"%PDF-1.7 nothing of a document",
    )
    write(tmp_path, secret_md=f"Secret. {PARAGRAPH}")
    (folder / "link.md").symlink_to(tmp_path / "secret.md")
    (folder / "loop").symlink_to(folder)
    os.mkfifo(folder / "pipe.txt")
    with (folder / "huge.txt").open("wb") as huge:
        huge.truncate(100 << 20)
    write(folder / ".git", hidden_md=PARAGRAPH.upper())
    found = read_documents(folder, 800)
    assert [passage.source for passage in found.passages] == ["good.md#0"]
    reasons = "\n".join(found.omissions)
    for name, reason in (
        ("image.png", "neither"),
        ("latin.txt", "not UTF-8"),
        ("nul.txt", "binary"),
        ("link.md", "a link out of the folder"),
        ("pipe.txt", "no regular file"),
        ("huge.txt", "more than 64 MiB"),
        ("damaged.pdf", "a damaged PDF"),
    ):
        assert any(name in line and reason in line for line in found.omissions), reasons


def test_a_pdf_is_read_page_by_page(tmp_path: Path) -> None:
    pypdf = pytest.importorskip("pypdf", reason="PDF files need pypdf")
    from pypdf.generic import DecodedStreamObject, DictionaryObject, NameObject

    writer = pypdf.PdfWriter()
    page = writer.add_blank_page(600, 800)
    font = DictionaryObject(
        {
            NameObject("/Type"): NameObject("/Font"),
            NameObject("/Subtype"): NameObject("/Type1"),
            NameObject("/BaseFont"): NameObject("/Helvetica"),
        }
    )
    page[NameObject("/Resources")] = DictionaryObject(
        {NameObject("/Font"): DictionaryObject({NameObject("/F1"): font})}
    )
    stream = DecodedStreamObject()
    stream.set_data(f"BT /F1 12 Tf 20 700 Td ({PARAGRAPH}) Tj ET".encode())
    page[NameObject("/Contents")] = writer._add_object(stream)
    with (tmp_path / "rules.pdf").open("wb") as file:
        writer.write(file)
    (passage,) = read_documents(tmp_path / "rules.pdf", 800).passages
    assert (passage.source, passage.text) == ("rules.pdf#0", PARAGRAPH)


def test_a_pdf_without_text_or_that_is_encrypted_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pypdf = pytest.importorskip("pypdf", reason="PDF files need pypdf")
    folder = write(tmp_path / "docs", rules_md=PARAGRAPH)
    for name in ("scan", "locked"):
        writer = pypdf.PdfWriter()
        writer.add_blank_page(600, 800)
        if name == "locked":
            writer.encrypt("secret", algorithm="RC4-128")
        with (folder / f"{name}.pdf").open("wb") as file:
            writer.write(file)
    said = " ".join(read_documents(folder, 800).omissions)
    assert "(a PDF without text, such as a scan): scan.pdf" in said
    assert "(an encrypted PDF): locked.pdf" in said

    def lacking(_: Path) -> None:  # what it raises of AES, without the package cryptography
        raise pypdf.errors.DependencyError("cryptography>=3.1 is required for AES algorithm")

    monkeypatch.setattr(pypdf, "PdfReader", lacking)
    found = read_documents(folder, 800)
    assert [passage.source for passage in found.passages] == ["rules.md#0"]
    assert "(an encrypted PDF): locked.pdf, scan.pdf" in " ".join(found.omissions)


def test_without_pypdf_the_install_line_is_said(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(__import__("sys").modules, "pypdf", None)
    with pytest.raises(UsageError, match=r"pip install 'pypdf>="):
        read_documents(write(tmp_path, rules_pdf=b"%PDF-1.7"), 800)


@pytest.mark.process
def test_ten_thousand_files_and_equal_texts(tmp_path: Path) -> None:
    for n in range(10_000):
        (tmp_path / f"{n:05}.txt").write_text(PARAGRAPH if n % 2 else f"Rule {n}. {PARAGRAPH}")
    found = read_documents(tmp_path, 800)
    assert len(found.passages) == 5_001


def test_nothing_to_read_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(UsageError, match="no file or folder"):
        read_documents(tmp_path / "gone", 800)
    with pytest.raises(UsageError, match=r"nothing in .* makes a passage.*picture\.png"):
        read_documents(write(tmp_path, picture_png=b"", note_md="# Title"), 800)
    monkeypatch.setattr(documents, "LARGEST_TEXT", 100)
    with pytest.raises(UsageError, match="more than 100 characters"):
        read_documents(write(tmp_path, a_md=PARAGRAPH, b_md=PARAGRAPH), 800)
