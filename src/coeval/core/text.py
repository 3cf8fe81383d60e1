"""Text in and out of models: fill a template, find JSON, split off reasoning, hash, list names.

Pure functions. What comes from a model is hostile input: nothing here evaluates it, and the time
taken grows with its length, whatever stands in it.
"""

from __future__ import annotations

import json
import re
import unicodedata
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from contextlib import suppress
from functools import lru_cache
from hashlib import blake2b
from typing import Any, NamedTuple

from coeval.core.errors import Unparsable, UsageError
from coeval.core.foreign import parse_integer

_TEMPLATE_TOKEN = re.compile(r"\{\{|\}\}|\{([^\W\d]\w*)\}")

_OPENING = re.compile(r"""\{(?=\s*["'}\w])|\[(?=\s*[\[{"\]\w-])""")
_JSON_FENCE = re.compile(r"```[ \t]*json[0-9a-z]*\b", re.IGNORECASE)
# What only a JSON object, or an array of them, begins like; the quotes may be wrong or missing.
_KEYED = re.compile(r"""(?:\[\s*)?\{\s*(?:"[^"\n]{1,200}"|'[^'\n]{1,200}'|[^\W\d][\w-]{0,80})\s*:""")

_SURROGATE_ESCAPE = re.compile(r"\\u[dD][89a-fA-F]")

_SEPARATORS = re.compile(r"(?<=[^\W_])[\s_-]+(?=[^\W_])")

_UNFED = blake2b(digest_size=8)

# Each costs a pass over what stands before it (to count lines for an error nobody reads).
_MOST_FALSE_STARTS = 500

# Levels. What is returned can be walked and written again without running out of stack.
_MOST_NESTED = 100

# Characters. A damaged reply longer than this is not worth seconds of repair: it is asked again.
_REPAIR_LIMIT = 256_000


def fill_template(template: str, values: Mapping[str, str]) -> str:
    """Replace each ``{name}`` by its value and ``{{``, ``}}`` by single braces, in one pass.

    Braces inside values, and any brace text that is not an identifier (``{"a": 1}``, ``{x!r}``,
    ``{}``), stay as they are; nothing of Python's format language is evaluated.

    Raises UsageError: the template names a variable that ``values`` does not hold.
    """
    text, names = _compile_template(template)
    try:
        return text % tuple(map(values.__getitem__, names))
    except KeyError as error:
        (name,) = error.args
        raise UsageError(
            f"a prompt template uses {{{name}}}, which is unknown here; "
            f"known are {', '.join(sorted(values)) or 'no variables'}. "
            f"Write {{{{{name}}}}} for literal braces."
        ) from None


_CLOSING_TAG = re.compile(r"</([a-z][a-z_]*)>")


def break_closing_tags(template: str, values: Mapping[str, str]) -> Mapping[str, str]:
    r"""Escape the closing tags of a template's blocks within its values: ``<\/input>``.

    So no answer can end its block and speak as the template does.
    """
    ends = _compile_closing_tags(template)
    if ends is None or not any("<" in value for value in values.values()):
        return values
    return {name: ends.sub(r"<\\\1", value) for name, value in values.items()}


@lru_cache(maxsize=256)
def _compile_closing_tags(template: str) -> re.Pattern[str] | None:
    """Compile a pattern of the template's closing tags, however spaced or capitalised."""
    names = sorted(set(_CLOSING_TAG.findall(template)))
    return re.compile(rf"<\s*(/\s*(?:{'|'.join(names)})\s*>)", re.IGNORECASE) if names else None


def shared_prefix_length(template: str, values: Mapping[str, str], varying: Collection[str]) -> int:
    """Count the characters of a filled template before its first ``varying`` variable."""
    length = 0
    for at, piece in enumerate(_split_template(template)):
        if at % 2 and piece in varying:
            break
        length += len(values[piece] if at % 2 else piece)
    return length


