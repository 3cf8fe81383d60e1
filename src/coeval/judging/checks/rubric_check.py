"""What every check has in common: its options, what it is given, the score it returns.

A check is a factor of a rubric that no judge scores. Its options are plain keys of the experiment file, which
the class of each kind declares with their types; its tag is the word behind ``check:``. ``docs/checks.md``
tells users what each kind does.
"""

from __future__ import annotations

import unicodedata
from collections.abc import Mapping
from functools import cached_property
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import msgspec
from msgspec import Meta

from coeval.core.errors import CheckFailed
from coeval.core.plain import shortened
from coeval.core.records import Datapoint, Usage
from coeval.core.text import canonical, digest

Scalar: TypeAlias = str | int | float
"""A constant of the file: ``value: 42`` is as good as ``value: "42"``."""

Place: TypeAlias = Literal["here", "worker", "program"]
"""Where a check runs: in this process, in a worker with limits, or as a program of its own."""

# Characters of an answer that a reason quotes.
_QUOTED = 80
# Characters of a reason; a check's report stays a line or a few, whatever a user's function says.
LONGEST_REASON = 500

# A schema or an expression that takes longer has run away: sound ones take milliseconds.
_SLOWEST_OF_OURS_S = 5.0
# Options that bound a check and do not change its score.
_LIMITS = frozenset({"timeout_s", "memory_mb"})

PositiveSeconds: TypeAlias = Annotated[float, Meta(gt=0, le=3600)]
Mebibytes: TypeAlias = Annotated[int, Meta(ge=64, le=1 << 20)]


class CheckedAnswer(msgspec.Struct, frozen=True, omit_defaults=True):
    """What a check may look at: the item, its answer, and what the answer took."""

    prompt: str
    response: str
    reference: str | None = None
    attributes: Mapping[str, str] = {}
    latency_s: float | None = None
    cost_usd: float | None = None


class KeptAnswer(Protocol):
    """An answer on record, of a run or of a benchmark."""

    @property
    def response(self) -> str | None: ...
    @property
    def latency_s(self) -> float | None: ...
    @property
    def usage(self) -> Usage | None: ...


def checked_answer(item: Datapoint, answer: KeptAnswer) -> CheckedAnswer:
    """Return what checks may look at of an item and its answer: time and cost are those of its record."""
    return CheckedAnswer(
        prompt=item.prompt or "",
        response=answer.response or "",
        reference=item.reference_response,
        attributes=item.sampled_target_attributes,
        latency_s=answer.latency_s,
        cost_usd=answer.usage.cost_usd if answer.usage is not None else None,
    )


class CheckScore(NamedTuple):
    """A score from 0 to 1, and what lowered it; a full score needs no reason."""

    value: float
    reason: str = ""


PASSED = CheckScore(1.0)


class RubricCheck(
    msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, omit_defaults=True, dict=True
):
    """A check with its options. Fields at their default are no part of its hash."""

    place: ClassVar[Place] = "here"

    @property
    def kind(self) -> str:
        """The word behind ``check:``."""
        return str(self.__struct_config__.tag)

    @property
    def runs(self) -> Place:
        """Where this one runs, with its options."""
        return self.place

    def fingerprint(self) -> str:
        """Hash what scores follow from: the options, and the text of any code; limits are no part of it."""
        return digest(canonical({k: v for k, v in written_options(self).items() if k not in _LIMITS}))

    def score(self, answer: CheckedAnswer) -> CheckScore:
        """Score one answer.

        Raises CheckFailed: no score can be told, which is not a score of 0.
        """
        raise NotImplementedError


def written_options(check: RubricCheck) -> dict[str, Any]:
    """Return a check as the file's mapping, without what is at its default."""
    options: dict[str, Any] = msgspec.to_builtins(check)
    return options


def time_limit(check: RubricCheck) -> float:
    """Return the seconds that one answer may take in a worker."""
    limit: float = getattr(check, "timeout_s", _SLOWEST_OF_OURS_S)
    return limit


