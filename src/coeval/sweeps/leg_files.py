"""The files by which a leg and whoever starts it speak: ``leg.json``, ``progress.json``, ``result.json``."""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TypeVar

import msgspec

from coeval.core.errors import StoreError, UsageError
from coeval.core.secrets.shown_url import url_secrets
from coeval.store.jsonl import read_json, store_error, write_json_atomic
from coeval.sweeps.leg import Leg, LegProgress, LegResult

__all__ = [
    "LEG_LOG",
    "read_leg",
    "read_progress",
    "read_result",
    "write_leg",
    "write_progress",
    "write_result",
]

LEG_LOG = "leg.log"
"""What a leg has to say, beside its files."""
LEG, PROGRESS, RESULT = "leg.json", "progress.json", "result.json"

T = TypeVar("T")


def write_leg(leg: Leg) -> None:
    """Write ``leg.json`` into the leg's folder, and remove what an earlier leg has left of its end.

    Raises
    ------
    UsageError
        an address holds a credential.
    ValueError
        a model's ``access_key`` is set: a leg is told the variable that holds it.
    """
    for model in (leg.evaluation.tested, leg.evaluation.judge):
        if model is not None and model.access_key is not None:
            raise ValueError(f"the leg {leg.name} must hold no credential")
        if model is not None and any(url_secrets(model.base_url or "")):
            raise UsageError(
                f"the address of {model.name} holds a password, and legs are kept in files; "
                "give it as --api-key"
            )
    for name in (PROGRESS, RESULT):
        try:
            (leg.folder / name).unlink(missing_ok=True)
        except OSError as error:
            raise store_error("remove", leg.folder / name, error) from error
    write_json_atomic(leg.folder / LEG, leg)


def read_leg(folder: Path) -> Leg:
    """
    Raises
    ------
    FileNotFoundError
        there is none.
    StoreError
        it is damaged.
    """
    return read_json(folder / LEG, Leg)


def write_progress(folder: Path, progress: LegProgress) -> None:
    write_json_atomic(folder / PROGRESS, progress)


def write_result(leg: Leg, result: LegResult) -> None:
    write_json_atomic(leg.folder / RESULT, msgspec.structs.replace(result, start=leg.start))


def read_progress(folder: Path) -> LegProgress | None:
    """None where there is none yet, or it cannot be read."""
    return _read(folder / PROGRESS, LegProgress)


def read_result(leg: Leg) -> LegResult | None:
    """None where the leg has not ended, or was killed."""
    result = _read(leg.folder / RESULT, LegResult)
    return result if result is not None and result.start == leg.start else None


def _read(path: Path, kind: type[T]) -> T | None:
    with suppress(OSError, StoreError):
        return read_json(path, kind)
    return None
