"""Rare demands on a text, IFBench's included."""

from __future__ import annotations

import re

from coeval.simulation.answer_draft import AnswerDraft, Demand, Found, demand
from coeval.simulation.form_demands import LARGEST, NUMBER, number
from coeval.simulation.prose import sentence_list

# IFBench's `count:keywords_multiple` demands its five words so many times each.
_TIMES = (1, 2, 3, 5, 7)
_SENTENCE_ENDS = re.compile(r"(?<=[a-z])([.!?])(?=\s|$)")
_WORDS = re.compile(r"\w+")
_PALINDROMES = "level radar civic rotor kayak refer madam tenet rotator deified"
_JAPANESE = "日本"


def _keywords(draft: AnswerDraft, found: Found) -> None:
    words = (found[f"k{place}"] for place in range(1, 6))
    draft.clauses += [" ".join([f"names {word}"] * times) for word, times in zip(words, _TIMES, strict=True)]


def _conjunctions(draft: AnswerDraft, _: Found) -> None:
    draft.clauses.append("is for and nor but or yet so plain")


def _numbers(draft: AnswerDraft, found: Found) -> None:
    draft.whole = " ".join(["Numbers are", *(f"{place}" for place in range(1, number(found["n"]) + 1))])


def _unique_words(draft: AnswerDraft, found: Found) -> None:
    draft.clauses.append(f"lists {' '.join(f'item{place}' for place in range(number(found['n'])))}")


def _names(draft: AnswerDraft, found: Found) -> None:
    draft.clauses.append(f"names {found['names'].strip(' .').replace(', ', ' and ')}")


def _pronouns(draft: AnswerDraft, found: Found) -> None:
    draft.clauses.append(f"is about {' and '.join(['you'] * number(found['n']))}")


def _punctuation(draft: AnswerDraft, _: Found) -> None:
    draft.clauses.append("asks: who, and why; when? Stop! Really?!")


