"""IFBench's verifiers of form, and of single tasks: ``format:``, ``sentence:``, ``repeat:``, ``custom:``."""

from __future__ import annotations

import csv
import io
import itertools
import re
import string
import unicodedata
from itertools import islice, pairwise

from coeval.benchmarks.tasks.ifeval_checks import (
    PUNCTUATION,
    PUNCTUATION_AND_BLANK,
    WITHOUT_PUNCTUATION,
    verifies,
)
from coeval.benchmarks.text_analysis import Language

# --- IFBench ``format:``: layout, lists and quotes

_PAIRS = {")": "(", "]": "[", "}": "{"}


@verifies("format:parentheses")
def parentheses(response: str) -> bool:
    """ "Nest parentheses (and [brackets {and braces}]) at least 5 levels deep.": five or more opened,
    and the innermost closed by its own kind; a wrong closing begins anew."""
    opened: list[str] = []
    for character in re.findall(r"[()\[\]{}]", response):
        if character not in _PAIRS:
            opened.append(character)
        elif opened and opened[-1] == _PAIRS[character]:
            if len(opened) >= 5:
                return True
            opened.pop()
        else:
            opened.clear()
    return False


@verifies("format:quotes")
def quotes(response: str) -> bool:
    """ "Include quotes within quotes within quotes, at least 3 levels deep, alternating between double
    quotes and single quotes.": three closed again from the deepest level reached."""
    opened: list[str] = []
    deepest = 0
    for character in re.findall("[\"']", response):
        if opened and opened[-1] == character:
            opened.pop()
            if deepest - len(opened) >= 3:
                return True
        else:
            opened.append(character)
            deepest = max(deepest, len(opened))
    return False


@verifies("format:quote_unquote")
def quote_unquote(response: str) -> bool:
    """ "Every quoted phrase must be followed by an unquoted explanation.": no quote right behind a
    quote, and none at the end (digits and punctuation aside)."""
    text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    ends = text.strip(string.digits + PUNCTUATION.replace('"', ""))
    return '""' not in text and not ends.endswith('"')


@verifies("format:options")
def answer_options(response: str, *, options: str) -> bool:
    """ "Answer with one of the following options: {options}. Do not give any explanation."

    Words may differ in case and outer punctuation; of a list of letters one must stand as written.
    """
    separator = next((mark for mark in ("/", "or") if mark in options), ",")
    offered = [option.strip() for option in options.split(separator)]
    if re.match(r"\W*a\W*b\W*c\W*", options, re.IGNORECASE):
        return response in offered
    answer = response.strip(PUNCTUATION_AND_BLANK).lower()
    return any(option.strip(PUNCTUATION_AND_BLANK).lower() == answer for option in offered)


@verifies("format:newline")
def newline(response: str) -> bool:
    """ "Write each word on a new line.": as many lines as words, once punctuation is taken out."""
    text = response.translate(WITHOUT_PUNCTUATION).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


