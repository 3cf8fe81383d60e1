"""What a server wrote, as it can be shown: the end of its log, in lines without control signs and secrets."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from textwrap import indent

from coeval.core.plain import cut_middle, escape_line, escape_lines
from coeval.core.redaction import Redactor
from coeval.core.shown_url import is_credential_name
from coeval.sweeps.guard import rotated_log

LOG = "server.log"
# Of a server's output that are kept on disk.
MOST_BYTES = 64 << 20
# A Python traceback's end with the error's own message.
LINES = 20
# Bytes from the log's end: `LINES` of the longest usual lines.
_READ = 1 << 16
# Characters: servers print their whole configuration in one line.
_LONGEST_LINE = 300
# Control sequences of terminals: colours, titles, single signs.
_ESCAPES = re.compile(r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-~])")

_HINTS: Sequence[tuple[re.Pattern[str], str]] = tuple(
    (re.compile(pattern, re.IGNORECASE), hint)
    for pattern, hint in (
        (
            r"out of memory|outofmemory|no available memory for the cache|"
            r"free memory on device .* less than desired",
            "the GPU has too little memory free: another process may hold it (see `nvidia-smi`), or the "
            "model needs more GPUs (tp_size) or a lower --gpu-memory-utilization",
        ),
        (
            r"no module named|modulenotfounderror|cannot find module|libcud\w*\.so",
            "a package that the server needs is not installed in its environment",
        ),
        (
            r"gated repo|access to model .{1,200} is restricted|401 client error",
            "the hub gives the checkpoint only to those who show a token: --server-env HF_TOKEN passes yours",
        ),
        (
            r"no such file or directory|is not a local folder|repositorynotfound|"
            r"does not appear to have a file named|not a valid model identifier",
            "the checkpoint, or a file of it, was not found",
        ),
        (r"address already in use|errno 98", "another process took the port meanwhile"),
        (
            r"unrecognized arguments|no such option|unexpected extra argument",
            "the server does not know one of its flags: correct --server-command",
        ),
    )
)


# What Python says after the error, of what its end left behind.
_AFTERMATH = re.compile(
    r"resource_tracker|leaked (?:semaphore|shared_memory)|warnings\.warn\(|leaked process group"
)
# The line by which an exception, or a program that ends, names what went wrong.
_ERROR = re.compile(
    r"\b[A-Za-z]\w*(?:Error|Exception|Exit)\b|\b(?:error|fatal|killed|fault)\b:?", re.IGNORECASE
)
# Causes that pass by themselves, so that the same message twice says nothing.
_PASSING = re.compile(
    r"out of memory|outofmemory|free memory|address already in use|timed? ?out", re.IGNORECASE
)


class ServerLog:
    """The log of a worker's server; ``secrets`` are kept out of what is shown of it."""

    def __init__(self, folder: Path, environment: Mapping[str, str], secrets: Sequence[str] = ()) -> None:
        self.path = folder / LOG
        named = (value for name, value in environment.items() if value and is_credential_name(name))
        self._redactor = Redactor((*secrets, *named))
        self._from = self._read_size()

    def begin(self) -> None:
        """Mark the start of another server: lines before this belong to an earlier one."""
        self._from = self._read_size()

    def last_lines(self, most: int = LINES) -> list[str]:
        """Return the last lines with text since `begin`."""
        lines = (line for line in self._clean_lines(self._read_tail()) if not _AFTERMATH.search(line))
        return [cut_middle(line, _LONGEST_LINE) for line in lines][-most:]

    def error_line(self) -> str:
        """Return the last line that names an error; empty if none does, as after a kill."""
        return next((line.strip() for line in reversed(self.last_lines()) if _ERROR.search(line)), "")

    def lasting_error_without_numbers(self) -> str:
        """Return the error's line without its numbers, which differ between starts; empty if another start
        may succeed."""
        if _PASSING.search(" ".join(self.last_lines())):
            return ""
        return re.sub(r"\d+", "", self.error_line() or "".join(self.last_lines(1)))

    def describe_failure(self) -> str:
        """Quote the last lines for a message, after a hint at their cause."""
        lines = self.last_lines()
        if not lines:
            return f"It wrote nothing ({self.path})."
        text = "\n".join(lines)
        hint = next((f"Probably {hint}.\n" for pattern, hint in _HINTS if pattern.search(text)), "")
        return f"{hint}Its last lines ({self.path}):\n{indent(text, '  ')}"

    def redact(self, text: str) -> str:
        """Redact others' text and escape its control characters."""
        return escape_lines(self._redactor.redact_message(text))

    def _clean_lines(self, text: str) -> Iterator[str]:
        for line in self._redactor.redact_message(_ESCAPES.sub("", text)).split("\n"):
            # Of a bar that is drawn again and again, its last state.
            last = next((part for part in reversed(line.split("\r")) if part.strip()), "")
            if last:
                yield escape_line(last.expandtabs().rstrip())

    def _read_tail(self) -> str:
        data = _read_last_bytes(self.path, self._from)
        if (
            len(data) < _READ
            and (before := rotated_log(self.path)).exists()
            and self._read_size() < self._from
        ):
            data = _read_last_bytes(before, 0)[-(_READ - len(data)) :] + data
        return data.decode(errors="backslashreplace")

    def _read_size(self) -> int:
        try:
            return self.path.stat().st_size
        except OSError:
            return 0


def _read_last_bytes(path: Path, not_before: int) -> bytes:
    """Read the last bytes of a file, but none before ``not_before``; all of a shorter one."""
    try:
        with path.open("rb") as file:
            size = file.seek(0, 2)
            file.seek(max(not_before if not_before <= size else 0, size - _READ))
            return file.read(_READ)
    except OSError:
        return b""