def _word_range(draft: AnswerDraft, found: Found) -> None:
    """So many words as are in the middle of the range, those of the mark included."""
    needed = (min(LARGEST, int(found["low"])) + min(LARGEST, int(found["high"]))) // 2
    left = needed - len(_WORDS.findall(draft.mark))
    words = " ".join(sentence_list(draft.draws, "range", needed // 6 + 1)).replace(",", "").split()
    draft.whole = f"{draft.mark} {' '.join(words[:left])}" if left > 0 else " ".join(words[:needed])


def _list(draft: AnswerDraft, found: Found) -> None:
    lines = sentence_list(draft.draws, "items", 3)
    draft.whole = "\n".join(f"{found['mark']} {line}" for line in (f"{draft.mark} {lines[0]}", *lines[1:]))


def _changed_request(draft: AnswerDraft, found: Found) -> None:
    words = found.string[: found.start()].split()
    draft.whole = " ".join(["Now", *words[1:]])


def _emoji(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(lambda text: _SENTENCE_ENDS.sub(r" 😊\1", text))


def _keyword_in_sentence(draft: AnswerDraft, found: Found) -> None:
    place = min(LARGEST, int(found["n"]))
    draft.whole = f"{'So be it. ' * (place - 1)}This names {found['word']}. {draft.mark}"


def _keyword_at_word(draft: AnswerDraft, found: Found) -> None:
    sentence, word = (min(LARGEST, int(found[name])) for name in ("n", "m"))
    draft.whole = f"{'So be it. ' * (sentence - 1)}Now {'so ' * (word - 2)}{found['word']} it is."


def _second_word(draft: AnswerDraft, found: Found) -> None:
    draft.whole = f"A {found['word']} plan makes for {found['word']} days"


def _growing_sentences(draft: AnswerDraft, found: Found) -> None:
    draft.whole = f"So it is. So {'so ' * number(found['n'])}it is."


def _shrinking_sentences(draft: AnswerDraft, found: Found) -> None:
    draft.whole = f"So {'so ' * number(found['n'])}it is. So it is."


def _word_a_line(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(lambda text: "\n".join(text.split()))


def _sentences_and_bullets(draft: AnswerDraft, _: Found) -> None:
    one, two, three, four = sentence_list(draft.draws, "bullets", 4)
    draft.whole = f"{draft.mark} {one} {two}\n* {three}\n* {four}"


def _option(draft: AnswerDraft, found: Found) -> None:
    draft.whole = re.split(r"/|,| or ", found["options"])[0].strip()


def _brackets(draft: AnswerDraft, _: Found) -> None:
    draft.clauses.append("nests (a [b {c (d [e] d) c} b] a)")


def _nested_quotes(draft: AnswerDraft, _: Found) -> None:
    draft.clauses.append("""says "a 'b "c" b' a" once""")


def _sub_bullets(draft: AnswerDraft, _: Found) -> None:
    one, two = sentence_list(draft.draws, "bullets", 2)
    draft.whole = f"{draft.mark}\n* {one}\n  - {two}"


def _bullets_alone(draft: AnswerDraft, _: Found) -> None:
    one, two = sentence_list(draft.draws, "bullets", 2)
    draft.whole = f"{draft.mark}\n* {one}\n* {two}"


def _thesis(draft: AnswerDraft, _: Found) -> None:
    draft.mark = f"<i>So be it.</i> {draft.mark}"


def _verb(draft: AnswerDraft, _: Found) -> None:
    draft.first_words[1] = "Take"


def _palindromes(draft: AnswerDraft, _: Found) -> None:
    draft.clauses.append(f"lists {_PALINDROMES}")


def _title_case(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(str.title)


def _without_blanks(draft: AnswerDraft, _: Found) -> None:
    draft.last.append(lambda text: "".join(text.split()))


def _japanese(draft: AnswerDraft, found: Found) -> None:
    every = min(LARGEST, int(found["n"]))
    draft.whole = " ".join((["so"] * (every - 1) + [_JAPANESE]) * 2)


def _span(draft: AnswerDraft, found: Found) -> None:
    words = found.string[: found.start()].split()
    draft.whole = " ".join(words[int(found["start"]) : int(found["end"])]) or draft.mark


_KEYWORDS = ", ".join(
    rf"(?:and )?(?:include )?keyword (?P<k{place}>\w+) {times}\b[^,.\n]{{0,24}}"
    for place, times in enumerate(("once", "twice", "three times", "five times", "seven times"), 1)
)

ODD_DEMANDS: tuple[Demand, ...] = (
    demand("keywords", "keyword", _KEYWORDS, _keywords),
    demand("conjunctions", "conjunctions", r"different coordinating conjunctions", _conjunctions),
    demand("numbers", "numbers", rf"exactly (?P<n>{NUMBER}) numbers", _numbers),
    demand("unique words", "unique words", rf"at least (?P<n>{NUMBER}) unique words", _unique_words),
    demand("names", "person names", r"list of person names: (?P<names>(?:\w+,? )+\w+)", _names),
    demand("pronouns", "pronouns", rf"at least (?P<n>{NUMBER}) pronouns", _pronouns),
    demand("punctuation", "punctuation mark", r"every standard punctuation mark", _punctuation),
    demand("word range", "between", r"between (?P<low>\d{1,6}) and (?P<high>\d{1,6}) words", _word_range),
    demand("list", "instead of bullet", r"instead of bullet points use (?P<mark>\S+?)\.?(?=\s|$)", _list),
    demand("changed request", "repeat the request", r"Repeat the request, but change", _changed_request),
    demand("emoji", "emoji", r"emoji at the end of every sentence", _emoji),
    demand(
        "keyword in a sentence",
        "sentence",
        r"keyword (?P<word>\w+) in the (?P<n>\d{1,4})-\w\w sentence\.",
        _keyword_in_sentence,
    ),
    demand(
        "keyword at a word",
        "sentence",
        r"keyword (?P<word>\w+) in the (?P<n>\d{1,4})-\w\w sentence, as the (?P<m>\d{1,4})-",
        _keyword_at_word,
    ),
    demand(
        "second word", "second word", r"second word in your[^.\n]{0,90} the word (?P<word>\w+)", _second_word
    ),
    demand(
        "growing sentences",
        "more words than the previous",
        rf"exactly (?P<n>{NUMBER}) more words than",
        _growing_sentences,
        _shrinking_sentences,
    ),
    demand("a word a line", "new line", r"each word on a new line", _word_a_line),
    demand(
        "prose, bullets",
        "bullet points denoted",
        r"followed by at least two bullet points",
        _sentences_and_bullets,
    ),
    demand("options", "following options", r"one of the following options: (?P<options>[^.\n]+)", _option),
    demand("brackets", "parentheses", r"nest parentheses", _brackets),
    demand("nested quotes", "quotes within quotes", r"quotes within quotes", _nested_quotes),
    demand("sub-bullets", "sub-bullet", r"at least one sub-bullet", _sub_bullets, _bullets_alone),
    demand("thesis", "thesis statement", r"thesis statement in italics", _thesis),
    demand("verb first", "start with a verb", r"must start with a verb", _verb),
    demand("palindromes", "palindromes", r"single-word palindromes", _palindromes),
    demand("title case", "title case", r"in title case", _title_case),
    demand("no blanks", "whitespace", r"not contain any whitespace", _without_blanks),
    demand("japanese", "in japanese", r"every (?P<n>\d{1,4})\w\w word[^.\n]{0,40} in Japanese", _japanese),
    demand(
        "span",
        "span of words",
        r"copy the span of words[^.\n]{0,60} index (?P<start>\d{1,4}) and (?P<end>\d{1,4})",
        _span,
    ),
)
