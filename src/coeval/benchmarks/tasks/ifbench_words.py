"""IFBench's verifiers of words: ``count:``, ``words:`` and ``ratio:``."""

from __future__ import annotations

import re
import string
from collections import Counter
from itertools import islice, pairwise

from coeval.benchmarks.tasks.ifeval_checks import PUNCTUATION_AND_BLANK, WITHOUT_PUNCTUATION, verifies
from coeval.benchmarks.text_analysis import ENGLISH, Language, treebank_words

# --- IFBench ``count:``: numbers of words, letters and marks


@verifies("count:word_count_range")
def has_word_count_in_range(response: str, language: Language, *, min_words: int, max_words: int) -> bool:
    return min_words <= len(language.word_runs(response)) <= max_words


@verifies("count:unique_word_count")
def has_at_least_n_unique_words(response: str, *, N: int) -> bool:
    """Verify ``N`` different words: what stands between blanks, without case and outer punctuation; a chunk
    of nothing but punctuation is a word like another."""
    unique = {word.strip(PUNCTUATION_AND_BLANK) for word in response.lower().split()}
    return len(unique) >= N


@verifies("count:conjunctions")
def has_at_least_n_conjunctions(response: str, *, small_n: int) -> bool:
    """Verify so many different coordinating conjunctions: "and", "And" and "and," are three."""
    coordinating = {"for", "and", "nor", "but", "or", "yet", "so"}
    written = {word for word in response.split() if word.strip(PUNCTUATION_AND_BLANK).lower() in coordinating}
    return len(written) >= small_n


@verifies("count:person_names")
def has_at_least_n_person_names(response: str, *, N: int) -> bool:
    """Verify ``N`` of the listed names, as whole words in this case of letters."""
    return len(ENGLISH["person_names"] & set(re.findall(r"\w+", response))) >= N


@verifies("count:numbers")
def has_exactly_n_numbers(response: str, *, N: int) -> bool:
    """Verify ``N`` runs of digits once punctuation is taken out: 1,000, 3.14 and the 3 of 3rd are one."""
    return len(re.findall(r"\d+", response.translate(WITHOUT_PUNCTUATION))) == N


@verifies("count:pronouns")
def has_at_least_n_pronouns(response: str, *, N: int) -> bool:
    """Verify at least ``N`` pronouns; she/her is two."""
    text = response.replace("/", " ").lower().translate(WITHOUT_PUNCTUATION)
    return sum(word in ENGLISH["pronouns"] for word in text.split()) >= N


@verifies("count:punctuation")
def has_all_punctuation_marks(response: str) -> bool:
    """Verify every standard mark and the interrobang, whose marks do not stand for a ? and a !."""
    if "?!" in response:
        others = response.replace("?!", "", 1)
    elif "!?" in response or "‽" in response:
        others = response.replace("!?", "", 1)
    else:
        return False
    return all(mark in others for mark in ".,!?;:")


@verifies("count:keywords_multiple")
def has_keywords_1_2_3_5_and_7_times(
    response: str, *, keyword1: str, keyword2: str, keyword3: str, keyword4: str, keyword5: str
) -> bool:
    """Verify that the keywords stand once, twice, 3, 5 and 7 times, in any case, inside other words too."""
    text = response.lower()
    keywords = (keyword1, keyword2, keyword3, keyword4, keyword5)
    needed = zip(keywords, (1, 2, 3, 5, 7), strict=True)
    return all(text.count(keyword.lower()) == times for keyword, times in needed)


_JAPANESE = re.compile("[\u3040-\u30ff\u4e00-\u9fff]")


@verifies("count:words_japanese")
def has_japanese_in_each_nth_word(response: str, *, N: int) -> bool:
    """Verify a kana or Chinese character in each N-th chunk between blanks but punctuation and numbers."""
    words = [word.strip(PUNCTUATION_AND_BLANK) for word in response.split()]
    nth = words[N - 1 :: N]
    return all(_JAPANESE.search(word) for word in nth if word and not word.isdigit())


# --- IFBench ``words:``: form and place of words


def split_bare_words(text: str) -> list[str]:
    """Split at blanks once all punctuation is removed: "well-known" is one word."""
    return text.translate(WITHOUT_PUNCTUATION).split()


@verifies("words:alphabet")
def has_words_in_alphabet_order(response: str) -> bool:
    """Verify that each word starts with the next letter of the alphabet, beginning anywhere and with A after
    Z; a word that begins with no letter fails."""
    places = [string.ascii_lowercase.find(word[0].lower()) for word in split_bare_words(response)]
    in_order = all(after == (before + 1) % 26 for before, after in pairwise(places))
    return in_order and places != [] and places[0] >= 0


@verifies("words:vowel")
def has_at_most_three_vowels(response: str) -> bool:
    """Verify one line with at most three of a, e, i, o, u."""
    text = response.strip()
    return "\n" not in text and len(set("aeiou") & set(text.lower())) <= 3


_CONSONANTS = frozenset("bcdfghjklmnpqrstvwxyz")


@verifies("words:consonants")
def has_consonant_clusters(response: str) -> bool:
    """Verify that two consonants stand together in each word; y is one."""
    return all(
        any(a in _CONSONANTS and b in _CONSONANTS for a, b in pairwise(word))
        for word in response.lower().split()
    )


