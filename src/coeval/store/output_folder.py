"""Output folders of ``eval-framework``: a folder per task, and per sample where there are several; and the
folder, of a run or such a one, that somebody names."""

from __future__ import annotations

import os
import re
from hashlib import sha256
from pathlib import Path

from coeval.core.errors import UsageError
from coeval.core.plain import escape_line
from coeval.store.jsonl import store_error
from coeval.store.rundir import RECORD_FILES, RunDir

RESPONSES = "responses.jsonl"
SCORES = "scores.jsonl"
SUMMARY = "summary.json"
JUDGMENTS = "judgments.*.jsonl"
SHARDS = "shards"
"""Subfolder of a task for answers to parts of its prompts, until they are merged."""

SWEEP = "sweep"
"""Subfolder of a sweep's output for its own files; the results of a checkpoint lie beside it, ``step_N``."""

_SAMPLE = re.compile(r"run_(\d+)")


def list_task_folders(output: Path) -> list[Path]:
    """List the task folders with answers or figures, ``<output>/<task>`` and ``<output>/run_<k>/<task>``, by
    sample. Raises StoreError: a folder cannot be looked into."""
    try:
        folders = [folder for folder in (*output.glob("*/"), *output.glob("run_*/*/")) if _is_task(folder)]
    except OSError as error:
        raise store_error("read", output, error) from error
    return sorted(folders, key=lambda folder: (sample_index(folder), folder.name))


def sample_index(task_folder: Path) -> int:
    """Return the sample number of a task's folder, from 0."""
    match = _SAMPLE.fullmatch(task_folder.parent.name)
    return int(match[1]) if match else 0


def list_output_tasks(path: Path) -> list[Path]:
    """List the task folders of an output folder, or ``path`` itself where it is one; empty if neither."""
    return [path] if _is_task(path) else list_task_folders(path)


def list_sweep_steps(path: Path) -> list[Path]:
    """List the folders of a sweep's checkpoints, by step; empty where the folder is no sweep's."""
    return _list_step_folders(path) if (path / SWEEP).is_dir() else []


def is_sweep(path: Path) -> bool:
    """Check whether a folder holds evaluated checkpoints, ``step_N``, of a sweep or of ``eval-framework``."""
    return not _is_task(path) and any(list_task_folders(step) for step in _list_step_folders(path))


def _list_step_folders(path: Path) -> list[Path]:
    steps = [folder for folder in path.glob("step_*/") if folder.name[5:].isdigit()]
    return sorted(steps, key=lambda folder: int(folder.name[5:]))


def _is_task(folder: Path) -> bool:
    return (folder / SUMMARY).is_file() or any(folder.glob("responses*.jsonl"))


# --- Cache folder and safe file names

_QUOTED = re.compile(rb"[^a-z0-9_.-]|^\.")
# File systems take 255 bytes, and writers append suffixes.
_LONGEST_NAME, _HEAD = 200, 120


def cache_folder() -> Path:
    return Path(os.environ.get("COEVAL_CACHE") or "~/.cache/coeval").expanduser()


def safe_file_name(text: str) -> str:
    """Make a file name unique to a text, also on case-insensitive disks: all but ``a-z 0-9 _ . -`` is
    percent-quoted, and a long name ends in a hash."""
    quoted = _QUOTED.sub(
        lambda match: b"%%%02x" % ord(match[0]), text.encode("utf-8", "surrogatepass")
    ).decode()
    if len(quoted) > _LONGEST_NAME:
        return f"{quoted[:_HEAD]}%~{sha256(quoted.encode()).hexdigest()}"  # nothing that is quoted has %~
    return quoted or "%"


# --- The folder that somebody names

# Two lines of a terminal.
_MOST_NAMED = 8


def require_results(path: Path, *, whole: bool = True) -> Path:
    """Return the folder of a run, as `require_run`, or of ``eval-framework``'s results."""
    if not RunDir(path).is_run() and list_output_tasks(path):
        return path
    return require_run(path, whole=whole).path


