"""Which checkpoints a sweep is about: from its settings to where they are, and who serves them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from coeval.cli.commands.sweep.sweep_flags import steps
from coeval.core.errors import UsageError
from coeval.sweeps.checkpoint_places import WATCH_S, CheckpointPlaces, CheckpointWatch
from coeval.sweeps.checkpoints import STEP, Checkpoint, refuse_doubles
from coeval.sweeps.sweep import PATH, Sweep
from coeval.sweeps.sweep_settings import CheckpointFolder, SweepSettings

__all__ = ["places_of", "refuse_ambiguous", "watch_of"]


def places_of(settings: SweepSettings) -> CheckpointPlaces:
    """
    Raises
    ------
    UsageError
        no checkpoint is named.
    """
    given = settings.checkpoints
    pattern, steps_named = settings.name_pattern, steps_of(settings.steps)
    listed: list[Checkpoint] = []
    folder: Path | None = None
    match given:
        case str():
            folder = Path(given).absolute()
        case CheckpointFolder():
            folder = None if given.folder is None else Path(given.folder).absolute()
            pattern = pattern or given.name_pattern
            steps_named = steps_named if steps_named is not None else steps_of(given.steps)
            listed += [_checkpoint(each.step, each.path) for each in given.more]
        case tuple():
            listed += [_checkpoint(each.step, each.path) for each in given]
        case None:
            pass
    if settings.base_model is not None:
        listed.append(_checkpoint(0, settings.base_model))
    if folder is None and not listed:
        raise UsageError(
            "no checkpoint is named; give their folder (--checkpoints DIR), or a list of step and path in a "
            "file (--config)"
        )
    return CheckpointPlaces(tuple(listed), folder, pattern, tuple(steps_named or ()))


def _checkpoint(step: int, path: str) -> Checkpoint:
    """A folder is one checkpoint wherever the sweep is started; else it is a name at a hub."""
    return Checkpoint(step=step, path=str(Path(path).absolute()) if Path(path).is_dir() else path)


def watch_of(settings: SweepSettings, places: CheckpointPlaces) -> CheckpointWatch | None:
    if not settings.watch:
        if settings.until_step is not None:
            raise UsageError("--until-step says when --watch ends; give that too")
        return None
    if places.folder is None:
        raise UsageError("--watch watches a folder of checkpoints; name it with --checkpoints")
    if places.steps:
        raise UsageError("--watch takes every step that appears; leave --steps out, or --watch")
    return CheckpointWatch(places, settings.until_step, settings.watch_interval or WATCH_S)


def steps_of(given: object) -> list[int] | None:
    """``120,240``, a list of numbers, or a number."""
    match given:
        case str():
            return steps(given)
        case int():
            return [given]
        case list() | tuple():
            return sorted({int(step) for step in given})
        case _:
            return None


def refuse_ambiguous(sweep: Sweep, checkpoints: Sequence[Checkpoint], *, watched: bool = False) -> None:
    """``watched``: further checkpoints may come.

    Raises
    ------
    UsageError
        checkpoints share a step, or it cannot be told which of the user's servers has which.
    """
    refuse_doubles(checkpoints)
    if not sweep.external:
        return
    open_steps = [each.step for each in checkpoints if each.step not in sweep.external]
    if open_steps and None not in sweep.external:
        step = open_steps[0]
        raise UsageError(f"--external: no server has step {step}; add --external {step}=URL")
    if watched and None not in sweep.external:
        raise UsageError(
            "--external: no server has the steps to come; add --external URL, or leave out --watch"
        )
    names_them = STEP in sweep.served_name or PATH in sweep.served_name
    if watched and not names_them:
        raise UsageError(
            f"--external: all checkpoints to come would be asked for under one name, {sweep.served_name}; "
            f"give --served-name with {STEP}, or leave out --watch"
        )
    if len(open_steps) > 1 and not names_them:
        raise UsageError(
            f"--external: {len(open_steps)} checkpoints would be asked for under one name, "
            f"{sweep.served_name}; say which server has which (--external {open_steps[0]}=URL), or give "
            f"--served-name with {STEP}"
        )
