"""Parse teachers' replies (an item, attributes, a rubric), and merge several teachers' proposals."""

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

# Types of a prompt: text, an object, or null if it is missing. A number is no question.
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
    """Parse the prompt and the reference answer of an item.

    Keys may be spelt in any common way, and be one level deep. A prompt is text, or an object, written as
    JSON; a reference answer may be anything.

    Raises EmptyReply: the prompt or the reference answer is blank, or there is no reference answer;
    Unparsable: no JSON, or nothing in it is a prompt.
    """
    value, repaired = extract_json(text)
    for candidate in _list_outer_and_inner_objects(value):
        folded = {normalize_name(name): part for name, part in reversed(candidate.items())}
        prompt_key = next((key for key in _PROMPT_KEYS if isinstance(folded.get(key, 0), _PROMPTS)), None)
        if prompt_key is None:
            continue
        response = next((folded[key] for key in _RESPONSE_KEYS if key in folded), None)
        item = ParsedItem(_to_text(folded[prompt_key]), _to_text(response), repaired)
        for part, written in (("prompt", item.prompt), ("reference answer", item.response)):
            if not written.strip():
                raise EmptyReply(f"the item has no {part}", raw=text)
        return item
    raise Unparsable(f"the reply's JSON has no prompt; it begins {text[:80]!r}", raw=text)


def parse_evidence(text: str) -> tuple[str, ...]:
    """Parse the quotes beside an item; none if there are none."""
    for candidate in _list_outer_and_inner_objects(extract_json(text).value):
        folded = {normalize_name(name): part for name, part in reversed(candidate.items())}
        for quoted in filter(None, map(folded.get, _EVIDENCE_KEYS)):
            return tuple(map(_to_text, quoted if isinstance(quoted, list) else [quoted]))
    return ()


def parse_attributes(text: str) -> ParsedAttributes:
    """Parse the attributes that a teacher proposes.

    Understands ``{"attributes": [{"name": …, "values": […]}]}``, that list alone, and ``{name:
    [values]}``, alone or one level deep. Names are cleaned for files, values become text; at most 40
    attributes of 50 values count.

    Raises EmptyReply: no attribute has a value; Unparsable: no JSON.
    """
    value, repaired = extract_json(text)
    attributes: dict[str, list[str]] = {}
    for name, part in islice(_list_named_entries(value, _VALUES_KEYS), MOST_NAMES):
        values = _clean_values(part)
        if (clean := _clean_name(name)) and values:
            attributes = merge_attributes(attributes, {clean: values})
    if not attributes:
        raise EmptyReply("the reply proposes no attributes", raw=text)
    return ParsedAttributes(attributes, repaired)


def parse_rubric(text: str) -> dict[str, str]:
    """Parse a proposed rubric, factor → criterion, as `parse_attributes` does; raises the same."""
    rubric: dict[str, str] = {}
    for name, part in islice(_list_named_entries(extract_json(text).value, _CRITERION_KEYS), MOST_NAMES):
        criterion = _clean_text(part, _LONGEST_CRITERION) if isinstance(part, str) else ""
        if (clean := _clean_name(name)) and criterion:
            rubric = merge_rubrics(rubric, {clean: criterion})
    if not rubric:
        raise EmptyReply("the reply proposes no factors", raw=text)
    return rubric


def merge_attributes(
    kept: Mapping[str, Sequence[str]], *proposals: Mapping[str, Sequence[str]]
) -> dict[str, list[str]]:
    """Merge attributes and their values, in order; the first spelling of each wins. ``kept`` ones (seeds, or
    earlier ones) stay unchanged, even if two differ in spelling only; proposed names and values are
    compared by `normalize_name`."""
    merged = {name: list(dict.fromkeys(values)) for name, values in kept.items()}
    spelling = {normalize_name(name): name for name in reversed(merged)}
    for proposal in proposals:
        for name, values in proposal.items():
            spelt = name if name in merged else spelling.setdefault(normalize_name(name), name)
            of_attribute = merged.setdefault(spelt, [])
            folded_values = {normalize_name(value) for value in of_attribute}
            for value in values:
                if normalize_name(value) not in folded_values:
                    folded_values.add(normalize_name(value))
                    of_attribute.append(value)
    return merged


