"""A folder of paid answers that runs share: the same request is paid once.

Each answer is a file, written whole and then renamed, whose name hashes the request as it is sent (host,
path and body) with its `CallId` and the run's seed. Another item, sample, attempt or seed is therefore
another request, whatever its text. Processes need no lock: if two send the same request at the same time,
both pay, and the later answer stays.
"""

from __future__ import annotations

import logging
import os
from collections.abc import Container, Mapping
from contextlib import suppress
from hashlib import blake2b
from pathlib import Path
from typing import Any, Self

import msgspec

from coeval.core import foreign
from coeval.core.errors import ModelError, Undecodable, UsageError
from coeval.core.model import Model
from coeval.core.plain import escape_line
from coeval.core.records import Completion, Request
from coeval.core.regular_files import open_file
from coeval.models.address import ModelAddress
from coeval.models.hosted import HostedModel, cut_completion

VARIABLE = "COEVAL_STORE"

_log = logging.getLogger(__name__)

# Bytes of an answer's file: text, reasoning and refusal have a mebibyte of UTF-8 each, of which JSON makes up
# to six times as much; token probabilities are larger than their text.
_LARGEST = 1 << 26
_SUM_BYTES = 16


def _find_folder(fallback_folder: str | None, environment: Mapping[str, str]) -> Path | None:
    name = environment.get(VARIABLE, fallback_folder or "").strip()
    return Path(os.path.expanduser(name)) if name else None  # noqa: PTH111  Path's raises for an unknown name


def describe_paid_answers(folder: str | None, environment: Mapping[str, str]) -> str:
    """Return a sentence for an estimate if the store holds answers, else ''. Create no folder."""
    path = _find_folder(folder, environment)
    try:
        has_answers = path is not None and any(path.glob("??/*"))
    except OSError:
        has_answers = False  # the run says what is wrong with it
    if path is None or not has_answers:
        return ""
    return (
        f"The store {escape_line(path.name)} holds paid answers. Requests found there cost nothing; this "
        "estimate counts them in full."
    )


class AnswerStore:
    """Answers under ``folder``, in a subfolder for each first byte of their names. Models in ``without``
    bypass it: a server's weights may change under one name. ``seed`` is the run's: most hosts are not sent
    it, and repeated runs differ by it alone. An unreadable file, or one with a wrong checksum, counts as
    absent. If the store cannot be written, a warning says so once, and the run continues."""

    def __init__(self, folder: Path, without: Container[str] = (), seed: int = 0) -> None:
        self.folder = folder
        self.without = without
        self.seed = seed
        self.hits = 0
        """How many answers were found there."""
        self._warned: set[str] = set()
        self._written_files = 0

    @classmethod
    def open_or_make_if_named(
        cls,
        fallback_folder: str | None,
        environment: Mapping[str, str],
        without: Container[str] = (),
        seed: int = 0,
    ) -> Self | None:
        """Open the store that the environment names, else the fallback; None if neither names one. An empty
        variable means none. Raises UsageError: it is not a folder, or cannot be written."""
        path = _find_folder(fallback_folder, environment)
        if path is None:
            return None
        try:
            path.mkdir(mode=0o700, parents=True, exist_ok=True)
        except OSError as error:
            raise UsageError(f"store {path} cannot be made: {error.strerror}; name another folder.") from None
        if not os.access(path, os.W_OK | os.X_OK):
            raise UsageError(f"store {path} cannot be written; name another folder, or none.")
        return cls(path, without, seed)

    def find(self, name: str) -> Completion | None:
        """Return a stored answer as it was paid, or None."""
        path = self._answer_path(name)
        try:
            with open_file(path) as file:
                data = file.read(_LARGEST + 1)
        except FileNotFoundError:
            return None
        except OSError as error:
            self._warn_once("read", error)
            return None
        content = data[_SUM_BYTES:]
        try:
            if len(data) <= _LARGEST and _checksum(content) == data[:_SUM_BYTES]:
                return foreign.decode(content, Completion)
        except Undecodable:
            pass  # written by something else
        _log.warning("%s in the store is damaged; it is requested again", path.name)
        return None

    def keep(self, name: str, completion: Completion) -> None:
        """Write an answer under a temporary name, then rename it."""
        content = msgspec.json.encode(completion)
        path = self._answer_path(name)
        self._written_files += 1
        temporary = path.with_name(f".{name}.{os.getpid()}.{self._written_files}")
        try:
            path.parent.mkdir(mode=self.folder.stat().st_mode & 0o777, exist_ok=True)  # a group may share it
            temporary.write_bytes(_checksum(content) + content)
            temporary.replace(path)
        except OSError as error:
            with suppress(OSError):
                temporary.unlink()
            self._warn_once("written", error)

    def drop(self, name: str) -> None:
        try:
            self._answer_path(name).unlink(missing_ok=True)
        except OSError as error:
            self._warn_once("written", error)

    def _answer_path(self, name: str) -> Path:
        return self.folder / name[:2] / name

    def _warn_once(self, done: str, error: OSError) -> None:
        if done not in self._warned:
            self._warned.add(done)
            _log.warning("the store %s cannot be %s: %s", self.folder, done, error.strerror)


class StoredModel(Model):
    """A hosted model behind the store: answers come from there if they can, and new ones are kept."""

    def __init__(self, model: HostedModel, address: ModelAddress, store: AnswerStore) -> None:
        self.name = model.name
        self.interface = model.interface
        self.answer_limit = model.answer_limit
        self._model = model
        self._address = address
        self._store = store

    async def check_connection(self) -> None:
        await self._model.check_connection()

    async def is_listed(self) -> bool:
        return await self._model.is_listed()

    async def context_window(self) -> int | None:
        return await self._model.context_window()

    async def complete(self, request: Request) -> Completion:
        """Return the stored answer, at no cost, else call the model and store its answer."""
        name = self._hash_request(request)
        if name is None:
            return await self._model.complete(request)
        completion = self._store.find(name)
        if completion is not None:
            self._store.hits += 1
            # No model was called, so this answer costs nothing now.
            usage = msgspec.structs.replace(completion.usage, cost_usd=0.0, stored=1)
            completion = msgspec.structs.replace(completion, usage=usage, attempts=1)
            return cut_completion(completion, self._address.spec.max_answer_bytes)
        completion = await self._model.complete(request)
        if completion.text or completion.refusal:
            self._store.keep(name, completion)
        return completion

    def forget(self, request: Request) -> None:
        if (name := self._hash_request(request)) is not None:
            self._store.drop(name)

    def _hash_request(self, request: Request) -> str | None:
        """Return the name of the answer to a request; None for a probe, or a request that cannot be encoded.
        The body is the one that the host is sent first, whatever it has refused since."""
        address, call = self._address, request.call
        if call is None or request.purpose == "probe":
            return None
        try:
            body = address.dialect.encode(
                request, address.spec, address.host, structured=request.schema is not None
            )
        except ModelError:
            return None  # asking says what is wrong with it
        parts: Any = (address.url, address.path, *call)
        if self._store.seed:  # without it, names are those of stores that know no seed
            parts = (*parts, self._store.seed)
        return blake2b(msgspec.json.encode(parts) + body, digest_size=20).hexdigest()


def _checksum(content: bytes) -> bytes:
    return blake2b(content, digest_size=_SUM_BYTES).digest()
