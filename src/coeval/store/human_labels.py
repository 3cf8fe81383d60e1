"""What people say of a folder's answers and items: ``labels.jsonl``, beside its records.

The file is appended to, a whole line at a time, and of one person's lines about one answer's factor (or
about one item) the last one counts. It needs no lock: a run that is at work never touches it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from pathlib import Path

import msgspec

from coeval.core.errors import Undecodable, UsageError
from coeval.store.jsonl import append_lines, decode_records
from coeval.store.rundir import refuse_foreign, utc_now

LABELS_FILE = "labels.jsonl"
HUMAN = "human:"
"""What the judge id of a person begins with; no model's name holds a colon."""

VIEWER = f"{HUMAN}viewer"
"""Whose the marks and notes of `coeval view` are, which asks for no name."""

# Characters.
LONGEST_NOTE = 10_000
_LONGEST_NAME = 60


class ByChance(msgspec.Struct, frozen=True, omit_defaults=True):
    """How an answer came to be labelled: by chance, with this ``probability`` among those of its
    ``stratum``, which had so many ``items``, in the order that ``seed`` gives. ``items`` 0: not recorded."""

    probability: float
    stratum: str
    seed: int
    items: int = 0


class HumanLabel(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """A person's level of one factor of an answer, or a mark and a note on an item.

    ``judge_model_id`` is ``human:NAME``; ``value`` what the ``level`` is worth, 0 to 1; both are None while
    the answer is only drawn, or once the label was taken back. ``drawn`` is None of what was picked by hand.
    ``input_hash`` and ``criterion`` are hashes of what was shown: of prompt, answer and reference, and of the
    criterion with its scale.
    """

    judge_model_id: str
    task_id: str
    datapoint_id: str
    response_id: str = ""
    factor: str = ""
    level: str | None = None
    value: float | None = None
    drawn: ByChance | None = None
    input_hash: str = ""
    criterion: str = ""
    flag: bool = False
    note: str = ""
    labeled_at: str = ""

    @property
    def key(self) -> tuple[str, str, str, str]:
        """Return the label's person ("" for marks, which all share), task, answer or item, and factor."""
        if not self.response_id:
            return "", self.task_id, self.datapoint_id, ""
        return self.judge_model_id, self.task_id, self.response_id, self.factor

    @property
    def is_persons_level(self) -> bool:
        """Check whether this is a person's level of an answer, not a mark or a mere draw."""
        return bool(self.response_id) and self.level is not None and self.judge_model_id.startswith(HUMAN)

    @property
    def person(self) -> str:
        return self.judge_model_id.removeprefix(HUMAN)


Labels = Mapping[tuple[str, str, str, str], HumanLabel]


def judge_id_of_valid_name(name: str) -> str:
    """Return a person's judge id; raises UsageError: the name is empty, too long, or has other signs."""
    if not name or len(name) > _LONGEST_NAME or not all(sign.isalnum() or sign in "._-" for sign in name):
        raise UsageError(f"--by {name!r}: write a name of letters, digits, dots, dashes and underscores")
    return f"{HUMAN}{name}"


def read_labels(folder: Path) -> dict[tuple[str, str, str, str], HumanLabel]:
    """Read the last line of each `HumanLabel.key`, in the order in which these first appear; damaged lines
    are left out. Raises StoreError: the file cannot be read, or is a link that leads out of the folder."""
    return {label.key: label for label in _decode_labels(folder) if isinstance(label, HumanLabel)}


def count_damaged_labels(folder: Path) -> int:
    """Count the lines of ``labels.jsonl`` that are no labels; raises as `read_labels`."""
    return sum(isinstance(label, Undecodable) for label in _decode_labels(folder))


def _decode_labels(folder: Path) -> Iterable[HumanLabel | Undecodable]:
    path = folder / LABELS_FILE
    if not path.exists():
        return ()
    refuse_foreign(folder, ())
    return decode_records(path, HumanLabel)


def add_labels(folder: Path, labels: Iterable[HumanLabel]) -> list[HumanLabel]:
    """Append labels, with the time; they are on disk when this returns. Raises UsageError: a note is too
    long; StoreError: the file cannot be written, or is a link that leads out of the folder."""
    dated = [msgspec.structs.replace(label, labeled_at=utc_now()) for label in labels]
    for label in dated:
        if len(label.note) > LONGEST_NOTE:
            raise UsageError(
                f"a note has at most {LONGEST_NOTE:,} characters; this one has {len(label.note):,}"
            )
    refuse_foreign(folder, ())
    append_lines(folder / LABELS_FILE, dated)
    return dated


def find_standing_marks(labels: Labels) -> dict[tuple[str, str], HumanLabel]:
    """Choose the marks on items, by task and item; what was taken back is left out."""
    return {
        (label.task_id, label.datapoint_id): label
        for label in labels.values()
        if not label.response_id and (label.flag or label.note)
    }
