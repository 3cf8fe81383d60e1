"""What teachers say: an item, attributes, a rubric; and several teachers' proposals made one."""

from __future__ import annotations

import json
import math
import unicodedata
from collections.abc import Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from coeval.core.errors import EmptyReply, Unparsable
from coeval.core.text import extract_json, normalize_name

_PROMPT_KEYS = ("prompt", "question", "input", "text", "instruction", "query", "user prompt", "user input")
# Folded names under which teachers put the two halves of an item; earlier ones win.
_RESPONSE_KEYS = (
    "response",
    "reference",
    "reference response",
    "reference answer",
    "ideal response",
    "ideal answer",
    "expected response",
    "expected output",
    "expected answer",
    "answer",
    "output",
    "completion",
    "solution",
)

_EVIDENCE_KEYS = ("evidence", "quotes", "quote", "citations", "citation")

# What stands for a prompt: text, an object, or null where one is missing. A number is no question.
_PROMPTS = (str, dict, type(None))

_NAME_KEYS = ("name", "attribute", "factor", "dimension", "title")
_VALUES_KEYS = ("values", "options", "levels")
_CRITERION_KEYS = ("criterion", "description", "definition", "question")

_WRAPPERS = frozenset(
    {"attributes", "target attributes", "nuanced attributes", "rubric", "factors", "criteria", "dimensions"}
)
# In a name they would end it too early: in a rubric's line, a template, a heading.
_NO_MARKS = str.maketrans("", "", ':*`"{}')

# A name is a key, a column and a word of prompts.
_LONGEST_NAME = 64
# A value is a phrase; a model that writes essays was misunderstood.
_LONGEST_VALUE = 200
# A paragraph: each judge's prompt repeats all criteria.
_LONGEST_CRITERION = 2_000
# Rubrics have some five; judges cannot weigh dozens at once, and each is a figure in every record.
MOST_NAMES = 40
# Strata beyond that hold an item each in runs of usual size.
_MOST_VALUES = 50


class ParsedItem(NamedTuple):
    """An item as a teacher wrote it; ``repaired`` if its JSON was damaged."""

    prompt: str
    response: str
    repaired: bool


class ParsedAttributes(NamedTuple):
    """Attribute name → its values, each list free of repetition and not empty."""

    values: dict[str, list[str]]
    repaired: bool


def parse_item(text: str) -> ParsedItem:
    """The prompt and the reference answer that a teacher wrote.

    Keys may be spelt in any common way and stand one level in. A prompt is text, or an object that
    is written as JSON; a reference answer of any kind is.

    Raises EmptyReply: the prompt or the reference answer is blank, or there is no reference answer;
    Unparsable: no JSON, or nothing in it is a prompt.
    """
    value, repaired = extract_json(text)
    for candidate in _objects_in(value):
        folded = {normalize_name(name): part for name, part in reversed(candidate.items())}
        prompt_key = next((key for key in _PROMPT_KEYS if isinstance(folded.get(key, 0), _PROMPTS)), None)
        if prompt_key is None:
            continue
        response = next((folded[key] for key in _RESPONSE_KEYS if key in folded), None)
        item = ParsedItem(_as_text(folded[prompt_key]), _as_text(response), repaired)
        for part, written in (("prompt", item.prompt), ("reference answer", item.response)):
            if not written.strip():
                raise EmptyReply(f"the item has no {part}", raw=text)
        return item
    raise Unparsable(f"the reply's JSON has no prompt; it begins {text[:80]!r}", raw=text)


def parse_evidence(text: str) -> tuple[str, ...]:
    """The quotes beside an item that `parse_item` reads; none where it has none."""
    for candidate in _objects_in(extract_json(text).value):
        folded = {normalize_name(name): part for name, part in reversed(candidate.items())}
        for quoted in filter(None, map(folded.get, _EVIDENCE_KEYS)):
            return tuple(map(_as_text, quoted if isinstance(quoted, list) else [quoted]))
    return ()


def parse_attributes(text: str) -> ParsedAttributes:
    """The attributes that a teacher proposes.

    Understood are ``{"attributes": [{"name": …, "values": […]}]}``, the same list alone, and
    ``{name: [values]}``, alone or one level in. Names are cleaned to what a file may hold, values
    are made text; at most 40 attributes of 50 values are taken.

    Raises EmptyReply: there is not one attribute with a value; Unparsable: no JSON.
    """
    value, repaired = extract_json(text)
    found: dict[str, list[str]] = {}
    for name, part in islice(_named(value, _VALUES_KEYS), MOST_NAMES):
        values = _cleaned_values(part)
        if (clean := _cleaned_name(name)) and values:
            found = merge_attributes(found, {clean: values})
    if not found:
        raise EmptyReply("the reply proposes no attributes", raw=text)
    return ParsedAttributes(found, repaired)


