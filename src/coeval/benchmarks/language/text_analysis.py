"""Text analysis for verifiers: sentences, words, the first word's tag, stop words, language.

English resources are NLTK's data files; a missing one is replaced by a rule, and `Language.missing` names it.
Results are cached by text, so that the strict and loose readings of a response, and several instructions,
share the work.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import TypeVar

from coeval.benchmarks.language.sentences import PunktSplitter, plain_sentences, read_punkt_model
from coeval.benchmarks.language.words import treebank_words, word_runs
from coeval.core.foreign import decode
from coeval.judging.language_detector import LanguageDetector

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
