"""Functions of the user's: found by file or module and name, known by the hash of their source, called with
what they take of a request, and read for what they answer."""

from __future__ import annotations

import importlib.util
import inspect
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, partial
from hashlib import sha256
from importlib.machinery import SourceFileLoader
from itertools import count
from pathlib import Path
from types import CellType, CodeType
from typing import Any, NamedTuple

import msgspec

from coeval.core.entry_points import import_object, load_foreign
from coeval.core.errors import Unreadable, UsageError
from coeval.core.records import Completion, Request, Usage
from coeval.core.regular_files import find_scripts
from coeval.models.dialects.dialect import get_seed, split_off_reasoning
from coeval.models.dialects.openai_answer import is_charge

_GIVEN: dict[str, Callable[..., Any]] = {}
"""Functions that were given from Python, by the place that stands for them."""

_ENCODER = msgspec.json.Encoder(order="deterministic")

NAMED_ARGUMENTS = ("messages", "system", "seed", "settings", "schema")
"""What a function is given by name where its signature has it, beside the prompt."""


def register_callable(function: Callable[..., Any]) -> str:
    """Remember a function that was given from Python; the place that a configuration names it by. Others of
    the same name are told apart by a number after ``#``."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    own = f"{getattr(kind, '__module__', 'builtins')}:{kind.__qualname__}"
    place = next(p for n in count(1) if _is_free(p := own if n == 1 else f"{own}#{n}", function))
    _GIVEN[place] = function
    return place


def _is_free(place: str, function: Callable[..., Any]) -> bool:
    """Whether nothing else is remembered there: a cell that is run again makes the same function anew."""
    known = _GIVEN.get(place)
    if known is None or known is function:
        return True
    one, other = getattr(known, "__code__", None), getattr(function, "__code__", None)
    if getattr(known, "__self__", None) is not getattr(function, "__self__", None):
        return False
    return one is not None and one == other and not one.co_freevars


def hash_source(place: str) -> str:
    """Hash the source of a function: its file, or the function alone where it was given from Python.

    Empty where there is none: reading a run needs no code, and a start calls `require_callable_file`.
    """
    if (given := _GIVEN.get(place)) is not None:
        text = f"{_code_text(given) or place.partition('#')[0]}{_values_text(given)}"
        return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    try:
        path = _source(place)
        found = path.stat()
        return _hash_of(path, found.st_mtime_ns, found.st_size)
    except (UsageError, OSError):
        return ""


def hash_scripts(argv: Sequence[str]) -> str:
    """Hash the files that a program is started with, itself where it is named by a relative path; empty where
    there are none. An interpreter that is installed is none of them."""
    own = (word for n, word in enumerate(map(str, argv)) if n or not Path(word).is_absolute())
    try:
        found = [(file.resolve(), file.stat()) for file in find_scripts(own)]
        hashes = [_hash_of(path, of.st_mtime_ns, of.st_size) for path, of in found]
    except OSError:  # it may be run, and not be read
        return ""
    return sha256("".join(hashes).encode()).hexdigest()[:12] if hashes else ""


def _code_text(given: Any) -> str:
    """The code of a function, by its source; of a lambda, whose line may hold others, and of what was typed
    at a prompt, by what it was compiled to; empty where it is no function of Python's."""
    function = given if hasattr(given, "__code__") else getattr(type(given), "__call__", given)  # noqa: B004
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    if code.co_name != "<lambda>":
        try:
            return inspect.getsource(function)
        except (OSError, TypeError):
            pass
    return _compiled(code)


def _compiled(code: CodeType) -> str:
    """Without names of files, numbers of lines and addresses."""
    consts = [_compiled(each) if isinstance(each, CodeType) else _value_text(each) for each in code.co_consts]
    return f"{code.co_code!r}{code.co_names!r}{code.co_varnames!r}{consts!r}"


def _values_text(given: Any) -> str:
    """What a function brings with it: defaults, the values that a closure holds, the state of its object, or
    the arguments of a ``partial``; empty where there is none of these."""
    if isinstance(given, partial):
        inner = f"{_code_text(given.func)}{_values_text(given.func)}"
        return inner + _value_text([given.args, given.keywords])
    cells = [_cell_text(cell) for cell in getattr(given, "__closure__", None) or ()]
    brought = (getattr(given, "__defaults__", None), getattr(given, "__kwdefaults__", None))
    held = given if not hasattr(given, "__code__") else getattr(given, "__self__", None)
    state = getattr(held, "__dict__", None)
    said = [f"{name}={_value_text(state[name])}" for name in sorted(state)] if isinstance(state, dict) else []
    defaults = [_value_text(each) for each in brought if each]
    return f"{cells}{defaults}{said}" if cells or defaults or said else ""


