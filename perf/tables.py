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


_CHECKED = """\
tasks:
  - name: tickets
    description: Answer the ticket.
    items:
      {path: tickets.csv, prompt: q, reference: paid, id: id, attributes: {kind: kind}, responses: {prod: a}}
    rubric:
      polite: {check: contains, values: [thank, please], require: any, case: false}
      short: {check: length, most: 120, unit: words}
      paid: {check: numeric}
      days: {check: regex, pattern: 'in \\d+ days'}
experiment: {id: checked, storage_folder: ./runs}
"""


def check_million(folder: Path) -> Figures:
    """A million answers that exist, four checks each: from their records on disk to a table of scores.

    The first start reads the answers and makes one check; the second one makes the others.
    """
    with (folder / "tickets.csv").open("w") as table:
        table.write("id,q,paid,a,kind\n")
        for n in range(ROWS):
            said = f"Thank you. Order {n} is on its way and arrives in {n % 9} days. You paid {1.5 * n} EUR."
            table.write(f"{n},Where is order {n}?,{1.5 * n},{said},{('refund', 'order')[n % 2]}\n")
    lines = _CHECKED.splitlines(keepends=True)
    (folder / "e.yaml").write_text("".join(line for line in lines if "check:" not in line or "short" in line))
    read = run(coeval("run", "--config", "e.yaml"), folder)
    (folder / "e.yaml").write_text(_CHECKED)
    (folder / "tickets.csv").unlink()  # what was read of it stays, and is not compared with it again
    cost = run(coeval("run", "--config", "e.yaml", "--continue"), folder)
    reported = (
        f"{ROWS:,} answers checked in {cost.wall_s:.0f} s ({cost.cpu_s:.0f} s of CPU, peak "
        f"{cost.rss_mb:.0f} MB); "
        f"reading them, with one check, {read.wall_s:.0f} s ({read.cpu_s:.0f} s of CPU, peak "
        f"{read.rss_mb:.0f} MB)"
    )
    return Figures(cost.cpu_s / 60, reported)


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
