"""CoEval in front of a real LiteLLM proxy, whose upstream misbehaves by the model's name.

``make test-gateway`` installs the proxy (300 MB) and runs these; nothing else does. Its replies, as they
came, are the fake of the ordinary tests (`fakes.litellm_gateway`).
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command, Ended
from engines.gateway_proxy import EXECUTABLE, KEY, Proxy, proxy
from fakes.litellm_gateway import CREATED, gateway
from fakes.threaded import in_a_thread
from pipeline.experiments import Lab, model, quiz

import coeval as api

pytestmark = [
    pytest.mark.system,
    pytest.mark.skipif(
        not EXECUTABLE.is_file(), reason="needs LiteLLM's proxy: run make test-gateway (300 MB)"
    ),
]


@pytest.fixture(scope="module")
def litellm(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Proxy]:
    with proxy(tmp_path_factory.mktemp("proxy")) as running:
        yield running


@pytest.fixture
def lab(tmp_path: Path, litellm: Proxy) -> Lab:
    litellm.upstream.requests.clear()
    return Lab(tmp_path, [model("tea", "teacher")], [quiz(total=6)])


def student(litellm: Proxy, name: str, samples: int = 1, key: str = KEY, **parameters: Any) -> dict[str, Any]:
    settings = {"base_url": litellm.url, "max_tokens": 50, "top_k": None, **parameters}
    entry = {"name": name.replace("/", "-"), "interface": "vllm", "roles": ["student"], "access_key": key}
    return entry | {"samples": samples, "parameters": {"model": name, **settings}}


def run(
    coeval: Command, lab: Lab, *students: dict[str, Any], probe: str = "disable", **settings: Any
) -> Ended:
    lab.models += students
    lab.settings |= settings
    return coeval("run", "--config", lab.file, "--probe", probe)


def failures(lab: Lab) -> set[str]:
    return {one["error"]["kind"] for one in lab.lines("response_collection") if "error" in one}


def errors(lab: Lab) -> str:
    path = lab.path / "run_errors.jsonl"
    return path.read_text() if path.exists() else ""


def test_answers_of_a_fallback_are_not_the_students(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    ended = run(coeval, lab, student(litellm, "primary-1"), student(litellm, "plain-1"))
    assert ended.code == 0
    assert "primary-1 (from ok): 6 of 6 answers came from ok" in ended.out
    assert "plain-1 (" not in ended.out
    assert api.gate(lab.path, policy={"max_drop": 5}, students=["plain-1", "primary-1"]).exit_code == 3


def test_a_load_balanced_group_is_said(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    lab.tasks[0]["sampling"]["total"] = 24
    ended = run(coeval, lab, student(litellm, "pair-1"))
    assert re.search(
        r"several models or providers behind one name: .*openai/(ok|better) \(\d+\)",
        ended.out,
    )
    assert "came from" not in ended.out


def test_a_time_out_of_the_gateway_is_bought_twice_at_most(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    lab.tasks[0]["sampling"]["total"] = 1
    ended = run(coeval, lab, student(litellm, "slow-1"))
    assert ended.code == 3
    assert failures(lab) == {"timeout"}
    assert litellm.upstream.requests["slow"] <= 2


def test_a_budget_books_what_the_gateway_bills(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    lab.tasks[0]["sampling"]["total"] = 20
    ended = run(coeval, lab, student(litellm, "priced-1"), budget_usd=0.1)
    assert ended.code == 3
    assert "the budget counts these models as free: priced-1" in ended.err
    assert litellm.upstream.requests["ok"] == 5
    [cost] = [one for one in api.open_run(lab.path).results().costs if one.model == "priced-1"]
    assert cost.cost_usd == pytest.approx(0.1)


def test_samples_are_no_copies(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    once = student(litellm, "plain-1", samples=4, seed=1)  # one seed for all, so that bodies are alike
    ended = run(coeval, lab, once, probe="full")
    assert ended.code == 0
    texts = [one["response"] for one in lab.lines("response_collection")]
    assert len(set(texts)) == len(texts) == 24
    assert "copies" not in ended.out


@pytest.mark.parametrize(
    ("alias", "words"), [("spent-1", "exceeded your current quota"), ("capped-1", "crossed budget")]
)
def test_a_spent_account_stops_its_model(
    alias: str, words: str, lab: Lab, litellm: Proxy, coeval: Command
) -> None:
    ended = run(coeval, lab, student(litellm, alias, max_concurrency=1))
    assert ended.code == 3
    assert words in ended.err + errors(lab)
    assert litellm.upstream.requests.total() <= 6


def test_a_renamed_retry_after_of_hours_ends_it(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    lab.tasks[0]["sampling"]["total"] = 1
    assert run(coeval, lab, student(litellm, "limited-1")).code == 3
    assert "25200" in errors(lab).replace(",", "")
    assert litellm.upstream.requests["limited"] <= 2


def test_a_content_filter_that_comes_as_a_400_keeps_its_name(
    lab: Lab, litellm: Proxy, coeval: Command
) -> None:
    assert run(coeval, lab, student(litellm, "filtered-1")).code == 3
    assert failures(lab) == {"content_filter"}
    assert "Add a fallbacks entry" not in errors(lab)


@pytest.mark.parametrize(
    ("alias", "key"), [("nosuch-1", KEY), ("plain-1", "sk-wrong-0123456789abcdef0123456789")]
)
def test_a_wrong_model_or_key_stops_after_three(
    alias: str, key: str, lab: Lab, litellm: Proxy, coeval: Command
) -> None:
    ended = run(coeval, lab, student(litellm, alias, key=key, max_concurrency=1))
    assert ended.code == 3
    assert "its first 3 requests were all refused" in ended.err
    assert not litellm.upstream.requests


@pytest.mark.parametrize(("alias", "code"), [("dead-1", 2), ("wild/down", 2), ("wild/fine", 0)])
def test_the_probe_asks_what_a_gateway_merely_lists(
    alias: str, code: int, lab: Lab, litellm: Proxy, coeval: Command
) -> None:
    assert run(coeval, lab, student(litellm, alias), probe="full").code == code


def test_a_seed_that_nobody_set_is_left_out_where_it_is_refused(
    lab: Lab, litellm: Proxy, coeval: Command
) -> None:
    assert run(coeval, lab, student(litellm, "claude-1")).code == 0
    assert not failures(lab)


def test_batches_without_set_up_end(lab: Lab, litellm: Proxy, coeval: Command) -> None:
    by_batch = {"openai": {"response_collection": True}}
    ended = run(coeval, lab, student(litellm, "plain-1") | {"interface": "openai"}, batch=by_batch)
    assert ended.code == 3
    assert "files_settings is not set" in ended.err + errors(lab)


def test_the_fake_answers_as_the_proxy_does(litellm: Proxy) -> None:
    """Of good answers the headers and the model's name; of refusals status, code and first words."""
    routes = {"plain-1": ["ok"], "backup-1": ["ok"]}
    with in_a_thread(gateway(routes_of=routes, fallbacks={"primary-1": "backup-1"}, caches=True)) as fake:
        other = Proxy(fake.url, litellm.upstream)
        for name, text in (("plain-1", "a"), ("plain-1", "a"), ("primary-1", "b"), ("nosuch-1", "c")):
            real, faked = litellm.ask(name, text), other.ask(name, text)
            assert real[0] == faked[0], name
            told = {key for key in faked[1] if key.startswith("x-litellm")}
            assert told <= real[1].keys(), name
            for key in told - {"x-litellm-model-id", "x-litellm-cache-key"}:
                assert real[1][key] == faked[1][key], (name, key)
            assert real[2].get("model") == faked[2].get("model")
            begins = [str(reply[2].get("error", {}).get("message"))[:60] for reply in (real, faked)]
            assert begins[0] == begins[1]
    assert json.dumps(CREATED) == "1677610602"
