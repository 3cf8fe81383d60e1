"""A gateway between CoEval and its models: whose answers are scored, what they cost, and which are copies."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, cycle
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from cli.invoked import Command
from fakes.litellm_gateway import Gateway, gateway
from fakes.openai_chat import Answer, Server, fake
from fakes.threaded import in_a_thread
from pipeline.experiments import Lab, model, quiz

import coeval as api
from coeval.pipeline.plan.run_reading import open_run_reader
from coeval.reports.folder_report import open_folder_report
from coeval.store.rundir import RunDir

Serve: TypeAlias = Callable[..., Gateway]


@pytest.fixture
def serve() -> Iterator[Serve]:
    with ExitStack() as opened:

        def served(**fields: Any) -> Gateway:
            return opened.enter_context(in_a_thread(gateway(**fields)))

        yield served


def through(host: Server, name: str, **parameters: Any) -> dict[str, Any]:
    """A student behind a gateway."""
    entry = model(name, "student") | {"interface": "vllm"}
    return entry | {"parameters": {"base_url": host.url, "max_tokens": 50, **parameters}}


def lab_of(folder: Path, *students: dict[str, Any], total: int = 6, **settings: Any) -> Lab:
    """A quiz whose label alone is scored: nobody judges."""
    return Lab(folder, [model("tea", "teacher"), *students], [quiz(total=total)], settings)


def test_answers_of_a_fallback_are_said_marked_and_no_go(
    tmp_path: Path, coeval: Command, serve: Serve
) -> None:
    host = serve(routes_of={"backup": ["ok"], "other": ["fine"]}, fallbacks={"primary-1": "backup"})
    lab = lab_of(tmp_path, through(host, "primary-1"), through(host, "other"))
    ended = coeval("run", "--config", lab.file)
    assert ended.code == 0
    assert "Not comparable with other models" in ended.out
    assert "primary-1 (from ok): 6 of 6 answers came from ok" in ended.out
    assert "other (" not in ended.out
    assert {one["served_by"] for one in lab.lines("response_collection")} == {"ok", "openai/fine"}
    [served] = api.open_run(lab.path).results().served
    assert (served.model, served.total, served.others) == ("primary-1", 6, {"ok": 6})
    with open_folder_report(lab.path) as page:
        assert page.report.labels["primary-1"] == "primary-1 (from ok)"
        assert any("6 of 6 answers came from ok" in alert.text for alert in page.report.alerts)
    gated = api.gate(lab.path, policy={"max_drop": 5}, students=["other", "primary-1"])
    assert gated.exit_code == 3
    [one] = [task for task in gated.candidates[0].tasks if task.task == "quiz"]
    assert not one.fits
    assert any("6 of 6 answers came from ok" in reason for reason in one.reasons)


NO_OTHER = [
    ("gpt-4o", "gpt-4o-2024-08-06"),
    ("openai/gpt-4o", "gpt-4o"),
    ("claude-3-5-haiku-latest", "claude-3-5-haiku-20241022"),
    ("alias", None),
]


@pytest.mark.parametrize(("requested", "reported"), NO_OTHER)
def test_an_edition_or_provider_in_the_replys_name_is_no_other_model(
    requested: str, reported: str | None, tmp_path: Path, coeval: Command
) -> None:
    with in_a_thread(fake(reply=lambda _: Answer("red", body={"model": reported}))) as host:
        host.extra_fields = frozenset({"top_k"})
        lab = lab_of(tmp_path, through(host, "ann-1", model=requested), total=2)
        ended = coeval("run", "--config", lab.file)
    assert ended.code == 0
    assert "came from" not in ended.out + ended.err


def test_a_host_without_headers_is_read_by_its_body_and_base_model_settles_it(
    tmp_path: Path, coeval: Command
) -> None:
    with in_a_thread(fake(reply=lambda _: Answer("red", body={"model": "tiny-2"}))) as host:
        lab = lab_of(tmp_path, through(host, "ann-1", model="large"), total=2)
        assert "2 of 2 answers came from tiny-2" in coeval("run", "--config", lab.file).out
        lab.models[1]["parameters"]["base_model"] = "tiny-2"
        settled = coeval("run", "--config", lab.file, "--continue")
    assert settled.code == 0
    assert "came from" not in settled.out + settled.err


def test_a_load_balanced_group_is_said_as_what_it_is(tmp_path: Path, coeval: Command, serve: Serve) -> None:
    host = serve(routes_of={"pair-1": ["ok", "better"], "same-1": ["one", "one"]})
    lab = lab_of(tmp_path, through(host, "pair-1"), through(host, "same-1"))
    ended = coeval("run", "--config", lab.file)
    assert (
        "come from several models or providers behind one name: openai/better (3), openai/ok (3)" in ended.out
    )
    assert "answers of same-1" not in ended.out
    assert "came from" not in ended.out


@pytest.mark.parametrize("how", ["header", "usage"])
def test_a_budget_holds_where_a_private_address_is_a_gateway(
    how: str, tmp_path: Path, coeval: Command, serve: Serve
) -> None:
    """40 answers at $0.02 under $0.10: the interface's models are free, the gateway's are not."""
    if how == "header":
        host: Server = serve(routes_of={"priced-1": ["gpt"]}, cost_usd={"gpt": 0.02})
    else:
        usage = {"prompt_tokens": 11, "completion_tokens": 3, "cost": 0.02}
        host = serve(routes_of={"priced-1": ["gpt"]}, usage=usage)
    lab = lab_of(tmp_path, through(host, "priced-1"), total=40, budget_usd=0.10)
    ended = coeval("run", "--config", lab.file)
    assert ended.code == 3
    assert "the budget counts these models as free: priced-1, served at a private address" in ended.err
    assert "experiment.budget_usd is $0.10" in ended.err
    [cost] = [one for one in api.open_run(lab.path).results().costs if one.model == "priced-1"]
    assert cost.cost_usd == pytest.approx(0.10)
    assert cost.priced_by == "what the host says an answer cost"
    assert sum("single word" not in str(body) for body in host.bodies) <= 5


def test_a_server_of_ones_own_stays_free_under_a_budget(tmp_path: Path, coeval: Command) -> None:
    with in_a_thread(fake(reply=lambda _: Answer("red"))) as host:
        host.extra_fields = frozenset({"top_k"})
        lab = lab_of(tmp_path, through(host, "mine-1"), total=20, budget_usd=0.01)
        ended = coeval("run", "--config", lab.file)
    assert ended.code == 0
    assert "the budget counts these models as free: mine-1" in ended.err
    assert len(lab.lines("response_collection")) == 20


def test_providers_behind_one_name_are_said(tmp_path: Path, coeval: Command) -> None:
    providers = cycle(["DeepInfra", "Together"])
    name = "meta-llama/llama-3.1-8b-instruct"
    with in_a_thread(fake(reply=lambda _: Answer("red", body={"provider": next(providers)}))) as host:
        host.extra_fields = frozenset({"top_k"})
        ended = coeval("run", "--config", lab_of(tmp_path, through(host, "ann-1", model=name)).file)
    assert f"{name} (DeepInfra) (3), {name} (Together) (3)" in ended.out
    assert "came from" not in ended.out


def sampled(host: Server, name: str, samples: int = 4, **parameters: Any) -> dict[str, Any]:
    """A student that is asked several times without a seed, as no seed tells its requests apart."""
    entry = through(host, name, **parameters) | {"samples": samples}
    return entry | {"interface": "openai", "access_key": "sk-1"}


@pytest.mark.parametrize("takes", [True, False])
def test_samples_ask_a_gateway_for_no_copies_and_copies_are_no_samples(
    takes: bool, tmp_path: Path, coeval: Command, serve: Serve
) -> None:
    host = serve(routes_of={"ann-1": ["gpt"]}, caches=True, takes_cache_field=takes, text="red {number}")
    lab = lab_of(tmp_path, sampled(host, "ann-1", max_concurrency=1))
    ended = coeval("run", "--config", lab.file)
    assert ended.code == 0
    asked = [body.get("cache") for body in host.bodies if "single word" not in str(body)]
    texts = [one["response"] for one in lab.lines("response_collection")]
    with open_run_reader(RunDir(lab.path)) as (reader, _):
        [(counted,)] = reader.rows("SELECT count(*) FROM answers")
    if takes:
        assert asked == [{"no-cache": True}] * 24
        assert counted == len(set(texts)) == 24
        assert "copies" not in ended.out
    else:
        assert asked.count(None) == 24
        assert counted == len(set(texts)) == 6
        assert "not counted as samples: 18 answers of ann-1 from a cache" in ended.out


def test_a_host_with_one_id_for_all_replies_loses_no_samples(tmp_path: Path, coeval: Command) -> None:
    texts = cycle(["red", "blue", "red"])
    with in_a_thread(fake(reply=lambda _: Answer(next(texts), body={"id": "chatcmpl-0"}))) as host:
        lab = lab_of(tmp_path, sampled(host, "ann-1", samples=3))
        ended = coeval("run", "--config", lab.file)
    assert "not counted" not in ended.out
    with open_run_reader(RunDir(lab.path)) as (reader, _):
        assert reader.rows("SELECT count(*) FROM answers") == [(18,)]


def test_samples_that_repeat_far_more_than_those_of_others_are_said(tmp_path: Path, coeval: Command) -> None:
    """Four distinct answers of eight, under ids of their own."""
    twice, once = count(), count()
    with in_a_thread(fake(reply=lambda _: Answer(f"red {next(twice) // 2}"))) as host:
        cached = sampled(host, "cached-1", samples=8, max_concurrency=1)
        with in_a_thread(fake(reply=lambda _: Answer(f"red {next(once)}"))) as other:
            lab = lab_of(tmp_path, cached, sampled(other, "other-1", samples=8))
            ended = coeval("run", "--config", lab.file)
    assert "samples of cached-1 repeat each other in 6 of 6 items, far more" in ended.out
    assert "samples of other-1" not in ended.out