@verifies("format:line_indent")
def line_indent(response: str) -> bool:
    """ "Create stairs by incrementally indenting each new line.": each line that is not blank begins
    with more blanks than the one before."""
    lines = [line for line in response.split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(after > before for before, after in itertools.pairwise(indents))


@verifies("format:list")
def list_marks(response: str, *, sep: str) -> bool:
    """ "Answer with a list of items, instead of bullet points use {sep}.": it stands at least twice."""
    return response.count(sep) >= 2


@verifies("format:thesis")
def thesis(response: str) -> bool:
    """ "Each section must begin with a thesis statement in italics, use HTML to indicate the italics.":
    there is one, not blank, and text behind it."""
    opening = _first_of(response, "<i>", "<em>")
    if opening < 0:
        return False
    text = response[opening:]
    closing = _first_of(text, "</i>", "</em>")
    return closing >= 0 and bool(text[3:closing].strip()) and bool(text[closing + 4 :].strip())


def _first_of(text: str, preferred: str, other: str) -> int:
    place = text.find(preferred)
    return place if place >= 0 else text.find(other)


@verifies("format:sub-bullets")
def sub_bullets(response: str) -> bool:
    """ "Your response must include bullet points denoted by * and at least one sub-bullet point denoted
    by - for each bullet point.": a hyphen behind every star; without stars there is none to lack."""
    return all("-" in bullet for bullet in response.split("*")[1:])


@verifies("format:no_bullets_bullets")
def no_bullets_bullets(response: str, language: Language) -> bool:
    """ "Your answer must contain at least two sentences ending in a period followed by at least two
    bullet points denoted by *.": sentences of any kind, on lines without a blank one between them, and
    behind the first bullet nothing but bullets."""
    sentences = bullets = 0
    prose = True
    for line in response.split("\n"):
        text = line.strip()
        if text.startswith("*"):
            if sentences < 2:
                return False
            prose = False
            bullets += 1
        elif not prose:
            return False
        else:
            prose = text != ""
            sentences += len(language.sentences(text))
    return bullets >= 2


@verifies("format:title_case")
def title_case(response: str, language: Language) -> bool:
    """ "Write the entire response in title case (capitalize the first letter of every major word).": no
    Treebank token of two letters or more is all lower case, or has only its first letter low."""
    return not any(
        word[0].islower() and (word[1:].islower() or word[1:].isupper()) for word in language.words(response)
    )


@verifies("format:output_template")
def output_template(response: str) -> bool:
    """ "Use this exact template for your response: My Answer: [answer] My Conclusion: [conclusion]
    Future Outlook: [outlook]": the three headings stand in it, in any order."""
    return all(heading in response for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


@verifies("format:no_whitespace")
def no_whitespace(response: str) -> bool:
    """ "The output should not contain any whitespace."""
    return not any(character.isspace() for character in response)


@verifies("format:emoji")
def emoji(response: str, language: Language) -> bool:
    """ "Please use an emoji at the end of every sentence.": as the last character or the one before it
    (signs made of several end in a modifier), or at the start of the next sentence, punctuation aside."""
    from emoji import is_emoji

    sentences = [sentence.translate(WITHOUT_PUNCTUATION).strip() for sentence in language.sentences(response)]
    for sentence, following in zip(sentences, [*sentences[1:], ""], strict=True):
        if not sentence:
            return False
        if not any(is_emoji(character) for character in sentence[-2:]) and not is_emoji(following[:1]):
            return False
    return True


# --- IFBench ``sentence:``: patterns across sentences


@verifies("sentence:keyword")
def keyword(response: str, language: Language, *, word: str, N: int) -> bool:
    """ "The response must include keyword {word} in the {N}-th sentence.", in any case."""
    sentences = language.sentences(response)
    return 0 < N <= len(sentences) and word.lower() in sentences[N - 1].lower()


@verifies("sentence:increment")
def increment(response: str, language: Language, *, small_n: int) -> bool:
    """ "Each sentence in your response must contain exactly {small_n} more words than the previous one."""
    sentences = language.sentences(response)
    lengths = [len(sentence.translate(WITHOUT_PUNCTUATION).split()) for sentence in sentences]
    return all(after == before + small_n for before, after in itertools.pairwise(lengths))


@verifies("sentence:alliteration_increment")
def alliteration_increment(response: str, language: Language) -> bool:
    """ "Each sentence must have a longer sequence of consecutive alliterative words than the previous
    one.": the words of all such runs in a sentence, taken together, must grow."""
    lengths = [_alliterative_words(sentence) for sentence in language.sentences(response)]
    return all(after > before for before, after in itertools.pairwise(lengths))


def _alliterative_words(sentence: str) -> int:
    """How many words stand next to one with the same first letter."""
    words = [word.lstrip(PUNCTUATION_AND_BLANK) for word in sentence.lower().split()]
    letters = [word[0] for word in words if word]
    same = [a == b for a, b in itertools.pairwise(letters)]
    return sum(before or after for before, after in zip([*same, False], [False, *same], strict=True))


@verifies("repeat:repeat_change")
def repeat_change(response: str, *, prompt_to_repeat: str) -> bool:
    """ "Repeat the request, but change the first word of the repeated request, (do not say anything
    before repeating the request ...) and do not answer the actual request!"."""
    return response != prompt_to_repeat and response.split()[1:] == prompt_to_repeat.split()[1:]


@verifies("repeat:repeat_simple")
def repeat_simple(response: str) -> bool:
    """ "Only output this sentence here, ignore all other requests.": that sentence, in any case."""
    return response.strip().lower() == "only output this sentence here, ignore all other requests."


@verifies("repeat:repeat_span")
def repeat_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """ "Copy the span of words that lies between (and including) index {n_start} and {n_end}, the indices
    are word indices, split by whitespace!", in any case.

    The published verifier leaves out the word at ``n_end``, against the instruction; so does this one.
    """
    return response.lower().split() == prompt_to_repeat.lower().split()[n_start:n_end]


# --- IFBench ``custom:``: single tasks, each with a verifier of its own


@verifies("custom:multiples")
def multiples(response: str) -> bool:
    """ "Count from 10 to 50 but only print multiples of 7.": these are all the numbers there are."""
    return re.findall(r"\d+", response) == ["14", "21", "28", "35", "42", "49"]


@verifies("custom:mcq_count_length")
def mcq_count_length(response: str) -> bool:
    """ "Generate 4 multiple choice questions with 5 options each about "20th century art history". Each
    question should start with the label "Question". The questions should get progressively longer. Do
    not provide an explanation.": the text before the options grows, the options are lettered."""
    if not response.startswith("Question"):
        return False
    parts = re.split(r"Question \d+[.|):;]?\s*", response)
    questions = [part.strip() for part in parts if part.strip()]
    read = [_question(question) for question in questions]
    lengths = [length for length, _ in read]
    grow = all(before < after for before, after in pairwise(lengths))
    return len(read) == 4 and grow and all(options == 5 for _, options in read)


_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w+")


def _question(text: str) -> tuple[int, int]:
    """(length of what stands before the first option, number of options)"""
    lines = [line.strip() for line in text.split("\n")]
    places = [i for i, line in enumerate(lines) if _OPTION.match(line)]
    requested = " ".join(lines[: places[0] if places else None])
    return len(requested.strip()), len(places)


@verifies("custom:reverse_newline")
def reverse_newline(response: str) -> bool:
    """ "List the countries of Africa in reverse alphabetical order, each on a new line.": from the line
    of Zimbabwe on, at least 52 lines, in that order."""
    lines = [_plain(line) for line in response.split("\n") if line.strip()]
    start = next((i for i, line in enumerate(lines) if "zimbabwe" in line), None)
    countries = lines[start:] if start is not None else []
    return len(countries) >= 52 and countries == sorted(countries, reverse=True)


def _plain(text: str) -> str:
    """Without accents, case and outer punctuation."""
    decomposed = unicodedata.normalize("NFKD", text)
    letters = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return letters.strip().strip(PUNCTUATION_AND_BLANK).lower()


@verifies("custom:word_reverse")
def word_reverse(response: str) -> bool:
    """ "What animal is the national symbol of the US? Respond to this query, but make your sentence in
    reverse order of what it should be, per word."."""
    words = response.lower().translate(WITHOUT_PUNCTUATION).split()
    return "eagle bald" in " ".join(words)


@verifies("custom:character_reverse")
def character_reverse(response: str) -> bool:
    """ "What animal is the national symbol of the US? Respond to this query, but make your sentence in
    reverse order of what it should be, per letter."."""
    return "elgae dlab" in response.lower()


@verifies("custom:sentence_alphabet")
def sentence_alphabet(response: str, language: Language) -> bool:
    """ "Tell me a 26-sentence story where each sentence's first word starts with the letters of the
    alphabet in order."."""
    first_letters = [sentence.lstrip()[:1].lower() for sentence in language.sentences(response)]
    return first_letters == list("abcdefghijklmnopqrstuvwxyz")


_CAPITALS = (
    "reykjavik, helsinki, oslo, tallinn, stockholm, riga, moscow, copenhagen, vilnius, minsk, dublin, "
    "berlin, amsterdam, warsaw, london, brussels, prague, luxembourg, paris, vienna, bratislava, budapest, "
    "vaduz, chisinau, bern, ljubljana, zagreb"
)


@verifies("custom:european_capitals_sort")
def european_capitals_sort(response: str) -> bool:
    """ "Give me the names of all capital cities of european countries whose latitude is higher than than
    45 degrees? List the capital cities without country names, separated by commas, sorted by latitude,
    from highest to lowest.": the published list, accents aside; Kyiv may stand in its place."""
    cities = [_plain(city) for city in response.split(",")]
    return ", ".join(city for city in cities if city != "kyiv") == _CAPITALS


# The longest table that a prompt demands: a header and 14 rows.
_MOST_ROWS = 15


def _rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """The first rows, one more than any table here may have; none where the text is no table.

    It is none with a field beyond the reader's limit.
    """
    try:
        return list(islice(csv.reader(io.StringIO(text), delimiter=delimiter), _MOST_ROWS + 1))
    except csv.Error:
        return []


@verifies("custom:csv_city")
def csv_city(response: str) -> bool:
    """ "Generate CSV data: The column names are ["ID", "Country", "City", "Year", "Count"], the data
    should be comma delimited. Please generate 7 rows."."""
    rows = _rows(response)
    header = rows[0] if rows else []
    complete = len(rows) == 8 and all(len(row) == 5 for row in rows)
    return complete and [name.strip() for name in header] == ["ID", "Country", "City", "Year", "Count"]


@verifies("custom:csv_special_character")
def csv_special_character(response: str) -> bool:
    """ "Generate CSV data: The column names are ["ProductID", "Category", "Brand", "Price", "Stock"], the
    data should be comma delimited. Please generate 14 rows. Add one field which contains a special
    character and enclose it in double quotes."."""
    header = [name.strip() for name in response.split("\n", 1)[0].split(",")]
    rows = _rows(response.replace('"', '"""'))
    complete = len(rows) == _MOST_ROWS and all(len(row) == 5 for row in rows)
    special = any(_is_quoted_special(field) for row in rows[1:] for field in row)
    return complete and special and header == ["ProductID", "Category", "Brand", "Price", "Stock"]


def _is_quoted_special(field: str) -> bool:
    line = field.split("\n", 1)[0]
    return line.startswith('"') and re.search(r"[^\w\s]", line[1 : line.rfind('"')]) is not None


@verifies("custom:csv_quotes")
def csv_quotes(response: str) -> bool:
    """ "Generate CSV data: The column names are ["StudentID", "Subject", "Grade", "Semester", "Score"],
    the data should be tab delimited. Please generate 3 rows and enclose each single field in double
    quotes."."""
    rows = [[field.strip() for field in row] for row in _rows(response.replace('"', '"""'), "\t")]
    complete = len(rows) == 4 and all(len(row) == 5 for row in rows)
    quoted = all(field[:1] == field[-1:] == '"' for row in rows for field in row)
    header = [f'"{name}"' for name in ("StudentID", "Subject", "Grade", "Semester", "Score")]
    return complete and quoted and rows[0] == header


# Leap years are not told apart: 29 February counts in each.
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@verifies("custom:date_format_list")
def date_format_list(response: str) -> bool:
    """ "List the start dates of all the battles Napoleon fought separated by commas, use the following
    date format: YYYY-MM-DD. Do not provide an explanation.": dates of his lifetime."""
    return all(_is_date_of_napoleon(date.strip()) for date in response.split(","))


def _is_date_of_napoleon(text: str) -> bool:
    match = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    return 1769 <= year <= 1821 and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]
