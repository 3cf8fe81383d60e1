"""Amazon Bedrock's Converse: strict about requests and signatures, and faulty on demand.

What a request may hold is read from the service model that botocore carries; what that leaves open, from
Bedrock's user guide. A signature is made again, by botocore's signer, of what arrived.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from functools import cache
from itertools import pairwise
from typing import Any, ClassVar
from urllib.parse import unquote

import botocore.session
from aiohttp import web
from botocore.auth import SigV4Auth
from botocore.awsrequest import AWSRequest
from botocore.credentials import Credentials
from botocore.validate import ParamValidator

from fakes.scripted import Behaviour, Refusal, ScriptedHost, serving

STATUSES = {
    400: "ValidationException",
    401: "UnrecognizedClientException",
    403: "AccessDeniedException",
    404: "ResourceNotFoundException",
    408: "ModelTimeoutException",
    424: "ModelErrorException",
    429: "ThrottlingException",
    500: "InternalServerException",
    503: "ServiceUnavailableException",
}


@dataclass(frozen=True)
class Answer:
    """A good answer. ``usage`` is the prompt without what the cache read and wrote, and the output;
    ``content`` stands in the place of the text."""

    text: str = "ok"
    stop_reason: str = "end_turn"
    usage: tuple[int, int] = (11, 3)
    reasoning: str | None = None
    cache_read: int | None = None
    cache_write: int | None = None
    content: Sequence[Mapping[str, Any]] | None = None


@dataclass(frozen=True)
class Fault:
    """An error in AWS's shape; ``in_body``: its name stands there and not in a header."""

    status: int
    message: str = "something went wrong"
    kind: str | None = None
    headers: Mapping[str, str] = field(default_factory=dict)
    body: Mapping[str, Any] = field(default_factory=dict)
    in_body: bool = False


@cache
def _request_shape() -> Any:
    service = botocore.session.Session().get_service_model("bedrock-runtime")
    return service.operation_model("Converse").input_shape


@dataclass
class BedrockHost(ScriptedHost):
    """``keys`` are access key ids with their secrets, ``api_keys`` those of Bedrock's own."""

    keys: Mapping[str, str] = field(default_factory=dict)
    api_keys: frozenset[str] = frozenset()
    session_token: str | None = None
    region: str = "us-east-1"

    usual: ClassVar[Behaviour] = Answer()

    def no_json(self) -> Behaviour:
        return Fault(400, "The request body is not valid JSON.", "SerializationException")

    def check(self, request: web.Request, content: bytes, body: dict[str, Any]) -> None:
        found = re.fullmatch(r"/model/([^/]+)/converse", request.raw_path)
        if found is None:
            raise Refusal(
                Fault(404, "Unable to determine service/operation name", "UnknownOperationException")
            )
        why = self._stranger(request, content)
        if why is not None:
            raise Refusal(why)
        misfit = next(misfits_of(body, unquote(found[1])), None)
        if misfit is not None:
            raise Refusal(Fault(400, misfit))

    def _stranger(self, request: web.Request, content: bytes) -> Fault | None:
        """Why whoever signed, or showed a key, may not ask."""
        shown = request.headers.get("Authorization", "")
        if shown.startswith("Bearer "):
            known = shown.removeprefix("Bearer ") in self.api_keys
            return (
                None
                if known
                else Fault(403, "Authentication failed: Please make sure your API Key is valid.")
            )
        signed = re.fullmatch(
            r"AWS4-HMAC-SHA256 Credential=(\w+)/(\d{8})/([\w-]+)/bedrock/aws4_request, "
            r"SignedHeaders=([\w;-]+), Signature=([0-9a-f]{64})",
            shown,
        )
        if signed is None:
            return Fault(403, "Missing Authentication Token", "MissingAuthenticationTokenException")
        key, day, region, names, signature = signed.groups()
        if key not in self.keys or request.headers.get("X-Amz-Security-Token") != self.session_token:
            words = "The security token included in the request is invalid."
            return Fault(403, words, "UnrecognizedClientException")
        if not {"host", "x-amz-date"} <= set(names.split(";")) or region != self.region:
            return Fault(403, "Credential should be scoped to a valid region.", "InvalidSignatureException")
        if (
            self._signature(request, content, names.split(";")) != signature
            or day != request.headers["X-Amz-Date"][:8]
        ):
            words = "The request signature we calculated does not match the signature you provided."
            return Fault(403, words, "InvalidSignatureException")
        return None

    def _signature(self, request: web.Request, content: bytes, names: Sequence[str]) -> str:
        """What botocore signs the request with as it arrived, path and all."""
        headers = {name: request.headers[name] for name in names}
        url = f"http://{request.headers['Host']}{request.raw_path}"
        arrived = AWSRequest(method=request.method, url=url, data=content, headers=headers)
        arrived.context["timestamp"] = request.headers["X-Amz-Date"]
        key = re.search(r"Credential=(\w+)/", request.headers["Authorization"])
        assert key is not None
        auth = SigV4Auth(Credentials(key[1], self.keys[key[1]]), "bedrock", self.region)
        reported: str = auth.signature(auth.string_to_sign(arrived, auth.canonical_request(arrived)), arrived)
        return reported

    def behave(self, behaviour: Behaviour, body: dict[str, Any]) -> web.Response:
        match behaviour:
            case Answer():
                return web.json_response(_answer(behaviour))
            case Fault():
                return _error(behaviour)
            case _:
                raise AssertionError(f"no behaviour of this host: {behaviour!r}")


