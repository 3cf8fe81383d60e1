"""Indexes of JSONL records: the part kept in memory, and the position of each line.

`Index` takes about 150 bytes a record. `PhaseIndex`, for the millions of phases 3–5, takes little more than
half: their ids begin with an item's, so it numbers the items and keeps a column of records for each ending.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from functools import lru_cache
from itertools import accumulate, chain
from pathlib import Path
from types import MappingProxyType
from typing import Any, Generic, NamedTuple, Protocol, TypeVar, cast

import msgspec

from coeval.core.errors import Misshapen, StoreError, Undecodable
from coeval.core.foreign import make_decoder, make_lines_decoder
from coeval.core.records import (
    WINNERS,
    Kept,
    Usage,
    is_good,
    keep_valid_levels,
    keep_valid_values,
    model_of,
    strip_names,
)
from coeval.store.jsonl import Lines, decode_records, read_line_groups, read_line_or_block
from coeval.store.rundir import PAIRS

# --- JSONL files with line positions

LineT = TypeVar("LineT", bound=msgspec.Struct)
RecordT = TypeVar("RecordT", bound=msgspec.Struct)

NOTHING: Mapping[Path, Collection[int]] = MappingProxyType({})
NO_LINES: Mapping[Path, list[bytes]] = MappingProxyType({})

# Lines decoded together: fewer cost calls, more cost memory (a million take a gigabyte).
_AT_ONCE = 4_096
# A position is one signed 64-bit number: files up to 16 TiB, and half a million of them.
OFFSET_BITS = 44
_OFFSET_MASK = (1 << OFFSET_BITS) - 1
# Bytes read at once of a file whose records are read again: some hundred of them, of each of a hundred files.
_BLOCK = 1 << 16


_reader = lru_cache(make_decoder)


class RecordFiles:
    """Files read line by line; a position is file and offset in one number. ``damaged`` are no records."""

    def __init__(self) -> None:
        self.damaged: list[tuple[Path, int]] = []
        self._paths: list[Path] = []
        self._absolute_paths: list[Path] = []  # the same, absolute: see `RunDir.at_absolute_path`
        self._blocks: dict[int, tuple[int, bytes]] = {}

    def read_parts(
        self,
        paths: Iterable[Path],
        part: type[LineT],
        left_out_offsets: Mapping[Path, Collection[int]] = NOTHING,
        lines_by_path: Mapping[Path, list[bytes]] = NO_LINES,
    ) -> Iterator[tuple[int, LineT]]:
        """Yield each record's position and part; ``lines_by_path`` replace a file's. Raises StoreError."""
        read = make_lines_decoder(part)
        groups = self._read_groups(paths, left_out_offsets, lines_by_path)
        return chain.from_iterable(self._decode_group(part, read, *group) for group in groups)

    def _read_groups(
        self,
        paths: Iterable[Path],
        left_out_offsets: Mapping[Path, Collection[int]],
        lines_by_path: Mapping[Path, list[bytes]],
    ) -> Iterator[tuple[int, list[bytes], Collection[int]]]:
        """Yield the position of a group's first line, the lines, and the offsets to leave out."""
        for path in paths:
            number = len(self._paths)
            self._paths.append(path)
            self._absolute_paths.append(path.absolute())
            groups, left_out = read_line_groups(path), left_out_offsets.get(path, ())
            if path in lines_by_path:
                groups, left_out = _group_lines(lines_by_path[path]), ()
                self._blocks[number] = 0, b"".join(lines_by_path[path])
            for offset, texts in groups:
                yield (number << OFFSET_BITS) + offset, texts, left_out

    def _decode_group(
        self,
        part: type[LineT],
        read: Callable[[list[bytes]], list[LineT | Undecodable]],
        position: int,
        texts: list[bytes],
        left_out: Collection[int],
    ) -> Iterator[tuple[int, LineT]]:
        """Decode a group of lines; nothing else is called per line, for the sake of millions."""
        records = read(texts)
        positions = accumulate(map(len, texts[:-1]), initial=position)
        if left_out or {*map(type, records)} != {part}:
            return self._keep_sound(list(zip(positions, records, texts, strict=True)), left_out)
        return zip(positions, cast("list[LineT]", records), strict=True)

    def _keep_sound(
        self, lines: Iterable[tuple[int, LineT | Undecodable, bytes]], left_out: Collection[int]
    ) -> Iterator[tuple[int, LineT]]:
        for position, record, text in lines:
            if position & _OFFSET_MASK in left_out:
                continue
            if not isinstance(record, Undecodable):
                yield position, record
            elif not text.isspace():
                self.damage(position)

    def damage(self, position: int) -> None:
        """Note that the line at a position is not a record."""
        self.damaged.append((self._paths[position >> OFFSET_BITS], position & _OFFSET_MASK))

    def read_line(self, position: int) -> bytes:
        """Read the line at a position again."""
        number, offset = position >> OFFSET_BITS, position & _OFFSET_MASK
        # records are mostly read in their order: a block is read once, and not opened for each
        start, block = self._blocks.get(number, (0, b""))
        end = block.find(b"\n", offset - start) if start <= offset < start + len(block) else -1
        if end < 0:
            start, block = offset, read_line_or_block(self._absolute_paths[number], offset, _BLOCK)
            self._blocks[number] = start, block
            end = block.find(b"\n")
        return (
            block[offset - start : end + 1]
            if end >= 0
            else read_line_or_block(self._absolute_paths[number], offset)
        )

    def forget_replacements(self) -> None:
        """Forget the ``lines_by_path``: the files hold them now."""
        self._blocks.clear()

    def load(self, position: int, key: str, kind: type[RecordT]) -> RecordT:
        """Read the whole record ``key`` again."""
        try:
            record: RecordT = _reader(kind)(self.read_line(position))
            return record
        except Undecodable as error:
            path = self._paths[position >> OFFSET_BITS]
            raise StoreError(f"{path}: the record {key} is damaged ({error}); see `coeval repair`") from error


