"""The ways in which a host may write a credential back: one function each."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable, Iterator
from urllib.parse import quote

Encoding = Callable[[str], str]


def _each(form: str) -> Encoding:
    return lambda secret: "".join(form.format(byte) for byte in secret.encode())


ENCODINGS: dict[str, Encoding] = {
    "as it is": str,
    "in capitals": str.upper,
    "in small letters": str.lower,
    "for a URL": lambda secret: quote(secret, safe=""),
    "for a URL, every sign": _each("%{:02X}"),
    "in JSON": lambda secret: json.dumps(secret)[1:-1].replace("/", "\\/"),
    "in JSON, every sign": _each("\\u{:04x}"),
    "in base64": lambda secret: base64.b64encode(f"Bearer {secret}".encode()).decode(),
    "in base64 for URLs": lambda secret: base64.urlsafe_b64encode(f"?{secret}".encode()).decode(),
    "for HTML, every sign": _each("&#{};"),
}
"""The ten that the sweep over all commands uses."""

MORE_ENCODINGS: dict[str, Encoding] = {
    "with case changed": str.swapcase,
    "as a title": str.title,
    "for a URL, twice": _each("%25{:02x}"),
    "in Python": _each("\\x{:02x}"),
    "for HTML in hexadecimal": _each("&#x{:x};"),
    "in JSON in JSON": _each("\\\\u{:04X}"),
    "in base64, in lines": lambda secret: base64.encodebytes(f"{'.' * 40}{secret}".encode()).decode(),
    "broken in two": lambda secret: f"{secret[:11]}\n   {secret[11:]}",
}


def pieces(secret: str, length: int = 8) -> Iterator[str]:
    """Each run of so many characters of a secret, in small letters."""
    small = secret.lower()
    return (small[start : start + length] for start in range(len(small) - length + 1))


def left_of(secret: str, text: str) -> list[str]:
    """What of a secret stands in a text: its spellings by any of the encodings, and its 8-character runs.

    The text is held against every encoding as it stands, without blanks, and in small letters.
    """
    bare = "".join(sign for sign in text if not sign.isspace() and sign != "\u200b")
    reported = (text.lower(), bare.lower())
    found = [piece for piece in pieces(secret) if any(piece in said for said in reported)]
    for name, encode in (ENCODINGS | MORE_ENCODINGS).items():
        written = encode(secret)
        core = "".join(written.split())[4:-4].lower()
        if any(core in said for said in reported):
            found.append(name)
    return found