@lru_cache(maxsize=256)  # a run fills few templates, each of them very often
def _compile_template(template: str) -> tuple[str, tuple[str, ...]]:
    """Return the template with ``%s`` for each variable, and the variables' names in order."""
    pieces = _split_template(template)
    return "%s".join(text.replace("%", "%%") for text in pieces[::2]), pieces[1::2]


@lru_cache(maxsize=256)
def _split_template(template: str) -> tuple[str, ...]:
    """Split a template into text and variable names in turn, beginning and ending with text."""
    pieces, literal, end = [], "", 0
    for token in _TEMPLATE_TOKEN.finditer(template):
        literal += template[end : token.start()]
        end = token.end()
        if token.group(1) is None:
            literal += token.group()[0]
        else:
            pieces += [literal, token.group(1)]
            literal = ""
    return (*pieces, literal + template[end:])


def placeholders(template: str) -> list[str]:
    """List the variables of a template, each once, in order of first use."""
    return list(dict.fromkeys(_split_template(template)[1::2]))


class Extracted(NamedTuple):
    """A JSON object or array found in a reply; ``repaired`` if it was not valid."""

    value: Any
    repaired: bool


def extract_json(text: str) -> Extracted:
    """Extract the first JSON object of a reply (or array, where no object is outside one).

    Fences and prose around it are ignored; damaged JSON (single quotes, raw line breaks, a cut-off
    end) is repaired, and the result says so. Lone surrogates, which no file can hold, become ``?``.

    Raises Unparsable: there is nothing like JSON in the reply, or it is nested beyond all reason.
    """
    begin = _index_after_json_fence(text)
    starts = (begin, 0) if begin else (0,)
    try:
        for start in starts:
            extracted = _find_or_repair_json(text[start:])
            if extracted is not None and not _is_deeper(extracted.value, _MOST_NESTED):
                return extracted
    except RecursionError:
        raise Unparsable("the reply's JSON is nested too deeply to be an answer", raw=text) from None
    raise Unparsable(f"the reply holds no JSON object; it begins {text[:80]!r}", raw=text)


class Pairs(list[tuple[str, Any]]):
    """Keys and values of a JSON object in order, repeated keys included."""


def every_json(text: str) -> Iterator[tuple[int, Any]]:
    """Yield every valid object or array of a reply with where it begins, from its fence on if there is one;
    objects as `Pairs`.

    Nesting beyond reason ends it; see `extract_json`.
    """
    with suppress(RecursionError):
        begin = _index_after_json_fence(text)
        for start, value in _iterate_starts_and_json_values(text[begin:], Pairs):
            if value is not None and not _is_deeper(value, _MOST_NESTED):
                yield begin + start, value


def _index_after_json_fence(text: str) -> int:
    """Return where to look for JSON first: behind a fence, unless the reply begins as an object."""
    fence = None if text.lstrip().startswith("{") else _JSON_FENCE.search(text)
    return fence.end() if fence is not None else 0


def _find_or_repair_json(text: str) -> Extracted | None:
    """Find valid JSON before damaged JSON, unless the damaged object began first and holds the valid one."""
    weak: Extracted | None = None
    for start, value in _iterate_starts_and_json_values(text):
        if value is None:
            # Valid objects further on may lie inside this damaged one, so it is tried first.
            if repaired := _repair_json_or_none(text[start:]):
                return Extracted(_replace_surrogates(repaired, text), repaired=True)
        elif value and (isinstance(value, dict) or isinstance(value[0], dict)):
            return Extracted(_replace_surrogates(value, text), repaired=False)
        elif weak is None:  # such as [1] or {} in prose
            weak = Extracted(_replace_surrogates(value, text), repaired=False)
    return weak


