"""What taking in a table of a million rows costs, in each format, beside a bare loop over one.

``python -m perf.tables FOLDER`` writes the tables, in a process of its own: the memory of one that starts
another counts for that one too.
"""

from __future__ import annotations

import random
import sys
from pathlib import Path

import duckdb

from perf.measure import Cost, coeval, run
from perf.scenarios import Figures

ROWS = 1_000_000

_EXPERIMENT = """\
models:
  - {name: own, interface: benchmark, roles: [teacher], parameters: {task: qa}}
  - {name: s, interface: simulated, roles: [student, judge]}
tasks:
  - name: qa
    description: Answer.
    target_attributes: {level: [easy, hard]}
    sampling: {total: 30}
    rubric: {a: Good.}
experiment: {id: big, storage_folder: ./runs}
"""
_FLAGS = ("--prompt", "question", "--reference", "answer", "--id", "qid", "--attribute", "level")
_BARE = """\
import csv, msgspec
encode = msgspec.json.Encoder().encode
with open("rows.csv", newline="") as source, open("bare.jsonl", "wb") as target:
    for row in csv.DictReader(source):
        target.write(encode(row) + b"\\n")
"""


def ingest_million(folder: Path) -> Figures:
    """`coeval ingest` of the same rows as CSV, JSON lines and Parquet, with ids and attributes."""
    run([sys.executable, "-m", "perf.tables", str(folder)], folder)
    (folder / "e.yaml").write_text(_EXPERIMENT)
    bare = run([sys.executable, "-c", _BARE], folder)
    costs: dict[str, Cost] = {}
    for suffix in ("csv", "jsonl", "parquet"):
        flags = (*_FLAGS, "--replace", "--yes")
        costs[suffix] = run(coeval("ingest", f"rows.{suffix}", "--config", "e.yaml", *flags), folder)
    reported = ", ".join(
        f"{name} {ROWS / cost.wall_s:,.0f} rows/s, peak {cost.rss_mb:.0f} MB" for name, cost in costs.items()
    )
    slowest = max(cost.wall_s for cost in costs.values())
    return Figures(
        slowest / bare.wall_s, f"{ROWS:,} rows: {reported}; a bare loop {ROWS / bare.wall_s:,.0f} rows/s"
    )


def _write_rows(folder: Path) -> None:
    drawn = random.Random(0)
    words = [f"word{number}" for number in range(20)]
    with (folder / "rows.csv").open("w") as file:
        file.write("qid,question,level,answer\n")
        for number in range(ROWS):
            question, answer = (" ".join(drawn.choices(words, k=count)) for count in (25, 10))
            file.write(f"q{number},{question},{drawn.choice(('easy', 'hard'))},{answer}\n")
    rows = duckdb.read_csv(str(folder / "rows.csv"))
    rows.write_parquet(str(folder / "rows.parquet"))
    duckdb.sql(f"COPY rows TO '{folder / 'rows.jsonl'}' (FORMAT json)")


if __name__ == "__main__":
    _write_rows(Path(sys.argv[1]))