def merge_rubrics(kept: Mapping[str, str], *proposals: Mapping[str, str]) -> dict[str, str]:
    """Merge factors in order; the first spelling and criterion of each win, as in `merge_attributes`."""
    merged = dict(kept)
    folded_names = {normalize_name(factor) for factor in merged}
    for proposal in proposals:
        for factor, criterion in proposal.items():
            if normalize_name(factor) not in folded_names:
                folded_names.add(normalize_name(factor))
                merged[factor] = criterion
    return merged


def _list_outer_and_inner_objects(value: Any) -> Iterator[dict[str, Any]]:
    """Yield ``value`` if it is an object, then the objects directly inside it."""
    if isinstance(value, dict):
        yield value
    for part in value.values() if isinstance(value, dict) else value:
        if isinstance(part, dict):
            yield part
        elif isinstance(part, list):
            yield from (entry for entry in part if isinstance(entry, dict))


def _to_text(value: Any) -> str:
    if value is None or (isinstance(value, float) and not math.isfinite(value)):
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _list_named_entries(value: Any, content_keys: Sequence[str]) -> Iterator[tuple[str, Any]]:
    """Yield name and content of each entry of a proposal, in any of its shapes."""
    value = _unwrap_proposal(value, content_keys)
    for entry in value if isinstance(value, list) else [value]:
        if not isinstance(entry, dict):
            continue
        name = next((entry[key] for key in _NAME_KEYS if isinstance(entry.get(key), str)), None)
        content = next((entry[key] for key in content_keys if key in entry), None)
        if name is not None and content is not None:
            yield name, content
        else:
            yield from ((name, _take_content_of_object(part, content_keys)) for name, part in entry.items())


def _unwrap_proposal(value: Any, content_keys: Sequence[str]) -> Any:
    """Return the proposal under the only key of ``value``, or one such as ``attributes``; else ``value``."""
    for key, inner in value.items() if isinstance(value, dict) else ():
        if len(value) > 1 and normalize_name(key) not in _WRAPPERS:
            continue
        if isinstance(inner, dict) and not any(content in inner for content in content_keys):
            return inner
        if isinstance(inner, list) and any(isinstance(entry, dict) for entry in inner):
            return inner
    return value


def _take_content_of_object(part: Any, content_keys: Sequence[str]) -> Any:
    """Return ``part``, or what an object holds under one of ``content_keys``."""
    if isinstance(part, dict):
        return next((part[key] for key in content_keys if key in part), None)
    return part


def _clean_text(text: str, longest: int) -> str:
    """Return ``text`` on one line, without control characters, cut to ``longest``."""
    cut = text[: 4 * longest]
    visible = "".join(" " if unicodedata.category(c).startswith(("C", "Z")) else c for c in cut)
    return " ".join(visible.split())[:longest].rstrip()


def _clean_name(name: str) -> str:
    """Return ``name`` as a key of a file and a line of a prompt: underscores for blanks, no marks."""
    return _clean_text(name.translate(_NO_MARKS), _LONGEST_NAME).replace(" ", "_")


def _clean_values(part: Any) -> list[str]:
    """Return the distinct values of a list of text, numbers or booleans; none of anything else."""
    distinct: dict[str, str] = {}
    for value in part if isinstance(part, list) else ():
        if isinstance(value, str | int | float) and (text := _clean_text(_to_text(value), _LONGEST_VALUE)):
            distinct.setdefault(normalize_name(text), text)
            if len(distinct) == _MOST_VALUES:
                break
    return list(distinct.values())
