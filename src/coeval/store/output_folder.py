"""Output folder of ``eval-framework``: a folder per task, and per sample where there are several."""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping
from hashlib import sha256
from pathlib import Path

from coeval.store.jsonl import store_error

RESPONSES = "responses.jsonl"
SCORES = "scores.jsonl"
SUMMARY = "summary.json"
JUDGMENTS = "judgments.*.jsonl"
SHARDS = "shards"
"""Subfolder of a task for answers to parts of its prompts, until they are merged."""

SWEEP = "sweep"
"""Subfolder of a sweep's output for its own files; the results of a checkpoint lie beside it, ``step_N``."""

_SAMPLE = re.compile(r"run_(\d+)")


def task_folders(output: Path) -> list[Path]:
    """List the task folders with answers or figures, ``<output>/<task>`` and ``<output>/run_<k>/<task>``, by
    sample.

    Raises StoreError: a folder cannot be looked into.
    """
    try:
        found = [folder for folder in (*output.glob("*/"), *output.glob("run_*/*/")) if _is_task(folder)]
    except OSError as error:
        raise store_error("read", output, error) from error
    return sorted(found, key=lambda folder: (sample_of(folder), folder.name))


def sample_of(task_folder: Path) -> int:
    """Return the sample number of a task's folder, from 0."""
    found = _SAMPLE.fullmatch(task_folder.parent.name)
    return int(found[1]) if found else 0


def output_tasks(path: Path) -> list[Path]:
    """List the task folders of an output folder, or ``path`` itself where it is one; empty if neither."""
    return [path] if _is_task(path) else task_folders(path)


def sweep_steps(path: Path) -> list[Path]:
    """List the folders of a sweep's checkpoints, by step; empty where the folder is no sweep's."""
    return _steps(path) if (path / SWEEP).is_dir() else []


def is_sweep(path: Path) -> bool:
    """Check whether a folder holds evaluated checkpoints, ``step_N``, of a sweep or of ``eval-framework``."""
    return not _is_task(path) and any(task_folders(step) for step in _steps(path))


def _steps(path: Path) -> list[Path]:
    steps = [folder for folder in path.glob("step_*/") if folder.name[5:].isdigit()]
    return sorted(steps, key=lambda folder: int(folder.name[5:]))


def _is_task(folder: Path) -> bool:
    return (folder / SUMMARY).is_file() or any(_answers(folder))


def _answers(folder: Path) -> Iterator[Path]:
    return folder.glob("responses*.jsonl")


# --- Cache folder and safe file names

_QUOTED = re.compile(rb"[^a-z0-9_.-]|^\.")
# File systems take 255 bytes, and writers append suffixes.
_LONGEST_NAME, _HEAD = 200, 120


def cache_folder(environment: Mapping[str, str] = os.environ) -> Path:
    return Path(environment.get("COEVAL_CACHE") or "~/.cache/coeval").expanduser()


def file_name_of(text: str) -> str:
    """Make a file name unique to a text, also on case-insensitive disks: all but ``a-z 0-9 _ . -`` is
    percent-quoted, and a long name ends in a hash."""
    quoted = _QUOTED.sub(
        lambda found: b"%%%02x" % ord(found[0]), text.encode("utf-8", "surrogatepass")
    ).decode()
    if len(quoted) > _LONGEST_NAME:
        return f"{quoted[:_HEAD]}%~{sha256(quoted.encode()).hexdigest()}"  # nothing that is quoted has %~
    return quoted or "%"
