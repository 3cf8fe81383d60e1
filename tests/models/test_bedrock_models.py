"""What Bedrock lists: the request is that of AWS's own client, signed as the fake would sign it."""

from __future__ import annotations

import asyncio

import boto3
import pytest
from botocore.config import Config
from fakes.bedrock import BedrockHost, fake_bedrock
from opened import keys_of

from coeval.core.errors import AccessDenied
from coeval.core.model import ModelSpec
from coeval.engine.host_survey import survey
from coeval.models.catalog import HOSTS
from coeval.models.hosts.address import address_of
from coeval.models.listing import list_models
from coeval.models.open import Models
from coeval.models.pacing.limits import Limiter
from coeval.models.probe import probe
from coeval.models.transport.endpoint import Endpoint
from coeval.models.transport.http import Http
from coeval.pricing.price_book import PriceBook

ID, SECRET = "AKIAMADEUP0EXAMPLE07", "made/up+Secret0123456789abcdefghijklmnop"
IAM = {"AWS_ACCESS_KEY_ID": ID, "AWS_SECRET_ACCESS_KEY": SECRET, "AWS_REGION": "us-east-1"}
MODELS = ("amazon.nova-lite-v1:0", "meta.llama3-8b-instruct-v1:0")
PROFILES = (
    "us.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "global.anthropic.claude-sonnet-4-5-20250929-v1:0",
    "us.deepseek.r1-v1:0",
)


def serve(host: BedrockHost) -> None:
    host.models, host.profiles = MODELS, PROFILES


def spec(url: str | None = None, model: str = MODELS[0]) -> ModelSpec:
    return ModelSpec(name="m", interface="bedrock", model=model, base_url=url)


async def listed(host: BedrockHost, env: dict[str, str]) -> list[str]:
    address = address_of(spec(host.url), HOSTS["bedrock"], keys_of(env))
    http = Http()
    try:
        endpoint = Endpoint(address.url, address.signer, Limiter(), address.secrets)
        return [model.id for model in await list_models(http, endpoint, address.dialect) or ()]
    finally:
        await http.aclose()


@pytest.mark.parametrize("env", [IAM, {"AWS_BEARER_TOKEN_BEDROCK": "ABSKmade", "AWS_REGION": "us-east-1"}])
async def test_models_and_then_inference_profiles_are_listed(env: dict[str, str]) -> None:
    async with fake_bedrock(keys={ID: SECRET}, api_keys=["ABSKmade"]) as host:
        serve(host)
        assert await listed(host, env) == [*MODELS, *PROFILES]


async def test_awss_own_client_sends_the_same_requests_and_reads_the_same_lists() -> None:
    async with fake_bedrock(keys={ID: SECRET}) as host:
        serve(host)
        await listed(host, IAM)
        ours, host.listed = host.listed, []
        client = boto3.client(
            "bedrock", endpoint_url=host.url, region_name="us-east-1",
            aws_access_key_id=ID, aws_secret_access_key=SECRET, config=Config(retries={"max_attempts": 0}),
        )  # fmt: skip

        def call() -> tuple[str, ...]:
            found = client.list_foundation_models(byOutputModality="TEXT", byInferenceType="ON_DEMAND")
            names = [model["modelId"] for model in found["modelSummaries"]]
            page = client.list_inference_profiles(maxResults=1000)
            profiles = page["inferenceProfileSummaries"]
            page = client.list_inference_profiles(maxResults=1000, nextToken=page["nextToken"])
            profiles += page["inferenceProfileSummaries"]
            return (*names, *(profile["inferenceProfileId"] for profile in profiles))

        assert await asyncio.to_thread(call) == (*MODELS, *PROFILES)
        assert host.listed == ours


async def test_whoever_may_not_ask_sees_no_list() -> None:
    async with fake_bedrock(keys={ID: "another"}) as host:
        serve(host)
        with pytest.raises(AccessDenied, match="signature"):
            await listed(host, IAM)


async def test_a_listed_model_is_asked_by_a_probe_all_the_same() -> None:
    """An account may be given access to it, or not: the list does not say."""
    async with fake_bedrock(keys={ID: SECRET}) as host:
        serve(host)
        async with Models([spec(host.url)], keys_of(IAM)) as models:
            (result,) = await probe(models)
        assert (result.ok, result.listed, len(host.asked), host.listed) == (True, False, 1, [])
        (report,) = await survey([spec(host.url)], keys_of(IAM), PriceBook())
    nova = next(model for model in report.models if model.id == MODELS[0])
    assert nova.tariff is not None
    assert ": aws " in nova.tariff.source


def test_the_lists_are_had_from_the_regions_control_plane() -> None:
    address = address_of(spec(), HOSTS["bedrock"], keys_of(IAM))
    assert address.url == "https://bedrock-runtime.us-east-1.amazonaws.com"
    assert address.models_url == "https://bedrock.us-east-1.amazonaws.com"
