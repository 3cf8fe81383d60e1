"""Pairwise comparison: two answers in both orders, and the verdict of the judge's reply."""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Literal, NamedTuple, TypeAlias

from coeval.core.errors import Unparsable
from coeval.core.records import Completion, TokenLogprob, Winner
from coeval.core.text import extract_json, split_reasoning
from coeval.judging.verdict import is_contradicted

# --- Log-probabilities of the verdict token


def is_lost_in_reasoning(completion: Completion) -> bool:
    """Check whether a reply ended before its answer began."""
    if completion.text.strip():
        return False
    is_unclosed = split_reasoning("".join(token.token for token in completion.logprobs))[2]
    return completion.reasoning is not None or is_unclosed


def answer_logprobs(completion: Completion, *, reasons_first: bool = True) -> dict[str, float]:
    """Return the likeliest first tokens of the answer: token → natural-log probability.

    For a judge that reasons first, the answer's first token is located by the answer's text; all that another
    says is its answer, wherever the host put it.

    Raises Unparsable: there are no log-probabilities, or no answer before the end.
    """
    if not completion.logprobs:
        raise Unparsable("the reply came without log-probabilities", raw=completion.text)
    if reasons_first and is_lost_in_reasoning(completion):
        raise Unparsable(f"the reply ended before its answer ({completion.finish_reason})", raw="")
    token = _first_of_answer(completion)
    return token.top or {token.token: token.logprob}


def _first_of_answer(completion: Completion) -> TokenLogprob:
    tokens = completion.logprobs
    said = "".join(token.token for token in tokens)
    start = said.rfind(completion.text.strip())
    if start < 0:  # tokens that spell their blanks in marks, or bytes in escapes
        start = len(said) - len(split_reasoning(said)[0])
    position = 0
    for token in tokens:
        position += len(token.token)
        if position > start and token.token.strip():
            return token
    return tokens[0]


Order: TypeAlias = Literal["baseline-first", "model-first"]
ORDERS: tuple[Order, Order] = ("baseline-first", "model-first")

# Arena-Hard's: the label in double brackets, or else in single ones, in any letter case.
_LABEL_PATTERNS = (re.compile(r"\[\[([AB<>=]+)\]\]"), re.compile(r"\[([AB<>=]+)\]"))

# ``m`` or ``M`` as a word of its own: not the m of "I'm".
_IDENTIFIER = re.compile(r"(?<![\w'’])[mM](?![\w'’])")
_AROUND = " \t\r\n\"'`*_.,;:!()[]{}<>#“”‘’"
_OPENING = re.compile(r"[\"'`*_(\[{“‘]*([mM])[\"'`*_)\]}”’]*(?:[.,;:!)–—-]|\s+[–—-]|\s*\n|$)")


class Shown(NamedTuple):
    """The two answers in the order shown to the judge."""

    first: str
    second: str


def shown(order: Order, model: str, baseline: str) -> Shown:
    return Shown(baseline, model) if order == "baseline-first" else Shown(model, baseline)


def parse_label(text: str, labels: Collection[str]) -> str:
    """Parse the judge's last bracketed label, as Arena-Hard does; it must be one of ``labels``.

    Raises Unparsable: there is no bracketed label, or the last one is no verdict (``[[A]]``).
    """
    upper = text.upper()
    for pattern in _LABEL_PATTERNS:
        found = pattern.findall(upper)
        if not found:
            continue
        if found[-1] in labels:
            return str(found[-1])
        raise Unparsable(f"the reply's last label, [[{found[-1][:20]}]], is no verdict", raw=text)
    raise Unparsable(f"the reply holds no verdict in brackets; it ends {text[-80:]!r}", raw=text)


def parse_identifier(text: str) -> Literal["m", "M"]:
    """Parse which of the models ``m`` and ``M`` a judge names in words; letter case decides.

    A line of nothing but the identifier is a verdict. Else the reply must name only one of the two,
    and begin or end with it ("M.", "I'm going with M"): "M is too long" is no verdict.

    Raises Unparsable: neither is named, both are, or the one that is stands amid prose.
    """
    bare = {line.strip(_AROUND) for line in text.splitlines()} & {"m", "M"}
    named = set(_IDENTIFIER.findall(text))
    decided = bare or (named if _stands_out(text) else set())
    if len(decided) != 1 or (not bare and len(named) != 1):
        raise Unparsable(f"the reply does not name one model, m or M; it begins {text[:80]!r}", raw=text)
    return "m" if decided == {"m"} else "M"


def _stands_out(text: str) -> bool:
    """Whether an identifier opens the reply, parted from what follows, or closes it."""
    body = text.strip()
    closing = list(_IDENTIFIER.finditer(body))
    closes = bool(closing) and not body[closing[-1].end() :].strip(_AROUND)
    return closes or _OPENING.match(body) is not None


# --- Verdict of a run's judge: ``{"reason": "…", "verdict": "A"}``

_WINNER_OF: dict[str, Winner] = {"a": "first", "b": "second", "tie": "tie"}


class Preferred(NamedTuple):
    """The answer that a judge prefers, and why: empty where it gives no reason."""

    winner: Winner
    reason: str


def parse_preference(text: str) -> Preferred:
    """Parse A, B or tie: the bare word, or JSON with it as ``verdict``.

    Raises Unparsable: the reply is anything else, or says two things.
    """
    winner = _WINNER_OF.get(text.strip(_AROUND).casefold())
    if winner is not None:
        return Preferred(winner, "")
    found = extract_json(text).value
    said = found.get("verdict") if isinstance(found, dict) else None
    winner = _WINNER_OF.get(said.strip(_AROUND).casefold()) if isinstance(said, str) else None
    if winner is None:
        raise Unparsable(f"the reply holds no verdict that is A, B or tie, but {said!r:.80}", raw=text)
    if is_contradicted(text, "verdict"):
        raise Unparsable("the reply holds more than one verdict", raw=text)
    reason = found.get("reason")
    return Preferred(winner, reason.strip() if isinstance(reason, str) else "")
