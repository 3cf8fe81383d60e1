"""The base of all checks: options, the answer that is checked, the score; and the two that run the user's
code.

A check is a factor of a rubric that no judge scores. Its options are plain keys of the experiment file,
which the class of each kind declares with their types; its tag is the word behind ``check:``.
``docs/checks.md`` tells users what each kind does.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
import unicodedata
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, NamedTuple, TypeAlias

import msgspec
from msgspec import Meta

from coeval.core.errors import CheckFailed, Undecodable
from coeval.core.foreign import decode
from coeval.core.plain import cut_middle
from coeval.core.records import Datapoint, Kept
from coeval.core.regular_files import find_small_files, read_file_bytes
from coeval.core.text import canonical_json, digest

Scalar: TypeAlias = str | int | float
"""A constant of the file: ``value: 42`` is as good as ``value: "42"``."""

CheckOptions: TypeAlias = Mapping[str, Any]
"""A check as the mapping of the experiment file: its keys with their values."""

CheckPlace: TypeAlias = Literal["here", "worker", "program"]
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
    """What a check may look at: the item, its answer, and the answer's time and cost."""

    prompt: str
    response: str
    reference: str | None = None
    attributes: Mapping[str, str] = {}
    latency_s: float | None = None
    cost_usd: float | None = None