def _cell_text(cell: CellType) -> str:
    try:
        value = cell.cell_contents
    except ValueError:  # not filled yet
        return ""
    return _code_text(value) or _value_text(value)


def _value_text(value: Any) -> str:
    """A value as JSON; of what no JSON has, its kind alone: its text may hold an address."""
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: it holds itself
        return type(value).__qualname__


def require_callable_file(place: str) -> None:
    """Raise UsageError where there is no such file or module; nothing of a file is run."""
    if place not in _GIVEN:
        _source(place)


@lru_cache(maxsize=256)
def _hash_of(path: Path, _changed_ns: int, _size: int) -> str:
    return sha256(path.read_bytes()).hexdigest()[:12]


def _source(place: str) -> Path:
    """The file that a place names by its path, or by its module."""
    where, _, name = place.rpartition(":")
    if not where or not name.isidentifier():
        raise UsageError(f"callable {place}: write FILE.py:FUNCTION or MODULE:FUNCTION")
    if where.endswith(".py"):
        path = Path(where).expanduser()
        if not path.is_file():
            raise UsageError(f"callable {place}: there is no file {path} (looked for in {Path.cwd()})")
        return path.resolve()
    _find_here(Path.cwd())
    found: Path | None = load_foreign(lambda: _file_of(where), f"callable {place}:", "correct it")
    if found is None or not found.is_file():
        raise UsageError(f"callable {place}: there is no module {where}; a file is named as FILE.py:FUNCTION")
    return found


def _file_of(module: str) -> Path | None:
    """Find the file of a module below its topmost package. ``importlib.util.find_spec`` imports the packages
    above it, and who reads a run, or counts what one will ask, runs no code."""
    top, *below = module.split(".")
    spec = importlib.util.find_spec(top)
    if spec is None:
        return None
    if not below:
        return Path(spec.origin) if spec.origin is not None else None
    bases = [Path(folder, *below) for folder in spec.submodule_search_locations or ()]
    files = [file for base in bases for file in (base.with_name(f"{base.name}.py"), base / "__init__.py")]
    return next((file for file in files if file.is_file()), None)


def _find_here(folder: Path) -> None:
    """Let modules of a folder be found, after all others."""
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def load_callable(place: str) -> Callable[..., Any]:
    """Load a function; this runs the code of its file.

    Raises UsageError: it is not there, cannot be loaded, or is no function.
    """
    function = _GIVEN.get(place)
    if function is None:
        path, (where, _, name) = _source(place), place.rpartition(":")
        if where.endswith(".py"):
            function = getattr(_module_of(path, place), name, None)
        else:
            function = import_object(place, "callable")
    if not callable(function):
        raise UsageError(f"callable {place}: it holds no function of that name")
    return function


