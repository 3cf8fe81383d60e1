"""Text analysis for verifiers: sentences, words, the first word's tag, stop words, language.

English resources are NLTK's data files; a missing one is replaced by a rule, and
`Language.missing_resources` names it. Results are cached by text, so that the strict and loose readings of
a response, and several instructions, share the work.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Sequence
from functools import cached_property, lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple, TypeVar

import msgspec

from coeval.core.foreign import decode
from coeval.judging.checks.check_options import detect_language

_LISTS = tomllib.loads(Path(__file__).with_name("english.toml").read_text(encoding="utf-8"))
ENGLISH = {name: frozenset(words.split()) for name, words in _LISTS.items()}
"""The word lists of ``english.toml`` by name."""

# --- Words
#
# In the two senses that verifiers use: maximal runs of word characters; and Penn Treebank tokens, in which
# punctuation stands alone, contractions are cut (``do|n't``), and only the last period of a sentence is cut
# off. Tokens equal those of NLTK 3.10 (tested), but each chunk between blanks is cut on its own and cached,
# so the time is linear in the text.

_ASCII_WORD = re.compile(r"\w+", re.ASCII)


def word_runs(text: str) -> list[str]:
    r"""Find the matches of Unicode's ``\w+`` (UTS #18).

    Python's own ``\w`` cuts a Hindi word at each vowel sign, and takes ½ for a word.
    """
    if text.isascii():
        return _ASCII_WORD.findall(text)
    import regex

    runs: list[str] = regex.findall(r"\w+", text)
    return runs


def treebank_words(sentence: str) -> list[str]:
    if sentence.startswith('"'):
        sentence = "`` " + sentence[1:]
    body, tail = _split_last_period(sentence)
    words = _tokenise_chunks(body)
    if tail:
        words.append(".")
        words += _tokenise_chunks(tail[1:], preceding=".")
    return words


_BEHIND_PERIOD = "])}>\"'»”’ "


def _split_last_period(sentence: str) -> tuple[str, str]:
    """Split a sentence into what precedes its final period, and the period with its closers; (all, "") if
    there is none. The period of an ellipsis is not cut off, nor one before a quote that opens."""
    body = sentence.rstrip().rstrip(_BEHIND_PERIOD)
    tail = sentence.rstrip()[len(body) :]
    opening = ' "' in tail or " ''" in tail
    if len(body) < 2 or body[-1] != "." or body[-2] == "." or opening:
        return sentence, ""
    return body[:-1], "." + tail


def _tokenise_chunks(text: str, preceding: str = "") -> list[str]:
    """Return the tokens of all chunks between blanks; ``preceding`` is the character before ``text``."""
    words: list[str] = []
    position = 0
    for chunk in text.split():
        if chunk.isalnum() and chunk.lower() not in _JOINED:
            words.append(chunk)
            continue
        position = text.index(chunk, position)
        lead = text[position - 1] if position else preceding
        position += len(chunk)
        tokenise = _tokenise_cached if len(chunk) < _REMEMBERED else _tokenise_chunk
        words += tokenise(chunk, lead == " ", text[position : position + 1] == " ")
    return words


# Characters: longer chunks (links, base64) hardly recur, and would fill the memory of the cache.
_REMEMBERED = 200
_JOINED = frozenset({"cannot", "gimme", "gonna", "gotta", "lemme", "wanna"})

_QUOTES = re.compile(r"[«“‘„]|``|`")
_OPENING = re.compile(r"([ ([{<])(?:\"|'{2})")
_LEADING_APOSTROPHE = re.compile(r"(?<!\w)'(?!(?:re|ve|ll|m|t|s|d|n)\b)(?=\w)", re.IGNORECASE)
_COLON = re.compile(r"([:,])(\D)")
_ALONE = re.compile(r"\.{2,}|[;@#$%&‒–—―?!]")
_CLOSING_APOSTROPHE = re.compile(r"([^'])' ")
_ALONE_TOO = re.compile(r"--|''|[*\]\[(){}<>»”’\"]")
_SUFFIX = re.compile(r"([^' ])('[sSmMdD]|') ")
_LONG_SUFFIX = re.compile(r"([^' ])('(?:ll|LL|re|RE|ve|VE)|n't|N'T) ")
_CONTRACTIONS = re.compile(
    r"\b(?:(can)(not)|(d)('ye)|(gim)(me)|(gon)(na)|(got)(ta)|(lem)(me)|(more)('n)|(wan)(na)(?=\s))\b",
    re.IGNORECASE,
)
_OLD_CONTRACTIONS = re.compile(r" ('t)(is|was)\b", re.IGNORECASE)


@lru_cache(maxsize=20_000)
def _tokenise_cached(chunk: str, after_blank: bool, before_blank: bool) -> tuple[str, ...]:
    return tuple(_tokenise_chunk(chunk, after_blank, before_blank))


def _tokenise_chunk(chunk: str, after_blank: bool, before_blank: bool) -> list[str]:
    """Pad what stands alone with blanks, in the order of the Treebank's conventions, and split. The flags say
    whether the neighbours are plain blanks, which some conventions ask for."""
    text = f"{' ' if after_blank else chr(10)}{chunk}{' ' if before_blank else chr(10)}"
    apostrophe = "'" in chunk
    text = _QUOTES.sub(r" \g<0> ", text)
    if apostrophe or '"' in chunk:
        text = _OPENING.sub(r"\1 `` ", text)
    if apostrophe:
        text = _LEADING_APOSTROPHE.sub("' ", text)
    if ":" in chunk or "," in chunk:
        text = _COLON.sub(r" \1 \2", text)
    text = _ALONE.sub(r" \g<0> ", text)
    if apostrophe:
        text = _CLOSING_APOSTROPHE.sub(r"\1 ' ", text)
    text = _ALONE_TOO.sub(_pad_match, text)
    if apostrophe:
        text = f" {' '.join(text.split())} "
        text = _SUFFIX.sub(r"\1 \2 ", text)
        text = _LONG_SUFFIX.sub(r"\1 \2 ", text)
    text = _CONTRACTIONS.sub(_space_out_groups, text)
    if apostrophe:
        text = _OLD_CONTRACTIONS.sub(_space_out_groups, text)
    return text.split()


def _pad_match(match: re.Match[str]) -> str:
    return " '' " if match.group() == '"' else f" {match.group()} "


def _space_out_groups(match: re.Match[str]) -> str:
    return f" {' '.join(part for part in match.groups() if part)} "


# --- Sentences
#
# Sentence splitting with the decisions of Punkt (Kiss and Strunk 2006), with or without NLTK's model data.
#
# For every ``.``, ``?`` and ``!`` that could end a sentence the algorithm looks at the word before and the
# token after it. A model decides by word lists learned from newspapers; `is_sentence_end_by_rules` by a
# short list of abbreviations. Both are linear in the text. Splits equal those of NLTK 3.10 (tested).

_CLOSERS = "‘’“”«»"
_NON_WORD = r"[)\";}\]*:@'({\[?!" + _CLOSERS + "]"
_DASHES_OR_DOTS = r"--|\.\.|\.\s\.\s\."
_WORD_END = rf"{_NON_WORD}|{_DASHES_OR_DOTS}|,(?=$|\s|{_NON_WORD}|{_DASHES_OR_DOTS})"

_TOKEN = re.compile(
    rf"-{{2,}}|\.{{2,}}|(?:\.\s){{2,}}\.|[^\s(\"`{{\[:;&#*@)}}\]\-,](?:(?!{_WORD_END})\S)*|\S"
)
_CANDIDATE = re.compile(rf"[.?!](?={_NON_WORD}|\s+(\S+))")
_BLANKS = str.maketrans("\t\n\r\x0b\x0c", "     ")
_CLOSING = re.compile(rf"[\"')\]}}{_CLOSERS}]+?(?:\s+|(?=--)|$)", re.MULTILINE)

_NUMBER = re.compile(r"-?[.,]?\d[\d,.\-]*\.?")
_ELLIPSIS = re.compile(r"\.{2,}")

# NLTK's own bits (`nltk.tokenize.punkt`): its trained models hold sums of them.
_BEGIN_UPPER, _MIDDLE_UPPER, _UNKNOWN_UPPER = 2, 4, 8
# The same for words that stand in lower case.
_BEGIN_LOWER, _MIDDLE_LOWER, _UNKNOWN_LOWER = 16, 32, 64
_ANY_UPPER = _BEGIN_UPPER | _MIDDLE_UPPER | _UNKNOWN_UPPER
_ANY_LOWER = _BEGIN_LOWER | _MIDDLE_LOWER | _UNKNOWN_LOWER


class PunktModel(msgspec.Struct, frozen=True):
    """Punkt's learned data: ``contexts`` maps a word to the bit set of positions and cases seen."""

    abbreviations: frozenset[str]
    collocations: frozenset[tuple[str, str]]
    starters: frozenset[str]
    contexts: dict[str, int]


