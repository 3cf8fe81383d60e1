"""Nobody waits while an index of batched requests goes through a large job."""

from __future__ import annotations

import asyncio
import os
from contextlib import suppress
from pathlib import Path

import pytest

from coeval.core.errors import BatchLost, Pending
from coeval.models.batch.batch_index import ID_BYTES, BatchIndex, ids_file


async def test_others_have_their_turn_while_a_large_job_is_gone_through(tmp_path: Path) -> None:
    """What is parked anew in between is left as it is."""
    index = BatchIndex(tmp_path, tmp_path / "pending_batches.json")
    ids = [os.urandom(ID_BYTES) for _ in range(20_000)]
    for tag, keys in (("a", ids[:10_000]), ("b", ids[10_000:])):
        ids_file(tmp_path, tag).write_bytes(b"".join(keys))
        index.wait_for(tag)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            with suppress(Pending):
                if index.outcome(ids[0]) is None:
                    index.park(ids[0])
            await asyncio.sleep(0)

    meanwhile = asyncio.create_task(others())
    assert await index.waiting_of("a") == {key.hex() for key in ids[:10_000]}
    assert turns > 1
    await index.lose("b", "its job is gone")
    await index.release("a")
    meanwhile.cancel()
    with pytest.raises(Pending):
        index.outcome(ids[0])
    assert index.outcome(ids[9_999]) is None
    with pytest.raises(BatchLost, match="its job is gone"):
        index.outcome(ids[10_000])
    assert await index.waiting_of("b") == set()
