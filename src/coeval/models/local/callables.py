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
from coeval.core.regular_files import find_small_files
from coeval.models.dialects.dialect import get_seed, split_off_reasoning
from coeval.models.dialects.openai_answer import is_charge

_REGISTERED: dict[str, Callable[..., Any]] = {}
"""Functions that were given from Python, by the place that stands for them."""

_ENCODER = msgspec.json.Encoder(order="deterministic")

NAMED_ARGUMENTS = ("messages", "system", "seed", "settings", "schema")
"""What a function is given by name where its signature has it, beside the prompt."""


def register_callable(function: Callable[..., Any]) -> str:
    """Remember a function given from Python and return the location by which a configuration names it; a
    number after ``#`` tells namesakes apart."""
    kind = function if hasattr(function, "__qualname__") else type(function)
    own = f"{getattr(kind, '__module__', 'builtins')}:{kind.__qualname__}"
    location = next(p for n in count(1) if _is_location_free(p := own if n == 1 else f"{own}#{n}", function))
    _REGISTERED[location] = function
    return location


def _is_location_free(location: str, function: Callable[..., Any]) -> bool:
    """Check whether no other function is registered there; a rerun notebook cell makes the same one."""
    registered = _REGISTERED.get(location)
    if registered is None or registered is function:
        return True
    registered_code, new_code = getattr(registered, "__code__", None), getattr(function, "__code__", None)
    if getattr(registered, "__self__", None) is not getattr(function, "__self__", None):
        return False
    return registered_code is not None and registered_code == new_code and not registered_code.co_freevars


def hash_source(location: str) -> str:
    """Hash the source of a function: its file, or the function alone where it was given from Python. Empty
    where there is none: reading a run needs no code, and a start calls `require_callable_file`."""
    if (registered := _REGISTERED.get(location)) is not None:
        text = f"{_code_text(registered) or location.partition('#')[0]}{_carried_values_text(registered)}"
        return sha256(text.encode("utf-8", "replace")).hexdigest()[:12]
    try:
        path = _find_source_file(location)
        status = path.stat()
        return _hash_file(path, status.st_mtime_ns, status.st_size)
    except (UsageError, OSError):
        return ""


def hash_scripts(argv: Sequence[str]) -> str:
    """Hash the files among a program's words, itself included if its path is relative; "" if there are none.
    An installed interpreter is not hashed."""
    own = (word for n, word in enumerate(map(str, argv)) if n or not Path(word).is_absolute())
    try:
        files = [(file.resolve(), file.stat()) for file in find_small_files(own)]
        hashes = [_hash_file(path, status.st_mtime_ns, status.st_size) for path, status in files]
    except OSError:  # it may be run, and not be read
        return ""
    return sha256("".join(hashes).encode()).hexdigest()[:12] if hashes else ""


def _code_text(target: Any) -> str:
    """Return a function's source; compiled code for a lambda or without source; "" for one in C."""
    function = target if hasattr(target, "__code__") else getattr(type(target), "__call__", target)  # noqa: B004
    code = getattr(function, "__code__", None)
    if code is None:
        return ""
    if code.co_name != "<lambda>":
        try:
            return inspect.getsource(function)
        except (OSError, TypeError):
            pass
    return _compiled_text(code)


def _compiled_text(code: CodeType) -> str:
    """Write compiled code without file names, line numbers and addresses."""
    consts = [
        _compiled_text(constant) if isinstance(constant, CodeType) else _value_text(constant)
        for constant in code.co_consts
    ]
    return f"{code.co_code!r}{code.co_names!r}{code.co_varnames!r}{consts!r}"


def _carried_values_text(target: Any) -> str:
    """Write what a function carries: defaults, closure, its object's state, arguments of a ``partial``."""
    if isinstance(target, partial):
        inner = f"{_code_text(target.func)}{_carried_values_text(target.func)}"
        return inner + _value_text([target.args, target.keywords])
    cells = [_cell_text(cell) for cell in getattr(target, "__closure__", None) or ()]
    brought = (getattr(target, "__defaults__", None), getattr(target, "__kwdefaults__", None))
    held = target if not hasattr(target, "__code__") else getattr(target, "__self__", None)
    state = getattr(held, "__dict__", None)
    state_texts = (
        [f"{name}={_value_text(state[name])}" for name in sorted(state)] if isinstance(state, dict) else []
    )
    defaults = [_value_text(values) for values in brought if values]
    return f"{cells}{defaults}{state_texts}" if cells or defaults or state_texts else ""


