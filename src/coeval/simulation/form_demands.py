"""Demands of length, layout and case in common wordings, IFEval's included."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import NamedTuple

from coeval.simulation.answer_draft import AnswerDraft, Change, Demand, Found, demand, ends_with, says, sets

# --- Numbers in prompts

_WORDS = {
    "once": 1, "one": 1, "single": 1, "twice": 2, "two": 2, "thrice": 3, "three": 3, "four": 4,
    "five": 5, "six": 6, "seven": 7, "eight": 8, "nine": 9, "ten": 10, "eleven": 11, "twelve": 12,
    "thirteen": 13, "fourteen": 14, "fifteen": 15, "sixteen": 16, "twenty": 20, "thirty": 30, "forty": 40,
    "fifty": 50,
}  # fmt: skip
_ORDINALS = (
    "first", "second", "third", "fourth", "fifth", "sixth", "seventh", "eighth", "ninth", "tenth",
)  # fmt: skip

# Largest number that a simulated answer meets; more is cut to it.
LARGEST = 2000

NUMBER = rf"(\d{{1,6}}|\b(?:{'|'.join(sorted(_WORDS, key=len, reverse=True))})\b)"
"""Pattern of a number, as a group."""
ORDINAL = rf"(\d{{1,4}}(?:st|nd|rd|th)|{'|'.join(_ORDINALS)}|last)"


def number(text: str) -> int:
    """Parse a match of `NUMBER`."""
    return min(LARGEST, int(text) if text.isdecimal() else _WORDS[text.lower()])


def ordinal(text: str, last: int) -> int:
    """Parse a match of `ORDINAL` as a place from 1; ``last`` is the place that "last" means."""
    word = text.lower()
    if word == "last":
        return last
    return _ORDINALS.index(word) + 1 if word in _ORDINALS else min(LARGEST, int(word[:-2]))


# --- One sentence in each language

SENTENCES: dict[str, str] = {
    "arabic": "هذا جواب بسيط وواضح يشرح الفكرة الرئيسية للقارئ.",
    "bengali": "এটি একটি সহজ উত্তর যা পাঠককে মূল বিষয়টি বুঝিয়ে দেয়।",
    "bulgarian": "Това е прост отговор, който обяснява на читателя основната идея.",
    "chinese": "这是一个简单的回答，向读者解释主要的内容。",
    "finnish": "Tämä on yksinkertainen vastaus, joka selittää lukijalle tärkeimmän asian.",
    "french": "Ceci est une réponse simple qui explique au lecteur l'idée principale.",
    "german": "Dies ist eine einfache Antwort, die dem Leser die wichtigste Sache erklärt.",
    "gujarati": "આ એક સરળ જવાબ છે જે વાચકને મુખ્ય વાત સમજાવે છે.",
    "hindi": "यह एक सरल उत्तर है जो पाठक को मुख्य बात समझाता है।",
    "italian": "Questa è una risposta semplice che spiega al lettore l'idea principale.",
    "japanese": "これは読者に大切なことを説明する簡単な答えです。",
    "kannada": "ಇದು ಓದುಗರಿಗೆ ಮುಖ್ಯ ವಿಷಯವನ್ನು ವಿವರಿಸುವ ಸರಳ ಉತ್ತರ.",
    "korean": "이것은 독자에게 중요한 내용을 설명하는 간단한 대답입니다.",
    "marathi": "हे एक सोपे उत्तर आहे जे वाचकाला मुख्य गोष्ट समजावून सांगते.",
    "nepali": "यो एउटा सरल उत्तर हो जसले पाठकलाई मुख्य कुरा बुझाउँछ।",
    "persian": "این یک پاسخ ساده است که موضوع اصلی را برای خواننده توضیح می‌دهد.",
    "farsi": "این یک پاسخ ساده است که موضوع اصلی را برای خواننده توضیح می‌دهد.",
    "portuguese": "Esta é uma resposta simples que explica ao leitor a ideia principal.",
    "punjabi": "ਇਹ ਇੱਕ ਸੌਖਾ ਜਵਾਬ ਹੈ ਜੋ ਪਾਠਕ ਨੂੰ ਮੁੱਖ ਗੱਲ ਸਮਝਾਉਂਦਾ ਹੈ।",
    "russian": "Это простой ответ, который объясняет читателю главную мысль.",
    "spanish": "Esta es una respuesta sencilla que explica al lector la idea principal.",
    "swahili": "Hili ni jibu rahisi ambalo linamweleza msomaji jambo kuu la habari hii.",
    "tamil": "இது வாசகருக்கு முக்கிய விஷயத்தை விளக்கும் எளிய பதில்.",
    "telugu": "ఇది పాఠకులకు ముఖ్యమైన విషయాన్ని వివరించే సరళమైన సమాధానం.",
    "thai": "นี่คือคำตอบง่าย ๆ ที่อธิบายเรื่องสำคัญให้ผู้อ่านเข้าใจ",
    "urdu": "یہ ایک سادہ جواب ہے جو پڑھنے والے کو اہم بات سمجھاتا ہے۔",
    "vietnamese": "Đây là một câu trả lời đơn giản giải thích cho người đọc điều quan trọng nhất.",
}


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
    """Return the upper limit that a match states; None for a lower or an exact number."""
    text = found[0]
    if not _LIMIT.search(text) or _NO_LESS.search(text):
        return None
    return max(0, number(found["n"]) - (1 if _STRICT.search(text) else 0))


def _counted(what: str, exact: Callable[[int], int], limited: Callable[[int], int], *, met: bool) -> Change:
    """Write so many words or sentences that a demand on their number is met, or missed: from the stated
    number where it is exact or the least, from the most where it is that."""

    def change(draft: AnswerDraft, found: Found) -> None:
        upper = most(found)
        bound = "least" if (upper is None) == met else "most"
        setattr(draft, f"{bound}_{what}", exact(number(found["n"])) if upper is None else limited(upper))

    return change


_words = _counted("words", lambda n: n + 10, lambda n: n, met=True)
_other_words = _counted("words", lambda n: n // 2, lambda n: n + 20, met=False)
_sentences = _counted("sentences", lambda n: n + 1, lambda n: max(1, n - 2), met=True)
_other_sentences = _counted("sentences", lambda n: max(1, n - 3), lambda n: n + 3, met=False)


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


def _repeat(draft: AnswerDraft, found: Found) -> None:
    draft.opening = found.string[: found.start()].strip()


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
        ends_with(lambda text: text.replace(",", "")),
        says("is plain, of course"),
    ),
    demand(
        "lower case",
        "lowercase|lower case|lower-case|no capital|capital letters",
        r"\b(?:all|only|entire\w*|in|using)\b[^.\n]{0,40}?\blower[- ]?case\b(?! letters? (?:are )?allowed)"
        r"|(?<!all )\b(?:no|without|any) (?:using )?capital letters?",
        ends_with(str.lower),
    ),
    demand(
        "upper case",
        "capital|uppercase|all caps",
        r"\b(?:all[- ]caps|all (?:in )?(?:english )?capital(?:s|ized| letters?)|capital letters only"
        r"|only (?:in )?capital|uppercase)\b(?![^.\n]{0,80}\btimes?\b)|no lowercase",
        ends_with(str.upper),
    ),
    demand("title", "<<", r"<<", sets(title=True)),
    demand("postscript", "p.s|p.p.s", r"(?P<mark>P\.P\.S|P\.S\.)", sets(postscript=r"\g<mark>")),
    demand("one of three", "my answer is", r"my answer is yes", sets(ending="My answer is yes.")),
    demand("json", "json", r"\bJSON\b", sets(as_json=True)),
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
        sets(twice=True),
    ),
    demand(
        "ending",
        "finish|end |very last|ends|ending",
        rf"\b(?:finish|end|ends|ending|very last)\b[^.\n{_QUOTES}]{{0,80}}[{_QUOTES}]"
        r"(?P<phrase>[^\n\"“”]{3,120}?)"
        r"[\"“”'](?=[\s.,]|$)",
        sets(ending=r"\g<phrase>"),
    ),
    demand("quotes", "quot", r"\bdouble[- ]quot\w*\b(?! and single)", sets(quoted=True)),
    demand(
        "language",
        "language|in ",
        rf"\b(?:in|using)(?: only| the| entirely)* (?P<language>{'|'.join(SENTENCES)})\b",
        _language,
    ),
)
"""Applied in this order; of two that conflict the later wins."""


# --- Demands for and against words and letters

_CLAUSE_ENDS = re.compile(r"(?<=[.!?;])[\"”']?\s+|\n+")
_CUES = ("word", "mention", "letter", "include", "term")
_QUOTED = re.compile(r"(?:^|[\s(:])[\"“'‘]([^\s\"“”'‘’][^\"“”‘’\n]{0,30}?)[,.]?[\"”'’](?=[\s,.;:)!?]|$)")
_LISTED = re.compile(
    r"\b(?:keywords?|words?)\b(?: of| like| are)?:? \[?"
    r"(?P<words>'?[\w-]+'?(?:(?:, and |, or |, | and | or | & )'?[\w-]+'?){0,20}?)\]?"
    r"(?=[.;]|$| should\b| must\b| in\b| at\b| for\b| (?:more|less|no)\b| to\b| appears?\b|,? "
    rf"{NUMBER}\b| with\b| and (?:do|use|make|don)\b)",
    re.IGNORECASE,
)
_BETWEEN = re.compile(r", and |, or |, | and | or | & ")
_LETTER = re.compile(r"\bletters? [\"“'‘]?(\w)\b[\"”'’]?", re.IGNORECASE)
_TIMES = re.compile(
    rf"\b(?P<few>less than|fewer than|at most|no more than|maximum|under)?\s*(?:a total of )?(?P<n>{NUMBER})"
    r"(?: or (?:more|(?P<fewer>fewer|less)))?(?: times?\b|(?<=once)|(?<=twice)|(?<=thrice))",
    re.IGNORECASE,
)
_NOT = re.compile(
    r"\b(?:not|no|without|avoid\w*|never|exclud\w*|refrain\w*|cannot|forbidden)\b|n['’]t\b(?! forget)",
    re.IGNORECASE,
)
# Clauses about words that are demands of another kind.
_ODD = re.compile(
    r"\d+-(?:st|nd|rd|th) (?:sentence|word)|unique words|\bwords? (?:must|should) start|keyword \w+ once",
    re.IGNORECASE,
)
_STOPS = frozenset(
    ("the", "a", "it", "that", "in", "your", "response", "only", "each", "every", "any", "them")
)
_PLAIN = ("dim", "vow", "up", "joy", "cheap", "kept", "box", "lunch", "frog", "quiz", "hymn", "warm", "end")


class _Needed(NamedTuple):
    """``times`` is None where the words must not stand at all; at most so often with ``few``."""

    words: tuple[str, ...]
    times: int | None
    few: bool = False


def heed_words(draft: AnswerDraft, prompt: str, quality: float) -> int:
    """Apply the prompt's clauses on words and letters to the draft; return their number."""
    made = 0
    for place, clause in enumerate(_CLAUSE_ENDS.split(prompt)):
        lowered = clause.lower()
        if not any(cue in lowered for cue in _CUES):
            continue
        is_met = draft.draws.uniform(f"meets clause {place}") < quality
        letter = _LETTER.search(clause)
        times = _TIMES.search(clause)
        if letter and times:
            made += 1
            _letters(draft, letter[1].lower(), _count(times), is_met)
        else:
            needed = _needed(clause, times)
            made += needed is not None
            if needed is not None:
                _give(draft, needed, is_met)
    return made


