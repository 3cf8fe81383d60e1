from __future__ import annotations

import pytest
from yarl import URL

from coeval.models.transport.pool import RequestRoute


@pytest.mark.parametrize(
    ("url", "host", "line"),
    [
        ("http://api.test/v1", "api.test", "/v1"),
        ("http://api.test:80/v1", "api.test", "/v1"),
        ("https://api.test:443/v1", "api.test", "/v1"),
        ("https://api.test:8443/v1", "api.test:8443", "/v1"),
        ("http://[::1]:8000/v1", "[::1]:8000", "/v1"),
        ("http://bücher.test/ä b?q=ö&r=%2F", "xn--bcher-kva.test", "/%C3%A4%20b?q=%C3%B6&r=/"),
        ("http://api.test", "api.test", "/"),
        ("http://api.test/base/v1/x%2Fy", "api.test", "/base/v1/x%2Fy"),
    ],
)
def test_how_a_request_begins(url: str, host: str, line: str) -> None:
    route = RequestRoute.to("POST", URL(url), {"Authorization": "Bearer x", "X-Who": "ä"})
    assert route.head.decode() == (
        f"POST {line} HTTP/1.1\r\nHost: {host}\r\nAccept: */*\r\nAccept-Encoding: identity\r\n"
        "Authorization: Bearer x\r\nX-Who: ä\r\n"
    )


def test_whom_the_connection_is_with() -> None:
    assert RequestRoute.to("GET", URL("https://bücher.test/v1"), {}).origin == (
        "xn--bcher-kva.test",
        443,
        True,
    )
    assert RequestRoute.to("GET", URL("http://[::1]:8000/v1"), {}).origin == ("::1", 8000, False)


@pytest.mark.parametrize("headers", [{"X": "a\r\nY: b"}, {"X\n": "a"}])
def test_a_header_with_a_line_break_is_never_sent(headers: dict[str, str]) -> None:
    with pytest.raises(ValueError, match="line break"):
        RequestRoute.to("GET", URL("http://host"), headers)
