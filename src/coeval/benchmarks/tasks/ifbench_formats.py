"""IFBench's verifiers of form, and of single tasks: ``format:``, ``sentence:``, ``repeat:``, ``custom:``."""

from __future__ import annotations

import csv
import io
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
def has_five_nested_brackets(response: str) -> bool:
    """Verify that five brackets or more are opened within each other, and the innermost is closed by its own
    kind; a wrong closing begins anew."""
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
def has_three_nested_quotes(response: str) -> bool:
    """Verify "quotes within quotes within quotes, … alternating between double quotes and single quotes":
    three closed again from the deepest level reached."""
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
def has_text_between_and_after_quotes(response: str) -> bool:
    """Verify no quote right behind a quote, and none at the end (digits and punctuation aside)."""
    text = response.replace("“", '"').replace("”", '"').replace("'\"'", "")
    text = "".join(text.split())
    ends = text.strip(string.digits + PUNCTUATION.replace('"', ""))
    return '""' not in text and not ends.endswith('"')


@verifies("format:options")
def is_offered_option(response: str, *, options: str) -> bool:
    """Verify that the answer is one of the options. Words may differ in case and outer punctuation; of a list
    of letters one must stand as written."""
    separator = next((mark for mark in ("/", "or") if mark in options), ",")
    offered = [option.strip() for option in options.split(separator)]
    if re.match(r"\W*a\W*b\W*c\W*", options, re.IGNORECASE):
        return response in offered
    answer = response.strip(PUNCTUATION_AND_BLANK).lower()
    return any(option.strip(PUNCTUATION_AND_BLANK).lower() == answer for option in offered)


@verifies("format:newline")
def has_one_word_per_line(response: str) -> bool:
    """Verify that there are as many lines as words, once punctuation is taken out."""
    text = response.translate(WITHOUT_PUNCTUATION).strip()
    return sum(line != "" for line in text.split("\n")) == len(text.split())


@verifies("format:line_indent")
def has_growing_indents(response: str) -> bool:
    """Verify that each line that is not blank begins with more blanks than the one before."""
    lines = [line for line in response.split("\n") if line.strip()]
    indents = [len(line) - len(line.lstrip(" ")) for line in lines]
    return all(after > before for before, after in pairwise(indents))


@verifies("format:list")
def has_list_separators(response: str, *, sep: str) -> bool:
    """Verify that ``sep``, in place of bullets, stands at least twice."""
    return response.count(sep) >= 2


@verifies("format:thesis")
def has_html_italics_before_text(response: str) -> bool:
    """Verify that a text in HTML's italics is not blank and has text behind it."""
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
    """Verify that there is a hyphen behind every star; without stars there is none to lack."""
    return all("-" in bullet for bullet in response.split("*")[1:])


@verifies("format:no_bullets_bullets")
def has_sentences_then_bullets(response: str, language: Language) -> bool:
    """Verify two sentences of any kind, on lines without a blank one between them, and two bullets denoted by
    a star, with nothing but bullets behind the first."""
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
    """Verify that no Treebank token of two letters or more begins with a small letter (mixed ones may)."""
    return not any(
        word[0].islower() and (word[1:].islower() or word[1:].isupper()) for word in language.words(response)
    )


@verifies("format:output_template")
def has_template_headings(response: str) -> bool:
    """Verify that the three headings stand in the response, in any order."""
    return all(heading in response for heading in ("My Answer:", "My Conclusion:", "Future Outlook:"))


@verifies("format:no_whitespace")
def has_no_whitespace(response: str) -> bool:
    return not any(character.isspace() for character in response)


@verifies("format:emoji")
def has_emoji_at_sentence_ends(response: str, language: Language) -> bool:
    """Verify that each sentence has an emoji as its last character or the one before it (signs made of
    several end in a modifier), or at the start of the next sentence, punctuation aside."""
    from emoji import is_emoji

    sentences = [sentence.translate(WITHOUT_PUNCTUATION).strip() for sentence in language.sentences(response)]
    return all(
        sentence != "" and (any(map(is_emoji, sentence[-2:])) or is_emoji(following[:1]))
        for sentence, following in zip(sentences, [*sentences[1:], ""], strict=True)
    )


# --- IFBench ``sentence:``: patterns across sentences


@verifies("sentence:keyword")
def has_keyword_in_sentence(response: str, language: Language, *, word: str, N: int) -> bool:
    sentences = language.sentences(response)
    return 0 < N <= len(sentences) and word.lower() in sentences[N - 1].lower()


@verifies("sentence:increment")
def has_growing_word_counts(response: str, language: Language, *, small_n: int) -> bool:
    sentences = language.sentences(response)
    lengths = [len(sentence.translate(WITHOUT_PUNCTUATION).split()) for sentence in sentences]
    return all(after == before + small_n for before, after in pairwise(lengths))


@verifies("sentence:alliteration_increment")
def has_growing_alliterative_word_counts(response: str, language: Language) -> bool:
    """Verify that the words of all alliterative runs in a sentence, taken together, grow."""
    lengths = [_count_alliterative_words(sentence) for sentence in language.sentences(response)]
    return all(after > before for before, after in pairwise(lengths))


def _count_alliterative_words(sentence: str) -> int:
    """Count words next to a word with the same first letter."""
    words = [word.lstrip(PUNCTUATION_AND_BLANK) for word in sentence.lower().split()]
    letters = [word[0] for word in words if word]
    same = [a == b for a, b in pairwise(letters)]
    return sum(before or after for before, after in zip([*same, False], [False, *same], strict=True))


