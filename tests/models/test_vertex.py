"""Vertex AI against a strict fake: addresses, and tokens that are renewed while a run goes on."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest
from fakes.gemini import Fault, in_camel_case
from fakes.vertex import PROJECT, VertexHost, fake_vertex, key_file
from google import genai
from google.auth.exceptions import TransportError
from google.genai import types
from google.oauth2 import service_account
from opened import answer, keys_of, opened

from coeval.core.errors import AccessDenied, ConnectionFailed, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import Message, Request, SamplingParameters
from coeval.models.address import ModelAddress, resolve_address
from coeval.models.catalog import HOSTS
from coeval.models.signers import GOOGLE_INSTALL, GoogleSigner

HELLO = Request(messages=(Message("user", "hi"),), sampling=SamplingParameters(temperature=0.5, max_tokens=9))


def spec(url: str | None, model: str = "gemini-2.5-flash", **options: Any) -> ModelSpec:
    return ModelSpec(name="m", interface="vertex", model=model, base_url=url, timeout_s=30.0, options=options)


def env_of(host: VertexHost, folder: Path, **fields: Any) -> dict[str, str]:
    return {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file(folder, host.token_url, **fields))}


# Where a model is asked


def address(model: str, env: dict[str, str], **options: Any) -> ModelAddress:
    return resolve_address(spec(None, model, **options), HOSTS["vertex"], keys_of(env))


@pytest.mark.parametrize(
    ("location", "host"),
    [
        (None, "https://aiplatform.googleapis.com/v1"),
        ("global", "https://aiplatform.googleapis.com/v1"),
        ("us-central1", "https://us-central1-aiplatform.googleapis.com/v1"),
        ("eu", "https://aiplatform.eu.rep.googleapis.com/v1"),
    ],
)
def test_a_location_has_a_host_of_its_own(location: str | None, host: str) -> None:
    env = {"GOOGLE_CLOUD_PROJECT": "p"} | ({"GOOGLE_CLOUD_LOCATION": location} if location else {})
    found = address("gemini-2.5-flash", env)
    at = location or "global"
    assert found.url == host
    assert (
        found.path == f"/projects/p/locations/{at}/publishers/google/models/gemini-2.5-flash:generateContent"
    )


HERE = "projects/p/locations/us-east5"


@pytest.mark.parametrize(
    ("model", "resource"),
    [
        ("google/gemini-2.5-pro", f"{HERE}/publishers/google/models/gemini-2.5-pro"),
        ("meta/llama-4", f"{HERE}/publishers/meta/models/llama-4"),
        ("publishers/google/models/x", f"{HERE}/publishers/google/models/x"),
        ("models/gemini-2.5-pro", f"{HERE}/publishers/google/models/gemini-2.5-pro"),
        ("endpoints/123456", f"{HERE}/endpoints/123456"),
        ("projects/7/locations/asia-east1/endpoints/8", "projects/7/locations/asia-east1/endpoints/8"),
    ],
)
def test_a_model_may_be_named_as_google_names_it(model: str, resource: str) -> None:
    found = address(model, {}, project="p", location="us-east5")
    assert found.url == f"https://{resource.split('/')[3]}-aiplatform.googleapis.com/v1"
    assert found.path == f"/{resource}:generateContent"


@pytest.mark.process
def test_the_project_is_the_users_own_else_that_of_the_service_account(tmp_path: Path) -> None:
    env = {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file(tmp_path, "https://127.0.0.1/token"))}
    assert f"/projects/{PROJECT}/" in address("gemini-2.5-flash", env).path
    env["GOOGLE_CLOUD_PROJECT"] = "from-the-environment"
    assert "/projects/from-the-environment/" in address("gemini-2.5-flash", env).path
    assert "/projects/of-the-model/" in address("gemini-2.5-flash", env, project="of-the-model").path


def test_a_project_that_nobody_names_is_asked_for() -> None:
    with pytest.raises(UsageError, match=r"needs project and none was found.*GOOGLE_CLOUD_PROJECT"):
        address("gemini-2.5-flash", {})


@pytest.mark.parametrize("location", ["us central1", "US-CENTRAL1", "eu/west"])
def test_a_location_that_is_none_is_told_before_anything_is_asked(location: str) -> None:
    with pytest.raises(UsageError, match=r"is not a location of Vertex AI.*GOOGLE_CLOUD_LOCATION"):
        address("gemini-2.5-flash", {}, project="p", location=location)


# What is sent


@pytest.mark.process
@pytest.mark.filterwarnings("ignore:Inheritance class Aiohttp:DeprecationWarning")
async def test_the_request_is_what_googles_client_sends_for_the_same_call(tmp_path: Path) -> None:
    async with fake_vertex() as host:
        env = env_of(host, tmp_path)
        assert (await answer(spec(host.url, location="us-central1"), env, HELLO)).text == "ok"
        kind: Any = service_account.Credentials
        credentials = kind.from_service_account_file(
            env["GOOGLE_APPLICATION_CREDENTIALS"], scopes=["https://www.googleapis.com/auth/cloud-platform"]
        )
        client = genai.Client(
            vertexai=True,
            project=PROJECT,
            location="us-central1",
            credentials=credentials,
            http_options=types.HttpOptions(base_url=host.url, api_version="v1"),
        )
        theirs = await client.aio.models.generate_content(
            model="gemini-2.5-flash",
            contents="hi",
            config=types.GenerateContentConfig(temperature=0.5, max_output_tokens=9),
        )
        await client.aio.aclose()
        mine, other = host.requested
    assert theirs.text == "ok"
    assert mine.body == in_camel_case(other.body)
    assert mine.path == other.path
    assert [requested.headers["Authorization"] for requested in (mine, other)] == [
        f"Bearer {t}" for t in host.issued
    ]


async def test_an_access_token_of_the_users_own_is_shown_as_it_is() -> None:
    async with fake_vertex() as host:
        host.good.add("ya29.of-my-own-0123456789")
        own = ModelSpec(
            name="m",
            interface="vertex",
            model="gemini-2.5-flash",
            base_url=host.url,
            access_key="ya29.of-my-own-0123456789",
            options={"project": "p"},
        )
        assert (await answer(own, {}, HELLO)).text == "ok"
    assert host.token_requested == 0


# Tokens


async def test_a_token_serves_many_requests_and_is_fetched_once_however_many_wait(tmp_path: Path) -> None:
    async with fake_vertex() as host, opened(spec(host.url), env_of(host, tmp_path)) as model:
        together = await asyncio.gather(*(model.complete(HELLO) for _ in range(12)))
        assert (await model.complete(HELLO)).text == "ok"
    assert [completion.text for completion in together] == ["ok"] * 12
    assert (host.token_requested, len(host.requested)) == (1, 13)


async def test_a_token_that_is_refused_before_its_time_is_renewed_once(tmp_path: Path) -> None:
    async with fake_vertex() as host, opened(spec(host.url), env_of(host, tmp_path)) as model:
        assert (await model.complete(HELLO)).attempts == 1
        host.expire()
        together = await asyncio.gather(*(model.complete(HELLO) for _ in range(6)))
        assert [completion.text for completion in together] == ["ok"] * 6
        assert host.token_requested == 2
        host.script.extend([Fault(401, "Request had invalid authentication credentials.")] * 8)
        with pytest.raises(AccessDenied, match="invalid authentication credentials"):
            await model.complete(HELLO)
    assert len(host.script) == 6


async def test_the_loop_goes_on_while_a_token_is_fetched(tmp_path: Path) -> None:
    async with fake_vertex() as host, opened(spec(host.url), env_of(host, tmp_path)) as model:
        host.token_gate.clear()
        asking = asyncio.create_task(model.complete(HELLO))
        await host.token_needed.wait()  # the fake serves on this very loop: were it blocked, it never would
        assert not asking.done()
        host.token_gate.set()
        assert (await asking).text == "ok"


async def test_who_is_cancelled_while_waiting_leaves_the_renewal_to_the_others(tmp_path: Path) -> None:
    async with fake_vertex() as host, opened(spec(host.url), env_of(host, tmp_path)) as model:
        host.token_gate.clear()
        first, second = (asyncio.create_task(model.complete(HELLO)) for _ in range(2))
        await host.token_needed.wait()
        first.cancel()
        host.token_gate.set()
        assert (await second).text == "ok"
        with pytest.raises(asyncio.CancelledError):
            await first
    assert host.token_requested == 1


transport_error: Any = TransportError
AWAY: Exception = transport_error("unreachable")


class Account:
    """Credentials in google-auth's shape, renewed by hand."""

    def __init__(self, *expiries: Any) -> None:
        self.expiries = list(expiries)
        self.token: str | None = None
        self.expiry: Any = None
        self.renewals = 0
        self.renewed_again = threading.Event()

    def refresh(self, request: Any, /) -> None:
        self.renewals += 1
        if self.renewals > 1:
            self.renewed_again.set()
        if not self.expiries:
            raise AWAY
        self.token, self.expiry = f"token-{self.renewals}", self.expiries.pop(0)


