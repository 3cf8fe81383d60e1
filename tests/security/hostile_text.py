"""Texts that a terminal or a log would obey, and what may be left of them where they are shown."""

from __future__ import annotations

import re
import unicodedata

MARKUP = "[/ev][bold red]:bomb:[link=http://x]"
TEXTS = (
    MARKUP,
    "\x1b[2J\x1b]0;owned\x07",
    "\x9b31mred",
    "\r\nDone: 0 failed",
    "\u202egnp.exe\u2066",
    "\u2028\u2029\x85\x0b\x0c\x08\x7f",
    "\ufeff\u200b\u00ad\U000e0041",
)
"""Markup of the library that draws; what clears a screen; a C1 control; a line of its own; bidirectional
marks; other ends of lines; what nobody sees."""

_STYLES = re.compile(r"\x1b\[[0-9;]*m|\x1b\[\?25[hl]|\x1b\[\d*[AK]")
"""What our own drawing sends to a terminal."""


def obeyed(shown: str) -> list[str]:
    """The characters of an output that a terminal does not just show."""
    text = _STYLES.sub("", shown).replace("\r\n", "\n")
    return [
        f"U+{ord(character):04X} in {text[max(0, at - 20) : at + 20]!r}"
        for at, character in enumerate(text)
        if character != "\n" and unicodedata.category(character) in ("Cc", "Cf", "Zl", "Zp", "Cs")
        and character not in "\u200c\u200d"
    ]  # fmt: skip
