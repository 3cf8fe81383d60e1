"""Demands of length, layout and case, in the wordings that are common, IFEval's among them."""

from __future__ import annotations

import re

from coeval.simulation.answer_draft import AnswerDraft
from coeval.simulation.demand import Demand, Found, demand
from coeval.simulation.numbers_in_words import NUMBER, ORDINAL, number, ordinal
from coeval.simulation.strangers import SENTENCES

_LIMIT = re.compile(
    r"less|fewer|at most|no more|under|below|max|exceed|up to|within|limit|shorter", re.IGNORECASE
)
_STRICT = re.compile(r"less|fewer|under|below|shorter", re.IGNORECASE)
_NO_LESS = re.compile(r"\b(?:no|not) (?:less|fewer)", re.IGNORECASE)
_COUNTED_PARTS = re.compile(
    rf"{NUMBER}[- ](?:\w+ ){{0,2}}?(?:sections?|paragraphs?|parts?|days?|chapters?|points?|scenes?)\b",
    re.IGNORECASE,
)


def most(found: Found) -> int | None:
    """The upper limit that the match states; None where its number is a lower one, or exact."""
    text = found[0]
    if not _LIMIT.search(text) or _NO_LESS.search(text):
        return None
    return max(0, number(found["n"]) - (1 if _STRICT.search(text) else 0))


def _words(draft: AnswerDraft, found: Found) -> None:
    upper = most(found)
    if upper is None:
        draft.least_words = number(found["n"]) + 10
    else:
        draft.most_words = upper


def _other_words(draft: AnswerDraft, found: Found) -> None:
    upper = most(found)
    if upper is None:
        draft.most_words = number(found["n"]) // 2
    else:
        draft.least_words = upper + 20


def _sentences(draft: AnswerDraft, found: Found) -> None:
    upper = most(found)
    if upper is None:
        draft.least_sentences = number(found["n"]) + 1
    else:
        draft.most_sentences = max(1, upper - 2)


def _other_sentences(draft: AnswerDraft, found: Found) -> None:
    upper = most(found)
    if upper is None:
        draft.most_sentences = max(1, number(found["n"]) - 3)
    else:
        draft.least_sentences = upper + 3


def _paragraphs(draft: AnswerDraft, found: Found) -> None:
    """Paragraphs, and sections where the prompt says what parts them."""
    starred = "***" in found.string or "asterisk" in found.string
    if starred:
        draft.divider = "\n\n***\n\n"
    if starred or found["what"].lower().startswith("paragraph"):
        draft.paragraphs = number(found["n"])


def _first_word(draft: AnswerDraft, found: Found) -> None:
    draft.first_words[ordinal(found["place"], draft.paragraphs)] = found["word"]


def _sections(draft: AnswerDraft, found: Found) -> None:
    draft.heading = found["label"]
    counted = _COUNTED_PARTS.search(found.string)
    draft.paragraphs = max(draft.paragraphs, number(counted[1]) if counted else 3)


def _bullets(draft: AnswerDraft, found: Found) -> None:
    draft.bullets = number(found["n"])


def _highlights(draft: AnswerDraft, found: Found) -> None:
    count = number(found["n"] or found["n_before"])
    draft.clauses += [f"stresses *point {place}*" for place in range(count)]


def _placeholders(draft: AnswerDraft, found: Found) -> None:
    draft.clauses += [f"leaves [detail {place}] open" for place in range(number(found["n"]))]


def _capital_words(draft: AnswerDraft, found: Found) -> None:
    if most(found) is None:
        draft.clauses.append(" ".join(["says STOP"] * number(found["n"])))


def _too_many_capitals(draft: AnswerDraft, found: Found) -> None:
    if most(found) is not None:
        draft.clauses.append(" ".join(["says STOP"] * (number(found["n"]) + 1)))