def _group_lines(texts: list[bytes]) -> Iterator[Lines]:
    """Group lines as `read_line_groups` does: decoding a million at once takes a gigabyte."""
    offset = 0
    for start in range(0, len(texts), _AT_ONCE):
        group = texts[start : start + _AT_ONCE]
        yield Lines(offset, group)
        offset += sum(map(len, group))


class RequestAttempts(NamedTuple):
    """The requests for a record over all starts, and those of them that brought no reply."""

    made: int = 0
    unanswered: int = 0


NOT_TRIED = RequestAttempts()


def count_attempts(record: RecordPart | Kept | None) -> RequestAttempts:
    return NOT_TRIED if record is None else RequestAttempts(record.attempts, record.unanswered)


class RecordPart(msgspec.Struct, frozen=True):
    """The fields read of every record's line; subclasses add their own."""

    id: str
    status: str = "ok"
    attempts: int = 0
    unanswered: int = 0

    @property
    def value(self) -> object:
        """Return the record's value, None if it has none; see `is_good`."""
        raise NotImplementedError


class IndexEntry(Protocol):
    """The part of a record that is kept in memory."""

    @property
    def good(self) -> bool: ...


KeyT = TypeVar("KeyT", str, int)
EntryT = TypeVar("EntryT", bound=IndexEntry)
PartT = TypeVar("PartT", bound=RecordPart | Kept)


class RecordColumn(Generic[KeyT, EntryT]):
    """Entries of records by key. Of several records, the one that `coeval.core.records.choose_counted`
    chooses counts: a good one before others, else the last. Equal entries should be one object."""

    __slots__ = ("entries", "in_vain", "positions")

    def __init__(self) -> None:
        self.entries: dict[KeyT, EntryT] = {}
        self.positions: dict[KeyT, int] = {}
        self.in_vain: dict[KeyT, RequestAttempts] = {}  # askings that failed after a good record of the key

    def keeps_good_entry(self, key: KeyT, record: RecordPart | Kept) -> bool:
        """Check whether a later ``record`` leaves its key's entry unchanged. Raises Misshapen: it does, and
        says that it is good, and holds nothing."""
        earlier = self.entries.get(key)
        if earlier is None or not earlier.good or is_good(record):
            return False
        if record.status != "failed":
            raise Misshapen(f"{record.id} holds no value")
        self.in_vain[key] = count_attempts(record)
        return True

    def put(self, key: KeyT, entry: EntryT, position: int) -> None:
        self.positions[key] = position
        self.entries[key] = entry

    def attempts_after_good(self, key: KeyT) -> RequestAttempts:
        """Return the attempts of a failed record that follows a key's good one, else none."""
        return self.in_vain.get(key, NOT_TRIED)


