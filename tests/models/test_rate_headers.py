from __future__ import annotations

from datetime import UTC, datetime, timedelta
from email.utils import format_datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multidict import CIMultiDict

from coeval.models.transport.call import read_limit_hold_s, read_retry_advice, read_retry_wait_s

DATE = "Wed, 21 Oct 2015 07:28:00 GMT"
EPOCH = 1445412480  # the same time


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"Retry-After": "3"}, 3.0),
        ({"Retry-After": " 0.5 "}, 0.5),
        ({"Retry-After": "-3"}, 0.0),
        ({"Retry-After": "nan"}, None),
        ({"Retry-After": "soon"}, None),
        ({"Retry-After": "Mon, 01 Jan 2001 00:00:00 +99999999999999"}, None),
        ({"Retry-After": "3", "retry-after-ms": "250"}, 0.25),
        ({"llm_provider-retry-after": "200"}, 200.0),
        ({"x-ms-retry-after-ms": "1500"}, 1.5),
        ({"X-Upstream-Retry-After": "9", "Retry-After": "2"}, 2.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:29:30 GMT", "Date": DATE}, 90.0),
        ({"Retry-After": "Wed, 21 Oct 2015 07:00:00 GMT", "Date": DATE}, 0.0),
    ],
)
def test_the_wait_that_is_asked_for(headers: dict[str, str], seconds: float | None) -> None:
    assert read_retry_wait_s(CIMultiDict(headers)) == seconds


def test_a_date_without_the_servers_clock_is_held_against_ours() -> None:
    at = format_datetime(datetime.now(UTC) + timedelta(hours=1), usegmt=True)
    wait_s = read_retry_wait_s(CIMultiDict({"Retry-After": at}))
    assert wait_s is not None
    assert 3000 < wait_s <= 3600


@pytest.mark.parametrize(
    ("reset", "seconds"),
    [
        ("1s", 1.0),
        ("6m0s", 360.0),
        ("20ms", 0.02),
        ("1h2m3.5s", 3723.5),
        ("2m59.56s", 179.56),
        ("1d", 86400.0),
        ("15", 15.0),
        (str(EPOCH + 30), 30.0),
        (f"{EPOCH + 30}000", 30.0),
        ("2015-10-21T07:28:10Z", 10.0),
        ("later", 0.0),
        ("", 0.0),
    ],
)
@pytest.mark.parametrize("kind", ["-requests", "-tokens", "-requests-day", "-tokens-minute", ""])
def test_a_spent_limit_holds_until_its_reset(kind: str, reset: str, seconds: float) -> None:
    headers = CIMultiDict({"Date": DATE, f"X-RateLimit-Reset{kind}": reset})
    headers[f"X-RateLimit-Remaining{kind}"] = "1"
    assert read_limit_hold_s(headers) == 0.0
    headers[f"X-RateLimit-Remaining{kind}"] = "0"
    assert read_limit_hold_s(headers) == pytest.approx(seconds)


def test_the_longest_of_several_spent_limits_counts() -> None:
    headers = CIMultiDict(
        {
            "x-ratelimit-remaining-requests": "0",
            "x-ratelimit-reset-requests": "2s",
            "anthropic-ratelimit-tokens-remaining": "0",
            "anthropic-ratelimit-tokens-reset": "2015-10-21T07:28:05Z",
            "date": DATE,
        }
    )
    assert read_limit_hold_s(headers) == 5.0


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({"ratelimit-remaining": "0", "ratelimit-reset": "25200"}, 25200.0),
        ({"ratelimit": "limit=100, remaining=0, reset=25200"}, 25200.0),
        ({"ratelimit": '"day";r=0;t=25200, "minute";r=3;t=9'}, 25200.0),
        ({"ratelimit": '"day";r=10;t=25200'}, 0.0),
        ({"x-rate-limit-remaining": "0", "x-rate-limit-reset": str(EPOCH + 25200)}, 25200.0),
        ({"x-ratelimit-remaining-day": "0", "x-ratelimit-reset-day": "7h"}, 25200.0),
        ({"x-ratelimit-remaining-tokens-day": "0.0", "x-ratelimit-reset-tokens-day": "420m"}, 25200.0),
        ({"x-ratelimit-remaining": "-1", "x-ratelimit-reset": "2015-10-21T14:28:00Z"}, 25200.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset-after": "25200.0"}, 25200.0),
        ({"x-ratelimit-remaining": "0", "x-ratelimit-reset": "Wed, 21 Oct 2015 14:28:00 GMT"}, 25200.0),
        (
            {
                "llm_provider-x-ratelimit-remaining-requests": "0",
                "llm_provider-x-ratelimit-reset-requests": "7h0m0s",
            },
            25200.0,
        ),
        ({"x-ratelimit-limit": "0", "x-ratelimit-reset": "25200"}, 0.0),
    ],
)
def test_a_spent_limit_is_known_by_any_of_its_names(headers: dict[str, str], seconds: float) -> None:
    assert read_limit_hold_s(CIMultiDict({"date": DATE, **headers})) == pytest.approx(seconds)


@pytest.mark.parametrize(("word", "again"), [("true", True), ("False", False), ("maybe", None), ("", None)])
def test_the_providers_word_on_retrying(word: str, again: bool | None) -> None:
    assert read_retry_advice(CIMultiDict({"X-Should-Retry": word})) is again


@given(st.text(max_size=30))
def test_no_header_text_breaks_the_reading(text: str) -> None:
    headers = {"retry-after": text, "x-ratelimit-remaining-tokens": "0", "x-ratelimit-reset-tokens": text}
    read = CIMultiDict({**headers, "date": text})
    wait_s = read_retry_wait_s(read)
    assert wait_s is None or wait_s >= 0
    assert read_limit_hold_s(read) >= 0