def read_punkt_model(folder: Path) -> PunktModel:
    """Read the English model from the files of NLTK's ``punkt_tab``; raises OSError where one is missing."""

    def lines(name: str) -> list[str]:
        return [line for line in (folder / name).read_text(encoding="utf-8").split("\n") if line]

    pairs = [line.split("\t", 1) for line in lines("collocations.tab")]
    contexts = [line.split("\t", 1) for line in lines("ortho_context.tab")]
    return PunktModel(
        frozenset(lines("abbrev_types.txt")),
        frozenset((first, second) for first, second in pairs),
        frozenset(lines("sent_starters.txt")),
        {word: int(bits) for word, bits in contexts},
    )


class _Piece(NamedTuple):
    text: str
    kind: str
    ends_sentence: bool
    is_abbreviation: bool


class PunktSplitter:
    """Splits texts into sentences by a Punkt model."""

    def __init__(self, model: PunktModel) -> None:
        self._model = model

    def sentences(self, text: str) -> list[str]:
        return split_sentences(text, self._has_sentence_end)

    def _has_sentence_end(self, context: str) -> bool:
        tokens = [
            self._classify_abbreviation_or_sentence_end(token)
            for line in context.split("\n")
            if line.strip()
            for token in _TOKEN.findall(line)
        ]
        return any(self._is_sentence_end(tokens[i], tokens[i + 1]) for i in range(len(tokens) - 1))

    def _classify_abbreviation_or_sentence_end(self, text: str) -> _Piece:
        lower = text.lower()
        kind = "##number##" if _NUMBER.fullmatch(lower) else lower
        stem = lower[:-1]
        has_period = text.endswith(".") and not text.endswith("..") and text != "."
        endings = {stem, stem.rsplit("-", 1)[-1]}
        is_abbreviation = has_period and not self._model.abbreviations.isdisjoint(endings)
        ends_sentence = text in {".", "?", "!"} or (has_period and not is_abbreviation)
        return _Piece(text, kind, ends_sentence, is_abbreviation)

    def _is_sentence_end(self, token: _Piece, following: _Piece) -> bool:
        """Check whether a sentence ends between two tokens (the second pass, section 4 of the paper)."""
        if not token.text.endswith("."):
            return token.ends_sentence
        kind = _strip_period(token.kind)
        next_kind = _strip_period(following.kind) if following.ends_sentence else following.kind
        if (kind, next_kind) in self._model.collocations:
            return False
        initial = _is_initial(token.text)
        next_upper = following.text[0].isupper()
        starts = self._starts_sentence(following, next_kind)
        if (token.is_abbreviation or _ELLIPSIS.fullmatch(token.text)) and not initial:
            if starts:
                return True
            if next_upper and next_kind in self._model.starters:
                return True
        if initial or kind == "##number##":
            if starts is False:
                return False
            never_lower = not self._model.contexts.get(next_kind, 0) & _ANY_LOWER
            if starts is None and initial and next_upper and never_lower:
                return False
        return token.ends_sentence

    def _starts_sentence(self, token: _Piece, kind: str) -> bool | None:
        """Apply the orthographic heuristic: does a token start a sentence? None if it cannot tell."""
        if token.text in {";", ":", ",", ".", "!", "?"}:
            return False
        context = self._model.contexts.get(kind, 0)
        first = token.text[0]
        if first.isupper() and context & _ANY_LOWER and not context & _MIDDLE_UPPER:
            return True
        if first.islower() and (context & _ANY_UPPER or not context & _BEGIN_LOWER):
            return False
        return None