def _cell_text(cell: CellType) -> str:
    try:
        value = cell.cell_contents
    except ValueError:  # not filled yet
        return ""
    return _code_text(value) or _value_text(value)


def _value_text(value: Any) -> str:
    """Write a value as JSON; if JSON has none, its type alone, as its repr may hold an address."""
    try:
        return _ENCODER.encode(value).decode()
    except (TypeError, ValueError, OverflowError, RuntimeError):  # RuntimeError: it holds itself
        return type(value).__qualname__


def require_callable_file(location: str) -> None:
    """Raise UsageError where there is no such file or module; nothing of a file is run."""
    if location not in _REGISTERED:
        _find_source_file(location)


@lru_cache(maxsize=256)
def _hash_file(path: Path, _changed_ns: int, _size: int) -> str:
    return sha256(path.read_bytes()).hexdigest()[:12]


def _find_source_file(location: str) -> Path:
    where, _, name = location.rpartition(":")
    if not where or not name.isidentifier():
        raise UsageError(f"callable {location}: write FILE.py:FUNCTION or MODULE:FUNCTION")
    if where.endswith(".py"):
        path = Path(where).expanduser()
        if not path.is_file():
            raise UsageError(f"callable {location}: there is no file {path} (searched in {Path.cwd()})")
        return path.resolve()
    _append_to_import_path(Path.cwd())
    module_file: Path | None = load_foreign(
        lambda: _find_module_file(where), f"callable {location}:", "correct it"
    )
    if module_file is None or not module_file.is_file():
        raise UsageError(
            f"callable {location}: there is no module {where}; a file is named as FILE.py:FUNCTION"
        )
    return module_file


def _find_module_file(module: str) -> Path | None:
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


def _append_to_import_path(folder: Path) -> None:
    if str(folder) not in sys.path:
        sys.path.append(str(folder))


def load_callable(location: str) -> Callable[..., Any]:
    """Load a function; this runs the code of its file. Raises UsageError: it is not there, cannot be loaded,
    or is no function."""
    function = _REGISTERED.get(location)
    if function is None:
        path, (where, _, name) = _find_source_file(location), location.rpartition(":")
        if where.endswith(".py"):
            function = getattr(_load_module(path, location), name, None)
        else:
            function = import_object(location, "callable")
    if not callable(function):
        raise UsageError(f"callable {location}: it has no function of that name")
    return function


class _FreshSource(SourceFileLoader):
    """Compiles a file as it is: compiled code that is kept is taken for that of a file which was changed
    within the same second and is as long."""

    def get_code(self, fullname: str) -> CodeType:  # noqa: ARG002  the loader's interface
        return self.source_to_code(self.get_data(self.path), self.path)


def _load_module(path: Path, location: str) -> Any:
    """Load the module in a file, once; files beside it can be imported from it."""
    name = f"coeval_own_{path.stem}_{sha256(str(path).encode()).hexdigest()[:8]}"
    _append_to_import_path(path.parent)
    spec = importlib.util.spec_from_file_location(name, path, loader=_FreshSource(name, str(path)))
    if spec is None or spec.loader is None:
        raise UsageError(f"callable {location}: {path} cannot be loaded")
    module = sys.modules[name] = importlib.util.module_from_spec(spec)
    loader = spec.loader
    load_foreign(lambda: loader.exec_module(module), f"callable {location}:", "correct its file")
    return module


# --- Calls: what a function takes