def _iterate_starts_and_json_values(
    text: str, pairs: Callable[[list[tuple[str, Any]]], Any] | None = None
) -> Iterator[tuple[int, Any]]:
    """Yield where JSON begins in ``text``, with its value, or None if it is damaged.

    At most one damaged start is yielded, and failing attempts are limited in number and in the characters
    they read, so hostile text costs a bounded number of passes. ``pairs`` makes an object of its keys and
    values.
    """
    decoder = json.JSONDecoder(parse_int=parse_integer, object_pairs_hook=pairs)
    budget = 4 * len(text) + 1000
    false_starts = 0
    gave_damaged = False
    position = 0
    while budget > 0 and false_starts < _MOST_FALSE_STARTS and (opening := _OPENING.search(text, position)):
        start = opening.start()
        try:
            value, position = decoder.raw_decode(text, start)
        except json.JSONDecodeError as error:
            budget -= error.pos - start
            false_starts += 1
            position = start + 1
            if not gave_damaged and _KEYED.match(text, start):
                gave_damaged = True
                yield start, None
        else:
            yield start, value


def _repair_json_or_none(text: str) -> Any:
    """Repair the object or array at the start of ``text``; None if nothing is left of it."""
    if len(text) > _REPAIR_LIMIT:
        return None
    from json_repair import repair_json

    last_bracket = max(text.rfind("}"), text.rfind("]"))
    if '"' not in text[last_bracket + 1 :]:
        # Fences and prose behind the object would be read as more of it; a cut-off string is part of it.
        text = text[: last_bracket + 1] or text
    try:
        value = repair_json(text, return_objects=True, skip_json_loads=True)
    except ValueError:  # what json-repair raises for nesting it will not follow
        return None
    if text.startswith("{") and isinstance(value, list):
        value = next((part for part in value if isinstance(part, dict)), None)
    return value if isinstance(value, dict | list) and value else None


def _is_deeper(value: Any, limit: int) -> bool:
    level = [value]
    for _ in range(limit):
        level = [
            child
            for part in level
            if isinstance(part, dict | list | tuple)
            for child in (part.values() if isinstance(part, dict) else part)
        ]
        if not level:
            return False
    return True


def _replace_surrogates(value: Any, source: str) -> Any:
    r"""Replace lone surrogates, which ``\ud800`` in JSON can make and UTF-8 cannot hold."""
    if not _SURROGATE_ESCAPE.search(source):
        return value
    return json.loads(json.dumps(value, ensure_ascii=False).encode("utf-8", "replace"))


# How models mark thinking in a text: most, ByteDance and Meituan among them, by a tag; Mistral; Moonshot.
_MARKS = r"<{0}(?:think|thinking|thought|seed:think|longcat_think)>|\[{0}THINK\]|◁{0}think▷"
_OPEN, _CLOSE = (re.compile(_MARKS.format(slash), re.IGNORECASE) for slash in ("", "/"))
_OPEN_HERE = re.compile(rf"\s*(?:{_OPEN.pattern})", re.IGNORECASE)
_OPEN_ON_A_LINE = re.compile(rf"^[ \t]*(?:{_OPEN.pattern})", re.IGNORECASE | re.MULTILINE)
# OpenAI's harmony (gpt-oss), and what decoders leave of it that skip special tokens.
_CHANNELS = re.compile(r"\s*(?:<\|start\|>assistant)?<\|channel\|>")
_END_OF_MESSAGE = re.compile(r"<\|(?:end|return|call|start)\|>")
_FINAL = re.compile(r"\s*final\b")  # `final <|constrain|>json` where a schema was sent
_BARE_CHANNELS = re.compile(r"\s*(?:assistant)?analysis(.*?)assistantfinal(.*)", re.DOTALL)


def split_reasoning(text: str, *, unopened: bool = True) -> tuple[str, str | None, bool]:
    """Split off the thinking that a text begins with: ``(answer, reasoning, unclosed)``.

    Further blocks count that begin a line outside of fenced code. ``unopened``: a bare ``…</think>`` prefix
    counts too (chat templates may write the opening tag themselves). A block without an end is all reasoning,
    and ``unclosed`` is True. Text without reasoning is returned as it stands; blank reasoning is None.
    """
    if _CHANNELS.match(text):
        return _split_channels(text)
    if bare := _BARE_CHANNELS.match(text):
        return bare[2].lstrip(), bare[1].strip() or None, False
    if _OPEN_HERE.match(text):
        return _split_blocks(text, 0, [])
    first = _CLOSE.search(text) if unopened else None
    if first is None or _OPEN.search(text, 0, first.start()):
        return text, None, False
    return _split_blocks(text, first.end(), [text[: first.start()]])


