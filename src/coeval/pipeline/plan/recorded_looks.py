"""Looks at the results of a run that grows: one line in ``looks.jsonl`` for each that showed anything new.

Whoever only reads a finished run leaves no trace; so a run that was looked at once, when it had ended, has no
such file, and its tests are those of one look.
"""

from __future__ import annotations

import msgspec

from coeval.analysis.anytime import Looks
from coeval.analysis.planned_names import Planned
from coeval.analysis.readers.run_reader import RunReader
from coeval.core.errors import StoreError, Undecodable
from coeval.core.foreign import decode
from coeval.store.jsonl import Appender, cut_torn_tail, is_torn, store_error
from coeval.store.rundir import RunDir, now

_AT_WORK = ("running", "stopped", "interrupted")
_FINISHED = "completed"


class Look(msgspec.Struct, frozen=True):
    """What a look showed: how many ``scores`` of how many ``items``, of the items ``planned`` then; 0: nobody
    could say."""

    at: str
    scores: int
    items: int
    planned: int


def looks_at(folder: RunDir, reader: RunReader) -> Looks:
    """Return which look a reading of the run is, whether or not it will be recorded."""
    seen = _recorded(folder)
    stops = reader.planned is not None and any(task.stops for task in reader.planned.tasks.values())
    growing = stops or _status(folder) in _AT_WORK
    if not seen and not growing:
        return Looks(1, 1.0)  # as nearly always; nothing needs to be counted
    present = _present(reader)
    earlier = [one for one in seen if one.scores < present.scores]
    planned = (seen[0].planned if seen else 0) or present.planned
    share = present.items / planned if planned else 1.0
    return Looks(len(earlier) + 1, max(share, 1e-6), growing)


def record_look(folder: RunDir, reader: RunReader) -> str:
    """Write down that the results of a run which is not finished were shown, unless they were before.

    Return why that could not be written, empty if it was or need not be: who may only read may look.
    """
    if _status(folder) in ("", _FINISHED):
        return ""
    present = _present(reader)
    if not present.scores or any(one.scores == present.scores for one in _recorded(folder)):
        return ""
    return _append(folder, present)


def _append(folder: RunDir, look: Look) -> str:
    try:
        cut_torn_tail(folder.looks)
        file = Appender(folder.looks)
        try:
            file.append(look)
        finally:
            file.close()
    except StoreError as error:
        return f"this look at a run that grows is not recorded: {error}"
    return ""


def look_note(folder: RunDir, looks: Looks) -> str:
    """Say of a look that is one of several how its tests are meant; empty: it is the only one."""
    if not looks.many:
        return ""
    only = "a difference is called significant only if it would be at any look"
    if looks.number == 1 and _status(folder) == _FINISHED:
        return f"The run ends by planned looks: {only}"
    earlier = _recorded(folder)[: looks.number - 1]
    after = f" (after {', '.join(f'{one.items:,}' for one in earlier)} items)" if earlier else ""
    return f"{looks.name[0].upper()}{looks.name[1:]} at a run as it grows{after}: {only}"


def _present(reader: RunReader) -> Look:
    [(scores, items)] = reader.rows(
        "SELECT count(*), count(DISTINCT (task, item)) FROM "
        "(SELECT task, item FROM scores WHERE value IS NOT NULL UNION ALL SELECT task, item FROM labels)"
    )
    return Look(now(), int(scores), int(items), _planned_items(reader.planned))


def _planned_items(planned: Planned | None) -> int:
    """Those of all tasks; 0 where a task says no number."""
    found = 0
    for task in planned.tasks.values() if planned is not None else ():
        if task.total is None or task.teachers is None:
            return 0
        found += task.total * len(task.teachers | task.supply)
    return found


def _recorded(folder: RunDir) -> list[Look]:
    """In their order; lines that are none count as none, as where two looked at once."""
    try:
        lines = folder.looks.read_bytes().splitlines(keepends=True)
    except FileNotFoundError:
        return []
    except OSError as error:
        raise store_error("read", folder.looks, error) from error
    found = []
    for line in lines:
        if not is_torn(line):
            try:
                found.append(decode(line, Look))
            except Undecodable:
                continue
    return found


def _status(folder: RunDir) -> str:
    """Empty where the run says none."""
    try:
        return folder.status(folder.read_meta())
    except (FileNotFoundError, StoreError):
        return ""