class _Count(NamedTuple):
    times: int
    few: bool


def _count(times: re.Match[str]) -> _Count:
    few = times["few"] or times["fewer"]
    strict = few is not None and few.lower() in ("less than", "fewer than", "under")
    return _Count(number(times["n"]) - strict, few is not None)


def _needed(clause: str, times: re.Match[str] | None) -> _Needed | None:
    """What the clause says of its words; None where it names none."""
    if _ODD.search(clause):
        return None
    words = _QUOTED.findall(clause) or _listed(clause)
    if not words:
        return None
    if times is not None:
        count = _count(times)
        return _Needed(tuple(words), count.times, count.few)
    return _Needed(tuple(words), None if _NOT.search(clause) else 1)


def _listed(clause: str) -> list[str]:
    found = _LISTED.search(clause)
    words = [word.strip(" '") for word in _BETWEEN.split(found["words"])] if found else []
    return [word for word in words if word and " " not in word and word.lower() not in _STOPS]


def _give(draft: AnswerDraft, needed: _Needed, is_met: bool) -> None:
    for word in needed.words:
        if needed.times is None or needed.few:
            draft.banned.append(word.casefold())
            if not is_met:
                draft.clauses.append(" ".join([f"names {word}"] * ((needed.times or 0) + 1)))
        elif is_met:
            draft.clauses.append(" ".join([f"names {word}"] * needed.times))
        else:
            draft.banned.append(word.casefold())


def _letters(draft: AnswerDraft, letter: str, count: _Count, is_met: bool) -> None:
    if is_met == count.few:
        draft.whole = " ".join(word for word in _PLAIN if letter not in word)
    else:
        draft.clauses.append(f"spells {' '.join([letter * 3] * (count.times // 3 + 1))}")