@verifies("repeat:repeat_change")
def repeats_prompt_but_first_word(response: str, *, prompt_to_repeat: str) -> bool:
    return response != prompt_to_repeat and response.split()[1:] == prompt_to_repeat.split()[1:]


@verifies("repeat:repeat_simple")
def is_requested_sentence(response: str) -> bool:
    return response.strip().lower() == "only output this sentence here, ignore all other requests."


@verifies("repeat:repeat_span")
def is_copied_span(response: str, *, prompt_to_repeat: str, n_start: int, n_end: int) -> bool:
    """Verify a copy, in any case, of the words from ``n_start`` on. The published verifier leaves out the
    word at ``n_end``, against the instruction ("including"); so does this one."""
    return response.lower().split() == prompt_to_repeat.lower().split()[n_start:n_end]


# --- IFBench ``custom:``: single tasks, each with a verifier of its own


@verifies("custom:multiples")
def has_multiples_of_seven(response: str) -> bool:
    """Verify that these, from 10 to 50, are all the numbers there are."""
    return re.findall(r"\d+", response) == ["14", "21", "28", "35", "42", "49"]


@verifies("custom:mcq_count_length")
def has_four_growing_choice_questions(response: str) -> bool:
    """Verify four questions labelled "Question", each with five lettered options and a longer text before."""
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
    """Verify that from the line of Zimbabwe on there are at least 52 lines, in reverse alphabetical order."""
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
def contains_eagle_bald(response: str) -> bool:
    """Verify a sentence that names the national symbol of the US, with its words in reverse order."""
    words = response.lower().translate(WITHOUT_PUNCTUATION).split()
    return "eagle bald" in " ".join(words)


@verifies("custom:character_reverse")
def has_bald_eagle_letters_reversed(response: str) -> bool:
    return "elgae dlab" in response.lower()


@verifies("custom:sentence_alphabet")
def has_sentences_from_a_to_z(response: str, language: Language) -> bool:
    """Verify 26 sentences whose first letters are the alphabet's, in order."""
    first_letters = [sentence.lstrip()[:1].lower() for sentence in language.sentences(response)]
    return first_letters == list("abcdefghijklmnopqrstuvwxyz")


_CAPITALS = (
    "reykjavik, helsinki, oslo, tallinn, stockholm, riga, moscow, copenhagen, vilnius, minsk, dublin, "
    "berlin, amsterdam, warsaw, london, brussels, prague, luxembourg, paris, vienna, bratislava, budapest, "
    "vaduz, chisinau, bern, ljubljana, zagreb"
)


@verifies("custom:european_capitals_sort")
def has_sorted_capitals(response: str) -> bool:
    """Verify the published list of European capitals by latitude, accents aside; Kyiv may stand in it."""
    cities = [_normalise_name(city) for city in response.split(",")]
    return ", ".join(city for city in cities if city != "kyiv") == _CAPITALS


def _read_full_table(text: str, header: list[str], n_rows: int, delimiter: str = ",") -> list[list[str]]:
    """Read the rows of a CSV below this header; none unless there are ``n_rows``, each as long. A field
    beyond the reader's limit makes it no CSV."""
    try:
        first, *rows = islice(csv.reader(io.StringIO(text), delimiter=delimiter), n_rows + 2)
    except (csv.Error, ValueError):  # a ValueError: there is no first row
        return []
    complete = [name.strip() for name in first] == header and len(rows) == n_rows
    return rows if complete and all(len(row) == len(header) for row in rows) else []


@verifies("custom:csv_city")
def is_city_csv(response: str) -> bool:
    return bool(_read_full_table(response, ["ID", "Country", "City", "Year", "Count"], 7))


@verifies("custom:csv_special_character")
def is_product_csv_with_special_character(response: str) -> bool:
    """Verify a CSV in which one field in double quotes contains a special character."""
    header = ["ProductID", "Category", "Brand", "Price", "Stock"]
    rows = _read_full_table(response.replace('"', '"""'), header, 14)
    return any(_is_quoted_special(field) for row in rows for field in row)


def _is_quoted_special(field: str) -> bool:
    line = field.split("\n", 1)[0]
    return line.startswith('"') and re.search(r"[^\w\s]", line[1 : line.rfind('"')]) is not None


@verifies("custom:csv_quotes")
def is_quoted_tab_separated_grades(response: str) -> bool:
    header = [f'"{name}"' for name in ("StudentID", "Subject", "Grade", "Semester", "Score")]
    rows = _read_full_table(response.replace('"', '"""'), header, 3, "\t")
    fields = [field.strip() for row in rows for field in row]
    return bool(fields) and all(field[:1] == field[-1:] == '"' for field in fields)


# Leap years are not told apart: 29 February counts in each.
_DAYS = (31, 29, 31, 30, 31, 30, 31, 31, 30, 31, 30, 31)


@verifies("custom:date_format_list")
def is_napoleon_date_list(response: str) -> bool:
    """Verify dates of Napoleon's lifetime as YYYY-MM-DD, separated by commas."""
    return all(_is_date_of_napoleon(date.strip()) for date in response.split(","))


def _is_date_of_napoleon(text: str) -> bool:
    match = re.fullmatch(r"(\d{4})-(\d{2})-(\d{2})", text)
    if match is None:
        return False
    year, month, day = (int(part) for part in match.groups())
    return 1769 <= year <= 1821 and 1 <= month <= 12 and 1 <= day <= _DAYS[month - 1]