def require_run(path: Path, *, whole: bool = True) -> RunDir:
    """Return the folder of a run; one of which a part has moved to ``replaced/`` only if it need not be
    ``whole``. Raises UsageError: there is no such run; the message says what there is, and names runs close
    by; StoreError: it holds links that lead out of it, or pipes and the like."""
    folder = RunDir(path)
    if path.name == "meta.json" and RunDir(path.parent).is_run():
        folder = RunDir(path.parent)
    if folder.is_run():
        folder.refuse_foreign_or_half_replaced() if whole else folder.refuse_foreign()
        return folder
    raise UsageError(escape_line(f"{_describe_non_run(path)}{_suggest_runs(path)}"))


def _describe_non_run(path: Path) -> str:
    """Describe what a path that is not a run holds, and which command reads it."""
    if not path.exists():
        return f"there is no folder {path}"
    if not path.is_dir():
        return f"{path} is a file; a run is a folder"
    if list_output_tasks(path):
        return f"{path} is not a run folder but results of eval-framework, which `coeval results` shows"
    if steps := list_sweep_steps(path):
        way = f"{path} is a sweep: `coeval sweep --out {path} --status` shows it"
        first, last = steps[0], steps[-1]
        way += f", `coeval compare {path} OTHER` compares it with another sweep"
        return way + (f", `coeval compare {first} {last}` two of its checkpoints" if first != last else "")
    nothing = f"{path} is not a run folder: it holds no meta.json and no artifacts"
    if (usage := RunDir(path).usage).exists():
        return f"{nothing}; requests before a run (samples, probes) are counted in {usage}"
    return nothing


def _suggest_runs(path: Path) -> str:
    """List runs below the folder itself, below ``runs/`` if an id was given, or beside the folder."""
    runs_folder = [Path("runs")] if path.parent == Path() else []
    for folder in (path, *runs_folder, path.parent):
        if runs := _list_runs_below(folder):
            needed = [run for run in runs if run.name == path.name] or runs
            names = ", ".join(map(str, needed[:_MOST_NAMED])) + (", …" if len(needed) > _MOST_NAMED else "")
            return f"; there {'is' if len(needed) == 1 else 'are'}: {names}"
    return ""


def _list_runs_below(folder: Path) -> list[Path]:
    try:
        return sorted(path for path in folder.iterdir() if RunDir(path).is_run())
    except OSError:  # it is no folder, or none of ours to look into
        return []


def is_readable(folder: Path) -> bool:
    """Check whether a folder is a run, or holds results of ``eval-framework``."""
    return RunDir(folder).is_run() or bool(list_output_tasks(folder))


def require_run_not_outputs(folder: Path, lacking_results: str) -> RunDir:
    """Return the run in a folder that `is_readable`. Raises UsageError: it holds results of
    ``eval-framework``, which have no ``lacking_results``."""
    if not RunDir(folder).is_run():
        raise UsageError(f"{folder} holds results of eval-framework, which have no {lacking_results}")
    return RunDir(folder)


def list_possible_source_files(folder: Path) -> list[Path]:
    """List the files from which everything that is shown of a folder follows, existing or not."""
    run = RunDir(folder)
    if run.is_run():
        return [*(file for kind in RECORD_FILES for file in run.files(kind)), run.config, run.inherited]
    files = []
    for task in list_output_tasks(folder):
        files += [task / RESPONSES, task / SCORES, task / SUMMARY, *sorted(task.glob(JUDGMENTS))]
    return files


def find_writer_pid(folder: Path) -> int | None:
    """Return the process at work in a folder, or in one of its tasks."""
    folders = [folder] if RunDir(folder).is_run() else list_output_tasks(folder)
    return next((pid for path in folders if (pid := RunDir(path).writer_pid()) is not None), None)
