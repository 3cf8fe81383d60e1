"""Read a check from the mapping that an experiment file holds; every mistake is reported at once."""

from __future__ import annotations

import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from coeval.core.errors import CheckFailed, ConfigError, Misshapen
from coeval.core.foreign import convert
from coeval.core.plain import cut_middle
from coeval.judging.checks.rubric_check import (
    PASSED,
    CheckedAnswer,
    CheckOptions,
    CheckScore,
    CommandCheck,
    PythonCheck,
    RubricCheck,
    TextCheck,
    compile_pattern,
    quote_line,
    search_within_limit,
)
from coeval.judging.checks.value_checks import (
    CostCheck,
    JsonCheck,
    JsonSchemaCheck,
    LatencyCheck,
    NumericCheck,
)

# --- Checks of text
#
# Checks of what an answer says: equality, words, patterns, length, language, likeness.

Share: TypeAlias = Annotated[float, Meta(ge=0, le=1)]
Count: TypeAlias = Annotated[int, Meta(ge=0)]

# Characters of either text: the time of a comparison grows with the product of the lengths, and is some 40 ms
# for two of this length.
_LONGEST_COMPARED = 50_000
LANGUAGES: dict[str, str] = tomllib.loads(
    Path(__file__).with_name("languages.toml").read_text(encoding="utf-8")
)

# Letters below which the detector is little better than a guess (two or three words).
_FEWEST_LETTERS = 20


class ExactCheck(TextCheck, frozen=True, kw_only=True, tag_field="check", tag="exact", dict=True):
    """The answer is the text, or one of the texts."""

    def compare(self, answer_text: str, targets: tuple[str, ...]) -> CheckScore:
        return PASSED if answer_text in targets else CheckScore(0.0, f"is {quote_line(answer_text)}")


class OneOfCheck(ExactCheck, frozen=True, kw_only=True, tag_field="check", tag="one_of", dict=True):
    """The answer is one of the values."""

    def __post_init__(self) -> None:
        ExactCheck.__post_init__(self)
        if not self.values:
            raise ValueError("needs values: the answers that are allowed")


class ContainsCheck(TextCheck, frozen=True, kw_only=True, tag_field="check", tag="contains", dict=True):
    """The answer holds the text; of several, ``require`` says how many count."""

    require: Literal["all", "any", "share"] = "all"
    at: Literal["anywhere", "start", "end"] = "anywhere"

    def compare(self, answer_text: str, targets: tuple[str, ...]) -> CheckScore:
        _refuse_empty_targets(targets)
        holds = _HOLDS[self.at]
        lacking = [target for target in targets if not holds(answer_text, target)]
        if not lacking or (self.require == "any" and len(lacking) < len(targets)):
            return PASSED
        value = 1.0 - len(lacking) / len(targets) if self.require == "share" else 0.0
        return CheckScore(value, f"lacks {quote_line(', '.join(lacking))}")


_HOLDS: dict[str, Callable[[str, str], bool]] = {
    "anywhere": str.__contains__, "start": str.startswith, "end": str.endswith,
}  # fmt: skip


class NotContainsCheck(
    TextCheck, frozen=True, kw_only=True, tag_field="check", tag="not_contains", dict=True
):
    """The answer holds none of the texts."""

    def __post_init__(self) -> None:
        TextCheck.__post_init__(self)
        if not (self.constants or self.attribute):
            raise ValueError("needs value, values or attribute: what the answer must not contain")

    def compare(self, answer_text: str, targets: tuple[str, ...]) -> CheckScore:
        _refuse_empty_targets(targets)
        occurring = [target for target in targets if target in answer_text]
        return CheckScore(0.0, f"holds {quote_line(', '.join(occurring))}") if occurring else PASSED


def _refuse_empty_targets(targets: tuple[str, ...]) -> None:
    """Raise CheckFailed for an empty target, which every answer contains."""
    if "" in targets:
        raise CheckFailed("the text to compare answers with is empty")


class RegexCheck(RubricCheck, frozen=True, kw_only=True, tag_field="check", tag="regex", dict=True):
    """The pattern occurs in the answer, or is all of it (``full``)."""

    pattern: str
    full: bool = False
    negate: bool = False

    def __post_init__(self) -> None:
        _ = self._compiled

    @cached_property
    def _compiled(self) -> Any:
        return compile_pattern(self.pattern)

    def score(self, answer: CheckedAnswer) -> CheckScore:
        matches = search_within_limit(self._compiled, answer.response, full=self.full) is not None
        if matches is not self.negate:
            return PASSED
        return CheckScore(0.0, f"{'matches' if matches else 'does not match'} {quote_line(self.pattern)}")


