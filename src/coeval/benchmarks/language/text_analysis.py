"""Text analysis for verifiers: sentences, words, the first word's tag, stop words, language.

English resources are NLTK's data files; a missing one is replaced by a rule, and `Language.missing` names it.
Results are cached by text, so that the strict and loose readings of a response, and several instructions,
share the work.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

from coeval.benchmarks.language.sentences import PunktSplitter, plain_sentences, read_punkt_model
from coeval.benchmarks.language.words import treebank_words, word_runs
from coeval.core.foreign import decode

# --- Language detection, as ``langdetect`` with seed 0
#
# The method (Nakatani Shuyo's language-detection): n-grams of one to three letters are drawn at random, seven
# times over, and each draw multiplies the probability of every language by that of the n-gram in it, until
# one is all but certain. ``langdetect`` supplies the profiles and the normal form of a letter; gathering and
# drawing are ours, in the same order of operations, so the verdicts are the same (a test holds them against
# it) in a fraction of the time.

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


# --- English stop words

_PRONOUNS = (
    "i me my myself we our ours ourselves you your yours yourself yourselves he him his himself she her "
    "hers herself it its itself they them their theirs themselves what which who whom this that these those"
)
_AUXILIARIES = "am is are was were be been being have has had having do does did doing will should can"
_JOINING = (
    "a an the and but if or because as until while of at by for with about against between into through "
    "during before after above below to from up down in out on off over under nor so than too very"
)
_ADVERBS = (
    "again further then once here there when where why how all any both each few more most other some "
    "such no not only own same just now"
)
_CONTRACTED = (
    "ain aren couldn d didn doesn don hadn hasn haven isn ll m ma mightn mustn needn o re s shan shouldn "
    "t ve wasn weren won wouldn y"
)

CLOSED_CLASSES = frozenset(f"{_PRONOUNS} {_AUXILIARIES} {_JOINING} {_ADVERBS} {_CONTRACTED}".split())
"""Stop words, with the pieces of contractions split at the apostrophe."""


def read_stopwords(path: Path) -> frozenset[str]:
    """Read NLTK's ``corpora/stopwords/english``, a word per line; raises OSError where it is missing."""
    return frozenset(path.read_text(encoding="utf-8").split())


# --- Part of speech of a text's first word
#
# The perceptron tagger reads left to right and looks at most two tokens ahead, so the first tag depends on
# the first three tokens only. Its model is NLTK's ``averaged_perceptron_tagger_eng``; without it,
# `looks_like_verb` guesses.

VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})


class FirstWordTagger:
    """Averaged perceptron tagger: a linear model over the word, its ends and its neighbours.

    Raises OSError where a file of the model is missing.
    """

    def __init__(self, folder: Path) -> None:
        name = "averaged_perceptron_tagger_eng"
        self._sure = decode((folder / f"{name}.tagdict.json").read_bytes(), dict[str, str])
        self._tags = decode((folder / f"{name}.classes.json").read_bytes(), list[str])
        weights = (folder / f"{name}.weights.json").read_bytes()
        self._weights = decode(weights, dict[str, dict[str, float]])

    def tag(self, words: Sequence[str]) -> str:
        """Return the Penn Treebank tag of ``words[0]``, which must exist."""
        if sure := self._sure.get(words[0]):
            return sure
        scores = dict.fromkeys(self._tags, 0.0)
        for feature in _features(words):
            for tag, weight in self._weights.get(feature, {}).items():
                scores[tag] += weight
        return max(self._tags, key=lambda tag: (scores[tag], tag))


def _features(words: Sequence[str]) -> list[str]:
    """What the model knows of the first word, under the names in its file."""
    ahead = [_normal(word) for word in words[:3]] + ["-END-", "-END2-"]
    before, before_that = "-START-", "-START2-"
    return [
        "bias",
        f"i suffix {words[0][-3:]}",
        f"i pref1 {words[0][:1]}",
        f"i-1 tag {before}",
        f"i-2 tag {before_that}",
        f"i tag+i-2 tag {before} {before_that}",
        f"i word {ahead[0]}",
        f"i-1 tag+i word {before} {ahead[0]}",
        f"i-1 word {before_that}",
        f"i-1 suffix {before_that[-3:]}",
        f"i-2 word {before}",
        f"i+1 word {ahead[1]}",
        f"i+1 suffix {ahead[1][-3:]}",
        f"i+2 word {ahead[2]}",
    ]


