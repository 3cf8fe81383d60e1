"""Whether a host is down, overrun, or only unlucky once: told by hand what becomes of requests, and when."""

from __future__ import annotations

import pytest

from coeval.models.pacing.limits import Limiter
from coeval.models.transport.call import Call
from coeval.models.transport.endpoint import OUTAGE_AFTER_S, Endpoint

CALL: Call[bytes] = Call(
    decode=lambda reply, redactor: reply.body,
    explain=lambda reply, redactor: None,
    timeout_s=5.0,
    priority=0,
    permit=lambda: None,
)


@pytest.fixture
def endpoint() -> Endpoint:
    return Endpoint("http://127.0.0.1:9/v1", None, Limiter())


def test_connections_that_break_while_others_succeed_are_too_many(endpoint: Endpoint) -> None:
    crowded = []
    for n in range(10):
        endpoint.record_success(n / 10)
        crowded.append(endpoint.record_disconnect_and_check_crowding(n / 10, n / 10 + 0.01))
    assert crowded[-1]
    assert endpoint.down_s == 0


def test_a_connection_that_breaks_once_in_a_while_is_not_the_hosts_word(endpoint: Endpoint) -> None:
    crowded = []
    for n in range(2_000):
        endpoint.record_success(n / 10)
        if n % 50 == 0:
            crowded.append(endpoint.record_disconnect_and_check_crowding(n / 10, n / 10 + 0.01))
    assert not any(crowded)


def test_connections_refused_while_others_are_held_are_too_many_though_none_has_succeeded(
    endpoint: Endpoint,
) -> None:
    """Eight answers of a minute each: for that minute nothing succeeds, and the host is not down."""
    for _ in range(8):
        endpoint.add_in_flight(0.0, CALL)
    crowded = [endpoint.record_disconnect_and_check_crowding(float(n), n + 0.01) for n in range(3, 60)]
    assert crowded[-1]
    assert endpoint.down_s == 0


def test_connections_refused_and_nothing_else_are_an_outage(endpoint: Endpoint) -> None:
    for n in range(32):
        together = [endpoint.add_in_flight(float(n), CALL) for _ in range(8)]
        for number in together:
            endpoint.remove_in_flight(number)
            assert not endpoint.record_disconnect_and_check_crowding(float(n), n + 0.9)
    assert endpoint.is_down


def test_a_host_that_dies_is_down_half_a_minute_later(endpoint: Endpoint) -> None:
    endpoint.record_success(100.0)
    now = 100.0
    while not endpoint.is_down:
        now += 0.5
        endpoint.record_disconnect_and_check_crowding(now, now + 0.01)
    assert now == pytest.approx(100 + OUTAGE_AFTER_S, abs=2)


@pytest.mark.parametrize(
    ("url", "wait_s"),
    [
        ("http://127.0.0.1:9/v1", 300),
        ("http://localhost:8000/v1", 300),
        ("http://[::1]:9/v1", 300),
        ("http://10.0.0.7:8000/v1", 35),
        ("https://api.example.org/v1", 35),
    ],
)
def test_a_server_of_this_machine_is_waited_for_longer(url: str, wait_s: float) -> None:
    endpoint = Endpoint(url, None, Limiter())
    endpoint.record_disconnect_and_check_crowding(0.0, 0.1, away=True)
    endpoint.record_disconnect_and_check_crowding(wait_s - 2, wait_s - 1, away=True)
    assert endpoint.is_awaited
    assert not endpoint.is_down
    endpoint.record_disconnect_and_check_crowding(wait_s, wait_s + 1, away=True)
    assert endpoint.is_down


def test_time_outs_are_alone_where_nothing_came_in_the_second_half_of_their_time(endpoint: Endpoint) -> None:
    endpoint.record_success(40.0)
    assert endpoint.record_timeout_and_check_silence(0.0, 100.0)
    endpoint.record_success(160.0)
    assert not endpoint.record_timeout_and_check_silence(100.0, 200.0)
    assert endpoint.down_s == 0


def test_a_host_found_down_is_given_its_first_concurrency_back(endpoint: Endpoint) -> None:
    for n in range(20):
        endpoint.limiter.record_timeout(n * 10 + 1.0, alone=False)
    assert endpoint.limiter.max_in_flight < 16
    for n in range(32):
        endpoint.record_failure_and_wake_if_down(1000.0 + n)
    assert endpoint.limiter.max_in_flight == 16


def test_a_model_has_one_lane_however_many_ask_for_it(endpoint: Endpoint) -> None:
    assert endpoint.lane("gpt") is endpoint.lane("gpt")
    assert endpoint.lane("gpt") is not endpoint.lane("other")


def test_a_path_is_asked_for_as_it_was_quoted(endpoint: Endpoint) -> None:
    path = "/model/arn%3Aaws%3Abedrock%3A%3A1%3Aprofile%2Feu.nova-v1%3A0/converse"
    route = endpoint.route("POST", path)
    assert route.head.startswith(f"POST /v1{path} HTTP/1.1\r\n".encode())
    assert str(route.url) == f"http://127.0.0.1:9/v1{path}"


def test_a_host_of_the_catalogue_is_named_whatever_a_key_holds() -> None:
    key = "sk-anthropic-planted-4f8Kq2Zr7Lw9"
    ours = Endpoint("https://api.anthropic.com/v1", None, Limiter(), [key])
    assert (
        ours.redact_own_message(f"GET api.anthropic.com/v1/models: {key}")
        == "GET api.anthropic.com/v1/models: [redacted]"
    )
    users = Endpoint("https://my-anthropic-planted.example/v1", None, Limiter(), [key])
    assert "anthropic-planted" not in users.redact_own_message(
        "GET my-anthropic-planted.example/v1/models: no connection"
    )