async def test_a_renewal_that_fails_is_no_matter_while_the_token_is_good() -> None:
    at = datetime(2100, 1, 1, 12, tzinfo=UTC)
    account = Account(at.replace(tzinfo=None))  # as google-auth has it
    tokens = GoogleSigner(account, {})
    expires = at.timestamp()
    assert await tokens.token(expires - 3600) == "token-1"
    assert await tokens.token(expires - 301) == "token-1"
    assert account.renewals == 1
    assert await tokens.token(expires - 299) == "token-1"
    assert await asyncio.to_thread(account.renewed_again.wait, 30)  # beside the requests
    with pytest.raises(ConnectionFailed, match="no access token: unreachable"):
        await tokens.token(expires)


class SlowAccount(Account):
    """Its second renewal hangs until it is let go."""

    def __init__(self, *expiries: Any) -> None:
        super().__init__(*expiries)
        self.go_on = threading.Event()

    def refresh(self, request: Any, /) -> None:
        if self.token is not None:
            self.go_on.wait(60)
        super().refresh(request)


async def test_nobody_waits_for_a_renewal_while_the_token_is_good() -> None:
    at = datetime(2100, 1, 1, 12, tzinfo=UTC)
    account = SlowAccount(at.replace(tzinfo=None), at.replace(hour=13, tzinfo=None))
    tokens = GoogleSigner(account, {})
    expires = at.timestamp()
    try:
        async with asyncio.timeout(30):
            assert await tokens.token(expires - 3600) == "token-1"
            for seconds in (299, 200, 1):
                assert await tokens.token(expires - seconds) == "token-1"
        assert account.renewals == 1
        late = asyncio.create_task(tokens.token(expires + 1))
        await asyncio.sleep(0)
        assert not late.done()
    finally:
        account.go_on.set()
    assert await late == "token-2"
    assert account.renewals == 2


