"""Other packages: plugins, named in their entry points and loaded on demand, and what installs an extra."""

from __future__ import annotations

import errno
import signal
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from importlib.metadata import EntryPoint, PackageNotFoundError, entry_points, requires
from shlex import quote
from types import FrameType
from typing import Any, TypeVar

from coeval.core.errors import CoevalError, UsageError, describe_error

T = TypeVar("T")

_MACHINE_ERRORS = (errno.EMFILE, errno.ENFILE, errno.ENOMEM)


class Registry(Mapping[str, T]):
    """Registry of named objects: our ``own``, then those of installed packages in the entry point ``group``.

    Other packages are looked for when a name is asked for that is none of ours, or all names are. The name
    is that of the entry point; ``accepts`` tells whether an object is ``needed``, of which messages speak.

    Raises UsageError: (by whatever looks for other packages) one of them cannot be loaded, is no such thing,
    or has a name that is taken; the message names its package.
    """

    def __init__(
        self, group: str, own: Mapping[str, T], *, needed: str, accepts: Callable[[str, Any], bool]
    ) -> None:
        self.own = dict(own)
        self._group = group
        self._needed = needed
        self._accepts = accepts
        self._plugins: dict[str, T] | None = None

    def __getitem__(self, name: str) -> T:
        return self.own[name] if name in self.own else self._load_plugins()[name]

    def __iter__(self) -> Iterator[str]:
        return iter({**self.own, **self._load_plugins()})

    def __len__(self) -> int:
        return len({**self.own, **self._load_plugins()})

    def _load_plugins(self) -> Mapping[str, T]:
        if self._plugins is None:
            points = sorted(entry_points(group=self._group), key=lambda point: (point.name, point.value))
            plugins: dict[str, T] = {}
            for point in points:
                if point.name in self.own or point.name in plugins:
                    raise UsageError(
                        f"{self._describe_plugin(point)}: the name {point.name} is taken; rename it there"
                    )
                plugins[point.name] = self._load_plugin(point)
            self._plugins = plugins
        return self._plugins

    def _load_plugin(self, point: EntryPoint) -> T:
        way_out = "reinstall or remove that package"
        plugin: T = load_foreign(point.load, self._describe_plugin(point), way_out)
        if not self._accepts(point.name, plugin):
            raise UsageError(
                f"{self._describe_plugin(point)} is not {self._needed} with that name; {way_out}"
            )
        return plugin

    def _describe_plugin(self, point: EntryPoint) -> str:
        package = point.dist.name if point.dist is not None else "another package"
        return f"{point.name} ({point.value}), which {package} brings as one of {self._group},"


def import_object(location: str, needed_by: str) -> Any:
    """Import the object at ``package.module:name``; ``needed_by`` names the requester in messages. Raises
    UsageError: there is no such place, or it cannot be imported."""
    module, colon, name = location.partition(":")
    if not colon:
        raise UsageError(f"{needed_by}: {location} is not known here; a place in a package is `module:name`")
    return load_foreign(
        lambda: getattr(import_module(module), name), f"{needed_by}: {location}", "reinstall its package"
    )


def load_foreign(load: Callable[[], Any], subject: str, way_out: str) -> Any:
    """Call ``load``, which runs another package's code, and return its value.

    Raises UsageError, which names ``subject``, for whatever that code raises, an exit or an interruption
    too; the user's Ctrl-C and the machine's errors pass through.
    """
    with _record_and_pass_on_ctrl_c() as signals:
        try:
            return load()
        except CoevalError:
            raise  # reported already
        except MemoryError as error:
            out = "out of memory; raise this process's limit (ulimit -v)"
            raise UsageError(f"{subject} cannot be loaded: {out}, or {way_out}") from error
        except BaseException as error:
            if signals or (isinstance(error, OSError) and error.errno in _MACHINE_ERRORS):
                raise
            raise UsageError(f"{subject} cannot be loaded ({describe_error(error)}); {way_out}") from error


@contextmanager
def _record_and_pass_on_ctrl_c() -> Iterator[list[int]]:
    """Collect SIGINT while entered, so that a KeyboardInterrupt without one is known to be the code's own.
    Python delivers signals to the main thread alone."""
    signals: list[int] = []
    before = signal.getsignal(signal.SIGINT)
    if not callable(before) or threading.current_thread() is not threading.main_thread():
        yield signals
        return

    def note(number: int, frame: FrameType | None) -> None:
        signals.append(number)
        before(number, frame)

    signal.signal(signal.SIGINT, note)
    try:
        yield signals
    finally:
        if signal.getsignal(signal.SIGINT) is note:
            signal.signal(signal.SIGINT, before)


def extra_pip_command(extra: str) -> str:
    """Return the pip command for an extra's packages. It never names CoEval: no index has it, so its name
    there could become anyone's."""
    try:
        requirements = [text.partition(";") for text in requires("coeval") or ()]
    except PackageNotFoundError:  # run from its folder without an installation
        return f"pip install '.[{extra}]' in CoEval's folder"
    packages = [name.strip() for name, _, marker in requirements if marker.split()[-1:] == [f"'{extra}'"]]
    return f"pip install {' '.join(map(quote, packages))}"