def split_sentences(text: str, is_break: Callable[[str], bool]) -> list[str]:
    """Split ``text`` where ``is_break`` holds for a context: the word with its end mark, and what follows.
    Closing quotes and brackets go with the sentence they close; trailing whitespace is dropped."""
    cached: dict[str, bool] = {}
    spans: list[tuple[int, int]] = []
    start = 0
    for mark, resume, context in _find_possible_ends(text):
        ends = cached.get(context)
        if ends is None:
            ends = cached[context] = is_break(context)
        if ends:
            spans.append((start, mark + 1))
            start = resume
    spans.append((start, len(text.rstrip())))
    return [text[a:b] for a, b in _move_closers_to_span_before(text, spans) if b > a]


class _PossibleEnd(NamedTuple):
    """A place where a sentence may end: index of its mark, where the next sentence would begin, and the text
    around it: the word with its mark, and the token after it."""

    mark: int
    resume: int
    context: str


def _find_possible_ends(text: str) -> Iterator[_PossibleEnd]:
    """Find every possible sentence end: of marks inside one word the last, and one that begins a word."""
    blanks = text.translate(_BLANKS)
    word_start = mark = 0
    pending: tuple[int, int] | None = None
    for match in _CANDIDATE.finditer(text):
        start = match.start()
        blank = blanks.rfind(" ", mark, start)
        if blank > mark:
            word_start, before = blank + 1, word_start
        else:
            before = word_start
        if pending is not None and mark <= word_start:
            yield _PossibleEnd(mark, pending[0], text[before : pending[1]])
        resume = match.start(1)
        pending = (resume, match.end(1)) if resume >= 0 else (start + 1, start + 2)
        mark = start
    if pending is not None:
        yield _PossibleEnd(mark, pending[0], text[word_start : pending[1]])


