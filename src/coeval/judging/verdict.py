"""Parse judges' replies: levels, criteria met, labels, the better of two answers. Nothing is guessed.

``8/10``, ``medium-high``, ``Very High`` or null are no levels: the factor is missing, is requested again,
and may stay missing. A default score would be invented.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterator, Mapping
from contextlib import suppress
from functools import cache, lru_cache
from typing import Any, Generic, Literal, NamedTuple, TypeAlias, TypeVar

from coeval.core.errors import Undecodable, Unparsable
from coeval.core.foreign import make_decoder
from coeval.core.records import Completion, TokenLogprob, Winner
from coeval.core.scale import HIGH_MEDIUM_LOW, RubricScale
from coeval.core.text import (
    Pairs,
    canonical_json,
    digest,
    every_json,
    extract_json,
    normalize_name,
    split_reasoning,
)

# --- Contradictory statements in a reply
#
# Decoded JSON cannot tell: of a repeated key it holds the last value only. So the reply is read again, with
# every key as often as it stands.

FACTOR_KEYS = ("factor", "name", "criterion", "dimension")
SCORE_KEYS = ("score", "level", "rating", "value")

_PARTING = re.compile(r"[\s_-]+")
# A reason is prose: what it says of levels is no verdict.
_REASON = re.compile(r"""(["'])(?:reasons?|rationale|explanation|justification)\1\s*:\s*"(?:[^"\\]|\\.)*\"""")
_REASON_KEYS = ("reason", "rationale", "explanation", "justification", "reasons")


@cache
def _assigned_level_pattern(scale: RubricScale) -> str:
    """Return a pattern of a level as a value, or in an object there; quotes may be wrong or missing."""
    words = "|".join(map(re.escape, sorted(scale.levels, key=len, reverse=True)))
    return rf"""[:=]\s*(?:[{{\[][^{{}}]{{0,200}}?[:=]\s*)?[\"'`*“‘]*({words})(?!\w|\.\d)"""


def find_contradicted_factors(text: str, scales: Mapping[str, RubricScale], *, repaired: bool) -> set[str]:
    """Find the factors to which a reply gives two different levels, in any spelling and at any depth.
    ``scales``: by factor; ``repaired``: the reply's JSON is damaged, so it is read as text too."""
    requested = [normalize_name(factor) for factor in scales]
    stated = [pair for _, value in every_json(text) for pair in _iterate_named_values(value, {*requested})]
    contradicted = set()
    for (factor, scale), fold in zip(scales.items(), requested, strict=True):
        alone = requested.count(fold) == 1
        values = (v for name, v in stated if (normalize_name(name) == fold if alone else name == factor))
        levels = {level for value in values if (level := scale.level(value)) is not None}
        if repaired:
            levels.update(_find_levels_after_name(factor, _REASON.sub("", text), scale, any_case=alone))
        if len(levels) > 1:
            contradicted.add(factor)
    return contradicted


def is_contradicted(text: str, key: str) -> bool:
    """Check whether a reply's objects, or repeated keys, hold different values under ``key``."""
    values: list[Any] = []
    for _, value in every_json(text):
        if isinstance(value, Pairs):
            values += [item for name, item in value if name == key]
    return any(type(value) is not type(values[0]) or value != values[0] for value in values[1:])


def find_levels_under_any_key(text: str, scale: RubricScale) -> set[str]:
    """Return every level that a reply gives to any key."""
    words = re.findall(_assigned_level_pattern(scale), _REASON.sub("", text), re.IGNORECASE)
    return _match_levels(words, scale)


def _iterate_named_values(value: Any, stop_below: set[str]) -> Iterator[tuple[str, Any]]:
    """Yield the names and values that JSON pairs, at any depth; only some of the values are levels."""
    if isinstance(value, Pairs):
        names = [item for key, item in value if key in FACTOR_KEYS and isinstance(item, str)]
        here = _list_scores(value)
        yield from ((name, score) for score in here for name in names)
        for key, item in value:
            if not isinstance(item, list | Pairs):
                yield key, item
                continue
            scores = _list_scores(item) if isinstance(item, Pairs) else []
            yield from ((key, score) for score in scores)
            if not scores or normalize_name(key) not in stop_below:
                yield from _iterate_named_values(item, stop_below)
    elif isinstance(value, list):
        for item in value:
            yield from _iterate_named_values(item, stop_below)


def _list_scores(entry: Pairs) -> list[Any]:
    return [score for key, score in entry if key in SCORE_KEYS and not isinstance(score, list | Pairs)]


def _find_levels_after_name(factor: str, text: str, scale: RubricScale, *, any_case: bool) -> set[str]:
    """Find the levels that follow a factor's name in damaged JSON."""
    words = list(filter(None, _PARTING.split(factor))) if any_case else []
    name = r"[\s_-]+".join(map(re.escape, words or [factor]))
    case = "(?i:" if any_case else "(?:"
    matches = re.findall(rf"(?<!\w){case}{name})[\"'`*”’]*\s*(?i:{_assigned_level_pattern(scale)})", text)
    return _match_levels(matches, scale)


def _match_levels(words: list[str], scale: RubricScale) -> set[str]:
    return {level for word in words if (level := scale.level(word)) is not None}


# --- One verdict in JSON, such as ``{"score": 7, "reason": "…"}``

# WritingBench's own scale.
LOWEST, HIGHEST = 1, 10

_Verdict = TypeVar("_Verdict")


class StatedVerdict(NamedTuple, Generic[_Verdict]):
    """A judge's verdict, and its reason, empty if it gives none. ``repaired``: its JSON was damaged."""

    value: _Verdict
    reason: str
    repaired: bool = False


def _parse_json_verdict(
    text: str, key: str, read: Callable[[Any], _Verdict | None], expected: str, reason: str = "reason"
) -> StatedVerdict[_Verdict]:
    """Read the value under ``key`` in a reply's JSON; raise Unparsable if ``read`` returns None for it."""
    parsed = extract_json(text)
    fields = parsed.value if isinstance(parsed.value, dict) else {}
    if (value := read(fields.get(key))) is None:
        raise Unparsable(f"the reply holds no {expected}, but {fields.get(key)!r:.80}", raw=text)
    if is_contradicted(text, key):
        raise Unparsable(f"the reply holds more than one {key}", raw=text)
    why = fields.get(reason)
    return StatedVerdict(value, why.strip() if isinstance(why, str) else "", parsed.repaired)


def parse_criterion_score(text: str) -> StatedVerdict[int]:
    """Parse a judge's whole number from 1 to 10, and its reason. An integral float (``7.0``) is accepted; a
    string, a boolean or a value off the scale is not, and nothing is clipped: raises Unparsable."""
    return _parse_json_verdict(
        text, "score", _read_criterion_score, f"whole number from {LOWEST} to {HIGHEST} as its score"
    )


def _read_criterion_score(value: Any) -> int | None:
    if isinstance(value, bool) or not isinstance(value, int | float):
        return None
    return int(value) if LOWEST <= value <= HIGHEST and value == int(value) else None


def parse_criteria_met(text: str) -> StatedVerdict[bool]:
    """Parse whether a rubric's item is met: JSON true or false only. Raises Unparsable: the reply holds no
    ``criteria_met`` that is a truth value."""
    needed = "criteria_met that is true or false"
    return _parse_json_verdict(
        text, "criteria_met", lambda value: value if isinstance(value, bool) else None, needed, "explanation"
    )


# --- Rubrics


def criterion_hash(criterion: str, scale: RubricScale = HIGH_MEDIUM_LOW) -> str:
    """Hash a criterion, and a scale that is not the default, to 8 hex digits; a score with another hash is
    outdated. Line breaks do not matter, since judges see the text on one line."""
    text = " ".join(criterion.split())
    hashed = text if scale == HIGH_MEDIUM_LOW else canonical_json([text, scale.levels, scale.values])
    return digest(hashed)[:8]


_read_object = make_decoder(dict[str, Any])
_CONTAINERS = (dict, list)
_TELLING_KEYS = frozenset({*FACTOR_KEYS, *SCORE_KEYS, *_REASON_KEYS})
# Keys that may say something else than a factor's score and reason.
_ALIASES = _TELLING_KEYS - {"score", "reason"}

_AROUND_A_WORD = " \t\r\n\"'`*_.,;:!#>()[]{}“”‘’„«»"
# One to three words, as in ``Final score: High``; more than that is prose.
_LABEL = re.compile(r"[\w-]+(?:[ \t]+[\w-]+){0,2}")


class Levels(NamedTuple):
    """Levels by factor, the factors without one in the order requested, and reasons by factor."""

    scores: dict[str, str]
    missing: tuple[str, ...]
    reasons: dict[str, str]


def parse_levels(text: str, scales: Mapping[str, RubricScale]) -> Levels:
    """Parse the levels that a judge's JSON gives to the factors of ``scales``, each on its own. Accepted:
    ``{factor: level}``, ``{factor: {"reason": …, "score": level, …}}``, a list of ``{"factor": …, "score":
    level}``, and each of these one level deeper. Names may differ in case and word separators. A factor with
    two different levels, at any place, is missing. Raises Unparsable: the reply holds no JSON."""
    if (levels := _parse_requested_form(text, scales)) is not None:
        return levels
    parsed = extract_json(text)
    scores: dict[str, str] = {}
    reasons: dict[str, str] = {}
    inner = parsed.value.values() if isinstance(parsed.value, dict) else ()
    for part in (parsed.value, *(part for part in inner if isinstance(part, dict | list))):
        entries = list(_list_statements(part))
        candidate = _match_levels_to_factors(scales, entries)
        if len(candidate) > len(scores):
            reason_by_name = {normalize_name(entry.name): entry.reason for entry in entries if entry.reason}
            scores = candidate
            reasons = {
                factor: reason_by_name[fold]
                for factor in scales
                if (fold := normalize_name(factor)) in reason_by_name
            }
    for factor in find_contradicted_factors(text, scales, repaired=parsed.repaired):
        scores.pop(factor, None)
    return Levels(scores, tuple(factor for factor in scales if factor not in scores), reasons)


def _parse_requested_form(text: str, scales: Mapping[str, RubricScale]) -> Levels | None:
    """Read the levels of a reply in the requested form, as nearly all are; None for any other. There may be
    words and a fence around its only object, and further keys in it that say nothing of factors."""
    start, end = text.find("{"), text.rfind("}") + 1
    body = text[start:end]
    if not body or "[" in text[:start] or "{" in text[end:] or "\\\\" in body:
        return None
    try:
        entries = _read_object(body)
    except Undecodable:
        return None
    strings = 0
    for name, entry in entries.items():
        if name in scales and isinstance(entry, dict):
            for key, value in entry.items():
                if type(value) in _CONTAINERS or key in _ALIASES:
                    return None
                strings += 2 if type(value) is str else 1
        elif type(entry) in _CONTAINERS or (name not in scales and _may_name_factor(name, scales)):
            return None
        strings += 2 if type(entry) is str else 1
    if body.count('"') - body.count('\\"') != 2 * strings:  # a key that stands twice may contradict itself
        return None
    scores: dict[str, str] = {}
    reasons: dict[str, str] = {}
    for factor, scale in scales.items():
        stated = entries.get(factor)
        if isinstance(stated, dict):
            reason, stated = stated.get("reason"), stated.get("score")
            if isinstance(reason, str) and (reason := reason.strip()):
                reasons[factor] = reason
        if (level := scale.level(stated)) is None:
            return None
        scores[factor] = level
    return Levels(scores, (), reasons)


def _may_name_factor(key: str, scales: Mapping[str, RubricScale]) -> bool:
    """Check whether a further key of a reply may say something of a factor."""
    return key in _TELLING_KEYS or normalize_name(key) in map(_normalize_factor, scales)


_normalize_factor = lru_cache(normalize_name)


def parse_level(text: str, scale: RubricScale = HIGH_MEDIUM_LOW) -> StatedVerdict[str]:
    """Parse a single level: the bare word, ``label: word``, or JSON with one value, or with one score.
    Punctuation, quotes and emphasis around the word are ignored. Prose is no verdict: "not High" contains the
    word too. Raises Unparsable: the reply is anything else."""
    if (level := _parse_bare_level(text, scale)) is not None:
        return StatedVerdict(level, "")
    if ("{" in text or "[" in text) and len(find_levels_under_any_key(text, scale)) < 2:
        with suppress(Unparsable):
            if (stated := _parse_single_json_level(extract_json(text).value, scale)) is not None:
                return stated
    raise Unparsable(f"the reply is not one of {scale.levels_text()}; it begins {text[:80]!r}", raw=text)


def _parse_bare_level(text: str, scale: RubricScale) -> str | None:
    body = text.strip(_AROUND_A_WORD)
    label, colon, value = body.rpartition(":")
    if colon and _LABEL.fullmatch(label.strip(_AROUND_A_WORD)):
        if scale.level(label.strip(_AROUND_A_WORD)) is not None:  # "High: Low" says two things
            return None
        body = value.strip(_AROUND_A_WORD)
    return scale.level(body)


def _parse_single_json_level(value: Any, scale: RubricScale) -> StatedVerdict[str] | None:
    """Read the level in JSON of one value, however deep in objects and lists, or of a score and a reason."""
    while isinstance(value, dict | list) and len(value) == 1:
        value = next(iter(value.values())) if isinstance(value, dict) else value[0]
    reason = ""
    if isinstance(value, dict) and not {*value} - {*SCORE_KEYS, *FACTOR_KEYS, *_REASON_KEYS}:
        value, reason = _first_score(value), _first_reason(value)
    level = scale.level(value)
    return None if level is None else StatedVerdict(level, reason)


class _Stated(NamedTuple):
    """What a reply states under a name: a score, which may be off the scale, and a reason."""

    name: str
    score: Any
    reason: str


def _list_statements(part: Any) -> Iterator[_Stated]:
    if isinstance(part, list):
        for entry in part:
            if isinstance(entry, dict):
                name = next((entry[key] for key in FACTOR_KEYS if isinstance(entry.get(key), str)), None)
                if name is None:
                    yield from _list_statements(entry)
                else:
                    yield _Stated(name, _first_score(entry), _first_reason(entry))
    elif isinstance(part, dict):
        for name, value in part.items():
            if isinstance(value, dict):
                yield _Stated(name, _first_score(value), _first_reason(value))
            else:
                yield _Stated(name, value, "")


def _first_score(entry: dict[str, Any]) -> Any:
    return next((entry[key] for key in SCORE_KEYS if key in entry), None)


def _first_reason(entry: dict[str, Any]) -> str:
    reason = next((entry[key] for key in _REASON_KEYS if isinstance(entry.get(key), str)), "")
    return str(reason).strip()


def _match_levels_to_factors(scales: Mapping[str, RubricScale], entries: list[_Stated]) -> dict[str, str]:
    """Return each factor's level: under its exact name, or else under the only name that folds to it."""
    exact = {entry.name: entry.score for entry in entries}
    folded: dict[str, list[Any]] = {}
    for entry in entries:
        folded.setdefault(normalize_name(entry.name), []).append(entry.score)
    requested = [normalize_name(factor) for factor in scales]
    scores: dict[str, str] = {}
    for (factor, scale), fold in zip(scales.items(), requested, strict=True):
        if factor in exact:
            level = scale.level(exact[factor])
        elif requested.count(fold) == 1 and len({scale.level(score) for score in folded.get(fold, ())}) == 1:
            level = scale.level(folded[fold][0])
        else:
            continue
        if level is not None:
            scores[factor] = level
    return scores


# --- Pairwise comparison: two answers in both orders, and the verdict of the judge's reply

# --- Log-probabilities of the verdict token


def is_lost_in_reasoning(completion: Completion) -> bool:
    """Check whether a reply ended before its answer began."""
    if completion.text.strip():
        return False
    is_unclosed = split_reasoning("".join(token.token for token in completion.logprobs))[2]
    return completion.reasoning is not None or is_unclosed


def answer_logprobs(completion: Completion, *, reasons_first: bool = True) -> dict[str, float]:
    """Return the likeliest first tokens of the answer: token → natural-log probability. If the judge reasons
    first, the answer's text says where it begins; otherwise all that it says is its answer, wherever the
    host put it. Raises Unparsable: there are no log-probabilities, or no answer."""
    if not completion.logprobs:
        raise Unparsable("the reply came without log-probabilities", raw=completion.text)
    if reasons_first and is_lost_in_reasoning(completion):
        raise Unparsable(f"the reply ended before its answer ({completion.finish_reason})", raw="")
    token = _find_first_answer_token(completion)
    return token.top or {token.token: token.logprob}


def _find_first_answer_token(completion: Completion) -> TokenLogprob:
    tokens = completion.logprobs
    spelled = "".join(token.token for token in tokens)
    start = spelled.rfind(completion.text.strip())
    if start < 0:  # tokens that spell their blanks in marks, or bytes in escapes
        start = len(spelled) - len(split_reasoning(spelled)[0])
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


class OrderedAnswers(NamedTuple):
    """The two answers in the order shown to the judge."""

    first: str
    second: str


def order_answers(order: Order, model: str, baseline: str) -> OrderedAnswers:
    return OrderedAnswers(baseline, model) if order == "baseline-first" else OrderedAnswers(model, baseline)


def parse_and_check_last_label(text: str, allowed_labels: Collection[str]) -> str:
    """Parse the judge's last bracketed label, as Arena-Hard does; it must be an allowed one. Raises
    Unparsable: there is no bracketed label, or the last one is not a verdict (``[[A]]``)."""
    upper = text.upper()
    for pattern in _LABEL_PATTERNS:
        labels_found = pattern.findall(upper)
        if not labels_found:
            continue
        if labels_found[-1] in allowed_labels:
            return str(labels_found[-1])
        raise Unparsable(f"the reply's last label, [[{labels_found[-1][:20]}]], is not a verdict", raw=text)
    raise Unparsable(f"the reply holds no verdict in brackets; it ends {text[-80:]!r}", raw=text)


def parse_identifier(text: str) -> Literal["m", "M"]:
    """Parse which of the models ``m`` and ``M`` a judge names in words; letter case decides. A line of
    nothing but the identifier is a verdict. Else the reply must name only one of the two, and begin or end
    with it ("M.", "I'm going with M"): "M is too long" is not a verdict. Raises Unparsable: neither is named,
    both are, or the one that is stands amid prose."""
    bare = {line.strip(_AROUND) for line in text.splitlines()} & {"m", "M"}
    named = set(_IDENTIFIER.findall(text))
    decided = bare or (named if _is_identifier_at_edge(text) else set())
    if len(decided) != 1 or (not bare and len(named) != 1):
        raise Unparsable(f"the reply does not name one model, m or M; it begins {text[:80]!r}", raw=text)
    return "m" if decided == {"m"} else "M"


def _is_identifier_at_edge(text: str) -> bool:
    """Check whether an identifier opens the reply, separated from what follows, or closes it."""
    body = text.strip()
    closing = list(_IDENTIFIER.finditer(body))
    closes = bool(closing) and not body[closing[-1].end() :].strip(_AROUND)
    return closes or _OPENING.match(body) is not None


# --- Verdict of a run's judge: ``{"reason": "…", "verdict": "A"}``

_WINNER_OF: dict[str, Winner] = {"a": "first", "b": "second", "tie": "tie"}


def parse_preference(text: str) -> StatedVerdict[Winner]:
    """Parse A, B or tie: the bare word, or JSON with it as ``verdict``. Raises Unparsable: the reply is
    anything else, or says two things."""
    if (winner := _read_winner(text)) is not None:
        return StatedVerdict(winner, "")
    return _parse_json_verdict(text, "verdict", _read_winner, "verdict that is A, B or tie")


def _read_winner(value: Any) -> Winner | None:
    return _WINNER_OF.get(value.strip(_AROUND).casefold()) if isinstance(value, str) else None