class TargetedCheck(RubricCheck, frozen=True, kw_only=True, dict=True):
    """A check that holds an answer against something: the item's reference unless an option names another."""

    attribute: str = ""
    value: Scalar | None = None
    values: tuple[Scalar, ...] = ()

    def __post_init__(self) -> None:
        if (self.value is not None) + bool(self.values) + bool(self.attribute) > 1:
            raise ValueError("name one of attribute, value and values")

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """What the file says to hold answers against; empty where the item says it."""
        return tuple(map(str, self.values if self.value is None else (self.value,)))

    def targets(self, answer: CheckedAnswer) -> tuple[str, ...]:
        """Return what this answer is held against, one text or several; raises CheckFailed without one."""
        if self.constants:
            return self.constants
        if self.attribute:
            found = answer.attributes.get(self.attribute)
            if found is None:
                raise CheckFailed(f"the item has no attribute '{self.attribute}'")
            return (found,)
        if not answer.reference:
            raise CheckFailed("the item has no reference")
        return (answer.reference,)


class TextCheck(TargetedCheck, frozen=True, kw_only=True, dict=True):
    """A check of an answer's text, with what counts of it.

    ``case``, ``punctuation`` and ``whitespace`` say whether these make a difference; ``extract`` is a pattern
    whose first group, or all of it, stands for the answer; ``negate`` turns the score around.
    """

    case: bool = True
    punctuation: bool = True
    whitespace: bool = False
    extract: str = ""
    negate: bool = False

    def __post_init__(self) -> None:
        TargetedCheck.__post_init__(self)
        if self.extract:
            compiled(self.extract)

    def score(self, answer: CheckedAnswer) -> CheckScore:
        targets = self._folded or tuple(map(self._fold, self.targets(answer)))
        scored = self.compare(self._fold(self.said(answer)), targets)
        if not self.negate:
            return scored
        value = 1.0 - scored.value
        return CheckScore(value, "" if value == 1.0 else "it does, and should not")

    def compare(self, said: str, targets: tuple[str, ...]) -> CheckScore:
        """Score the normalised answer against normalised targets."""
        raise NotImplementedError

    def said(self, answer: CheckedAnswer) -> str:
        """Return what of the answer is looked at; empty where ``extract`` finds nothing."""
        if not self.extract:
            return answer.response
        found = search(self._extracted, answer.response)
        return "" if found is None else found[min(found.re.groups, 1)] or ""

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(map(self._fold, self.constants))

    @cached_property
    def _extracted(self) -> Any:
        return compiled(self.extract)

    def _fold(self, text: str) -> str:
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
        if not self.case:
            text = text.casefold()
        if not self.punctuation:
            text = "".join(" " if unicodedata.category(c)[0] == "P" else c for c in text)
        return text if self.whitespace else " ".join(text.split())


def quoted(text: str) -> str:
    """Return a text as a reason quotes it: short, in one line."""
    return f"'{in_a_line(text)}'"


def in_a_line(text: str) -> str:
    """Return a text as a reason shows it where it has quotes of its own, or needs none."""
    return shortened(" ".join(text.split()), _QUOTED)


# --- Patterns
#
# A pattern of the file meets an answer of a model: both may be hostile, and no pattern may hold the run up.

# Seconds for one search: a sound pattern reads a megabyte in a hundredth of that.
_LONGEST_SEARCH_S = 1.0


def compiled(pattern: str) -> Any:
    """Compile a pattern of the file; raises ValueError where it is none."""
    import regex

    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError) as error:
        raise ValueError(f"{quoted(pattern)} is not a regular expression: {error}") from error


def search(pattern: Any, text: str, *, full: bool = False) -> Any:
    """Return the first match of a compiled pattern, or None; raises CheckFailed where it takes too long."""
    try:
        return (pattern.fullmatch if full else pattern.search)(text, timeout=_LONGEST_SEARCH_S)
    except TimeoutError as error:
        raise CheckFailed(f"the pattern takes more than {_LONGEST_SEARCH_S:g} s on this answer") from error
