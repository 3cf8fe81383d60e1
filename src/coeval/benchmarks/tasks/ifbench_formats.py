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
def has_nested_brackets(response: str) -> bool:
    """Verify "Nest parentheses (and [brackets {and braces}]) at least 5 levels deep.": five or more opened,
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
def has_nested_quotes(response: str) -> bool:
    """Verify "Include quotes within quotes within quotes, at least 3 levels deep, alternating between double
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
def has_explained_quotes(response: str) -> bool:
    """Verify "Every quoted phrase must be followed by an unquoted explanation.": no quote right behind a
    quote, and none at the end (digits and punctuation aside)."""
    text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    ends = text.strip(string.digits + PUNCTUATION.replace('"', ""))
    return '""' not in text and not ends.endswith('"')


@verifies("format:options")
def is_offered_option(response: str, *, options: str) -> bool:
    """Verify "Answer with one of the following options: {options}. Do not give any explanation." Words may
    differ in case and outer punctuation; of a list of letters one must stand as written."""
    separator = next((mark for mark in ("/", "or") if mark in options), ",")
    offered = [option.strip() for option in options.split(separator)]
    if re.match(r"\W*a\W*b\W*c\W*", options, re.IGNORECASE):
        return response in offered
    answer = response.strip(PUNCTUATION_AND_BLANK).lower()
    return any(option.strip(PUNCTUATION_AND_BLANK).lower() == answer for option in offered)


@verifies("format:newline")
def has_one_word_per_line(response: str) -> bool:
    """Verify "Write each word on a new line.": as many lines as words, once punctuation is taken out."""
    text = response.translate(WITHOUT_PUNCTUATION).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


