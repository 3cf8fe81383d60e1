"""IFBench ``custom:``: single tasks, each with a verifier of its own."""

from __future__ import annotations

import csv
import io
import re
import unicodedata
from itertools import islice, pairwise

from coeval.benchmarks.language.text_analysis import Language
from coeval.benchmarks.tasks.instruction import (
    PUNCTUATION_AND_BLANK,
    WITHOUT_PUNCTUATION,
    verifies,
)


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
