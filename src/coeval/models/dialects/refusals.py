"""What the messages of errors mean, from any host: one table for all dialects, ``refusals.toml``.

Hosts and gateways agree on few statuses and codes, and repeat each other's messages. A dialect reads the
message, codes and parameter of an error; the first row whose words match says what the error is.
`HostedModel` decides what to learn from a refusal.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path

import msgspec

from coeval.core.errors import (
    AccessDenied,
    AccountSpent,
    ContentFiltered,
    ModelError,
    NotFound,
    Unreadable,
)
from coeval.models.dialects.dialect import FieldRejected, LimitRenamed, SchemaRejected

UNPROCESSED = (400, 422)
# Engines say so of a grammar that they cannot compile, or of a seed that a device cannot take.
_BROKEN = (500, 501)


def is_broken(status: int | None) -> bool:
    """Check for a status of a host that failed at a request, which another host of its kind may not."""
    return status in _BROKEN


TOO_LONG = re.compile(
    r"context[_ ](?:length|window)|maximum context|too (?:long|large)|input_tokens|too many tok"
)


class _Row(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    error: str
    words: tuple[str, ...]
    statuses: tuple[int, ...] = UNPROCESSED
    passes: bool = False
    vague: bool = False


class _Table(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """``refusals.toml``, which says what its fields mean."""

    row: tuple[_Row, ...]
    parameters: dict[str, str]


_TABLE = msgspec.toml.decode(Path(__file__).with_name("refusals.toml").read_bytes(), type=_Table)
_ROWS = [(row, re.compile("|".join(row.words))) for row in _TABLE.row]
_KINDS = (AccessDenied, AccountSpent, ContentFiltered, NotFound, SchemaRejected, Unreadable)
_KIND_BY_NAME: Mapping[str, type[ModelError]] = {kind.__name__: kind for kind in _KINDS}

_NOT_TAKEN = re.compile(
    r"unexpected|unrecogni[sz]ed|unknown|unsupported|extra_forbidden|extra inputs|extraneous|malformed"
    r"|invalid|deprecated|cannot both|may only be|must be unset|too many|forbidden|disallowed|disabled"
    r"|not (?:permitted|allowed|supported|available|implemented|accepted|enabled)|does(?: not|n't) support"
    r"|no support for|cannot be (?:set|used|specified)"
)
_NAMED = re.compile("|".join(rf"(?P<{name}>\b(?:{words})\b)" for name, words in _TABLE.parameters.items()))
# A field that the host puts in quotes, or names apart from its words; a schema's own names are in quotes too.
_SINGLED_OUT = re.compile(rf"^(?!.*\bschema\b).*['\"`](?:{_NAMED.pattern})['\"`]")
_ABOUT_SYSTEM = re.compile(
    r"system (?:role|message|prompt|instruction)|'messages\[0\]\.role'|role:? .?system"
)
_THINGS = r"(?:argument|parameter|field|property|key)s?(?: in the request| supplied)?"
_OTHERS = (
    re.compile(rf"{_THINGS}:? ?[{{\['\"`]+([a-z]\w*)"),
    re.compile(rf"{_THINGS}: ([a-z]\w*)|\b([a-z]\w*): extra inputs"),
)
_WORD = re.compile(r"[a-z]\w*")
_NO_PARAMETERS = frozenset({"messages", "model", "input", "prompt", "body"})


def classify_refusal(
    status: int, message: str, *, codes: str = "", param: str = "", names_wait: bool = False
) -> ModelError | None:
    """Classify a refusal by the host's words; None leaves it to the status. ``message`` is quoted in the
    error, ``codes`` and ``param`` are only read."""
    param = param.lower()
    text = f"{param} {message}".lower()
    about = f"{codes.lower()} {text}"
    singled_out = _NAMED.fullmatch(param) or _SINGLED_OUT.search(text)
    for row, pattern in _ROWS:
        fits = status in row.statuses if row.statuses else status >= 400
        fits = fits and not (names_wait and row.passes) and not (singled_out and row.vague)
        if fits and pattern.search(about):
            return _KIND_BY_NAME[row.error](message, status=status)
    if status not in (*UNPROCESSED, *_BROKEN) or not _NOT_TAKEN.search(text):
        return None
    if "max_tokens" in text and "max_completion_tokens" in text:
        return LimitRenamed(message, status=status)
    name = _find_refused_parameter(param, text)
    if name is None or (status in _BROKEN and name != "seed"):
        return None
    return FieldRejected(f"{message}; leave {name} out of the model's parameters", status=status, field=name)


def _find_refused_parameter(param: str, about: str) -> str | None:
    """Find the refused parameter, by our name if it has one."""
    if _ABOUT_SYSTEM.search(about):
        return "system_prompt"
    names = [str(match.lastgroup) for match in _NAMED.finditer(about)]
    if param and _WORD.fullmatch(param) and param not in _NO_PARAMETERS:
        return next((str(match.lastgroup) for match in [_NAMED.fullmatch(param)] if match), param)
    if names:  # where two cannot both be set, the first one says more
        return names[-1 if "both" in about else 0]
    others = ("".join(match.groups("")) for words in _OTHERS for match in words.finditer(about))
    return next((name for name in others if name not in _NO_PARAMETERS), None)
