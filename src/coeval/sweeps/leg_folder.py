"""A leg's folder: what it is told, how far it is, and its end."""

from __future__ import annotations

import sys
from pathlib import Path

from coeval.core.errors import StoreError
from coeval.store.jsonl import read_json, store_error, write_json_atomic
from coeval.sweeps.leg import Leg, LegProgress, LegResult

__all__ = ["LegFolder", "leg_command"]

_MODULE = "coeval.cli.sweep.leg_process"


class LegFolder:
    """``leg.json`` is written before the leg starts; ``progress.json`` and ``result.json`` are the leg's."""

    def __init__(self, path: Path) -> None:
        self.path = path

    @property
    def order(self) -> Path:
        return self.path / "leg.json"

    @property
    def progress_file(self) -> Path:
        return self.path / "progress.json"

    @property
    def result_file(self) -> Path:
        return self.path / "result.json"

    @property
    def log(self) -> Path:
        return self.path / "leg.log"

    @property
    def server_log(self) -> Path:
        return self.path / "server.log"

    def write(self, leg: Leg) -> None:
        """Tell a leg what to do; what an earlier attempt told of itself goes.

        Raises
        ------
        StoreError
            the folder cannot be written.
        """
        write_json_atomic(self.order, leg)
        for file in (self.progress_file, self.result_file):
            try:
                file.unlink(missing_ok=True)
            except OSError as error:
                raise store_error("remove", file, error) from error

    def leg(self) -> Leg:
        """
        Raises
        ------
        StoreError
            there is none, or it is damaged.
        """
        try:
            return read_json(self.order, Leg)
        except FileNotFoundError as error:
            raise StoreError(f"{self.order} is not there; a leg is started by coeval sweep") from error

    def progress(self) -> LegProgress | None:
        """How far it is; None before it has said so, or where that cannot be read."""
        try:
            return read_json(self.progress_file, LegProgress)
        except (FileNotFoundError, StoreError):
            return None

    def result(self) -> LegResult | None:
        """Its end; None where it has none."""
        try:
            return read_json(self.result_file, LegResult)
        except (FileNotFoundError, StoreError):
            return None


def leg_command(folder: Path) -> tuple[str, ...]:
    """What runs the leg of a folder, as this interpreter. Its standard input is to be held open: the leg ends
    with it."""
    return (sys.executable, "-m", _MODULE, str(folder))
