"""Checks that run the user's code: a Python function in a worker, a program in a sandbox.

``check_worker`` is the process of the first, ``check_runner`` starts both.
"""

from __future__ import annotations

import ast
import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping
from functools import cached_property
from pathlib import Path
from typing import Annotated, Any, ClassVar

import msgspec
from msgspec import Meta

from coeval.core.errors import CheckFailed, Undecodable
from coeval.core.foreign import decode
from coeval.core.plain import file_bytes, scripts_among, shortened
from coeval.core.text import digest
from coeval.judging.checks.rubric_check import (
    LONGEST_REASON,
    CheckedAnswer,
    CheckScore,
    Mebibytes,
    Place,
    PositiveSeconds,
    RubricCheck,
    in_a_line,
    quoted,
)

PARAMETERS = ("prompt", "response", "reference", "attributes")
"""What a user's function may ask for, by the names of its parameters."""

LARGEST_FILE = 16 << 20
"""Bytes of any file that code writes, its output among them."""


_NAMED = (ast.FunctionDef, ast.AsyncFunctionDef, ast.ClassDef)


class Reply(msgspec.Struct, frozen=True, omit_defaults=True):
    """A worker's line about one answer: its number, and the score or why there is none."""

    number: int
    value: float | None = None
    reason: str = ""


class CodeCheck(RubricCheck, frozen=True, kw_only=True, dict=True):
    """A check that runs code of the user's, within limits.

    10 s: a function that takes longer has hung. 4 GiB is address space, of which numeric libraries reserve
    much more than they use. ``env`` names credentials of the environment that the code may see.
    """

    timeout_s: PositiveSeconds = 10.0
    memory_mb: Mebibytes = 4096
    env: tuple[str, ...] = ()

    def sources(self) -> list[Path]:
        """Return the files whose text is part of the check, relative to the working directory."""
        raise NotImplementedError

    def fingerprint(self) -> str:
        return digest(RubricCheck.fingerprint(self), *map(_content, self.sources()))


def _content(path: Path) -> str:
    try:
        return file_bytes(path).hex()
    except OSError:
        return ""  # a start refuses it by `PythonCheck.problem`; whoever only reads a run has no use for it


class PythonCheck(CodeCheck, frozen=True, kw_only=True, tag_field="check", tag="python", dict=True):
    """A Python function of the answer: ``function: graders.py:score``."""

    place: ClassVar[Place] = "worker"

    function: str

    def __post_init__(self) -> None:
        file, colon, name = self.function.rpartition(":")
        if not (colon and file.endswith(".py") and name.isidentifier()):
            raise ValueError(f"function: {quoted(self.function)} is not FILE.py:NAME")

    @cached_property
    def _named(self) -> tuple[Path, str]:
        file, _, name = self.function.rpartition(":")
        return Path(file), name

    def sources(self) -> list[Path]:
        return [self._named[0]]

    def problem(self) -> str | None:
        """Return why the function cannot be called, read off its source; its code is not run."""
        file, name = self._named
        if sys.platform == "win32":
            return "functions need processes that can be limited; use Linux, macOS, or WSL"
        try:
            tree = ast.parse(file_bytes(file), str(file))
        except OSError as error:
            return f"cannot read {file}: {error.strerror or error}"
        except (SyntaxError, ValueError) as error:
            return f"{file} is not valid Python: {error}"
        named = {node.name: node for node in tree.body if isinstance(node, _NAMED)}
        if isinstance(named.get(name), ast.AsyncFunctionDef):
            return f"{name} of {file} is async; a check is a plain function"
        bound = {part.id for node in tree.body for part in ast.walk(node) if isinstance(part, ast.Name)}
        imported = any(isinstance(node, ast.ImportFrom) for node in tree.body)
        return None if name in named or name in bound or imported else f"{file} defines no {name}"

    @cached_property
    def _call(self) -> tuple[Callable[..., Any], tuple[str, ...]]:
        """The function, and the names of what it is given; runs the file that defines it."""
        file, name = self._named
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
        given = {name: getattr(answer, name) for name in names}
        return score_of(function(**given))


def score_of(result: object) -> CheckScore:
    """Read what a user's code returned: a bool, a number from 0 to 1, or ``{score, reason}``.

    Raises CheckFailed: it is none of these. NaN is no number from 0 to 1.
    """
    reason: object = ""
    if isinstance(result, Mapping):
        if "score" not in result:
            raise CheckFailed(f"returned {in_a_line(repr(result))}, which has no score")
        reason = result.get("reason") or ""
        result = result["score"]
    if type(result).__module__ == "numpy" and hasattr(result, "item"):
        result = result.item()
    if isinstance(result, bool | int | float) and 0 <= result <= 1:
        return CheckScore(float(result), shortened(str(reason), LONGEST_REASON))
    raise CheckFailed(f"returned {in_a_line(repr(result))}, which is neither a bool nor a number from 0 to 1")


class CommandCheck(CodeCheck, frozen=True, kw_only=True, tag_field="check", tag="command", dict=True):
    """A program that reads the answer as JSON on standard input, and prints a score or exits with 0 or 1."""

    place: ClassVar[Place] = "program"

    argv: Annotated[tuple[str, ...], Meta(min_length=1)]

    def sources(self) -> list[Path]:
        """Return the files among the arguments, below the working directory."""
        return scripts_among(word for word in self.argv if not Path(word).is_absolute())

    def read(self, code: int, output: bytes) -> CheckScore:
        """Read how the program ended: its last line where that is a score, else 0 for pass, 1 for fail.

        Raises CheckFailed: it ended otherwise, which says nothing of the answer.
        """
        lines = output.decode(errors="replace").strip().splitlines()
        last = lines[-1].strip() if lines else ""
        if code == 0 and (last[:1] == "{" or last in ("true", "false") or _is_number(last)):
            try:
                return score_of(decode(last))
            except Undecodable as error:
                raise CheckFailed(f"printed {quoted(last)}: {error}") from error
        if code in (0, 1):
            return CheckScore(1.0 - code, "" if code == 0 else quoted(last) if last else "exited with 1")
        raise CheckFailed(f"ended with {code}" + (f": {quoted(last)}" if last else ""))


def _is_number(text: str) -> bool:
    try:
        float(text)
    except ValueError:
        return False
    return True