def _move_closers_to_span_before(text: str, spans: list[tuple[int, int]]) -> Iterator[tuple[int, int]]:
    """Move closing punctuation from the head of a span to the tail of the one before."""
    moved = 0
    for (start, end), following in zip(spans, [*spans[1:], None], strict=True):
        start += moved
        closers = _CLOSING.match(text, *following) if following else None
        if closers is None:
            moved = 0
            yield start, end
        else:
            moved = len(closers.group())
            yield start, closers.start() + len(closers.group().rstrip())


def _strip_period(kind: str) -> str:
    return kind[:-1] if len(kind) > 1 and kind.endswith(".") else kind


def _is_initial(text: str) -> bool:
    return len(text) == 2 and text[1] == "." and (text[0].isalpha() or text[0] == "_")


_OPENERS = "([{\"'“‘*_"


def is_sentence_end_by_rules(context: str) -> bool:
    """Decide by rule whether a mark ends a sentence: all but the period of an initial, of an abbreviation
    that no usual first word follows, and of a number before a lower-case letter."""
    words = context.split()
    if len(words) < 2 or not words[0].endswith("."):
        return True
    word, following = words[0].lstrip(_OPENERS), words[1]
    if _is_initial(word):
        return not word.isascii()
    if word[:-1].lower() in ENGLISH["abbreviations"] or _ELLIPSIS.search(word):
        return following[0].isupper() and following.rstrip(",").lower() in ENGLISH["sentence_starters"]
    return not (_NUMBER.fullmatch(word) and following[0].islower())


def plain_sentences(text: str) -> list[str]:
    """Split text into sentences by `is_sentence_end_by_rules`: needs no data, fast for any length."""
    return split_sentences(text, is_sentence_end_by_rules)


# --- Part of speech of a text's first word
#
# The perceptron tagger reads left to right and looks at most two tokens ahead, so the first tag depends on
# the first three tokens only. Its model is NLTK's ``averaged_perceptron_tagger_eng``; without it,
# `looks_like_verb` guesses.

VERB_TAGS = frozenset({"VB", "VBD", "VBG", "VBN", "VBP", "VBZ"})


