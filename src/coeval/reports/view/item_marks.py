"""What people mark and note on items: a file beside a run's records, which is none of them.

``marks.jsonl`` is appended to, a whole line at a time, and of an item's marks the last one counts. It needs
no lock: a run that is at work never touches it, and nothing that is made of the run reads it.
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.core.foreign import decoder
from coeval.store.jsonl import Appender, whole_lines
from coeval.store.rundir import now, refuse_foreign

MARKS = "marks.jsonl"
# Characters.
LONGEST_NOTE = 10_000


class MarkedItem(msgspec.Struct, frozen=True, omit_defaults=True):
    """Whether an item is marked, and what is noted on it; ``at``: when, in UTC."""

    item: str
    task: str
    flag: bool = False
    note: str = ""
    at: str = ""


def read_marks(folder: Path) -> dict[tuple[str, str], MarkedItem]:
    """By task and item; a line that is none, and what has been taken back, is left out.

    Raises StoreError: the file cannot be read, or is a link that leads out of the folder.
    """
    read = decoder(MarkedItem)
    found: dict[tuple[str, str], MarkedItem] = {}
    if not (folder / MARKS).exists():
        return found
    refuse_foreign(folder, ())
    for line in whole_lines(folder / MARKS):
        try:
            mark = read(line.text)
        except Undecodable:
            continue
        found[mark.task, mark.item] = mark
    return {key: mark for key, mark in found.items() if mark.flag or mark.note}


def add_mark(folder: Path, mark: MarkedItem) -> MarkedItem:
    """Append a mark, with the time.

    Raises UsageError: the note is too long; StoreError: the file cannot be written, or is a link that leads
    out of the folder.
    """
    if len(mark.note) > LONGEST_NOTE:
        raise UsageError(f"a note has at most {LONGEST_NOTE:,} characters; this one has {len(mark.note):,}")
    refuse_foreign(folder, ())
    dated = msgspec.structs.replace(mark, at=now())
    file = Appender(folder / MARKS)
    try:
        file.append(dated)
    finally:
        file.close()
    return dated