class _FreshSource(SourceFileLoader):
    """Compiles a file as it is: compiled code that is kept is taken for that of a file which was changed
    within the same second and is as long."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  the loader's interface
        return self.source_to_code(self.get_data(self.path), self.path)


def _module_of(path: Path, place: str) -> Any:
    """The module in a file, loaded once; the files beside it can be imported from it."""
    name = f"coeval_own_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    _find_here(path.parent)
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshSource(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"callable {place}: {path} cannot be loaded")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader = spec.loader
    load_foreign(lambda: loader.exec_module(module), f"callable {place}:", "correct its file")
    return module


# --- Calls: what a function takes


class Answerer(NamedTuple):
    """A function as it is called with a request; ``waits``: what it returns is to be awaited."""

    call: Callable[[Request], Any]
    waits: bool

    @classmethod
    def of(cls, function: Callable[..., Any], place: str) -> Answerer:
        """Raises UsageError: the function asks for what no request has."""
        waits = inspect.iscoroutinefunction(function) or inspect.iscoroutinefunction(
            getattr(function, "__call__", None)  # noqa: B004  of an object that is called
        )
        try:
            parameters = list(inspect.signature(function).parameters.values())
        except (TypeError, ValueError):  # written in C
            parameters = []
        by_position = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
        has_prompt = not parameters or (
            parameters[0].kind in (*by_position, inspect.Parameter.VAR_POSITIONAL)
            and parameters[0].name not in NAMED_ARGUMENTS
        )
        others = parameters[1:] if has_prompt else parameters
        named = {p.name for p in others if p.kind in (*by_position[1:], inspect.Parameter.KEYWORD_ONLY)}
        everything = any(p.kind is inspect.Parameter.VAR_KEYWORD for p in others)
        taken = NAMED_ARGUMENTS if everything else tuple(name for name in NAMED_ARGUMENTS if name in named)
        if "prompt" in named:
            taken = (*taken, "prompt")
        unknown = [p.name for p in others if p.name in named - {*taken} and p.default is p.empty]
        if unknown:
            raise UsageError(
                f"callable {place} takes {', '.join(unknown)}, which no request has; it is given the prompt, "
                f"and by name {', '.join(NAMED_ARGUMENTS)}"
            )
        if has_prompt and not taken:
            return cls(lambda request: function(_prompt(request, alone=True)), waits)

        def call(request: Request) -> Any:
            parts = request_parts(request, alone=not {"system", "messages"}.intersection(taken))
            given = {name: parts[name] for name in taken}
            return function(parts["prompt"], **given) if has_prompt else function(**given)

        return cls(call, waits)


class Raised:
    """What a call raised, in the place of its answer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def call_safely(call: Callable[[Request], Any], request: Request) -> Any:
    """Call a function in a thread; what it returned, or raised, be it an exit."""
    try:
        return call(request)
    except BaseException as error:  # noqa: BLE001  the user's code: its item must say so
        return Raised(error)


def _prompt(request: Request, *, alone: bool) -> str:
    """The last message; ``alone``: with what stands before it, which is seen nowhere else."""
    messages = request.messages
    if len(messages) == 1 or not alone:
        return messages[-1].content
    return "\n\n".join(message.content for message in messages)


def request_parts(request: Request, *, alone: bool = False) -> dict[str, Any]:
    """What functions and programs are told of a request, by name."""
    schema = request.schema
    return {
        "prompt": _prompt(request, alone=alone),
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "system": next((message.content for message in request.messages if message.role == "system"), None),
        "seed": get_seed(request),
        "settings": request.sampling.to_dict(),
        "schema": schema.body if schema is not None else None,
    }


# --- Answers


def parse_own_answer(value: object, said_by: str, *, structured: bool = False) -> Completion:
    """The answer in what a function returned: a text, or an object with ``text``, and perhaps ``usage``
    (``input_tokens``, ``output_tokens``) and ``cost_usd``. ``structured``: a schema was asked for, and a
    mapping without ``text`` is the answer itself, to be written as JSON.

    Raises Unreadable: it is neither, or counts what cannot be counted.
    """
    if type(value) is str:
        return _completion(value, Usage())
    text = _part(value, "text")
    if structured and isinstance(value, dict) and "text" not in value:
        written = _value_text(value)
        text = written if written.startswith("{") else None  # None: it holds what no JSON has
    if not isinstance(text, str):
        kind = type(value).__name__
        what = f"{kind} without a text" if isinstance(value, Mapping) or hasattr(value, "text") else kind
        raise Unreadable(
            f"{said_by} gave {what}; an answer is a text, or an object with `text`", retry_advised=False
        )
    usage = _part(value, "usage")
    cost = _part(value, "cost_usd")
    counts = {name: _part(usage, name) for name in ("input_tokens", "output_tokens")}
    for name, given in counts.items():
        if given is not None and (type(given) is not int or given < 0):
            raise Unreadable(f"{said_by} gave {name}: {given!r}; use a whole number", retry_advised=False)
    cost = _part(usage, "cost_usd") if cost is None else cost
    if cost is not None and not _is_cost(cost):
        raise Unreadable(f"{said_by} gave cost_usd: {cost!r}; use US dollars, 0 or more", retry_advised=False)
    counted = {name: given for name, given in counts.items() if given is not None}
    return _completion(text, Usage(**counted, cost_usd=None if cost is None else float(cost)))


def _part(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _is_cost(cost: object) -> bool:
    return isinstance(cost, int | float) and not isinstance(cost, bool) and is_charge(cost)


def _completion(text: str, usage: Usage) -> Completion:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # halves of characters cannot be kept
    return split_off_reasoning(Completion(text, usage))
