"""Vertex AI: generateContent below a project and a location, and the endpoint that hands out its tokens."""

from __future__ import annotations

import asyncio
import json
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import chain, count
from pathlib import Path
from typing import Any, ClassVar

from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa
from google.auth import jwt

from fakes.gemini import Fault, GeminiHost
from fakes.scripted import Behaviour, Refusal, serving

PROJECT = "blue-meadow-417"
_EMAIL = f"coeval@{PROJECT}.iam.gserviceaccount.com"
_GRANT = "urn:ietf:params:oauth:grant-type:jwt-bearer"
_AUDIENCE = "https://oauth2.googleapis.com/token"
_SCOPE = "https://www.googleapis.com/auth/cloud-platform"


@cache
def _key() -> rsa.RSAPrivateKey:
    """A key pair that is thrown away with the process."""
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _public() -> bytes:
    return (
        _key()
        .public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
    )


def key_file(folder: Path, token_uri: str, **fields: Any) -> Path:
    """A service account's key as Google hands it out; ``fields`` are laid over it."""
    private = _key().private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    path = folder / "account.json"
    path.write_text(
        json.dumps(
            {
                "type": "service_account",
                "project_id": PROJECT,
                "private_key_id": "0123456789abcdef",
                "private_key": private.decode(),
                "client_email": _EMAIL,
                "client_id": "1",
                "token_uri": token_uri,
                "universe_domain": "googleapis.com",
                **fields,
            }
        )
    )
    return path


@dataclass
class VertexHost(GeminiHost):
    """``issued`` are the tokens handed out, oldest first; those that ``good`` holds are taken.

    A token says that it is good for ``lifetime_s``. Requests for one are answered by ``token_script`` first,
    statuses with a body. They wait while ``token_gate`` is closed; ``token_needed`` is set when one comes.
    """

    lifetime_s: int = 3600
    issued: list[str] = field(default_factory=list)
    good: set[str] = field(default_factory=set)
    token_script: deque[tuple[int, Mapping[str, Any]]] = field(default_factory=deque)
    token_requested: int = 0
    token_gate: asyncio.Event = field(default_factory=asyncio.Event)
    token_needed: asyncio.Event = field(default_factory=asyncio.Event)
    tokens: Iterator[str] = field(default_factory=lambda: map(_token, count(1)))

    paths: ClassVar[str] = (
        r"/v1(beta1)?/projects/[\w-]+/locations/[\w-]+"
        r"/(publishers/[\w-]+/models|endpoints)/(?P<model>[\w.-]+):generateContent"
    )

    @property
    def token_url(self) -> str:
        return f"{self.url}/token"

    def routes(self) -> list[web.RouteDef]:
        return [web.post("/token", self.hand_out), *super().routes()]

    def expire(self) -> None:
        """No token handed out so far is taken any more."""
        self.good.clear()

    def check_caller(self, request: web.Request) -> None:
        shown = request.headers.get("Authorization", "").removeprefix("Bearer ")
        if shown not in self.good:
            raise Refusal(Fault(401, "Request had invalid authentication credentials."))

    async def hand_out(self, request: web.Request) -> web.Response:
        form = await request.post()
        self.token_requested += 1
        self.token_needed.set()
        await self.token_gate.wait()
        if self.token_script:
            status, body = self.token_script.popleft()
            return web.json_response(body, status=status)
        why = _misfit_of_grant(dict(form))
        if why is not None:
            return web.json_response({"error": "invalid_grant", "error_description": why}, status=400)
        token = next(self.tokens)
        self.issued.append(token)
        self.good.add(token)
        reported = {"access_token": token, "expires_in": self.lifetime_s, "token_type": "Bearer"}
        return web.json_response(reported)


def _token(number: int) -> str:
    return f"ya29.made-up-{number:04d}-Zr8mXq2LwVt5Kc7P"


def _misfit_of_grant(form: Mapping[str, Any]) -> str | None:
    if form.get("grant_type") != _GRANT:
        return "unsupported grant type"
    decode: Any = jwt.decode
    try:
        claims = decode(form["assertion"], certs=_public(), audience=_AUDIENCE)
    except ValueError as error:
        return f"Invalid JWT: {error}"
    if (claims["iss"], claims["scope"]) != (_EMAIL, _SCOPE):
        return "Invalid JWT: another account or scope."
    return None


@asynccontextmanager
async def fake_vertex(
    *script: Behaviour, lifetime_s: int = 3600, first_token: str | None = None
) -> AsyncIterator[VertexHost]:
    host = VertexHost(script=deque(script), lifetime_s=lifetime_s)
    host.token_gate.set()
    if first_token is not None:
        host.tokens = chain([first_token], host.tokens)
    async with serving(host):
        yield host