class LengthCheck(RubricCheck, frozen=True, kw_only=True, tag_field="check", tag="length", dict=True):
    """The answer is at least and at most so long."""

    least: Count = 0
    most: Count | None = None
    unit: Literal["characters", "words", "lines"] = "characters"

    def __post_init__(self) -> None:
        if not self.least and self.most is None:
            raise ValueError("needs least or most")
        if self.most is not None and self.most < self.least:
            raise ValueError("most is below least; no answer could pass")

    def score(self, answer: CheckedAnswer) -> CheckScore:
        length = len(_UNITS[self.unit](answer.response))
        if length >= self.least and (self.most is None or length <= self.most):
            return PASSED
        return CheckScore(0.0, f"has {length:,} {self.unit}")


_UNITS: dict[str, Callable[[str], Sequence[str]]] = {
    "characters": str, "words": str.split, "lines": str.splitlines,
}  # fmt: skip

# The detector reads 10,000 letters, but looks for addresses in the whole text before it counts these off.
_LONGEST_DETECTED = 300_000


def detect_language(text: str) -> str | None:
    """Return the code of the most probable language by ``langdetect`` with seed 0, as official checks do;
    "unknown" if none is likely, None without letters."""
    from langdetect import DetectorFactory, LangDetectException, detect

    DetectorFactory.seed = 0
    try:
        return str(detect(text[:_LONGEST_DETECTED]))
    except LangDetectException:
        return None


class LanguageCheck(TextCheck, frozen=True, kw_only=True, tag_field="check", tag="language", dict=True):
    """The answer is written in the language, or one of the languages (ISO 639-1, such as ``de``)."""

    def __post_init__(self) -> None:
        TextCheck.__post_init__(self)
        if not (self.constants or self.attribute):
            raise ValueError("needs value, values or attribute: a language such as de")
        unknown = [code for code in self.constants if code not in LANGUAGES]
        if unknown:
            raise ValueError(f"{quote_line(unknown[0])} is not one of {', '.join(LANGUAGES)}")

    def compare(self, answer_text: str, targets: tuple[str, ...]) -> CheckScore:
        if sum(map(str.isalpha, answer_text)) < _FEWEST_LETTERS and answer_text.isascii():
            raise CheckFailed(f"fewer than {_FEWEST_LETTERS} letters: the language cannot be detected")
        if unknown := [code for code in targets if code not in LANGUAGES]:
            raise CheckFailed(f"{quote_line(unknown[0])} is not one of {', '.join(LANGUAGES)}")
        language = detect_language(answer_text)
        if language in targets:
            return PASSED
        name = f"{LANGUAGES.get(language, 'a language')} ('{language}')" if language else "no known language"
        return CheckScore(0.0, f"is written in {name}")


Metric: TypeAlias = Literal[
    "ratio", "partial_ratio", "token_sort_ratio", "token_set_ratio", "levenshtein", "jaro_winkler", "f1"
]


class SimilarityCheck(TextCheck, frozen=True, kw_only=True, tag_field="check", tag="similarity", dict=True):
    """The similarity of the answer and the most similar text; with ``least``, whether it is that high."""

    metric: Metric = "ratio"
    least: Share | None = None

    def compare(self, answer_text: str, targets: tuple[str, ...]) -> CheckScore:
        if len(answer_text) > _LONGEST_COMPARED or max(map(len, targets)) > _LONGEST_COMPARED:
            raise CheckFailed(f"texts of more than {_LONGEST_COMPARED:,} characters are not compared")
        alike = max(self._measure_similarity(answer_text, target) for target in targets)
        if self.least is None:
            return CheckScore(alike)
        return PASSED if alike >= self.least else CheckScore(0.0, f"is {alike:.2f} alike")

    def _measure_similarity(self, answer_text: str, target: str) -> float:
        if self.metric == "f1":
            return _f1(answer_text.split(), target.split())
        from rapidfuzz import distance, fuzz

        match self.metric:
            case "levenshtein":
                return float(distance.Levenshtein.normalized_similarity(answer_text, target))
            case "jaro_winkler":
                return float(distance.JaroWinkler.normalized_similarity(answer_text, target))
            case _:
                return float(getattr(fuzz, self.metric)(answer_text, target)) / 100


def _f1(words: list[str], target: list[str]) -> float:
    """Return the harmonic mean of precision and recall over words, repeated ones counted (SQuAD, 2016)."""
    shared = (Counter(words) & Counter(target)).total()
    return 2 * shared / (len(words) + len(target)) if shared else float(words == target)


