"""The benchmarks that have a name here: rows of ``benchmarks.yaml``."""

from __future__ import annotations

from functools import cache
from pathlib import Path

import msgspec

from coeval.core.foreign import convert
from coeval.core.yaml_text import yaml_reader
from coeval.tables.item_map import ItemMap

PACKAGED_BENCHMARKS = Path(__file__).with_name("benchmarks.yaml")


class NamedBenchmark(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A split of a data set of the hub, and what its columns are to an item."""

    about: str
    repo: str
    config: str
    split: str
    license: str
    citation: str
    map: ItemMap


@cache
def named_benchmarks() -> dict[str, NamedBenchmark]:
    data = yaml_reader().load(PACKAGED_BENCHMARKS.read_text(encoding="utf-8"))
    return convert(data, dict[str, NamedBenchmark])