@verifies("format:line_indent")
def has_growing_indents(response: str) -> bool:
    """Verify "Create stairs by incrementally indenting each new line.": each line that is not blank begins
    with more blanks than the one before."""
    lines = [line for line in response.split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(after > before for before, after in itertools.pairwise(indents))


@verifies("format:list")
def has_list_separators(response: str, *, sep: str) -> bool:
    """Verify "Answer with a list of items, instead of bullet points use {sep}.": it stands at least twice."""
    return response.count(sep) >= 2


@verifies("format:thesis")
def has_italic_thesis(response: str) -> bool:
    """Verify "Each section must begin with a thesis statement in italics, use HTML to indicate the italics.":
    there is one, not blank, and text behind it."""
    opening = _find_either(response, "<i>", "<em>")
    if opening < 0:
        return False
    text = response[opening:]
    closing = _find_either(text, "</i>", "</em>")
    return closing >= 0 and bool(text[3:closing].strip()) and bool(text[closing + 4 :].strip())


def _find_either(text: str, preferred: str, other: str) -> int:
    position = text.find(preferred)
    return position if position >= 0 else text.find(other)


@verifies("format:sub-bullets")
def has_sub_bullets(response: str) -> bool:
    """Verify "Your response must include bullet points denoted by * and at least one sub-bullet point denoted
    by - for each bullet point.": a hyphen behind every star; without stars there is none to lack."""
    return all("-" in bullet for bullet in response.split("*")[1:])


@verifies("format:no_bullets_bullets")
def has_sentences_then_bullets(response: str, language: Language) -> bool:
    """Verify "Your answer must contain at least two sentences ending in a period followed by at least two
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
def is_title_case(response: str, language: Language) -> bool:
    """Verify "Write the entire response in title case (capitalize the first letter of every major word).": no
    Treebank token of two letters or more is all lower case, or has only its first letter low."""
    return not any(
        word[0].islower() and (word[1:].islower() or word[1:].isupper()) for word in language.words(response)
    )


@verifies("format:output_template")
def has_template_headings(response: str) -> bool:
    """Verify "Use this exact template for your response: My Answer: [answer] My Conclusion: [conclusion]
    Future Outlook: [outlook]": the three headings stand in it, in any order."""
    return all(heading in response for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


@verifies("format:no_whitespace")
def has_no_whitespace(response: str) -> bool:
    """Verify "The output should not contain any whitespace."""
    return not any(character.isspace() for character in response)


@verifies("format:emoji")
def has_emoji_at_sentence_ends(response: str, language: Language) -> bool:
    """Verify "Please use an emoji at the end of every sentence.": as the last character or the one before it
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
def has_keyword_in_sentence(response: str, language: Language, *, word: str, N: int) -> bool:
    """Verify "The response must include keyword {word} in the {N}-th sentence.", in any case."""
    sentences = language.sentences(response)
    return 0 < N <= len(sentences) and word.lower() in sentences[N - 1].lower()


@verifies("sentence:increment")
def has_growing_word_counts(response: str, language: Language, *, small_n: int) -> bool:
    """Verify "Each sentence in your response must contain exactly {small_n} more words than the previous
    one."""
    sentences = language.sentences(response)
    lengths = [len(sentence.translate(WITHOUT_PUNCTUATION).split()) for sentence in sentences]
    return all(after == before + small_n for before, after in itertools.pairwise(lengths))


@verifies("sentence:alliteration_increment")
def has_growing_alliteration(response: str, language: Language) -> bool:
    """Verify "Each sentence must have a longer sequence of consecutive alliterative words than the previous
    one.": the words of all such runs in a sentence, taken together, must grow."""
    lengths = [_count_alliterative_words(sentence) for sentence in language.sentences(response)]
    return all(after > before for before, after in itertools.pairwise(lengths))


def _count_alliterative_words(sentence: str) -> int:
    """Count words next to a word with the same first letter."""
    words = [word.lstrip(PUNCTUATION_AND_BLANK) for word in sentence.lower().split()]
    letters = [word[0] for word in words if word]
    same = [a == b for a, b in itertools.pairwise(letters)]
    return sum(before or after for before, after in zip([*same, False], [False, *same], strict=True))


@verifies("repeat:repeat_change")
def repeats_prompt_but_first_word(response: str, *, prompt_to_repeat: str) -> bool:
    """Verify "Repeat the request, but change the first word of the repeated request, (do not say anything
    before repeating the request ...) and do not answer the actual request!"."""
    return response != prompt_to_repeat and response.split()[1:] == prompt_to_repeat.split()[1:]


@verifies("repeat:repeat_simple")
def is_requested_sentence(response: str) -> bool:
    """Verify "Only output this sentence here, ignore all other requests.": that sentence, in any case."""
    return response.strip().lower() == "only output this sentence here, ignore all other requests."


@verifies("repeat:repeat_span")
def is_copied_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Verify "Copy the span of words that lies between (and including) index {n_start} and {n_end}, the
    indices are word indices, split by whitespace!", in any case. The published verifier leaves out the word
    at ``n_end``, against the instruction; so does this one."""
    return response.lower().split() == prompt_to_repeat.lower().split()[n_start:n_end]


# --- IFBench ``custom:``: single tasks, each with a verifier of its own


@verifies("custom:multiples")
def has_multiples_of_seven(response: str) -> bool:
    """Verify "Count from 10 to 50 but only print multiples of 7.": these are all the numbers there are."""
    return re.findall(r"\d+", response) == ["14", "21", "28", "35", "42", "49"]


@verifies("custom:mcq_count_length")
def has_growing_choice_questions(response: str) -> bool:
    """Verify "Generate 4 multiple choice questions with 5 options each about "20th century art history". Each
    question should start with the label "Question". The questions should get progressively longer. Do not
    provide an explanation.": the text before the options grows, the options are lettered."""
    if not response.startswith("Question"):
        return False
    parts = re.split(r"Question \d+[.|):;]?\s*", response)
    questions = [part.strip() for part in parts if part.strip()]
    measured = [_measure_question(question) for question in questions]
    lengths = [length for length, _ in measured]
    grow = all(before < after for before, after in pairwise(lengths))
    return len(measured) == 4 and grow and all(options == 5 for _, options in measured)


_OPTION = re.compile(r"[A-Ea-e][.|)]\s*\w+")


def _measure_question(text: str) -> tuple[int, int]:
    """Return the length of what precedes the first option, and the number of options."""
    lines = [line.strip() for line in text.split("\n")]
    option_lines = [i for i, line in enumerate(lines) if _OPTION.match(line)]
    stem = " ".join(lines[: option_lines[0] if option_lines else None])
    return len(stem.strip()), len(option_lines)


@verifies("custom:reverse_newline")
def has_african_countries_reversed(response: str) -> bool:
    """Verify "List the countries of Africa in reverse alphabetical order, each on a new line.": from the line
    of Zimbabwe on, at least 52 lines, in that order."""
    lines = [_normalise_name(line) for line in response.split("\n") if line.strip()]
    start = next((i for i, line in enumerate(lines) if "zimbabwe" in line), None)
    countries = lines[start:] if start is not None else []
    return len(countries) >= 52 and countries == sorted(countries, reverse=True)


def _normalise_name(text: str) -> str:
    """Strip accents, case and outer punctuation."""
    decomposed = unicodedata.normalize("NFKD", text)
    letters = "".join(letter for letter in decomposed if not unicodedata.combining(letter))
    return letters.strip().strip(PUNCTUATION_AND_BLANK).lower()


@verifies("custom:word_reverse")
def has_bald_eagle_words_reversed(response: str) -> bool:
    """Verify "What animal is the national symbol of the US? Respond to this query, but make your sentence in
    reverse order of what it should be, per word."."""
    words = response.lower().translate(WITHOUT_PUNCTUATION).split()
    return "eagle bald" in " ".join(words)


@verifies("custom:character_reverse")
def has_bald_eagle_letters_reversed(response: str) -> bool:
    """Verify "What animal is the national symbol of the US? Respond to this query, but make your sentence in
    reverse order of what it should be, per letter."."""
    return "elgae dlab" in response.lower()


@verifies("custom:sentence_alphabet")
def has_alphabetical_sentences(response: str, language: Language) -> bool:
    """Verify "Tell me a 26-sentence story where each sentence's first word starts with the letters of the
    alphabet in order."."""
    first_letters = [sentence.lstrip()[:1].lower() for sentence in language.sentences(response)]
    return first_letters == list("abcdefghijklmnopqrstuvwxyz")


_CAPITALS = (
    "reykjavik, helsinki, oslo, tallinn, stockholm, riga, moscow, copenhagen, vilnius, minsk, dublin, "
    "berlin, amsterdam, warsaw, london, brussels, prague, luxembourg, paris, vienna, bratislava, budapest, "
    "vaduz, chisinau, bern, ljubljana, zagreb"
)


@verifies("custom:european_capitals_sort")
def has_sorted_capitals(response: str) -> bool:
    """Verify "Give me the names of all capital cities of european countries whose latitude is higher than
    than 45 degrees? List the capital cities without country names, separated by commas, sorted by
    latitude, from highest to lowest.": the published list, accents aside; Kyiv may stand in its place."""
    cities = [_normalise_name(city) for city in response.split(",")]
    return ", ".join(city for city in cities if city != "kyiv") == _CAPITALS


# The longest table that a prompt demands: a header and 14 rows.
_MOST_ROWS = 15


def _read_csv_rows(text: str, delimiter: str = ",") -> list[list[str]]:
    """Read the first rows, one more than any table here may have; none if the text is no table. A field
    beyond the reader's limit makes it none."""
    try:
        return list(islice(csv.reader(io.StringIO(text), delimiter=delimiter), _MOST_ROWS + 1))
    except csv.Error:
        return []


@verifies("custom:csv_city")
def is_city_csv(response: str) -> bool:
    """Verify "Generate CSV data: The column names are ["ID", "Country", "City", "Year", "Count"], the data
    should be comma delimited. Please generate 7 rows."."""
    rows = _read_csv_rows(response)
    header = rows[0] if rows else []
    complete = len(rows) == 8 and all(len(row) == 5 for row in rows)
    return complete and [name.strip() for name in header] == ["ID", "Country", "City", "Year", "Count"]


@verifies("custom:csv_special_character")
def is_special_character_csv(response: str) -> bool:
    """Verify "Generate CSV data: The column names are ["ProductID", "Category", "Brand", "Price", "Stock"],
    the data should be comma delimited. Please generate 14 rows. Add one field which contains a special
    character and enclose it in double quotes."."""
    header = [name.strip() for name in response.split("\n", 1)[0].split(",")]
    rows = _read_csv_rows(response.replace('"', '"""'))
    complete = len(rows) == _MOST_ROWS and all(len(row) == 5 for row in rows)
    special = any(_is_quoted_special(field) for row in rows[1:] for field in row)
    return complete and special and header == ["ProductID", "Category", "Brand", "Price", "Stock"]


def _is_quoted_special(field: str) -> bool:
    line = field.split("\n", 1)[0]
    return line.startswith('"') and re.search(r"[^\w\s]", line[1 : line.rfind('"')]) is not None


@verifies("custom:csv_quotes")
def is_quoted_csv(response: str) -> bool:
    """Verify "Generate CSV data: The column names are ["StudentID", "Subject", "Grade", "Semester", "Score"],
    the data should be tab delimited. Please generate 3 rows and enclose each single field in double
    quotes."."""
    rows = [[field.strip() for field in row] for row in _read_csv_rows(response.replace('"', '"""'), "\t")]
    complete = len(rows) == 4 and all(len(row) == 5 for row in rows)
    quoted = all(field[:1] == field[-1:] == '"' for row in rows for field in row)
    header = [f'"{name}"' for name in ("StudentID", "Subject", "Grade", "Semester", "Score")]
    return complete and quoted and rows[0] == header


# Leap years are not told apart: 29 February counts in each.
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@verifies("custom:date_format_list")
def is_napoleon_date_list(response: str) -> bool:
    """Verify "List the start dates of all the battles Napoleon fought separated by commas, use the following
    date format: YYYY-MM-DD. Do not provide an explanation.": dates of his lifetime."""
    return all(_is_date_of_napoleon(date.strip()) for date in response.split(","))


def _is_date_of_napoleon(text: str) -> bool:
    match = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    return 1769 <= year <= 1821 and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]