def build_checked_answer(item: Datapoint, response: str | None, answer: Kept) -> CheckedAnswer:
    """Build what checks may look at from an item, and the response and the record of its answer."""
    return CheckedAnswer(
        prompt=item.prompt or "",
        response=response or "",
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

    place: ClassVar[CheckPlace] = "here"

    @property
    def kind(self) -> str:
        """Return the word behind ``check:``."""
        return str(self.__struct_config__.tag)

    @property
    def runs(self) -> CheckPlace:
        """Return where the check runs, given its options."""
        return self.place

    def definition_hash(self) -> str:
        """Hash what scores depend on: the options, and the text of any code, but not the limits."""
        return digest(canonical_json({k: v for k, v in check_as_options(self).items() if k not in _LIMITS}))

    def score(self, answer: CheckedAnswer) -> CheckScore:
        """Score one answer. Raises CheckFailed if there can be no score, which is not a score of 0."""
        raise NotImplementedError


def check_as_options(check: RubricCheck) -> CheckOptions:
    """Return a check as the mapping of the experiment file, without options at their default."""
    options: CheckOptions = msgspec.to_builtins(check)
    return options


def time_limit_s(check: RubricCheck) -> float:
    """Return the seconds that one answer may take in a worker."""
    limit: float = getattr(check, "timeout_s", _SLOWEST_OF_OURS_S)
    return limit


class TargetedCheck(RubricCheck, frozen=True, kw_only=True, dict=True):
    """A check that compares an answer with a target: the item's reference unless an option names another."""

    attribute: str = ""
    value: Scalar | None = None
    values: tuple[Scalar, ...] = ()

    def __post_init__(self) -> None:
        if (self.value is not None) + bool(self.values) + bool(self.attribute) > 1:
            raise ValueError("name one of attribute, value and values")

    @cached_property
    def constants(self) -> tuple[str, ...]:
        """Return the targets that the file gives; empty if the item gives them."""
        return tuple(map(str, self.values if self.value is None else (self.value,)))

    def targets(self, answer: CheckedAnswer) -> tuple[str, ...]:
        """Return the texts to compare this answer with; raises CheckFailed if there are none."""
        if self.constants:
            return self.constants
        if self.attribute:
            value = answer.attributes.get(self.attribute)
            if value is None:
                raise CheckFailed(f"the item has no attribute '{self.attribute}'")
            return (value,)
        if not answer.reference:
            raise CheckFailed("the item has no reference")
        return (answer.reference,)


class TextCheck(TargetedCheck, frozen=True, kw_only=True, dict=True):
    """A check of an answer's text. ``case``, ``punctuation`` and ``whitespace`` say whether these make a
    difference; ``extract`` is a pattern whose first group, or all of it, is checked; ``negate`` reverses."""

    case: bool = True
    punctuation: bool = True
    whitespace: bool = False
    extract: str = ""
    negate: bool = False

    def __post_init__(self) -> None:
        TargetedCheck.__post_init__(self)
        if self.extract:
            compile_pattern(self.extract)

    def score(self, answer: CheckedAnswer) -> CheckScore:
        targets = self._folded or tuple(map(self._fold, self.targets(answer)))
        scored = self.compare(self._fold(self.extract_text(answer)), targets)
        if not self.negate:
            return scored
        value = 1.0 - scored.value
        return CheckScore(value, "" if value == 1.0 else "it does, and should not")

    def compare(self, answer_text: str, targets: tuple[str, ...]) -> CheckScore:
        """Score the normalised answer against normalised targets."""
        raise NotImplementedError

    def extract_text(self, answer: CheckedAnswer) -> str:
        """Return the part of the answer that is checked; empty if ``extract`` matches nothing."""
        if not self.extract:
            return answer.response
        match = search_within_limit(self._extracted, answer.response)
        return "" if match is None else match[min(match.re.groups, 1)] or ""

    @cached_property
    def _folded(self) -> tuple[str, ...]:
        return tuple(map(self._fold, self.constants))

    @cached_property
    def _extracted(self) -> Any:
        return compile_pattern(self.extract)

    def _fold(self, text: str) -> str:
        if not text.isascii():
            text = unicodedata.normalize("NFC", text)
        if not self.case:
            text = text.casefold()
        if not self.punctuation:
            text = "".join(" " if unicodedata.category(c)[0] == "P" else c for c in text)
        return text if self.whitespace else " ".join(text.split())


def quote_line(text: str) -> str:
    """Quote a text in a reason: short, in one line."""
    return f"'{shorten_line(text)}'"


def shorten_line(text: str) -> str:
    return cut_middle(" ".join(text.split()), _QUOTED)


# --- Patterns
#
# A pattern of the file meets an answer of a model: both may be hostile, and no pattern may hold the run up.

# Seconds for one search: a sound pattern reads a megabyte in a hundredth of that.
_LONGEST_SEARCH_S = 1.0


def compile_pattern(pattern: str) -> Any:
    """Compile a pattern of the file; raises ValueError if it is none."""
    import regex

    try:
        return regex.compile(pattern)
    except (regex.error, OverflowError) as error:
        raise ValueError(f"{quote_line(pattern)} is not a regular expression: {error}") from error


def search_within_limit(pattern: Any, text: str, *, full: bool = False) -> Any:
    """Return the first match of a compiled pattern, or None; raises CheckFailed if it takes too long."""
    try:
        return (pattern.fullmatch if full else pattern.search)(text, timeout=_LONGEST_SEARCH_S)
    except TimeoutError as error:
        raise CheckFailed(f"the pattern takes more than {_LONGEST_SEARCH_S:g} s on this answer") from error


# --- Checks that run the user's code: a Python function in a worker, a program in a sandbox

PARAMETERS = ("prompt", "response", "reference", "attributes")
"""What a user's function may ask for, by the names of its parameters."""

LARGEST_FILE = 16 << 20
"""Bytes of any file that code writes, its output among them."""


_DEFINITIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class WorkerReply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's line about one answer: its number, and the score or why there is none."""

    number: int
    value: float | None = None
    reason: str = ""


class CodeCheck(RubricCheck, frozen=True, kw_only=True, dict=True):
    """A check that runs the user's code, within limits. 10 s: a function that takes longer has hung. 4 GiB is
    address space, of which numeric libraries reserve much more than they use. ``env`` names credentials of
    the environment that the code may see."""

    timeout_s: PositiveSeconds = 10.0
    memory_mb: Mebibytes = 4096
    env: tuple[str, ...] = ()

    def sources(self) -> list[Path]:
        """Return the files whose text is part of the check, relative to the working directory."""
        raise NotImplementedError

    def definition_hash(self) -> str:
        return digest(RubricCheck.definition_hash(self), *map(_read_source_hex_or_empty, self.sources()))


def _read_source_hex_or_empty(path: Path) -> str:
    try:
        return read_file_bytes(path).hex()
    except OSError:
        return ""  # a start refuses it by `PythonCheck.problem`; whoever only reads a run has no use for it


class PythonCheck(CodeCheck, frozen=True, kw_only=True, tag_field="check", tag="python", dict=True):
    """A Python function of the answer: ``function: graders.py:score``."""

    place: ClassVar[CheckPlace] = "worker"

    function: str

    def __post_init__(self) -> None:
        file, colon, name = self.function.rpartition(":")
        if not (colon and file.endswith(".py") and name.isidentifier()):
            raise ValueError(f"function: {quote_line(self.function)} is not FILE.py:NAME")

    @cached_property
    def _file_and_name(self) -> tuple[Path, str]:
        file, _, name = self.function.rpartition(":")
        return Path(file), name

    def sources(self) -> list[Path]:
        return [self._file_and_name[0]]

    def find_problem_in_source(self) -> str | None:
        """Return why the function cannot be called, judged by its source without running it, or None."""
        file, name = self._file_and_name
        if sys.platform == "win32":
            return "functions need processes that can be limited; use Linux, macOS, or WSL"
        try:
            tree = ast.parse(read_file_bytes(file), str(file))
        except OSError as error:
            return f"cannot read {file}: {error.strerror or error}"
        except (SyntaxError, ValueError) as error:
            return f"{file} is not valid Python: {error}"
        definitions = {node.name: node for node in tree.body if isinstance(node, _DEFINITIONS)}
        if isinstance(definitions.get(name), ast.AsyncFunctionDef):
            return f"{name} of {file} is async; a check is a plain function"
        bound = {part.id for node in tree.body for part in ast.walk(node) if isinstance(part, ast.Name)}
        imported = any(isinstance(node, ast.ImportFrom) for node in tree.body)
        return None if name in definitions or name in bound or imported else f"{file} defines no {name}"

    @cached_property
    def _call(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        """Return the function and the names of its arguments; runs the file that defines it."""
        file, name = self._file_and_name
        sys.path[:0] = [str(file.parent.resolve())]
        spec = importlib.util.spec_from_file_location(f"_check_{file.stem}", file)
        if spec is None or spec.loader is None:
            raise CheckFailed(f"cannot read {file}")
        module = importlib.util.module_from_spec(spec)
        sys.modules[spec.name] = module  # what dataclasses and pickles look their module up by
        spec.loader.exec_module(module)
        function = getattr(module, name, None)
        if not callable(function):
            raise CheckFailed(f"{file} defines no function {name}")
        parameters = inspect.signature(function).parameters.values()
        if any(parameter.kind is parameter.VAR_KEYWORD for parameter in parameters):
            return function, PARAMETERS
        for p in parameters:
            if p.default is p.empty and p.kind is not p.VAR_POSITIONAL and p.name not in PARAMETERS:
                raise CheckFailed(f"{name} takes '{p.name}', which is not one of {', '.join(PARAMETERS)}")
        return function, tuple(p.name for p in parameters if p.name in PARAMETERS)

    def load(self) -> None:
        """Run the file that defines the function; whatever it raises passes through."""
        _ = self._call

    def score(self, answer: CheckedAnswer) -> CheckScore:
        function, names = self._call
        arguments = {name: getattr(answer, name) for name in names}
        return read_returned_score(function(**arguments))


def read_returned_score(result: object) -> CheckScore:
    """Read what the user's code returned: a bool, a number from 0 to 1, or ``{score, reason}``. Raises
    CheckFailed if it is none of these. NaN is not a number from 0 to 1."""
    reason: object = ""
    if isinstance(result, Mapping):
        if "score" not in result:
            raise CheckFailed(f"returned {shorten_line(repr(result))}, which has no score")
        reason = result.get("reason") or ""
        result = result["score"]
    if type(result).__module__ == "numpy" and hasattr(result, "item"):
        result = result.item()
    if isinstance(result, bool | int | float) and 0 <= result <= 1:
        return CheckScore(float(result), cut_middle(str(reason), LONGEST_REASON))
    raise CheckFailed(
        f"returned {shorten_line(repr(result))}, which is neither a bool nor a number from 0 to 1"
    )


class CommandCheck(CodeCheck, frozen=True, kw_only=True, tag_field="check", tag="command", dict=True):
    """A program that reads the answer as JSON on standard input, and prints a score or exits with 0 or 1."""

    place: ClassVar[CheckPlace] = "program"

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]

    def sources(self) -> list[Path]:
        """Return the files among the arguments, below the working directory."""
        return find_small_files(word for word in self.argv if not Path(word).is_absolute())

    def read_score_from_output(self, code: int, output: bytes) -> CheckScore:
        """Read how the program ended: its last line if that is a score, else 0 for pass, 1 for fail. Raises
        CheckFailed if it ended otherwise, which says nothing about the answer."""
        lines = output.decode(errors="replace").strip().splitlines()
        last = lines[-1].strip() if lines else ""
        if code == 0 and (last[:1] == "{" or last in ("true", "false") or _is_number(last)):
            try:
                return read_returned_score(decode(last))
            except Undecodable as error:
                raise CheckFailed(f"printed {quote_line(last)}: {error}") from error
        if code in (0, 1):
            return CheckScore(1.0 - code, "" if code == 0 else quote_line(last) if last else "exited with 1")
        raise CheckFailed(f"ended with {code}" + (f": {quote_line(last)}" if last else ""))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
