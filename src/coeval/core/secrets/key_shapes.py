"""What looks like a key, for whoever does not know which keys there are."""

from __future__ import annotations

import re

__all__ = ["KEY_SHAPED", "KNOWN_KEY", "is_key_like", "is_password_like"]

KNOWN_KEY = re.compile(
    r"\b(?:sk|gsk|hf|csk|di|xai|nvapi|pplx)[-_](?=[\w*-]*[\d*])[\w*-]{8,}"
    r"|\b(?:AIza[\w-]{16,}|A[KS]IA[0-9A-Z]{12,}|eyJ[\w-]{10,}\.[\w-]{10,}(?:\.[\w-]*)?)"
)
"""A key of a known host, or what is left of one that is masked."""
KEY_SHAPED = re.compile(rf"{KNOWN_KEY.pattern}|(?i:(?<=bearer )|(?<=basic ))[\w.~+/=*-]{{8,}}")
"""Also what follows the name of a scheme of authentication."""

_NAMED = re.compile(r"(?:key|token|secret|passw\w*|auth|bearer)[-_.~=:].*\d", re.IGNORECASE)
_LONG = re.compile(r"\b(?![0-9a-f]{40}\b)(?=(?:[a-z]*\d){2})(?=(?:\d*[a-z]){4})[a-z0-9]{16,}", re.IGNORECASE)
_MIXED = re.compile(r"(?=[a-z0-9]*[A-Z])(?=[A-Z0-9]*[a-z])(?=[A-Za-z]*\d)[A-Za-z0-9]{12,}")

_SIGNED = re.compile(r"(?=.*\d)(?=.*[a-z])(?=.*[A-Z])(?=.*[!$&*+,;~])[\x21-\x7e]{8,}")


def is_key_like(text: str) -> bool:
    """Whether a part of a URL looks like a key: by its shape, its name, or for letters and digits at random.

    A UUID does not, for hosts call accounts so; nor does a revision of git.
    """
    return any(shape.search(text) for shape in (KEY_SHAPED, _NAMED, _LONG, _MIXED))


def is_password_like(text: str) -> bool:
    """Whether it holds what is as passwords are asked to be: 8 signs or more, of all four kinds."""
    return any(map(_SIGNED.fullmatch, text.split()))
