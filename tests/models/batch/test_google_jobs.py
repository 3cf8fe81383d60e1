"""What Google's two batch interfaces say of errors, in numbers and in words."""

from __future__ import annotations

import msgspec
import pytest

from coeval.core.errors import BadRequest, RateLimited, ServerFault
from coeval.core.redaction import Redactor
from coeval.models.batch.gemini_batches import (
    GoogleError,
    failed_reply,
    job_error,
    line_status,
    state_of,
)


@pytest.mark.parametrize(
    ("words", "status"),
    [
        ('Bad Request: {"error": {"code": 400, "message": "no", "status": "INVALID_ARGUMENT"}}', 400),
        ('Too Many Requests: {"error": {"code": 429, "message": "no"}}', 429),
        ("Too Many Requests: {not json", 429),
        ("Bad Request", 400),
        ("generic::RESOURCE_EXHAUSTED: out of quota", 429),
        ("error 503 while asking", 503),
        ("Internal Server Error: ", 500),
        ("nobody knows", 500),
    ],
)
def test_the_status_of_a_line_is_that_of_a_live_answer(words: str, status: int) -> None:
    reply = failed_reply("id", line_status(words))
    error = msgspec.json.decode(reply.body)["error"]
    assert (reply.status, error["code"]) == (status, status)
    assert error["message"] == ("no" if '"no"' in words else words)


def test_a_request_that_was_cancelled_was_never_carried_out() -> None:
    assert failed_reply("id", GoogleError(1, "The operation was cancelled.")).status is None


def test_details_are_kept_as_the_dialect_reads_them() -> None:
    told = b'{"code": 8, "message": "busy", "details": [{"retryDelay": "7s"}]}'
    reply = failed_reply("id", msgspec.json.decode(told, type=GoogleError))
    assert msgspec.json.decode(reply.body)["error"]["details"] == [{"retryDelay": "7s"}]


@pytest.mark.parametrize(
    ("code", "kind"), [(3, BadRequest), (8, RateLimited), (13, ServerFault), (99, ServerFault)]
)
def test_why_a_job_failed_is_in_the_one_tree(code: int, kind: type[Exception]) -> None:
    error = job_error(GoogleError(code, "because"), Redactor())
    assert type(error) is kind
    assert str(error) == "because"


@pytest.mark.parametrize(
    ("word", "state"),
    [
        ("JOB_STATE_QUEUED", "waiting"),
        ("BATCH_STATE_PENDING", "waiting"),
        ("JOB_STATE_CANCELLING", "running"),
        ("JOB_STATE_PAUSED", "running"),
        ("JOB_STATE_PARTIALLY_SUCCEEDED", "expired"),
        ("something new", "running"),
    ],
)
def test_states_have_one_word(word: str, state: str) -> None:
    assert state_of(word) == state