class Index(Generic[EntryT]):
    """Record id → its entry."""

    def __init__(self) -> None:
        self._files = RecordFiles()
        self._column: RecordColumn[str, EntryT] = RecordColumn()
        self.get: Callable[[str], EntryT | None] = self._column.entries.get

    def __len__(self) -> int:
        return len(self._column.entries)

    def __iter__(self) -> Iterator[str]:
        return iter(self._column.entries)

    @property
    def damaged(self) -> list[tuple[Path, int]]:
        return self._files.damaged

    def attempts_after_good(self, key: str) -> RequestAttempts:
        return self._column.attempts_after_good(key)

    def read(
        self,
        paths: Iterable[Path],
        part: type[PartT],
        make_entry: Callable[[PartT], EntryT],
        left_out_offsets: Mapping[Path, Collection[int]] = NOTHING,
    ) -> None:
        """Read files: ``make_entry`` makes an entry of the decoded part of each record that counts."""
        column = self._column
        for position, record in self._files.read_parts(paths, part, left_out_offsets):
            try:
                if not column.keeps_good_entry(record.id, record):
                    column.put(record.id, make_entry(record), position)
            except Undecodable:
                self._files.damage(position)

    def load(self, key: str, kind: type[RecordT]) -> RecordT:
        return self._files.load(self._column.positions[key], key, kind)


# Row of an unknown item: no column has an entry there.
NO_ROW = -1


class ItemRows(dict[str, int]):
    """Item id → row number, assigned on first use; ``get`` assigns none."""

    def __missing__(self, item: str) -> int:
        self[item] = row = len(self)
        return row


class PhaseIndex(Generic[EntryT]):
    """Records of a phase, with so many ``names`` after the item's id. Phases of a run share ``rows``."""

    def __init__(self, rows: ItemRows, names: int) -> None:
        self.files = RecordFiles()
        self.columns: defaultdict[str, RecordColumn[int, EntryT]] = defaultdict(RecordColumn)
        """The records whose ids end alike: by what follows the item's id, each by the item's row."""
        self._rows = rows
        self._names = names

    def __len__(self) -> int:
        return sum(len(column.entries) for column in self.columns.values())

    def __iter__(self) -> Iterator[str]:
        items = list(self._rows)
        return (items[row] + end for end, column in self.columns.items() for row in column.entries)

    def __contains__(self, key: str) -> bool:
        return self.get(key) is not None

    def entries(self) -> Iterator[EntryT]:
        """Return all entries, in the order of iteration."""
        return (entry for column in self.columns.values() for entry in column.entries.values())

    def place(self, key: str) -> tuple[RecordColumn[int, EntryT], int]:
        item = strip_names(key, self._names)
        return self.columns[key[len(item) :]], self._rows[item]

    def get(self, key: str) -> EntryT | None:
        if not self._rows:
            return None  # as in all of a run that begins
        item = strip_names(key, self._names)
        column, row = self.columns.get(key[len(item) :]), self._rows.get(item)
        return None if column is None or row is None else column.entries.get(row)

    def entry_getter(self, end: str) -> Callable[[int], EntryT | None]:
        """Make a lookup by item row of the records whose ids end in ``end``."""
        return self.columns[end].entries.get

    def attempts_after_good(self, key: str) -> RequestAttempts:
        """Return the attempts of a failed record that follows the good one of an id, else none."""
        column, row = self.place(key)
        return column.attempts_after_good(row)

    def load(self, key: str, kind: type[RecordT]) -> RecordT:
        column, row = self.place(key)
        return self.files.load(column.positions[row], key, kind)


# --- Light reading of a record's line

NONE = msgspec.Raw(b"null")
_EMPTY = msgspec.Raw(b"{}")
_mapping = make_decoder(dict[str, Any])