@pytest.mark.parametrize(
    ("status", "body", "words"),
    [
        (400, {"error": "invalid_grant", "error_description": "Invalid JWT Signature."}, "invalid_grant"),
        (401, {"error": "unauthorized_client"}, "gcloud auth application-default login"),
    ],
)
async def test_a_token_that_is_refused_names_the_way_out(
    status: int, body: dict[str, str], words: str, tmp_path: Path
) -> None:
    async with fake_vertex() as host:
        host.token_script.append((status, body))
        with pytest.raises(AccessDenied, match=words):
            await answer(spec(host.url), env_of(host, tmp_path), HELLO)
    assert not host.requested


async def test_all_who_wait_for_a_token_that_fails_are_told_why_each_by_itself(tmp_path: Path) -> None:
    async with fake_vertex() as host, opened(spec(host.url), env_of(host, tmp_path)) as model:
        host.token_script.extend([(401, {"error": "unauthorized_client"})] * 5)
        waiting = [asyncio.create_task(model.complete(HELLO)) for _ in range(5)]
        ends = await asyncio.gather(*waiting, return_exceptions=True)
    assert all(isinstance(end, AccessDenied) for end in ends)
    assert len({id(end) for end in ends}) == 5
    assert {str(end).count("POST") for end in ends} == {1}


