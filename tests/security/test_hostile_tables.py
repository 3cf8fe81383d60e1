"""Tables of others: whatever is done to their bytes, rows become items or are told."""

from __future__ import annotations

import gzip
import io
import json
import random
from pathlib import Path

import pyarrow
import pyarrow.parquet
import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task

from coeval.core.errors import CoevalError
from coeval.tables.harvest import Harvest
from coeval.tables.item_map import ItemMap
from coeval.tables.table import open_table

pytestmark = pytest.mark.process

CSV = b"qid,question,answer\n" + b"".join(b'q%d,"Why, %d?\nreally",a\n' % (n, n) for n in range(20))
ROWS = [{"qid": f"q{n}", "question": f"Wh\u00e4t {n}?", "answer": [1, {"x": 1.5e3}]} for n in range(20)]
LINES = b"".join(json.dumps(row).encode() + b"\n" for row in ROWS)
TABLE = pyarrow.Table.from_pylist([{"qid": row["qid"], "question": row["question"]} for row in ROWS])
PLANTED = [
    b'"', b"\r", b"\x00", b"\n", b"{", b"[" * 4_000, b"\xff\xfe", b"\xed\xa0\x80", b",", b"1e999",
    b"9" * 5_000,
]  # fmt: skip


def parquet() -> bytes:
    out = io.BytesIO()
    pyarrow.parquet.write_table(TABLE, out)
    return out.getvalue()


WHOLE = {
    "table.csv": CSV,
    "table.jsonl": LINES,
    "table.json": json.dumps(ROWS).encode(),
    "packed.csv.gz": gzip.compress(CSV),
    "wide.csv": CSV.decode().encode("utf-16"),
    "table.parquet": parquet(),
}


def corrupted(whole: bytes, drawn: random.Random) -> bytes:
    data = bytearray(whole)
    for _ in range(drawn.randint(1, 6)):
        place = drawn.randrange(len(data)) if data else 0
        match drawn.randrange(5):
            case 0 if data:
                data[place] = drawn.randrange(256)
            case 1:
                data[place:place] = drawn.randbytes(drawn.randint(1, 5))
            case 2:
                del data[place : place + drawn.randint(1, 30)]
            case 3 if drawn.random() < 0.2:
                del data[place:]
            case _:
                data[place:place] = drawn.choice(PLANTED)
    return bytes(data)


def harvested(path: Path) -> Harvest | str:
    """What came of a file; a string says why nothing did."""
    try:
        harvest = Harvest(iter([open_table(path)]), ItemMap("question", id="qid"))
        items = list(harvest.read_items())
    except CoevalError as error:
        return str(error)
    assert all(found.item.prompt.strip() for found in items)
    assert len({found.item.id for found in items}) == len(items) == harvest.made
    return harvest


@pytest.mark.parametrize("name", WHOLE)
def test_a_corrupted_table_gives_items_or_says_why_not(name: str, tmp_path: Path) -> None:
    drawn, path = random.Random(name), tmp_path / name
    path.write_bytes(WHOLE[name])
    whole = harvested(path)
    assert isinstance(whole, Harvest)
    assert (whole.made, whole.flawed) == (20, 0)
    reported = 0
    for _ in range(100):
        path.write_bytes(corrupted(WHOLE[name], drawn))
        found = harvested(path)
        sentences = [found] if isinstance(found, str) else found.describe_problems()
        reported += bool(sentences)
        assert all(str(path) in sentence for sentence in sentences)
    assert reported > 20


def test_what_a_table_holds_is_shown_as_text(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, coeval: Command
) -> None:
    monkeypatch.chdir(tmp_path)
    hostile = "\x1b[31mred \u202e [bold]x[/bold] :smile:"
    teacher = {"name": "own", "interface": "benchmark", "roles": ["teacher"], "parameters": {"task": "story"}}
    lab = Lab(tmp_path, [teacher, model("ann", "student", "judge")], [task(total=1)])
    rows = [{"question": hostile, hostile: hostile}, {"question": hostile, hostile: [hostile]}]
    (tmp_path / "odd.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    for flags in (
        ("--attribute", f"level={hostile}"),
        ("--prompt", "nothing"),
        ("--id", hostile, "--skip-bad"),
    ):
        ended = coeval("ingest", "odd.jsonl", "--config", lab.file, "--dry-run", *flags)
        shown = ended.out + ended.err
        assert "red" in shown
        assert not {"\x1b", "\u202e"} & set(shown)
    assert "[bold]x[/bold] :smile:" in ended.out
