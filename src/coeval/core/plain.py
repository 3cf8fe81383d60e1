"""Foreign text where it is shown: names, model output and hosts' messages move no cursor."""

from __future__ import annotations

import unicodedata

_JOINERS = "\u200c\u200d"
"""Within words of some scripts, and within signs made of several."""


def plain(text: str) -> str:
    """``text`` in one line, with ``\ufffd`` in place of what cannot be printed."""
    return "".join(character if character.isprintable() else "\ufffd" for character in text)


def plain_lines(text: str) -> str:
    """As `plain`, line by line."""
    return "\n".join(map(plain, text.split("\n")))


def is_shown(character: str) -> bool:
    """Whether a character can be shown as it is: no control, no change of direction, nothing unseen."""
    return character.isprintable() or character in _JOINERS or unicodedata.category(character) == "Zs"


def escaped(text: str) -> str:
    r"""``text`` in one line; what cannot be shown is written out (``\x1b``), neither obeyed nor lost."""
    return "".join(map(_escaped, text))


def escaped_lines(text: str) -> list[str]:
    """As `escaped`, line by line; a tab is four blanks."""
    return list(map(escaped, text.replace("\r\n", "\n").replace("\t", "    ").split("\n")))


def _escaped(character: str) -> str:
    return character if is_shown(character) else character.encode("unicode_escape", "surrogatepass").decode()
