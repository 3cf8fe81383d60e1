r"""Foreign text where it is shown or logged: what cannot be shown is written out (``\x1b``).

Names, model output and hosts' messages move no cursor, turn no line around and begin no line of their own.
"""

from __future__ import annotations

import logging
import unicodedata

_JOINERS = "\u200c\u200d"
"""Within words of some scripts, and within signs made of several."""


def is_shown(character: str) -> bool:
    """Whether a character can be shown as it is: no control, no change of direction, nothing unseen."""
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def plain(text: str) -> str:
    """``text`` in one line; what cannot be shown is escaped, neither obeyed nor lost."""
    return text if text.isprintable() else "".join(map(_escaped, text))


def plain_lines(text: str) -> str:
    """As `plain`, line by line; a tab is four blanks."""
    if text.isprintable():
        return text
    return "\n".join(map(plain, text.replace("\r\n", "\n").replace("\t", "    ").split("\n")))


class PlainFormatter(logging.Formatter):
    """One line for one event, whatever the event quotes; a traceback too is one."""

    def format(self, record: logging.LogRecord) -> str:
        return plain(super().format(record))


def _escaped(character: str) -> str:
    return character if is_shown(character) else character.encode("unicode_escape", "surrogatepass").decode()


def shortened(text: str, longest: int) -> str:
    """A text with its middle left out where it is too long: how it ends is often what matters."""
    if len(text) <= longest:
        return text
    return f"{text[: longest // 2]} … {text[-longest // 2 :]}"
