"""The prompts of a run's datapoints, and their reference answers, read from its files."""

from __future__ import annotations

from collections.abc import Collection

import msgspec

from coeval.core.errors import Undecodable
from coeval.core.foreign import decode
from coeval.store.jsonl import whole_lines
from coeval.store.rundir import RunDir

__all__ = ["ItemText", "item_texts"]


class ItemText(msgspec.Struct, frozen=True):
    """What a line says of a datapoint."""

    id: str
    prompt: str | None = None
    reference_response: str | None = None
    status: str = "ok"


def item_texts(run: RunDir, wanted: Collection[str]) -> dict[str, ItemText]:
    """The texts of some datapoints, by id; damaged lines, which the reader counts, are passed over.

    Raises
    ------
    StoreError
        a file cannot be read.
    """
    found: dict[str, ItemText] = {}
    chosen = frozenset(wanted)
    for path in run.files("data_generation"):
        for line in whole_lines(path):
            try:
                text = decode(line.text, ItemText)
            except Undecodable:
                continue
            if text.id in chosen and text.status == "ok" and text.prompt is not None:
                found[text.id] = text
    return found
