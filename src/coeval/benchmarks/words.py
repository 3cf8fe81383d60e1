"""Word tokens, in the two senses that verifiers use.

`word_runs` are the maximal runs of word characters. `treebank_words` are Penn Treebank tokens: punctuation
stands alone, contractions are cut (``do|n't``), and only the last period of a sentence is cut off. Tokens
equal those of NLTK 3.10 (tested), but each chunk between blanks is cut on its own and cached, so the time is
linear in the text.
"""

from __future__ import annotations

import re
import tomllib
from functools import lru_cache
from pathlib import Path

_LISTS = tomllib.loads(Path(__file__).with_name("english.toml").read_text(encoding="utf-8"))
ENGLISH = {name: frozenset(words.split()) for name, words in _LISTS.items()}
"""The word lists of ``english.toml`` by name."""

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
    """Return the Penn Treebank tokens of one sentence."""
    if sentence.startswith('"'):
        sentence = "`` " + sentence[1:]
    body, tail = _split_last_period(sentence)
    words = _tokenise_chunks(body)
    if tail:
        words.append(".")
        words += _tokenise_chunks(tail[1:], preceding=".")
    return words


_CLOSERS = "])}>\"'»”’ "


def _split_last_period(sentence: str) -> tuple[str, str]:
    """Split a sentence into what precedes its final period, and the period with its closers; (all, "") if
    there is none. The period of an ellipsis is not cut off, nor one before a quote that opens (blank before
    it)."""
    body = sentence.rstrip().rstrip(_CLOSERS)
    tail = sentence.rstrip()[len(body) :]
    opening = ' "' in tail or " ''" in tail
    if len(body) < 2 or body[-1] != "." or body[-2] == "." or opening:
        return sentence, ""
    return body[:-1], "." + tail


def _tokenise_chunks(text: str, preceding: str = "") -> list[str]:
    """Return the tokens of all chunks between blanks; ``preceding`` is the character before ``text``."""
    words: list[str] = []
    position = 0
    for chunk in text.split():
        if chunk.isalnum() and chunk.lower() not in _JOINED:
            words.append(chunk)
            continue
        position = text.index(chunk, position)
        lead = text[position - 1] if position else preceding
        position += len(chunk)
        tokenise = _tokenise_cached if len(chunk) < _REMEMBERED else _tokenise_chunk
        words += tokenise(chunk, lead == " ", text[position : position + 1] == " ")
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
def _tokenise_cached(chunk: str, after_blank: bool, before_blank: bool) -> tuple[str, ...]:
    return tuple(_tokenise_chunk(chunk, after_blank, before_blank))


def _tokenise_chunk(chunk: str, after_blank: bool, before_blank: bool) -> list[str]:
    """Pad what stands alone with blanks, in the order of the Treebank's conventions, and split. The flags say
    whether the neighbours are plain blanks, which some conventions ask for."""
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
    text = _ALONE_TOO.sub(_pad_match, text)
    if apostrophe:
        text = f" {' '.join(text.split())} "
        text = _SUFFIX.sub(r"\1 \2 ", text)
        text = _LONG_SUFFIX.sub(r"\1 \2 ", text)
    text = _CONTRACTIONS.sub(_space_out_groups, text)
    if apostrophe:
        text = _OLD_CONTRACTIONS.sub(_space_out_groups, text)
    return text.split()


def _pad_match(match: re.Match[str]) -> str:
    return " '' " if match.group() == '"' else f" {match.group()} "


def _space_out_groups(match: re.Match[str]) -> str:
    return f" {' '.join(part for part in match.groups() if part)} "
