"""The commands that start a server and merge a checkpoint: templates, run without a shell."""

from __future__ import annotations

import asyncio
import os
import re
import shlex
import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping, Sequence
from difflib import get_close_matches
from pathlib import Path

from coeval.core.errors import CoevalError, ServerDown, UsageError
from coeval.core.plain import escape_line
from coeval.core.shown_url import KEY_SHAPED, find_url_secrets, is_credential_name, strip_credentials
from coeval.core.text import digest, join_names
from coeval.sweeps.checkpoints import Checkpoint, why_incomplete, why_submitted_not_servable
from coeval.sweeps.server_log import ServerLog
from coeval.sweeps.server_process import ServerProcess
from coeval.sweeps.worker_files import Server

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
# 64: the rank of nearly all adapters is below it, and both servers set memory aside for the largest.
_ADAPTERS = " --enable-lora --max-lora-rank 64"
FOR_ADAPTERS: Mapping[str, str] = {
    PRESETS["vllm"]: _ADAPTERS,
    PRESETS["sglang"]: f"{_ADAPTERS} --lora-target-modules all",
}
"""What presets need besides to load adapters. A command of the user's own has to say it itself."""
PLACEHOLDERS: Mapping[str, str] = {
    "checkpoint": "its path, or its name at a hub",
    "name": "what it is served as",
    "host": "the address to listen on",
    "port": "the port to listen on",
    "tp_size": "the number of GPUs of the slot",
    "gpus": "their numbers, with commas between them",
}

# ``{name}``, or ``{{name}}``, which stands for the text ``{name}``. Braces of JSON are neither.
_PLACE = re.compile(r"\{(\{)?([A-Za-z_][A-Za-z0-9_]*)\}(?(1)\})")
# What a word of a command holds that is itself to be read by something: a shell, Python, JSON.
_CODE = re.compile(r"[\s;|&$<>`'\"()\\\[\]]")
# What stands before such a word, whatever is in it.
_RUNS = re.compile(r"-[A-Za-z]*[cS][A-Za-z]*|-{2}(?:command|split-string)|eval")
_HARMLESS = re.compile(r"[A-Za-z0-9_./:@%+=,-]*")
# The words of a command that a message quotes.
_LONGEST_VALUE = 100
# What users write where a server asks for a key and needs none.
_NO_KEYS = ("empty", "none", "null")
# The key that vLLM asks its clients for: the server's own, and no provider's.
_SERVERS_OWN = "VLLM_API_KEY"


class ServerCommand:
    """A template, or the short name of one, split into words as a POSIX shell does it before anything is
    filled in: a path with blanks stays one word, and nothing of a value is expanded. Raises UsageError: it
    has no words, an open quote or a credential, names what is not a placeholder, or lacks ``{port}``."""

    flag = _FLAG
    presets = PRESETS
    placeholders = PLACEHOLDERS
    needed: Mapping[str, str] = {"port": "every server gets one of its own"}

    def __init__(self, text: str) -> None:
        self.text = self.presets.get(text.strip(), text)
        try:
            self.words = tuple(shlex.split(self.text))
        except ValueError as error:
            raise UsageError(f"{self.flag}: {error} in {self.text}; close it") from error
        if not self.words:
            presets = f", or one of {', '.join(self.presets)}" if self.presets else ""
            raise UsageError(f"{self.flag} is empty; give a command{presets}")
        # Workers' files and the process list show the command.
        if (credential := _describe_first_credential(self.text)) is not None:
            raise UsageError(
                f"{self.flag} holds a credential ({credential}), and commands are kept in files; set it as a "
                "variable of your environment that the server reads, and pass that on by its name: "
                "--server-env NAME"
            )
        self._named = self._find_and_check_placeholders()

    def _find_and_check_placeholders(self) -> frozenset[str]:
        """Find the placeholders; raise UsageError if one is unknown, or a needed one absent."""
        names = [match[2] for word in self.words for match in _PLACE.finditer(word) if not match[1]]
        all_names = join_names(f"{{{name}}}" for name in self.placeholders)
        for name in names:
            if name not in self.placeholders:
                close = get_close_matches(name, self.placeholders, n=1)
                hint = f"did you mean {{{close[0]}}}? There are" if close else "there are"
                raise UsageError(
                    f"{self.flag}: {{{name}}} is not a placeholder; {hint} {all_names}. "
                    f"The text itself is written {{{{{name}}}}}"
                )
        for name, why in self.needed.items():
            if name not in names:
                raise UsageError(f"{self.flag} needs {{{name}}}: {why}")
        return frozenset(names)

    @property
    def serves_path(self) -> bool:
        """Check whether the server is given no name, and so calls the model as its checkpoint."""
        return "checkpoint" in self._named and "name" not in self._named

    @property
    def loads_any_model(self) -> bool:
        """Check whether it loads whatever model a request names, and lists others."""
        return (_program_name(self.words[0]), *self.words[1:2]) == ("transformers", "serve")

    def strip_other_secrets(self, environment: Mapping[str, str], passed: Collection[str]) -> dict[str, str]:
        """Return the ``environment`` without credentials, except those ``passed`` by name or named in the
        command."""
        return strip_credentials(environment, {*passed, *re.findall(r"\w+", self.text), _SERVERS_OWN})

    def fill_for_server(self, server: Server, port: int) -> tuple[str, ...]:
        """Fill the command for a server that is to listen on ``port``; return its words. Raises as
        `fill_placeholders`."""
        sizes = {"port": str(port), "tp_size": str(server.tp_size), "gpus": ",".join(server.gpus)}
        names = {"checkpoint": server.checkpoint, "name": server.name, "host": HOST}
        return self.fill_placeholders(names | sizes)

    def fill_placeholders(self, values: Mapping[str, str]) -> tuple[str, ...]:
        """Fill the placeholders with these values; return the command's words. Raises UsageError: a value
        would be read as code, since a shell or the like reads the word around it."""
        return tuple(
            _fill_or_refuse_word(word, values, self.flag, is_code=_is_read_as_code(word, self.words[:number]))
            for number, word in enumerate(self.words)
        )