@verifies("words:palindrome")
def has_ten_palindromes(response: str) -> bool:
    """Verify ten palindromes of five letters or more; repeats count."""
    words = split_bare_words(response.lower())
    return sum(len(word) >= 5 and word == word[::-1] for word in words) >= 10


_PRIMES = frozenset(n for n in range(2, 101) if all(n % d for d in range(2, n)))


@verifies("words:prime_lengths")
def has_prime_word_lengths(response: str) -> bool:
    """Verify that the length of every word is a prime up to 97."""
    return all(len(word) in _PRIMES for word in split_bare_words(response))


@verifies("words:start_verb")
def starts_with_verb(response: str, language: Language) -> bool:
    return language.first_word_is_verb(response)


@verifies("words:repeats")
def has_limited_repeats(response: str, *, small_n: int) -> bool:
    counts = Counter(split_bare_words(response.lower()))
    return all(count <= small_n for count in counts.values())


@verifies("words:odd_even_syllables")
def has_alternating_syllables(response: str) -> bool:
    from syllapy import count

    parities = (count(word) % 2 for word in split_bare_words(response.lower()))
    return all(before != after for before, after in pairwise(parities))


@verifies("words:last_first")
def has_chained_sentences(response: str, language: Language) -> bool:
    """Verify that each sentence ends in the first word of the next, in any case."""
    sentences = [sentence.lower() for sentence in language.sentences(response)]
    for before, after in pairwise(sentences):
        last = before.rstrip(PUNCTUATION_AND_BLANK).split()
        first = after.lstrip(PUNCTUATION_AND_BLANK).split()
        if not last or not first or last[-1] != first[0]:
            return False
    return True


@verifies("words:paragraph_last_first")
def has_lines_ending_as_they_begin(response: str) -> bool:
    """Verify that each line ends with the word it starts with, case and punctuation around it aside."""
    lines = response.lower().split("\n")
    paragraphs = (line.strip().strip(PUNCTUATION_AND_BLANK).split() for line in lines)
    return all(words[0] == words[-1] for words in paragraphs if words)


@verifies("words:no_consecutive")
def has_no_repeated_initials(response: str) -> bool:
    """Verify that no two consecutive words share their first letter, in any case."""
    return all(before[0] != after[0] for before, after in pairwise(split_bare_words(response.lower())))


@verifies("words:keywords_specific_position")
def has_keyword_at_position(response: str, language: Language, *, keyword: str, n: int, m: int) -> bool:
    """Verify that the ``m``-th word of sentence ``n`` is the keyword. Words are Treebank tokens, so
    punctuation has a place too; the case of letters matters."""
    sentences = language.sentences(response)
    if not 0 < n <= len(sentences):
        return False
    words = treebank_words(sentences[n - 1])
    return 0 < m <= len(words) and words[m - 1] == keyword


@verifies("words:words_position")
def has_keyword_second_from_both_ends(response: str, language: Language, *, keyword: str) -> bool:
    """Verify the second and second to last Treebank tokens; a period that ends the response is one."""
    second = list(islice(language.words(response), 2))[1:]
    return second == [keyword] and language.last_words(response, 2)[0] == keyword


@verifies("ratio:stop_words")
def has_few_stop_words(response: str, language: Language, *, percentage: float) -> bool:
    """Verify that stop words are at most so many percent of the words; a response without words fails."""
    words = language.word_runs(response)
    stop_words = language.stop_words
    stopped = sum(word.lower() in stop_words for word in words)
    return bool(words) and stopped / len(words) * 100 <= percentage


@verifies("ratio:sentence_type")
def has_two_statements_per_question(response: str, language: Language) -> bool:
    """Verify two sentences that end in a period for each that ends in a question mark, or none of either."""
    sentences = language.sentences(response)
    declarative = sum(sentence.endswith(".") for sentence in sentences)
    interrogative = sum(sentence.endswith("?") for sentence in sentences)
    return declarative == 2 * interrogative


@verifies("ratio:sentence_balance")
def has_balanced_sentence_types(response: str, language: Language) -> bool:
    """Verify as many statements as questions and exclamations, told by their last character."""
    sentences = language.sentences(response)
    return len({sum(sentence.endswith(mark) for sentence in sentences) for mark in ".?!"}) == 1


@verifies("ratio:sentence_words")
def has_three_sentences_of_equal_length(response: str, language: Language) -> bool:
    """Verify the sentences' length, but as the published verifier not that all words are different."""
    sentences = language.sentences(response)
    return len(sentences) == 3 and len({len(sentence.strip()) for sentence in sentences}) == 1


@verifies("ratio:overlap")
def has_trigram_overlap(response: str, *, reference_text: str, percentage: float) -> bool:
    """Verify that the reference holds so many percent (±2) of the response's runs of three characters."""
    trigrams = _list_trigrams(response)
    if not trigrams:
        return False
    share = len(trigrams & _list_trigrams(reference_text)) / len(trigrams)
    return percentage - 2 <= share * 100 <= percentage + 2


def _list_trigrams(text: str) -> set[str]:
    return {text[i : i + 3] for i in range(len(text) - 2)}
