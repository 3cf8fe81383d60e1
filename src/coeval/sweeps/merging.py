"""Merging sharded checkpoints before they are served: ``--merge-command``, run by the sweep."""

from __future__ import annotations

import asyncio
import os
import shutil
from collections import defaultdict
from collections.abc import Collection, Mapping
from pathlib import Path

from coeval.core.errors import CoevalError, ServerDown
from coeval.core.text import digest
from coeval.sweeps.checkpoints import Checkpoint, what_lacks, why_not_served
from coeval.sweeps.server_command import ServerCommand
from coeval.sweeps.server_log import ServerLog
from coeval.sweeps.server_process import ServerProcess


class MergeCommand(ServerCommand):
    """A command with ``{path}`` and ``{merged}``, as strict as that of a server.

    Raises UsageError: as `ServerCommand`.
    """

    flag = "--merge-command"
    presets: Mapping[str, str] = {}
    placeholders: Mapping[str, str] = {"path": "the checkpoint", "merged": "the folder to write"}
    needed: Mapping[str, str] = {"path": "it is what is merged", "merged": "it is what is served"}


class Merging:
    """Merges checkpoints, each once, into folders below ``workers``, where the command's log lies too. Of the
    credentials the command gets those whose variables are ``passed``."""

    def __init__(self, template: str, workers: Path, passed: Collection[str]) -> None:
        self._command = MergeCommand(template)
        self._passed = passed
        self._workers = workers
        self._locks: dict[int, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._failed: dict[str, str] = {}

    def _folder(self, checkpoint: Checkpoint) -> Path:
        return self._workers / f"{checkpoint.name}.merge"

    async def merged(self, checkpoint: Checkpoint) -> Path:
        """Return a checkpoint's merged folder, made now unless an earlier start has.

        Raises CoevalError: it cannot be merged; with the last lines of the command's log.
        """
        async with self._locks[checkpoint.step]:  # its shards share it
            if checkpoint.identity in self._failed:
                raise ServerDown(self._failed[checkpoint.identity])
            try:
                return await self._merge(checkpoint)
            except CoevalError as error:
                self._failed[checkpoint.identity] = str(error)
                raise

    async def _merge(self, checkpoint: Checkpoint) -> Path:
        folder = self._folder(checkpoint)
        merged = folder / f"merged-{digest(self._command.text + checkpoint.identity)[:12]}"
        if merged.is_dir():
            return merged
        await asyncio.to_thread(self.forget, checkpoint)
        folder.mkdir(parents=True, exist_ok=True)
        making = merged.with_suffix(".tmp")
        words = self._command.filled_with({"path": checkpoint.path, "merged": str(making)})
        log = ServerLog(folder, os.environ)
        process = await ServerProcess.begin(
            folder, words, {}, 0, self._command.inherited(os.environ, self._passed)
        )
        try:
            await process.gone.wait()
        except asyncio.CancelledError:
            process.kill()
            raise
        lacking = what_lacks(making)
        if process.code or lacking is not None:
            why = f"left no checkpoint: {lacking}" if not process.code else f"failed{process.exit}"
            raise ServerDown(f"{self._command.flag} {why}. {log.reported()}")
        if why := why_not_served(checkpoint, merged=True):
            raise ServerDown(why)
        making.rename(merged)
        return merged

    def forget(self, checkpoint: Checkpoint) -> None:
        """Remove what was merged, whole or half: it takes the room of a model."""
        self._failed.pop(checkpoint.identity, None)
        for made in self._folder(checkpoint).glob("merged-*"):
            shutil.rmtree(made, ignore_errors=True)
