"""Which folders are shown: those that were named, and those that lie, or come to lie, in the named ones."""

from __future__ import annotations

import logging
from collections.abc import Sequence
from pathlib import Path
from threading import Event, Thread

from coeval.core.errors import UsageError
from coeval.core.plain import plain
from coeval.reports.view.viewed_folder import Standing, ViewedFolder
from coeval.store.jsonl import store_error
from coeval.store.output_folder import output_tasks
from coeval.store.rundir import RunDir

__all__ = ["ViewedPlaces"]

log = logging.getLogger("coeval")

_EVERY_S = 0.5
_PATIENCE_S = 1.0
_READ_AT_ONCE = 8
"""So many folders are read before somebody asks for them, as comparing them wants."""


class ViewedPlaces:
    """Folders by number, which stays theirs; a thread of its own looks at them again and again.

    Raises
    ------
    UsageError
        a path is no folder, or holds nothing that can be shown.
    StoreError
        a folder cannot be looked into.
    """

    def __init__(self, paths: Sequence[Path], standing: Standing) -> None:
        self.folders: list[ViewedFolder] = []
        self._standing = standing
        self._parents: list[Path] = []
        self._known: set[Path] = set()
        self._stopped = Event()
        self._thread = Thread(target=self._watch, name="coeval view", daemon=True)
        for path in paths:
            if not path.is_dir():
                what = "is a file; name a folder" if path.exists() else "is not there"
                raise UsageError(
                    plain(f"{path} {what}: a run, an output of eval-framework, or one with these")
                )
            if _is_shown(path):
                self._add(path)
            else:
                self._parents.append(path)
        self._find()
        if not self.folders:
            named = ", ".join(map(str, paths))
            raise UsageError(
                plain(
                    f"{named}: nothing to show: no run, no output of eval-framework, and no folder with such"
                )
            )
        for folder in self.folders if len(self.folders) <= _READ_AT_ONCE else ():
            folder.wanted = True

    def watch(self) -> None:
        """Begin to look at the folders, until `stop`."""
        self._thread.start()

    def stop(self) -> bool:
        """Let go of the folders. False: something large is just being read, which nobody needs any more, and
        which ends with the process."""
        self._stopped.set()
        if self._thread.is_alive():
            self._thread.join(_PATIENCE_S)
        if self._thread.is_alive():
            return False
        for folder in self.folders:
            folder.close()
        return True

    def _watch(self) -> None:
        while not self._stopped.is_set():
            self._find()
            for folder in self.folders:
                if not self._stopped.is_set():
                    folder.look()
            self._stopped.wait(_EVERY_S)

    def _find(self) -> None:
        for parent in self._parents:
            try:
                found = [path for path in sorted(parent.iterdir()) if path.is_dir() and _is_shown(path)]
            except OSError as error:
                if not self.folders:
                    raise store_error("read", parent, error) from error
                continue  # it was there before, and may be again
            for path in found:
                self._add(path)

    def _add(self, path: Path) -> None:
        whole = path.resolve()
        if whole not in self._known:
            self._known.add(whole)
            self.folders.append(ViewedFolder(path, self._standing))


def _is_shown(path: Path) -> bool:
    """A run, or what eval-framework left; a folder of runs is neither."""
    return RunDir(path).is_run() or bool(output_tasks(path))