# --- Options of checks

CHECK_KEY = "check"

_ALL: tuple[type[RubricCheck], ...] = (
    ExactCheck, ContainsCheck, NotContainsCheck, RegexCheck, OneOfCheck, NumericCheck, JsonSchemaCheck,
    JsonCheck, LengthCheck, LanguageCheck, SimilarityCheck, LatencyCheck, CostCheck, PythonCheck,
    CommandCheck,
)  # fmt: skip
KINDS: Mapping[str, type[RubricCheck]] = {str(kind.__struct_config__.tag): kind for kind in _ALL}
"""What may stand behind ``check:``."""


class CheckProblem(NamedTuple):
    """A mistake in the options of a check: its key and index in its list, the message, and the ``word`` that
    may be a misspelling of one of ``known``."""

    key: str
    what: str
    word: str = ""
    known: tuple[str, ...] = ()
    entry: tuple[int, ...] = ()


def find_check_problems(options: CheckOptions) -> list[CheckProblem]:
    """Return every mistake in a check's options, without opening the file of a function."""
    kind = options.get(CHECK_KEY)
    if not isinstance(kind, str) or kind not in KINDS:
        return [CheckProblem(CHECK_KEY, f"'{kind}' is not a kind of check", str(kind), tuple(KINDS))]
    problems = list(_find_key_problems(KINDS[kind], options))
    if problems:
        return problems
    try:
        convert(dict(options), KINDS[kind])
    except Misshapen as error:
        return [CheckProblem(CHECK_KEY, f"{kind}: {error}")]
    return []


def code_location(options: CheckOptions) -> str:
    """Return the code that a check runs, as the file names it; empty if it runs none."""
    match options:
        case {"check": "python", "function": str(function)}:
            return function
        case {"check": "command", "argv": list(argv)}:
            return " ".join(map(str, argv))
    return ""


def _find_key_problems(kind: type[RubricCheck], options: CheckOptions) -> Iterator[CheckProblem]:
    fields = {field.name: field for field in msgspec.structs.fields(kind)}
    for key, value in options.items():
        if key == CHECK_KEY:
            continue
        if key not in fields:
            yield CheckProblem(key, f"the key '{key}' is unknown", key, tuple(fields))
            continue
        try:
            convert(value, fields[key].type)
        except Misshapen:
            yield from _find_value_problems(key, value, fields[key].type)
    for name, field in fields.items():
        if field.required and name not in options:
            yield CheckProblem(name, f"the required key '{name}' is missing")


def _find_value_problems(key: str, value: Any, kind: Any) -> Iterator[CheckProblem]:
    """Name the entries of a list that do not fit, else the value as a whole."""
    schema = msgspec.json.schema(kind)
    whole = True
    for number, entry in enumerate(value if isinstance(value, list) and "items" in schema else ()):
        try:
            convert([entry], kind)
        except Misshapen:
            entry_text = cut_middle(msgspec.json.encode(entry).decode(), 40)
            quotes = "; put it in quotes" if entry is None or isinstance(entry, bool) else ""
            whole = False
            yield CheckProblem(
                key, f"is {entry_text}, not {_describe_schema(schema['items'])}{quotes}", entry=(number,)
            )
    if whole:
        yield CheckProblem(
            key, f"is not {_describe_schema(schema)}", str(value), tuple(schema.get("enum", ()))
        )


def _describe_schema(schema: Mapping[str, Any]) -> str:
    """Describe a value of this JSON schema in words, with its bounds."""
    if "enum" in schema:
        return " | ".join(map(str, schema["enum"]))
    if "anyOf" in schema:
        parts = (_describe_schema(part) for part in schema["anyOf"] if part.get("type") != "null")
        return " or ".join(dict.fromkeys(parts))
    bounds = [f" {words} {schema[key]:g}" for key, words in _BOUNDS.items() if key in schema]
    return _WORDS[schema["type"]] + " and".join(bounds)


_WORDS = {
    "string": "text", "integer": "a whole number", "number": "a number", "boolean": "true or false",
    "array": "a list", "object": "a mapping",
}  # fmt: skip
_BOUNDS = {"minimum": "of at least", "exclusiveMinimum": "above", "maximum": "of at most"}


def read_check(options: CheckOptions) -> RubricCheck:
    """Build the check of these options; raises ConfigError with all that is wrong with them."""
    problems = find_check_problems(options)
    if problems:
        raise ConfigError([f"{problem.key}: {problem.what}" for problem in problems])
    return convert(dict(options), KINDS[options[CHECK_KEY]])
