"""The command that starts a server: a template with placeholders, run without a shell."""

from __future__ import annotations

import re
import shlex
from collections.abc import Mapping, Sequence
from difflib import get_close_matches

from coeval.core.errors import UsageError
from coeval.core.text import listed
from coeval.sweeps.leg import Server

__all__ = ["DEFAULT", "HOST", "PLACEHOLDERS", "PRESETS", "ServerCommand"]

HOST = "127.0.0.1"
"""Servers listen to this machine alone."""
_FLAG = "--server-command"
PRESETS: Mapping[str, str] = {
    "vllm": (
        "vllm serve {checkpoint} --served-model-name {name} --host {host} --port {port} "
        "--tensor-parallel-size {tp_size} --gpu-memory-utilization 0.95"
    ),
    "transformers": "transformers serve {checkpoint} --host {host} --port {port}",
    "sglang": (
        "python -m sglang.launch_server --model-path {checkpoint} --served-model-name {name} "
        "--host {host} --port {port} --tp-size {tp_size}"
    ),
}
"""Short name → template."""
DEFAULT = PRESETS["vllm"]
PLACEHOLDERS: Mapping[str, str] = {
    "checkpoint": "its path, or its name at a hub",
    "name": "what it is served as",
    "host": "the address to listen on",
    "port": "the port to listen on",
    "tp_size": "the number of GPUs of the slot",
    "gpus": "their numbers, with commas between them",
}

_PLACE = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_]*)\}(?(1)\})")
"""``{name}``, or ``{{name}}``, which stands for the text ``{name}``. Braces of JSON are neither."""
_OF_SHELLS = frozenset({"|", "||", "&", "&&", ";", ">", ">>", "<", "2>", "2>&1", "&>"})
_ASSIGNMENT = re.compile(r"[A-Za-z_][A-Za-z0-9_]*=")


class ServerCommand:
    """A template, or the short name of one.

    It is split into words as a POSIX shell does it, before anything is filled in: a path with blanks stays
    one word, and nothing of a value is expanded.

    Raises
    ------
    UsageError
        it has no words or an open quote, is meant for a shell, names what is no placeholder, or lacks
        ``{port}``.
    """

    def __init__(self, text: str) -> None:
        self.text = PRESETS.get(text.strip(), text)
        try:
            self.words = tuple(shlex.split(self.text))
        except ValueError as error:
            raise UsageError(f"{_FLAG}: {error} in {self.text}; close it") from error
        if not self.words:
            raise UsageError(f"{_FLAG} is empty; give a command, or one of {', '.join(PRESETS)}")
        self._refuse_shell_words()
        self._named = self._names()

    def _refuse_shell_words(self) -> None:
        for word in self.words:
            if word in _OF_SHELLS:
                raise UsageError(
                    f"{_FLAG} is run without a shell, and {word!r} is a shell's; leave it out, or "
                    "put such a command into a script and name that"
                )
        if _ASSIGNMENT.match(self.words[0]):
            raise UsageError(
                f"{_FLAG} is run without a shell, which {self.words[0]!r} needs; write `env` before it"
            )

    def _names(self) -> frozenset[str]:
        found = [match[2] for word in self.words for match in _PLACE.finditer(word) if not match[1]]
        known = listed(f"{{{name}}}" for name in PLACEHOLDERS)
        for name in found:
            if name not in PLACEHOLDERS:
                close = get_close_matches(name, PLACEHOLDERS, n=1)
                hint = f"did you mean {{{close[0]}}}? There are" if close else "there are"
                raise UsageError(
                    f"{_FLAG}: {{{name}}} is no placeholder; {hint} {known}. "
                    f"The text itself is written {{{{{name}}}}}"
                )
        if "port" not in found:
            raise UsageError(
                f"{_FLAG} is to say {{port}} where the port stands: every server gets one of its own"
            )
        return frozenset(found)

    def model_name(self, checkpoint: str, name: str) -> str:
        """What a request calls the model there: the name that it is told to serve, or what it loads."""
        return checkpoint if "checkpoint" in self._named and "name" not in self._named else name

    def filled(self, server: Server, port: int) -> tuple[str, ...]:
        """The words of the command for a server that is to listen on ``port``."""
        values = {
            "checkpoint": server.checkpoint,
            "name": server.name,
            "host": HOST,
            "port": str(port),
            "tp_size": str(server.tp_size),
            "gpus": ",".join(server.gpus),
        }
        return tuple(_filled(self.words, values))


def _filled(words: Sequence[str], values: Mapping[str, str]) -> list[str]:
    def value(match: re.Match[str]) -> str:
        return f"{{{match[2]}}}" if match[1] else values[match[2]]

    return [_PLACE.sub(value, word) for word in words]