def misfits_of(body: dict[str, Any], model: str) -> Iterator[str]:
    report = ParamValidator().validate({**body, "modelId": model}, _request_shape())
    if report.has_errors():
        yield f"Malformed input request: {report.generate_report()}"
    config = body.get("inferenceConfig", {})
    for name, most in (("temperature", 1), ("topP", 1)):
        if config.get(name, 0) > most:
            yield f"Value at 'inferenceConfig.{name}' failed to satisfy constraint: at most {most}"
    messages = body.get("messages") or [{"role": "nobody", "content": []}]
    if messages[0]["role"] != "user":
        yield "A conversation must start with a user message. Try again with a conversation that does."
    roles = [message["role"] for message in messages]
    if any(role == before for before, role in pairwise(roles)):
        yield "A conversation must alternate between user and assistant roles."
    blocks = [block for message in messages for block in message["content"]] + body.get("system", [])
    if any("text" in block and not block["text"].strip() for block in blocks):
        yield "The text field in the ContentBlock object is blank. Add text to the text field, and try again."
    yield from _misfits_of_model(body, model)


_EXTRA: dict[str, set[str]] = {
    "anthropic": {"top_k", "thinking", "anthropic_beta"},
    "nova": {"inferenceConfig", "reasoningConfig"},
    "cohere.command-r": {"k", "p", "seed"},
    "openai.gpt-oss": {"reasoning_effort"},
    "meta.llama": set(),
}


def _misfits_of_model(body: dict[str, Any], model: str) -> Iterator[str]:
    """What the families of models refuse that Converse has."""
    extra = body.get("additionalModelRequestFields", {})
    for maker, names in _EXTRA.items():
        if maker in model and (unknown := set(extra) - names):
            yield f"Malformed input request: #: extraneous key [{min(unknown)}] is not permitted"
    if "system" in body and "mixtral" in model:
        yield "This model doesn't support the system field. Remove system and try again."
    if "outputConfig" in body and "textFormat" in body["outputConfig"] and "llama" in model:
        yield "This model doesn't support the outputConfig.textFormat field. Remove it and try again."
    if "toolConfig" in body and "deepseek.r1" in model:
        yield "This model doesn't support tool use."


def _answer(answer: Answer) -> dict[str, Any]:
    prompt, output = answer.usage
    read, write = answer.cache_read or 0, answer.cache_write or 0
    content: list[Any] = []
    if answer.reasoning is not None:
        reported = {"text": answer.reasoning, "signature": "c2lnbmVk"}
        content.append({"reasoningContent": {"reasoningText": reported}})
    content += [{"text": answer.text}] if answer.content is None else answer.content
    usage = {"inputTokens": prompt, "outputTokens": output, "totalTokens": prompt + output + read + write}
    if answer.cache_read is not None:
        usage["cacheReadInputTokens"] = answer.cache_read
    if answer.cache_write is not None:
        usage["cacheWriteInputTokens"] = answer.cache_write
    return {
        "output": {"message": {"role": "assistant", "content": content}},
        "stopReason": answer.stop_reason,
        "usage": usage,
        "metrics": {"latencyMs": 12},
    }


def _error(fault: Fault) -> web.Response:
    kind = fault.kind or STATUSES.get(fault.status, "UnknownException")
    body = {"message": fault.message, **fault.body}
    headers = {"x-amzn-RequestId": "0a1b", **fault.headers}
    if fault.in_body:
        body["__type"] = f"com.amazon.coral.service#{kind}"
    else:
        headers["x-amzn-ErrorType"] = f"{kind}:http://internal.amazon.com/coral/com.amazon.bedrock/"
    return web.json_response(body, status=fault.status, headers=headers)


@asynccontextmanager
async def fake_bedrock(
    *script: Behaviour,
    keys: Mapping[str, str] | None = None,
    api_keys: Sequence[str] = (),
    session_token: str | None = None,
) -> AsyncIterator[BedrockHost]:
    host = BedrockHost(
        script=deque(script), keys=keys or {}, api_keys=frozenset(api_keys), session_token=session_token
    )
    async with serving(host):
        yield host
