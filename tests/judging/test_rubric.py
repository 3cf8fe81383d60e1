from __future__ import annotations

from coeval.judging.verdict import criterion_hash


def test_the_hash_follows_the_words_not_the_wrapping() -> None:
    assert len(criterion_hash("It is right.")) == 8
    assert criterion_hash("It is\n  right.\n") == criterion_hash("It is right.")
    assert criterion_hash("It is right") != criterion_hash("It is right.")