def _normal(word: str) -> str:
    if "-" in word and not word.startswith("-"):
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    return "!DIGITS" if word[:1].isdigit() else word.lower()


_COMMON_VERBS = (
    "accept achieve act add address adjust adopt advance advise agree aim allow analyze answer apply "
    "appreciate approach arrange ask assess assume avoid balance be become begin believe bring build buy "
    "calculate call can capture care carry change check choose clarify collect combine come compare "
    "complete compute concatenate conduct confirm connect consider contact continue convert cook copy "
    "count cover create cut decide define delve demonstrate derive describe design determine develop did "
    "dig discover discuss display dive divide do does draw dream drink drive eat embark embrace encourage "
    "engage enjoy ensure enter establish evaluate examine expand expect experience explain explore express "
    "extend feel fill find finish fix focus follow forget gather generate get give go grab grow had handle "
    "has have hear help highlight hold identify illustrate imagine implement improve include incorporate "
    "increase inform inspire install integrate introduce investigate invite is are was were join jump keep "
    "know launch lead learn leave let leverage list listen live locate look lose love maintain make manage "
    "maximize measure meet minimize mix move multiply navigate need note observe obtain offer open optimize "
    "organize overcome participate pay perform pick place plan play practice prepare present press prevent "
    "print prioritize produce promote protect prove provide pull push put raise reach read realize recall "
    "receive recognize reduce refer reflect remember remove repeat replace require research respond return "
    "review rewrite run save say seek see select sell send serve set share show simplify sit sleep solve "
    "speak spend stand start state stay step stir stop strive study submit subtract suggest summarize "
    "support suppose take talk teach tell thank think train transform travel treat try turn uncover "
    "understand unleash unlock update use utilize value verify visit visualize wait walk want watch wear "
    "welcome win witness work write"
)
_VERBS = frozenset(_COMMON_VERBS.split())


def looks_like_verb(word: str) -> bool:
    """Guess without a model: a common verb in its plain form or with -s, or a word in -ing or -ed."""
    plain = word.lower()
    stems = {plain, plain.removesuffix("s"), plain.removesuffix("es")}
    return bool(stems & _VERBS) or (len(plain) > 4 and plain.endswith(("ing", "ed")))


# Characters above which sentences are split by rule even with the model.
LONG_TEXT = 300_000

PUNKT = "tokenizers/punkt_tab/english"
TAGGER = "taggers/averaged_perceptron_tagger_eng"
STOP_WORDS = "corpora/stopwords/english"
RESOURCES = (PUNKT, TAGGER, STOP_WORDS)
"""Paths of the resources below a folder of NLTK data."""

# All checks of one response ask for the same texts one after the other; a few responses are in work at once.
_REMEMBERED_TEXTS = 16
_Resource = TypeVar("_Resource")


def nltk_folders(given: Path | None, environment: Mapping[str, str]) -> tuple[Path, ...]:
    """List possible folders of NLTK data: the given one, those of ``NLTK_DATA``, the user's."""
    named = [Path(entry) for entry in environment.get("NLTK_DATA", "").split(os.pathsep) if entry]
    home = environment.get("HOME")
    return (*([given] if given else []), *named, *([Path(home) / "nltk_data"] if home else []))


class Language:
    """English analysis for verifiers; resources are loaded on first use.

    ``folders`` are searched in order (see `nltk_folders`); a missing resource is replaced by a rule.
    ``simplified`` counts the long texts whose sentences were split by rule.
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
        """Name the resources that no folder has."""
        present = {
            PUNKT: self._punkt is not None,
            TAGGER: self._tagger is not None,
            STOP_WORDS: self._stop_word_list is not None,
        }
        return tuple(name for name, there in present.items() if not there)

    def words(self, text: str) -> Iterator[str]:
        """Yield the Treebank tokens lazily."""
        return (word for sentence in self.sentences(text) for word in treebank_words(sentence))

    def last_words(self, text: str, n: int) -> list[str]:
        """Return the last ``n`` tokens, or fewer if there are no more."""
        words: list[str] = []
        for sentence in reversed(self.sentences(text)):
            words = [*treebank_words(sentence), *words]
            if len(words) >= n:
                break
        return words[-n:]

    def first_word_is_verb(self, text: str) -> bool:
        """Check whether the first token is tagged as a verb, given the two tokens after it."""
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
