"""Origins of supplied items: ``sources.json`` of a run, task → teacher → origins.

One file beside the items, so that a million of them do not each repeat it.
"""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from coeval.store.jsonl import read_json, write_json_atomic
from coeval.store.rundir import RunDir, now
from coeval.tables.harvest import Harvest, Selection
from coeval.tables.item_map import ItemMap
from coeval.tables.source_bytes import SourceFile
from coeval.tables.table_source import TableSource


class ItemOrigin(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """One import of items. ``files`` with their SHA-256; ``revision`` of the hub's data set; ``rows`` read
    and ``items`` made."""

    source: str
    files: list[SourceFile]
    map: ItemMap
    rows: int
    items: int
    taken_at: str
    url: str = ""
    revision: str = ""
    subset: str = ""
    split: str = ""
    license: str = ""
    citation: str = ""
    limit: int | None = None
    sample: int | None = None
    seed: int | None = None

    @classmethod
    def of(cls, source: TableSource, harvest: Harvest, chosen: Selection, items: int) -> ItemOrigin:
        """Make the origin of a finished harvest."""
        return cls(
            source=source.name,
            files=harvest.files,
            map=harvest.needed,
            rows=harvest.rows,
            items=items,
            taken_at=now(),
            url=source.url,
            revision=source.revision,
            subset=source.subset,
            split=source.split,
            license=source.license,
            citation=source.citation,
            limit=chosen.limit,
            sample=chosen.sample,
            seed=chosen.seed if chosen.sample is not None else None,
        )

    @property
    def selection(self) -> Selection:
        return Selection(self.limit, self.sample, self.seed or 0)

    def same_as(self, files: Sequence[SourceFile], needed: ItemMap, chosen: Selection) -> bool:
        """Check whether the same files, used alike, give the same items; file names do not matter."""
        hashes = [file.sha256 for file in files]
        seeded = chosen if chosen.sample is not None else chosen._replace(seed=0)
        return (
            [file.sha256 for file in self.files] == hashes and self.map == needed and self.selection == seeded
        )


Origins = dict[str, dict[str, list[ItemOrigin]]]


def read_origins(folder: RunDir) -> Origins:
    """Read the origins, empty without a file; raises StoreError where it is damaged."""
    try:
        return read_json(folder.sources, Origins)
    except FileNotFoundError:
        return {}


def remember_origin(folder: RunDir, place: tuple[str, str], origin: ItemOrigin, *, more: bool) -> None:
    """Store the origin of a (task, teacher)'s items; ``more`` adds to those stored."""
    origins = read_origins(folder)
    task, teacher = place
    before = origins.get(task, {}).get(teacher, [])
    origins.setdefault(task, {})[teacher] = [*before, origin] if more else [origin]
    write_json_atomic(folder.sources, origins)


def inherit_origins(source: RunDir, target: RunDir) -> None:
    """Add the origins of another run's items to those stored."""
    theirs, own = read_origins(source), read_origins(target)
    merged = {task: {**theirs.get(task, {}), **own.get(task, {})} for task in theirs | own}
    if merged != own:
        write_json_atomic(target.sources, merged)
