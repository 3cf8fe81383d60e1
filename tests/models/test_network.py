from __future__ import annotations

import ssl
from pathlib import Path

import pytest
from yarl import URL

from coeval.core.errors import UsageError
from coeval.models.transport.network import find_proxy, load_certificates

NAMES = (
    *("http_proxy", "https_proxy", "all_proxy", "no_proxy"),
    *("REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"),
)


@pytest.fixture(autouse=True)
def _bare_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in NAMES:
        monkeypatch.delenv(name, raising=False)
        monkeypatch.delenv(name.upper(), raising=False)


@pytest.mark.parametrize(
    ("environment", "url", "proxy"),
    [
        ({}, "https://api.test/v1", None),
        ({"https_proxy": "http://p:3128"}, "https://api.test/v1", "http://p:3128"),
        ({"HTTPS_PROXY": "p:3128"}, "https://api.test/v1", "http://p:3128"),
        ({"https_proxy": "http://p:3128"}, "http://api.test/v1", None),
        ({"all_proxy": "http://p:3128"}, "http://api.test/v1", "http://p:3128"),
        ({"https_proxy": "http://p:3128", "no_proxy": "api.test"}, "https://api.test/v1", None),
        ({"http_proxy": "http://p:3128", "no_proxy": "localhost:8000"}, "http://localhost:8000/v1", None),
    ],
)
def test_the_proxy_of_a_url(
    environment: dict[str, str], url: str, proxy: str | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, value in environment.items():
        monkeypatch.setenv(name, value)
    assert find_proxy(URL(url)) == (URL(proxy) if proxy else None)


def test_a_proxy_of_another_kind_is_refused_without_its_password(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("https_proxy", "socks5://who:secret@p:1080")
    with pytest.raises(UsageError, match=r"socks5://p\).*NO_PROXY") as caught:
        find_proxy(URL("https://api.test"))
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("name", ["REQUESTS_CA_BUNDLE", "CURL_CA_BUNDLE"])
def test_the_certificate_bundle_of_the_environment(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv(name, str(tmp_path))
    assert isinstance(load_certificates(), ssl.SSLContext)
    for bundle in (tmp_path / "absent.pem", tmp_path / "empty.pem"):
        (tmp_path / "empty.pem").write_text("")
        monkeypatch.setenv(name, str(bundle))
        with pytest.raises(UsageError, match=f"{name}=.*{bundle.name} is not a usable certificate bundle"):
            load_certificates()