def _without_commas(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(lambda text: text.replace(",", ""))


def _with_commas(draft: AnswerDraft, _: Found) -> None:
    draft.clauses.append("is plain, of course")


def _lower(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(str.lower)


def _upper(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(str.upper)


def _title(draft: AnswerDraft, _: Found) -> None:
    draft.title = True


def _postscript(draft: AnswerDraft, found: Found) -> None:
    draft.postscript = found["mark"]


def _choice(draft: AnswerDraft, _: Found) -> None:
    draft.ending = "My answer is yes."


def _json(draft: AnswerDraft, _: Found) -> None:
    draft.as_json = True


def _repeat(draft: AnswerDraft, found: Found) -> None:
    draft.opening = found.string[: found.start()].strip()


def _twice(draft: AnswerDraft, _: Found) -> None:
    draft.twice = True


def _ending(draft: AnswerDraft, found: Found) -> None:
    draft.ending = found["phrase"]


def _quoted(draft: AnswerDraft, _: Found) -> None:
    draft.quoted = True


def _language(draft: AnswerDraft, found: Found) -> None:
    draft.foreign = SENTENCES[found["language"].lower()]


_QUOTES = "\"“”„'‘’`"
_LIMITED = (
    r"(?:\b(?:at least|at most|at minimum|(?:no )?(?:less|fewer|more|shorter) than|under|over|below|within"
    r"|up to|exceed\w*|limit\w*|max\w*|min\w*)\s+(?:(?:the|of|to|a total of|is|than|be)\s+){0,2})?"
)
_TRAILING = r"(?:\+| ?or (?:more|fewer|less)| at (?:most|least))?"
_N = rf"{_LIMITED}(?P<n>{NUMBER}){_TRAILING}"

FORM_DEMANDS: tuple[Demand, ...] = (
    demand("words", "word", rf"{_N}[- ]?words?\b(?: or (?:more|less|fewer))?", _words, _other_words),
    demand("sentences", "sentence", rf"{_N} sentences?\b", _sentences, _other_sentences),
    demand(
        "paragraphs",
        "paragraph|***",
        rf"(?P<n>{NUMBER}) (?:\w+ )?(?P<what>paragraphs?|sections?)\b",
        _paragraphs,
    ),
    demand(
        "first word",
        "paragraph",
        rf"\b(?P<place>{ORDINAL}) paragraph\b[^.\n]{{0,60}}?\bstart\w*\b[^.\n]{{0,30}}?word\w*,? "
        rf"[{_QUOTES}]*(?P<word>\w+)",
        _first_word,
    ),
    demand("sections", " x", r"\b(?P<label>(?-i:[A-Z][A-Za-z]{2,12})) (?-i:X)\b", _sections),
    demand("bullets", "bullet", rf"(?P<n>{NUMBER}) (?:\w+ )?bullet", _bullets),
    demand(
        "highlights",
        "highlight|italic",
        rf"(?:highlight|italic)\w*[^.\n]{{0,40}}?(?P<n>{NUMBER}) "
        rf"|(?P<n_before>{NUMBER}) [^.\n]{{0,40}}?highlighted",
        _highlights,
    ),
    demand("placeholders", "placeholder", rf"(?P<n>{NUMBER}) (?:\w+ )?placeholder", _placeholders),
    demand(
        "capital words",
        "capital|all caps|all-caps|uppercase",
        rf"(?:capital|caps\b|uppercase)[^.\n]{{0,60}}?{_N}(?= times?)",
        _capital_words,
        _too_many_capitals,
    ),
    demand(
        "no commas",
        "comma",
        r"\b(?:no|not|without|avoid\w*|refrain\w*|any|zero|never)\b[^.\n]{0,60}?\bcommas?\b",
        _without_commas,
        _with_commas,
    ),
    demand(
        "lower case",
        "lowercase|lower case|lower-case|no capital|capital letters",
        r"\b(?:all|only|entire\w*|in|using)\b[^.\n]{0,40}?\blower[- ]?case\b(?! letters? (?:are )?allowed)"
        r"|(?<!all )\b(?:no|without|any) (?:using )?capital letters?",
        _lower,
    ),
    demand(
        "upper case",
        "capital|uppercase|all caps",
        r"\b(?:all[- ]caps|all (?:in )?(?:english )?capital(?:s|ized| letters?)|capital letters only"
        r"|only (?:in )?capital|uppercase)\b(?![^.\n]{0,80}\btimes?\b)|no lowercase",
        _upper,
    ),
    demand("title", "<<", r"<<", _title),
    demand("postscript", "p.s|p.p.s", r"(?P<mark>P\.P\.S|P\.S\.)", _postscript),
    demand("one of three", "my answer is", r"my answer is yes", _choice),
    demand("json", "json", r"\bJSON\b", _json),
    demand(
        "repeat",
        "repeat",
        r"(?:first,? )?\brepeat (?:the|this)[^.\n]{0,80}?"
        r"(?:word for word|without (?:any )?change|exact|verbatim)",
        _repeat,
    ),
    demand(
        "two responses",
        "two different|***",
        r"\btwo (?:different|distinct) res|\*{6}|(?:6|six) asterisk",
        _twice,
    ),
    demand(
        "ending",
        "finish|end |very last|ends|ending",
        rf"\b(?:finish|end|ends|ending|very last)\b[^.\n{_QUOTES}]{{0,80}}[{_QUOTES}]"
        r"(?P<phrase>[^\n\"“”]{3,120}?)"
        r"[\"“”'](?=[\s.,]|$)",
        _ending,
    ),
    demand("quotes", "quot", r"\bdouble[- ]quot\w*\b(?! and single)", _quoted),
    demand(
        "language",
        "language|in ",
        rf"\b(?:in|using)(?: only| the| entirely)* (?P<language>{'|'.join(SENTENCES)})\b",
        _language,
    ),
)
"""In this order; of two that settle the same thing, the later holds."""