def _is_read_as_code(word: str, before: Sequence[str]) -> bool:
    """Check whether a shell or another interpreter reads a word. What ssh is given is joined, and read by a
    shell at the other end."""
    if _CODE.search(_PLACE.sub("", word)):
        return True
    return bool(before) and (_RUNS.fullmatch(before[-1]) is not None or "ssh" in map(_program_name, before))


def _program_name(word: str) -> str:
    return word.rpartition("/")[2]


def _fill_or_refuse_word(word: str, values: Mapping[str, str], flag: str, *, is_code: bool) -> str:
    def fill_placeholder(match: re.Match[str]) -> str:
        if match[1]:
            return f"{{{match[2]}}}"
        text = values[match[2]]
        if is_code and not _HARMLESS.fullmatch(text):
            raise UsageError(
                f"{flag}: {{{match[2]}}} stands inside a word that a shell or another program reads, and "
                f"{escape_line(text)[:_LONGEST_VALUE]!r} could be read there as code; hand it over as a word "
                """of its own, such as sh -c 'exec my-server "$1" --port "$2"' sh {checkpoint} {port}"""
            )
        return text

    return _PLACE.sub(fill_placeholder, word)


def _describe_first_credential(text: str) -> str | None:
    """Return the name of a credential in a command, if any; references to variables are none."""
    before = ""
    for word in re.split(r"[\s,;{}()\[\]]+", re.sub(r"['\"]", "", text)):
        sign = next((sign for sign in "=:" if sign in word[1:-1] and "://" not in word), None)
        name, _, value = word.partition(sign) if sign else (before, "", word)
        before = word if word.startswith("-") or word.endswith(":") else ""
        name = name.strip("-:")
        is_value = bool(value) and value[0] not in "$-{" and value.lower() not in _NO_KEYS
        if is_value and is_credential_name(name) and not name.lower().endswith(("header", "headers")):
            return name
        if "://" in word and any(find_url_secrets(word)):
            return "a password in an address"
    return "it looks like a key" if KEY_SHAPED.search(text) else None


# --- Merging sharded checkpoints before they are served: ``--merge-command``, run by the sweep


class MergeCommand(ServerCommand):
    """A command with ``{path}`` and ``{merged}``. Raises as `ServerCommand`."""

    flag = "--merge-command"
    presets: Mapping[str, str] = {}
    placeholders: Mapping[str, str] = {"path": "the checkpoint", "merged": "the folder to write"}
    needed: Mapping[str, str] = {"path": "it is what is merged", "merged": "it is what is served"}


class Merging:
    """Merges checkpoints, each once, into folders below ``workers``, beside the command's log. The command
    gets only credentials whose variables are ``passed``."""

    def __init__(self, template: str, workers: Path, passed: Collection[str]) -> None:
        self._command = MergeCommand(template)
        self._passed = passed
        self._workers = workers
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._failed: dict[str, str] = {}

    async def merge(self, checkpoint: Checkpoint) -> Path:
        """Return a checkpoint's merged folder, made now unless an earlier start has. Raises CoevalError: it
        cannot be merged; with the last lines of the command's log."""
        async with self._locks[checkpoint.step]:  # its shards share it
            if checkpoint.identity in self._failed:
                raise ServerDown(self._failed[checkpoint.identity])
            try:
                return await self._run_merge(checkpoint)
            except CoevalError as error:
                self._failed[checkpoint.identity] = str(error)
                raise

    async def _run_merge(self, checkpoint: Checkpoint) -> Path:
        """Run the merge command into a temporary folder, and rename that once it holds a checkpoint."""
        folder = self._workers / f"{checkpoint.name}.merge"
        merged = folder / f"merged-{digest(self._command.text + checkpoint.identity)[:12]}"
        if merged.is_dir():
            return merged
        await asyncio.to_thread(self.remove_merged, checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        making = merged.with_suffix(".tmp")
        words = self._command.fill_placeholders({"path": checkpoint.path, "merged": str(making)})
        log = ServerLog(folder, os.environ)
        process = await ServerProcess.launch(
            folder, words, {}, 0, self._command.strip_other_secrets(os.environ, self._passed)
        )
        try:
            await process.gone.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
        lacking = why_incomplete(making)
        if process.code or lacking is not None:
            why = f"left no checkpoint: {lacking}" if not process.code else f"failed{process.exit_note}"
            raise ServerDown(f"{self._command.flag} {why}. {log.describe_failure()}")
        if why := why_submitted_not_servable(checkpoint, to_merge=True):
            raise ServerDown(why)
        making.rename(merged)
        return merged

    def remove_merged(self, checkpoint: Checkpoint) -> None:
        """Remove what was merged, whole or half: it takes the space of a model."""
        self._failed.pop(checkpoint.identity, None)
        for merged in self._workers.glob(f"{checkpoint.name}.merge/merged-*"):
            shutil.rmtree(merged, ignore_errors=True)
