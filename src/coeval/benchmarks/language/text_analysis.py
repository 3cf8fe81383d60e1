"""What the verifiers ask of a text: sentences, words, the first word's tag, stop words, the language.

English resources are NLTK's data files; where one is missing a rule of our own stands in, and
`Language.missing` names it. Answers are remembered by text, so that the strict and the loose
reading of a response, and several instructions on it, do the work once.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

from coeval.benchmarks.language.detection import LanguageDetector
from coeval.benchmarks.language.sentences import PunktSplitter, plain_sentences, read_punkt_model
from coeval.benchmarks.language.stopwords import CLOSED_CLASSES, read_stopwords
from coeval.benchmarks.language.tagging import VERB_TAGS, FirstWordTagger, looks_like_verb
from coeval.benchmarks.language.words import treebank_words, word_runs

LONG_TEXT = 300_000
"""Characters above which sentences are found by rule even where the model is there."""

PUNKT = "tokenizers/punkt_tab/english"
TAGGER = "taggers/averaged_perceptron_tagger_eng"
STOP_WORDS = "corpora/stopwords/english"
RESOURCES = (PUNKT, TAGGER, STOP_WORDS)
"""The paths that are looked for below each folder of NLTK data."""

_REMEMBERED_TEXTS = 16
_Resource = TypeVar("_Resource")


def nltk_folders(given: Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """Where NLTK data may lie: the folder given, those of ``NLTK_DATA``, and the user's."""
    named = [Path(entry) for entry in environment.get("NLTK_DATA", "").split(os.pathsep) if entry]
    home = environment.get("HOME")
    return (*([given] if given else []), *named, *([Path(home) / "nltk_data"] if home else []))


class Language:
    """English as the verifiers see it; resources are read when first asked for.

    ``folders`` are searched in order (see `nltk_folders`); with none of them holding a resource its
    stand-in answers. ``simplified`` counts the long texts whose sentences were found by rule.
    """

    def __init__(self, folders: tuple[Path, ...] = ()) -> None:
        self._folders = folders
        self.simplified = 0
        remember = lru_cache(maxsize=_REMEMBERED_TEXTS)
        self.sentences: Callable[[str], tuple[str, ...]] = remember(self._sentences)
        self.word_runs: Callable[[str], tuple[str, ...]] = remember(lambda text: tuple(word_runs(text)))
        self.detect: Callable[[str], str | None] = remember(self._detect)

    @cached_property
    def missing(self) -> tuple[str, ...]:
        """The resources that are in none of the folders."""
        present = {
            PUNKT: self._punkt is not None,
            TAGGER: self._tagger is not None,
            STOP_WORDS: self._stop_word_list is not None,
        }
        return tuple(name for name, there in present.items() if not there)

    def words(self, text: str) -> Iterator[str]:
        """The Treebank tokens, found as they are asked for."""
        return (word for sentence in self.sentences(text) for word in treebank_words(sentence))

    def last_words(self, text: str, n: int) -> list[str]:
        """The last ``n`` tokens, fewer where there are no more."""
        words: list[str] = []
        for sentence in reversed(self.sentences(text)):
            words = [*treebank_words(sentence), *words]
            if len(words) >= n:
                break
        return words[-n:]

    def first_word_is_verb(self, text: str) -> bool:
        """Whether the first token is tagged as a verb, read with the two tokens after it."""
        words = list(islice(self.words(text), 3))
        if not words:
            return False
        if self._tagger is None:
            return looks_like_verb(words[0])
        return self._tagger.tag(words) in VERB_TAGS

    @property
    def stop_words(self) -> frozenset[str]:
        return CLOSED_CLASSES if self._stop_word_list is None else self._stop_word_list

    def _sentences(self, text: str) -> tuple[str, ...]:
        if len(text) > LONG_TEXT:
            self.simplified += 1
            return tuple(plain_sentences(text))
        return tuple(self._punkt.sentences(text) if self._punkt else plain_sentences(text))

    def _detect(self, text: str) -> str | None:
        return self._detector.detect(text)

    @cached_property
    def _detector(self) -> LanguageDetector:
        return LanguageDetector()

    @cached_property
    def _punkt(self) -> PunktSplitter | None:
        return self._first(PUNKT, lambda path: PunktSplitter(read_punkt_model(path)))

    @cached_property
    def _tagger(self) -> FirstWordTagger | None:
        return self._first(TAGGER, FirstWordTagger)

    @cached_property
    def _stop_word_list(self) -> frozenset[str] | None:
        return self._first(STOP_WORDS, read_stopwords)

    def _first(self, resource: str, read: Callable[[Path], _Resource]) -> _Resource | None:
        for path in self._places(resource):
            try:
                return read(path)
            except OSError:
                continue
        return None

    def _places(self, resource: str) -> Iterator[Path]:
        return (folder / resource for folder in self._folders)
