"""Language detection, as ``langdetect`` with seed 0.

The method (Nakatani Shuyo's language-detection): n-grams of one to three letters are drawn at random, seven
times over, and each draw multiplies the probability of every language by that of the n-gram in it, until
one is all but certain. ``langdetect`` supplies the profiles and the normal form of a letter; gathering and
drawing are ours, in the same order of operations, so the verdicts are the same (a test holds them against
it) in a fraction of the time.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from functools import lru_cache
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

# ``n_trial`` of langdetect 1.0.9, whose verdicts the official checks use; so are the figures below.
_TRIALS = 7
# ``ITERATION_LIMIT``.
_LAST_DRAW = 1000
# ``CONV_THRESHOLD``.
_CERTAIN = 0.99999
# ``PROB_THRESHOLD``.
_LIKELY = 0.1
# ``ALPHA_DEFAULT`` and ``ALPHA_WIDTH``.
_SMOOTHING, _SMOOTHING_WIDTH = 0.5, 0.05
# ``BASE_FREQ``.
_BASE_FREQUENCY = 10_000
# ``max_text_length``.
_LETTERS_READ = 10_000
# Addresses are blanked before the letters are counted off; what lies beyond this is not looked at.
_TEXT_READ = 300_000

Frequencies: TypeAlias = NDArray[np.float64]
"""Frequency of an n-gram in each language."""


class _NormalLetters(dict[int, str]):
    """A table for `str.translate` that asks once for each letter it meets."""

    def __init__(self, normalize: Callable[[str], str]) -> None:
        super().__init__()
        self._normalize = normalize

    def __missing__(self, letter: int) -> str:
        normal = self[letter] = self._normalize(chr(letter))
        return normal


class LanguageDetector:
    """Language detector with ISO 639-1 codes; loads its profiles on construction."""

    def __init__(self, seed: int = 0) -> None:
        from langdetect.detector import Detector
        from langdetect.detector_factory import PROFILES_DIRECTORY, DetectorFactory
        from langdetect.utils.ngram import NGram

        factory = DetectorFactory()
        factory.load_profile(PROFILES_DIRECTORY)
        self._languages: list[str] = factory.langlist
        self._profiles: dict[str, list[float]] = factory.word_lang_prob_map
        self._addresses = (Detector.URL_RE, Detector.MAIL_RE)
        self._compose = NGram.normalize_vi
        self._normal = _NormalLetters(NGram.normalize)
        self._frequencies = lru_cache(maxsize=30_000)(self._read_frequencies)
        self._of_word = lru_cache(maxsize=20_000)(self._ngrams_of_word)
        self._seed = seed

    def detect(self, text: str) -> str | None:
        """Return the most probable language, "unknown" where none is likely, None without letters."""
        ngrams = self._ngrams(self._readable(text))
        if not ngrams:
            return None
        draw = random.Random(self._seed)
        mean = np.zeros(len(self._languages))
        for _ in range(_TRIALS):
            mean += self._trial(ngrams, draw) / _TRIALS
        best = int(mean.argmax())
        return self._languages[best] if mean[best] > _LIKELY else "unknown"

    def _trial(self, ngrams: list[Frequencies], draw: random.Random) -> Frequencies:
        probabilities = np.full(len(self._languages), 1.0 / len(self._languages))
        floor = (_SMOOTHING + draw.gauss(0.0, 1.0) * _SMOOTHING_WIDTH) / _BASE_FREQUENCY
        for i in range(_LAST_DRAW + 1):
            probabilities *= draw.choice(ngrams) + floor
            if i % 5 == 0:
                probabilities /= sum(probabilities.tolist())
                if probabilities.max() > _CERTAIN:
                    break
        return probabilities

    def _readable(self, text: str) -> str:
        """The letters to judge by: no addresses, single blanks, and no Latin in a text of another script."""
        text = text[:_TEXT_READ]
        for address in self._addresses:
            text = address.sub(" ", text)
        text = self._compose(text)[:_LETTERS_READ]
        latin = sum("A" <= letter <= "z" for letter in text)
        other = sum(letter >= "\u0300" for letter in text)
        if latin * 2 < other:
            text = "".join(letter for letter in text if not "A" <= letter <= "z")
        return text.translate(self._normal)

    def _ngrams(self, text: str) -> list[Frequencies]:
        *words, last = text.split(" ")
        ngrams: list[Frequencies] = []
        for word in words:
            if word:
                ngrams += self._of_word(word) if len(word) < 40 else self._ngrams_of_word(word)
        return ngrams + self._ngrams_of_word(last, complete=False)

    def _ngrams_of_word(self, word: str, complete: bool = True) -> list[Frequencies]:
        """The known n-grams that end at each letter, and at the blank after a ``complete`` word.

        Letters in a row of capitals are passed over: the blank after them is not.
        """
        padded = f" {word} " if complete else f" {word}"
        ngrams: list[Frequencies] = []
        for i in range(1, len(padded)):
            if padded[i].isupper() and padded[i - 1].isupper():
                continue
            for start in (i, i - 1, i - 2):
                ngram = padded[max(start, 0) : i + 1]
                if start >= 0 and ngram != " " and ngram in self._profiles:
                    ngrams.append(self._frequencies(ngram))
        return ngrams

    def _read_frequencies(self, ngram: str) -> Frequencies:
        return np.array(self._profiles[ngram])