class ItemPart(RecordPart, frozen=True, kw_only=True):
    task_id: str
    teacher_model_id: str
    prompt: str | None = None
    reference_response: str | None = None
    sampled_target_attributes: dict[str, str] = msgspec.field(default_factory=dict)
    recipe: str = ""
    input_hash: str = ""
    filtered: dict[str, int] = msgspec.field(default_factory=dict, name="passage_filtered")

    @property
    def value(self) -> str | None:
        return self.prompt


class ResponsePart(RecordPart, frozen=True, kw_only=True):
    datapoint_id: str
    student_model_id: str
    sample: int = 0
    response: str | None = None
    truncated: bool = False
    recipe: str = ""
    input_hash: str = ""

    @property
    def value(self) -> str | None:
        return self.response


class EvaluationPart(RecordPart, frozen=True, kw_only=True):
    response_id: str
    judge_model_id: str
    task_id: str = ""
    scores: msgspec.Raw = _EMPTY
    criteria: msgspec.Raw = _EMPTY
    values: msgspec.Raw = NONE
    label_scores: msgspec.Raw = NONE
    recipe: str = ""
    input_hash: str = ""

    @property
    def value(self) -> object:
        if self.label_scores != NONE:
            return self.label_scores
        return keep_valid_levels(_mapping(self.scores)) or (
            keep_valid_values(_mapping(self.values)) if self.values != NONE else None
        )


class PreferencePart(RecordPart, frozen=True, kw_only=True):
    datapoint_id: str
    task_id: str
    teacher_model_id: str
    first_model_id: str
    second_model_id: str
    judge_model_id: str
    winner: str | None = None
    recipe: str = ""
    input_hash: str = ""

    @property
    def value(self) -> str | None:
        return self.winner if self.winner in WINNERS else None


_PART_OF: dict[str, type[RecordPart]] = {
    "data_generation": ItemPart,
    "response_collection": ResponsePart,
    "evaluation": EvaluationPart,
    PAIRS: PreferencePart,
}


class RecordState(msgspec.Struct, frozen=True):
    """Whether a record is good."""

    good: bool


def index_record_states(files: Iterable[Path], phase: str) -> Index[RecordState]:
    """Index the records of a phase 3–5 that count."""
    index: Index[RecordState] = Index()
    good, failed = RecordState(True), RecordState(False)
    index.read(files, _PART_OF[phase], lambda part: good if is_good(part) else failed)
    return index


# --- Token usage of a folder's records, by model


class _UsageLine(msgspec.Struct):
    """A line of a run's phases 3–5, of answers or of judgments: who was asked, and what that took."""

    judge_model_id: str = ""
    student_model_id: str = ""
    teacher_model_id: str = ""
    judge: str = ""
    model: str = ""
    source: str = ""
    usage: Usage | None = None

    @property
    def requested_model(self) -> str:
        run = self.judge_model_id or model_of(self.student_model_id) or self.teacher_model_id
        return run or self.judge or self.model


def sum_recorded_usage(files: Iterable[Path]) -> dict[str, Usage]:
    """Sum the usage of every whole line, repeats included, since those were paid too. Damaged lines are
    skipped; an answer of unknown cost adds its tokens. Raises StoreError: a file cannot be read."""
    sums: dict[str, tuple[int, int, float]] = {}
    for line in chain.from_iterable(decode_records(path, _UsageLine) for path in files):
        if isinstance(line, Undecodable) or (usage := line.usage) is None or line.source:
            continue  # nobody was asked for an answer that has a source
        if usage.stored:
            continue  # nor, at least for a part, for one from the store
        into, made, usd = sums.get(line.requested_model, (0, 0, 0.0))
        sums[line.requested_model] = (
            into + usage.input_tokens,
            made + usage.output_tokens,
            usd + (usage.cost_usd or 0.0),
        )
    return {name: Usage(*figures) for name, figures in sums.items()}


def subtract_usage_down_to_0(whole: Mapping[str, Usage], part: Mapping[str, Usage]) -> dict[str, Usage]:
    return {
        name: Usage(
            max(0, usage.input_tokens - part[name].input_tokens),
            max(0, usage.output_tokens - part[name].output_tokens),
            max(0.0, (usage.cost_usd or 0.0) - (part[name].cost_usd or 0.0)),
        )
        if name in part
        else usage
        for name, usage in whole.items()
    }
