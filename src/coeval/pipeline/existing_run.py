"""The run in a folder that somebody names."""

from __future__ import annotations

from pathlib import Path

from coeval.core.errors import UsageError
from coeval.core.plain import plain
from coeval.store.output_folder import output_tasks, sweep_steps
from coeval.store.rundir import RunDir

# Two lines of a terminal.
_MOST_NAMED = 8


def existing_results(path: Path, *, whole: bool = True) -> Path:
    """The folder of a run, or one that ``eval-framework`` filled; as `existing_run`."""
    if not RunDir(path).is_run() and output_tasks(path):
        return path
    return existing_run(path, whole=whole).path


def existing_run(path: Path, *, whole: bool = True) -> RunDir:
    """Return the folder of a run; one of which a part has moved to ``replaced/`` only if it need not be
    ``whole``.

    Raises UsageError: there is no such run; the message says what there is, and names runs close by;
    StoreError: it holds links that lead out of it, or pipes and the like.
    """
    folder = RunDir(path)
    if path.name == "meta.json" and RunDir(path.parent).is_run():
        folder = RunDir(path.parent)
    if folder.is_run():
        folder.refuse_unreadable() if whole else folder.refuse_foreign()
        return folder
    raise UsageError(plain(f"{_what_there_is(path)}{_way_out(path)}"))


def _what_there_is(path: Path) -> str:
    if not path.exists():
        return f"there is no folder {path}"
    if not path.is_dir():
        return f"{path} is a file; a run is a folder"
    if output_tasks(path):
        return f"{path} is not a run folder but results of eval-framework, which `coeval results` shows"
    if steps := sweep_steps(path):
        way = f"{path} is a sweep: `coeval sweep --out {path} --status` shows it"
        first, last = steps[0], steps[-1]
        way += f", `coeval compare {path} OTHER` compares it with another sweep"
        return way + (f", `coeval compare {first} {last}` two of its checkpoints" if first != last else "")
    nothing = f"{path} is not a run folder: it holds no meta.json and no artifacts"
    if (usage := RunDir(path).usage).exists():
        return f"{nothing}; what was asked there before a run (samples, probes) is counted in {usage}"
    return nothing


def _way_out(path: Path) -> str:
    """Where runs are: below the folder itself, below ``runs/`` where an id was given, or beside it."""
    bare = [Path("runs")] if path.parent == Path() else []
    for place in (path, *bare, path.parent):
        if found := _runs_below(place):
            needed = [run for run in found if run.name == path.name] or found
            shown = ", ".join(map(str, needed[:_MOST_NAMED])) + (", …" if len(needed) > _MOST_NAMED else "")
            return f"; there {'is' if len(needed) == 1 else 'are'}: {shown}"
    return ""


def _runs_below(place: Path) -> list[Path]:
    try:
        return sorted(path for path in place.iterdir() if RunDir(path).is_run())
    except OSError:  # it is no folder, or none of ours to look into
        return []