@pytest.mark.system
async def test_a_token_endpoint_in_trouble_is_asked_again(tmp_path: Path) -> None:
    async with fake_vertex() as host:
        host.token_script.extend([(503, {"error": "temporarily_unavailable"})] * 2)
        assert (await answer(spec(host.url), env_of(host, tmp_path), HELLO)).text == "ok"


async def test_a_token_endpoint_that_is_away_is_a_connection_that_failed(tmp_path: Path) -> None:
    async with fake_vertex() as host:
        env = {"GOOGLE_APPLICATION_CREDENTIALS": str(key_file(tmp_path, "http://127.0.0.1:9/token"))}
        with pytest.raises(ConnectionFailed, match="no access token"):
            await answer(spec(host.url), env, HELLO)


# Credentials that are none


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no json", "is not a JSON object"),
        (b'{"type": "service_account", "private_key": "MIIEsecret"}', "holds no key that can be used"),
        (b'{"type": "impersonated_service_account"}', "are taken from GOOGLE_APPLICATION_CREDENTIALS"),
    ],
)
def test_a_file_that_holds_no_credentials_is_told_before_anything_is_asked(
    content: bytes, words: str, tmp_path: Path
) -> None:
    path = tmp_path / "account.json"
    path.write_bytes(content)
    with pytest.raises(UsageError, match=words) as raised:
        address("gemini-2.5-flash", {"GOOGLE_APPLICATION_CREDENTIALS": str(path)})
    assert "MIIEsecret" not in str(raised.value)
    assert str(path) in str(raised.value)


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(
        UsageError, match=r"account\.json, a service account's key, cannot be read: No such file"
    ):
        address("x", {"GOOGLE_APPLICATION_CREDENTIALS": str(tmp_path / "account.json")})


async def test_no_credentials_anywhere_names_every_way_to_give_some(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path))
    monkeypatch.setenv("NO_GCE_CHECK", "true")
    monkeypatch.delenv("GOOGLE_APPLICATION_CREDENTIALS", raising=False)
    async with fake_vertex() as host:
        with pytest.raises(AccessDenied, match=r"service_account_key.*gcloud auth application-default login"):
            await answer(spec(host.url, project="p"), {}, HELLO)


def test_credentials_of_a_user_serve_and_name_the_project_that_is_billed(tmp_path: Path) -> None:
    path = tmp_path / "user.json"
    path.write_text(
        '{"type": "authorized_user", "client_id": "c", "client_secret": "s", "refresh_token": "r",'
        ' "quota_project_id": "mine"}'
    )
    found = address("gemini-2.5-flash", {"GOOGLE_APPLICATION_CREDENTIALS": str(path)})
    assert "/projects/mine/" in found.path
    assert isinstance(found.signer, GoogleSigner)
    assert found.signer.quota_project == "mine"


WITHOUT = """
import sys
for name in list(sys.modules):
    assert not name.startswith("google"), name
sys.modules["google"] = None
from coeval.core.errors import UsageError
from coeval.models.signers import make_google_signer
try:
    make_google_signer(None)
except UsageError as error:
    print(error)
"""


@pytest.mark.process
def test_what_to_install_is_said_where_google_auth_is_missing() -> None:
    done = subprocess.run(
        [sys.executable, "-c", WITHOUT], capture_output=True, text=True, check=True, timeout=60
    )
    assert GOOGLE_INSTALL in done.stdout
    assert "needs google-auth and requests" in done.stdout