def parse_rubric(text: str) -> dict[str, str]:
    """The rubric that a teacher proposes, factor → criterion, in the shapes of `parse_attributes`.

    Raises EmptyReply: there is not one factor with a criterion; Unparsable: no JSON.
    """
    found: dict[str, str] = {}
    for name, part in islice(_named(extract_json(text).value, _CRITERION_KEYS), MOST_NAMES):
        criterion = _cleaned_text(part, _LONGEST_CRITERION) if isinstance(part, str) else ""
        if (clean := _cleaned_name(name)) and criterion:
            found = merge_rubrics(found, {clean: criterion})
    if not found:
        raise EmptyReply("the reply proposes no factors", raw=text)
    return found


def merge_attributes(
    kept: Mapping[str, Sequence[str]], *proposals: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """The union of attributes and of their values, in order; the first spelling of each wins.

    What is ``kept`` (seeds, or what was drawn before) stays as it stands, even where two of its names
    differ in spelling only; names and values that are proposed are told apart by `normalize_name`.
    """
    merged = {name: list(dict.fromkeys(values)) for name, values in kept.items()}
    spelling = {normalize_name(name): name for name in reversed(merged)}
    for proposal in proposals:
        for name, values in proposal.items():
            spelt = name if name in merged else spelling.setdefault(normalize_name(name), name)
            of_attribute = merged.setdefault(spelt, [])
            known = {normalize_name(value) for value in of_attribute}
            for value in values:
                if normalize_name(value) not in known:
                    known.add(normalize_name(value))
                    of_attribute.append(value)
    return merged


def merge_rubrics(kept: Mapping[str, str], *proposals: Mapping[str, str]) -> dict[str, str]:
    """The union of factors, in order; the first spelling and criterion of each win, as in
    `merge_attributes`."""
    merged = dict(kept)
    known = {normalize_name(factor) for factor in merged}
    for proposal in proposals:
        for factor, criterion in proposal.items():
            if normalize_name(factor) not in known:
                known.add(normalize_name(factor))
                merged[factor] = criterion
    return merged


def _objects_in(value: Any) -> Iterator[dict[str, Any]]:
    """``value`` if it is an object, then the objects directly within it."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict):
            yield part
        elif isinstance(part, list):
            yield from (entry for entry in part if isinstance(entry, dict))


def _as_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _named(value: Any, content_keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """``(name, content)`` of each entry of a proposal, whichever of its shapes it has."""
    value = _unwrapped(value, content_keys)
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        name = next((entry[key] for key in _NAME_KEYS if isinstance(entry.get(key), str)), None)
        content = next((entry[key] for key in content_keys if key in entry), None)
        if name is not None and content is not None:
            yield name, content
        else:
            yield from ((name, _content(part, content_keys)) for name, part in entry.items())


def _unwrapped(value: Any, content_keys: Sequence[str]) -> Any:
    """The proposal that ``value`` holds under its only key, or one such as ``attributes``; or ``value``."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if len(value) > 1 and normalize_name(key) not in _WRAPPERS:
            continue
        if isinstance(inner, dict) and not any(content in inner for content in content_keys):
            return inner
        if isinstance(inner, list) and any(isinstance(entry, dict) for entry in inner):
            return inner
    return value


def _content(part: Any, content_keys: Sequence[str]) -> Any:
    """``part``, or what it holds under one of ``content_keys`` if it is an object."""
    if isinstance(part, dict):
        return next((part[key] for key in content_keys if key in part), None)
    return part


def _cleaned_text(text: str, longest: int) -> str:
    """``text`` on one line, without control characters, of bounded length."""
    visible = "".join(
        " " if unicodedata.category(c).startswith(("C", "Z")) else c for c in text[: 4 * longest]
    )
    return " ".join(visible.split())[:longest].rstrip()


def _cleaned_name(name: str) -> str:
    """``name`` as a key of a file and a line of a prompt: blanks are underscores, no marks around it."""
    return _cleaned_text(name.translate(_NO_MARKS), _LONGEST_NAME).replace(" ", "_")


def _cleaned_values(part: Any) -> list[str]:
    """The distinct values in a list of text, numbers or booleans; nothing from anything else."""
    distinct: dict[str, str] = {}
    for value in part if isinstance(part, list) else ():
        if isinstance(value, str | int | float) and (text := _cleaned_text(_as_text(value), _LONGEST_VALUE)):
            distinct.setdefault(normalize_name(text), text)
            if len(distinct) == _MOST_VALUES:
                break
    return list(distinct.values())