class FirstWordTagger:
    """Averaged perceptron tagger: a linear model over the word, its ends and its neighbours. Raises OSError
    where a file of the model is missing."""

    def __init__(self, folder: Path) -> None:
        name = "averaged_perceptron_tagger_eng"
        self._sure = decode((folder / f"{name}.tagdict.json").read_bytes(), dict[str, str])
        self._tags = decode((folder / f"{name}.classes.json").read_bytes(), list[str])
        weights = (folder / f"{name}.weights.json").read_bytes()
        self._weights = decode(weights, dict[str, dict[str, float]])

    def tag_first_word(self, words: Sequence[str]) -> str:
        """Return the Penn Treebank tag of ``words[0]``, which must exist."""
        if sure := self._sure.get(words[0]):
            return sure
        scores = dict.fromkeys(self._tags, 0.0)
        for feature in _first_word_features(words):
            for tag, weight in self._weights.get(feature, {}).items():
                scores[tag] += weight
        return max(self._tags, key=lambda tag: (scores[tag], tag))


def _first_word_features(words: Sequence[str]) -> list[str]:
    """List the features of the first word, under the names in the model's file."""
    ahead = [_normalise_word(word) for word in words[:3]] + ["-END-", "-END2-"]
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


def _normalise_word(word: str) -> str:
    if "-" in word and not word.startswith("-"):
        return "!HYPHEN"
    if word.isdigit() and len(word) == 4:
        return "!YEAR"
    return "!DIGITS" if word[:1].isdigit() else word.lower()


def looks_like_verb(word: str) -> bool:
    """Guess without a model: a common verb in its plain form or with -s, or a word in -ing or -ed."""
    plain = word.lower()
    stems = {plain, plain.removesuffix("s"), plain.removesuffix("es")}
    return bool(stems & ENGLISH["verbs"]) or (len(plain) > 4 and plain.endswith(("ing", "ed")))


PUNKT = "tokenizers/punkt_tab/english"
TAGGER = "taggers/averaged_perceptron_tagger_eng"
STOP_WORDS = "corpora/stopwords/english"
RESOURCES = (PUNKT, TAGGER, STOP_WORDS)
"""Paths of the resources below a folder of NLTK data."""

# All checks of one response ask for the same texts one after the other; a few responses are in work at once.
_REMEMBERED_TEXTS = 16
_Resource = TypeVar("_Resource")


class Language:
    """English analysis for verifiers; resources are loaded on first use, a missing one is replaced by a rule.
    ``folders`` are searched in order."""

    def __init__(self, folders: tuple[Path, ...] = ()) -> None:
        self._folders = folders
        memoised = lru_cache(maxsize=_REMEMBERED_TEXTS)
        self.sentences: Callable[[str], tuple[str, ...]] = memoised(
            lambda text: tuple(self._punkt.sentences(text) if self._punkt else plain_sentences(text))
        )
        self.word_runs: Callable[[str], tuple[str, ...]] = memoised(lambda text: tuple(word_runs(text)))
        self.detect: Callable[[str], str | None] = memoised(detect_language)

    @cached_property
    def missing_resources(self) -> tuple[str, ...]:
        loaded = {PUNKT: self._punkt, TAGGER: self._tagger, STOP_WORDS: self._stop_word_list}
        return tuple(name for name, resource in loaded.items() if resource is None)

    def words(self, text: str) -> Iterator[str]:
        return (word for sentence in self.sentences(text) for word in treebank_words(sentence))

    def last_words(self, text: str, n: int) -> list[str]:
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
        return self._tagger.tag_first_word(words) in VERB_TAGS

    @property
    def stop_words(self) -> frozenset[str]:
        return ENGLISH["stop_words"] if self._stop_word_list is None else self._stop_word_list

    @cached_property
    def _punkt(self) -> PunktSplitter | None:
        return self._load_first(PUNKT, lambda path: PunktSplitter(read_punkt_model(path)))

    @cached_property
    def _tagger(self) -> FirstWordTagger | None:
        return self._load_first(TAGGER, FirstWordTagger)

    @cached_property
    def _stop_word_list(self) -> frozenset[str] | None:
        return self._load_first(STOP_WORDS, lambda path: frozenset(path.read_text(encoding="utf-8").split()))

    def _load_first(self, resource: str, read: Callable[[Path], _Resource]) -> _Resource | None:
        for folder in self._folders:
            try:
                return read(folder / resource)
            except OSError:
                continue
        return None