def _split_blocks(text: str, at: int, thoughts: list[str]) -> tuple[str, str | None, bool]:
    """Take the blocks out of the text from ``at`` on, where one has just ended, or may begin."""
    answer_parts: list[str] = []
    is_code = unclosed = False
    between = True
    while opening := (_OPEN_HERE.match(text, at) if between else None) or _OPEN_ON_A_LINE.search(text, at):
        is_code ^= bool(text.count("```", at, opening.start()) % 2)
        between = not is_code
        if is_code:
            answer_parts.append(text[at : opening.end()])
            at = opening.end()
            continue
        answer_parts.append(text[at : opening.start()])
        closing = _CLOSE.search(text, opening.end())
        unclosed = closing is None
        at = closing.end() if closing is not None else len(text)
        thoughts.append(text[opening.end() : closing.start() if closing is not None else at])
    answer_parts.append(text[at:])
    reasoning = "\n".join(thought.strip() for thought in thoughts if thought.strip())
    return "".join(answer_parts).lstrip(), reasoning or None, unclosed


def _split_channels(text: str) -> tuple[str, str | None, bool]:
    """Read harmony: the channel ``final`` is the answer, the others (analysis, commentary) are reasoning."""
    finals, thoughts = list[str](), list[str]()
    for part in text.split("<|channel|>")[1:]:
        head, _, message = part.partition("<|message|>")
        texts = finals if _FINAL.match(head) else thoughts
        texts.append(_END_OF_MESSAGE.split(message, 1)[0].strip())
    return "\n".join(finals), "\n".join(filter(None, thoughts)) or None, not finals


def cut_to_bytes(text: str, most: int) -> str:
    """Cut ``text`` to at most ``most`` bytes of UTF-8, between characters."""
    if len(text) * 4 <= most:
        return text
    data = text.encode("utf-8", "surrogatepass")
    return text if len(data) <= most else data[:most].decode("utf-8", "ignore")


def digest(*parts: str) -> str:
    """Hash ``parts`` to 16 hex digits: BLAKE2b over each part preceded by its length."""
    hashed = _UNFED.copy()  # a third quicker than a new one: every answer of a run is hashed on resuming
    for part in parts:
        data = part.encode("utf-8", "surrogatepass")
        hashed.update(len(data).to_bytes(8, "big") + data)
    return hashed.hexdigest()


def canonical_json(obj: object) -> str:
    """Encode as canonical JSON: sorted keys, no blanks; equal objects give equal text."""
    return json.dumps(obj, sort_keys=True, separators=(",", ":"), ensure_ascii=False, allow_nan=False)


def join_names(texts: Iterable[str], most: int = 8) -> str:
    """Join texts with commas; of many, the first ones and the number of others."""
    names = list(texts)
    more = len(names) - most
    return ", ".join(names[:most]) + (f" and {more} more" if more > 0 else "")


def warning_to_sentence(warning: str) -> str:
    """Turn the text that a terminal shows behind "warning:" into a sentence."""
    return f"{warning[:1].upper()}{warning[1:]}" + ("" if warning.endswith(".") else ".")


def pluralize(number: int, noun: str) -> str:
    """Format a count with its noun: ``1 model``, ``1,200 models``."""
    return f"{number:,} {noun}{'' if number == 1 else 's'}"


def normalize_name(name: str) -> str:
    """Fold a name for comparison: two names are the same if this is equal.

    Case, Unicode compatibility, and the separator of words (blank, underscore, hyphen) do not count; a sign
    at either end does (``A-`` is not ``A``).
    """
    return _SEPARATORS.sub(" ", unicodedata.normalize("NFKC", name).casefold().strip())
