"""Word tokens, in the two senses that verifiers use.

`word_runs` are the maximal runs of word characters. `treebank_words` are Penn Treebank tokens: punctuation
stands alone, contractions are cut (``do|n't``), and only the last period of a sentence is cut off. Tokens
equal those of NLTK 3.10 (tested), but each chunk between blanks is cut on its own and cached, so the time is
linear in the text.
"""

from __future__ import annotations

import re
from functools import lru_cache

_ASCII_WORD = re.compile(r"\w+", re.ASCII)


def word_runs(text: str) -> list[str]:
    r"""Find the matches of Unicode's ``\w+`` (UTS #18).

    Python's own ``\w`` cuts a Hindi word at each vowel sign, and takes ½ for a word.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text)
    import regex

    runs: list[str] = regex.findall(r"\w+", text)
    return runs


def treebank_words(sentence: str) -> list[str]:
    """Tokenise one sentence."""
    if sentence.startswith('"'):
        sentence = "`` " + sentence[1:]
    body, tail = _cut_last_period(sentence)
    words = _cut_chunks(body)
    if tail:
        words.append(".")
        words += _cut_chunks(tail[1:], before=".")
    return words


_CLOSERS = "])}>\"'»”’ "


def _cut_last_period(sentence: str) -> tuple[str, str]:
    """(what comes before the final period, the period with the closers behind it), or (all, "").

    The period of an ellipsis is not cut off, nor one before a quote that opens (blank before it).
    """
    body = sentence.rstrip().rstrip(_CLOSERS)
    tail = sentence.rstrip()[len(body) :]
    opening = ' "' in tail or " ''" in tail
    if len(body) < 2 or body[-1] != "." or body[-2] == "." or opening:
        return sentence, ""
    return body[:-1], "." + tail


def _cut_chunks(text: str, before: str = "") -> list[str]:
    """The tokens of each chunk between blanks; ``before`` is the character that precedes ``text``."""
    words: list[str] = []
    position = 0
    for chunk in text.split():
        if chunk.isalnum() and chunk.lower() not in _JOINED:
            words.append(chunk)
            continue
        position = text.index(chunk, position)
        lead = text[position - 1] if position else before
        position += len(chunk)
        cut = _cut if len(chunk) < _REMEMBERED else _cut_anew
        words += cut(chunk, lead == " ", text[position : position + 1] == " ")
    return words


# Characters: longer chunks (links, base64) hardly recur, and would fill the memory of the cache.
_REMEMBERED = 200
_JOINED = frozenset({"cannot", "gimme", "gonna", "gotta", "lemme", "wanna"})

_QUOTES = re.compile(r"[«“‘„]|``|`")
_OPENING = re.compile(r"([ ([{<])(?:\"|'{2})")
_LEADING_APOSTROPHE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", re.IGNORECASE)
_COLON = re.compile(r"([:,])(\D)")
_ALONE = re.compile(r"\.{2,}|[;@#$%&‒–—―?!]")
_CLOSING_APOSTROPHE = re.compile(r"([^'])' ")
_ALONE_TOO = re.compile(r"--|''|[*\]\[(){}<>»”’\"]")
_SUFFIX = re.compile(r"([^' ])('[sSmMdD]|') ")
_LONG_SUFFIX = re.compile(r"([^' ])('(?:ll|LL|re|RE|ve|VE)|n't|N'T) ")
_CONTRACTIONS = re.compile(
    r"\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na)(?=\s))\b",
    re.IGNORECASE,
)
_OLD_CONTRACTIONS = re.compile(r" ('t)(is|was)\b", re.IGNORECASE)


@lru_cache(maxsize=20_000)
def _cut(chunk: str, after_blank: bool, before_blank: bool) -> tuple[str, ...]:
    return tuple(_cut_anew(chunk, after_blank, before_blank))


def _cut_anew(chunk: str, after_blank: bool, before_blank: bool) -> list[str]:
    """Pad what stands alone with blanks, in the order of the Treebank's conventions, and split.

    The flags say whether the neighbours are plain blanks, which some conventions ask for.
    """
    text = f"{' ' if after_blank else chr(10)}{chunk}{' ' if before_blank else chr(10)}"
    apostrophe = "'" in chunk
    text = _QUOTES.sub(r" \g<0> ", text)
    if apostrophe or '"' in chunk:
        text = _OPENING.sub(r"\1 `` ", text)
    if apostrophe:
        text = _LEADING_APOSTROPHE.sub("' ", text)
    if ":" in chunk or "," in chunk:
        text = _COLON.sub(r" \1 \2", text)
    text = _ALONE.sub(r" \g<0> ", text)
    if apostrophe:
        text = _CLOSING_APOSTROPHE.sub(r"\1 ' ", text)
    text = _ALONE_TOO.sub(_pad, text)
    if apostrophe:
        text = f" {' '.join(text.split())} "
        text = _SUFFIX.sub(r"\1 \2 ", text)
        text = _LONG_SUFFIX.sub(r"\1 \2 ", text)
    text = _CONTRACTIONS.sub(_apart, text)
    if apostrophe:
        text = _OLD_CONTRACTIONS.sub(_apart, text)
    return text.split()


def _pad(match: re.Match[str]) -> str:
    return " '' " if match.group() == '"' else f" {match.group()} "


def _apart(match: re.Match[str]) -> str:
    return f" {' '.join(part for part in match.groups() if part)} "
