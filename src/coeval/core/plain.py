"""Foreign text where it is shown or logged: what cannot be shown is written out (``\x1b``).

Names, model output and hosts' messages move no cursor, turn no line around and begin no line of their own.
"""

from __future__ import annotations

import logging
import unicodedata

# Within words of some scripts, and within signs made of several.
JOINERS = "\u200c\u200d"


def is_displayable(character: str) -> bool:
    """Check whether a character is safe to show: no control, no change of direction, not invisible."""
    return character.isprintable() or character in JOINERS or unicodedata.category(character) == "Zs"


def escape_line(text: str) -> str:
    """Escape what cannot be shown, and join the lines to one."""
    if text.isprintable():
        return text
    return "".join(
        sign if is_displayable(sign) else sign.encode("unicode_escape", "surrogatepass").decode()
        for sign in text
    )


def looks_like_formula(text: str) -> bool:
    """Check whether a spreadsheet might take a text for a formula, at once or when a person edits it."""
    return text.lstrip().startswith(("=", "+", "-", "@"))


def guard_formula(text: str) -> str:
    """Mark text that a spreadsheet would take for a formula as the text it is."""
    return escape_line(f"'{text}" if looks_like_formula(text) else text)


def escape_lines(text: str) -> str:
    """Escape like `escape_line`, line by line; a tab becomes four blanks."""
    if text.isprintable():
        return text
    return "\n".join(map(escape_line, text.replace("\r\n", "\n").replace("\t", "    ").split("\n")))


class PlainFormatter(logging.Formatter):
    """Log formatter that writes one line per event, tracebacks included."""

    def format(self, record: logging.LogRecord) -> str:
        return escape_line(super().format(record))


def cut_middle(text: str, longest: int) -> str:
    """Cut the middle out of a long text, since its end often matters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} … {text[-longest // 2 :]}"
