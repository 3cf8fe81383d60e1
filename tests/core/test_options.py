"""A message names the way out in the words of whoever asked."""

from __future__ import annotations

import asyncio

from coeval.core.errors import UsageError
from coeval.core.options import CONTINUE, OVERWRITE, PROBE_WARNS, TIMEOUT, Frontend, word_messages_for


def refusal() -> str:
    return str(UsageError(f"run again with {CONTINUE}, or use {OVERWRITE}"))


def test_each_face_has_words_of_its_own() -> None:
    assert refusal() == "run again with continue_run=True, or use overwrite=True"
    with word_messages_for(Frontend.COEVAL):
        assert refusal() == "run again with --continue, or use --overwrite"
    with word_messages_for(Frontend.EVAL_FRAMEWORK):
        assert refusal() == "run again with the same command, or use --overwrite"
    with word_messages_for(Frontend.SWEEP):
        assert refusal() == "run again with the same command, or use --overwrite"
        assert (str(TIMEOUT), str(PROBE_WARNS)) == ("--timeout", "")
    assert refusal() == "run again with continue_run=True, or use overwrite=True"


def test_tasks_speak_as_those_who_started_them() -> None:
    async def later() -> str:
        return await asyncio.create_task(asyncio.to_thread(refusal))

    with word_messages_for(Frontend.COEVAL):
        assert "--continue" in asyncio.run(later())