class Answerer(NamedTuple):
    """A function as it is called with a request; ``waits``: what it returns is to be awaited."""

    call: Callable[[Request], Any]
    waits: bool

    @classmethod
    def by_signature(cls, function: Callable[..., Any], location: str) -> Answerer:
        """Find out which parts of a request a function takes, and how it is called. Raises UsageError: it
        requires an argument that no request has."""
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
        used_names = (
            NAMED_ARGUMENTS if everything else tuple(name for name in NAMED_ARGUMENTS if name in named)
        )
        if "prompt" in named:
            used_names = (*used_names, "prompt")
        unknown = [p.name for p in others if p.name in named - {*used_names} and p.default is p.empty]
        if unknown:
            raise UsageError(
                f"callable {location} takes {', '.join(unknown)}, which no request has; it is given the "
                f"prompt, and by name {', '.join(NAMED_ARGUMENTS)}"
            )
        if has_prompt and not used_names:
            return cls(lambda request: function(_last_message_text(request, with_earlier=True)), waits)

        def call(request: Request) -> Any:
            parts = request_parts(request, with_earlier=not {"system", "messages"}.intersection(used_names))
            arguments = {name: parts[name] for name in used_names}
            return function(parts["prompt"], **arguments) if has_prompt else function(**arguments)

        return cls(call, waits)


class Raised:
    """What a call raised, in the place of its answer."""

    def __init__(self, error: BaseException) -> None:
        self.error = error


def call_catching_all(call: Callable[[Request], Any], request: Request) -> Any:
    """Call a function in a thread; return its value, or what it raised as a `Raised`, an exit too."""
    try:
        return call(request)
    except BaseException as error:  # noqa: BLE001  the user's code: its item must say so
        return Raised(error)


def _last_message_text(request: Request, *, with_earlier: bool) -> str:
    """Return the last message; ``alone``: after all others, if the function sees them nowhere else."""
    messages = request.messages
    if len(messages) == 1 or not with_earlier:
        return messages[-1].content
    return "\n\n".join(message.content for message in messages)


def request_parts(request: Request, *, with_earlier: bool = False) -> dict[str, Any]:
    """Return the parts of a request by the names under which functions and programs get them."""
    schema = request.schema
    return {
        "prompt": _last_message_text(request, with_earlier=with_earlier),
        "messages": [{"role": message.role, "content": message.content} for message in request.messages],
        "system": next((message.content for message in request.messages if message.role == "system"), None),
        "seed": get_seed(request),
        "settings": request.sampling.to_dict(),
        "schema": schema.body if schema is not None else None,
    }


# --- Answers


def parse_own_answer(value: object, source_name: str, *, structured: bool = False) -> Completion:
    """Parse what a function returned: a text, or an object with ``text``, and perhaps ``usage``
    (``input_tokens``, ``output_tokens``) and ``cost_usd``. ``structured``: a schema was sent, so a mapping
    without ``text`` is the answer itself, written as JSON. Raises Unreadable: it is neither, or counts what
    cannot be counted."""
    if type(value) is str:
        return _make_completion(value, Usage())
    text = _get_field(value, "text")
    if structured and isinstance(value, dict) and "text" not in value:
        written = _value_text(value)
        text = written if written.startswith("{") else None  # None: it holds what no JSON has
    if not isinstance(text, str):
        kind = type(value).__name__
        what = f"{kind} without a text" if isinstance(value, Mapping) or hasattr(value, "text") else kind
        raise Unreadable(
            f"{source_name} returned {what}; an answer is text, or an object with `text`", retry_advised=False
        )
    usage = _get_field(value, "usage")
    cost = _get_field(value, "cost_usd")
    counts = {name: _get_field(usage, name) for name in ("input_tokens", "output_tokens")}
    for name, number in counts.items():
        if number is not None and (type(number) is not int or number < 0):
            raise Unreadable(f"{source_name} gave {name}={number!r}; use a whole number", retry_advised=False)
    cost = _get_field(usage, "cost_usd") if cost is None else cost
    if cost is not None and not _is_cost(cost):
        raise Unreadable(
            f"{source_name} gave cost_usd={cost!r}; use US dollars, 0 or more", retry_advised=False
        )
    counted = {name: number for name, number in counts.items() if number is not None}
    return _make_completion(text, Usage(**counted, cost_usd=None if cost is None else float(cost)))


def _get_field(value: object, name: str) -> Any:
    return value.get(name) if isinstance(value, Mapping) else getattr(value, name, None)


def _is_cost(cost: object) -> bool:
    return isinstance(cost, int | float) and not isinstance(cost, bool) and is_charge(cost)


def _make_completion(text: str, usage: Usage) -> Completion:
    if not text.isascii():
        text = text.encode("utf-8", "replace").decode()  # halves of characters cannot be kept
    return split_off_reasoning(Completion(text, usage))
