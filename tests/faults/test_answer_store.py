"""The store of paid answers: a second run pays nothing, through kills, damage and two processes."""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Any, cast

import pytest
from aiohttp import web
from fakes.flaky_host import MODELS, Requested, hosted, said
from fakes.moments import forks
from small_runs import content, experiment, folder_of, good_lines, records, run
from test_budget import write_prices

from coeval.core.errors import GAPS, UsageError
from coeval.core.model import ModelSpec
from coeval.core.records import CallId, Completion, Message, Request, Usage
from coeval.models.address import resolve_address
from coeval.models.answer_store import AnswerStore, StoredModel, describe_paid_answers
from coeval.models.catalog import HOSTS
from coeval.models.keys import Keys
from coeval.models.metering.account_file import read_accounts
from coeval.store.rundir import RunDir

PRICES = dict.fromkeys(MODELS, (1.0, 4.0))


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a store, with prices of all models in the working directory."""
    monkeypatch.chdir(tmp_path)
    write_prices(PRICES)
    return tmp_path / "store"


def sharing(folder: Path, url: str, store: Path, **settings: Any) -> Path:
    folder.mkdir(exist_ok=True)
    return experiment(
        folder,
        url,
        total=6,
        parameters={"max_tokens": 300},
        settings={"store": str(store), **settings},
    )


def files_below(folder: Path) -> list[Path]:
    return sorted(path for path in folder.rglob("*") if path.is_file())


def costs(folder: RunDir) -> list[Usage]:
    found = (
        record.get("usage")
        for phase in ("data_generation", "response_collection", "evaluation")
        for record in records(folder, phase).values()
    )
    return [Usage(**usage) for usage in found if usage is not None]


@pytest.mark.process
async def test_a_second_run_asks_nobody_and_says_so(tmp_path: Path, store: Path) -> None:
    async with hosted() as host:
        first = sharing(tmp_path / "first", host.url, store)
        assert (await run(first)).exit_code == 0
        paid = len(host.requested)
        second = sharing(tmp_path / "second", host.url, store, budget_usd=1.0)
        assert (await run(second)).exit_code == 0
        assert len(host.requested) == paid > 0
    assert content(folder_of(second)) == content(folder_of(first))
    here = costs(folder_of(second))
    assert sum(usage.stored for usage in here if usage.stored) == paid
    assert {usage.cost_usd for usage in here} == {0.0}
    assert min(usage.output_tokens for usage in here) > 0  # as it was paid: estimates go by it
    assert not sum(account.spent_usd for account in read_accounts(folder_of(second).usage).values())
    assert f"{paid} answers came from the store, at no cost" in folder_of(second).log.read_text()


@pytest.mark.process
async def test_other_samples_seeds_prompts_and_prices_unknown_are_asked(tmp_path: Path, store: Path) -> None:
    async with hosted() as host:
        assert (await run(sharing(tmp_path / "first", host.url, store))).exit_code == 0
        paid = host.count("student-1")
        more = sharing(tmp_path / "more", host.url, store)
        text = more.read_text()
        assert text.count("name: student-1") == 1
        more.write_text(text.replace("name: student-1", "name: student-1\n  samples: 2"))
        assert (await run(more)).exit_code == 0
        assert host.count("student-1") == 2 * paid  # each second sample, and no first one
        write_prices({name: price for name, price in PRICES.items() if name != "student-1"})
        assert (await run(sharing(tmp_path / "third", host.url, store))).exit_code == 0
        assert host.count("student-1") == 3 * paid


@pytest.mark.process
async def test_a_check_of_a_judge_asks_it_again_whatever_is_in_the_store(
    tmp_path: Path, store: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A judge that has moved would seem not to have, were its old verdicts read back."""
    monkeypatch.setenv("COEVAL_STORE", str(store))
    async with hosted() as host:
        anchor = sharing(tmp_path / "anchor", host.url, store)
        assert (await run(anchor)).exit_code == 0
        kept = files_below(store)
        verdicts = Counter(request.digest for request in host.requested if request.model == "judge-1")
        words = ("judges", "check", "--judge", "judge-1", "--anchor", folder_of(anchor).path)
        with forks() as commands:
            ended = await asyncio.to_thread(commands.run, "coeval", *words, below=tmp_path)
        assert ended.code == 0, ended.said
        asked = Counter(request.digest for request in host.requested)
        assert {asked[digest] for digest in verdicts} == {2}
    assert files_below(store) == kept


@pytest.mark.process
@pytest.mark.parametrize(
    "reply",
    ["I would rather not judge this.", "", '{"grade": 7}', "```json\n{\n```", "High or Low, who can tell?"],
)
async def test_what_could_not_be_read_is_not_kept(tmp_path: Path, store: Path, reply: str) -> None:
    async def mumbles(requested: Requested) -> web.StreamResponse | None:
        return said(requested, reply) if requested.model == "judge-1" else None

    async with hosted(fault=mumbles) as host:
        first = sharing(tmp_path / "first", host.url, store)
        assert (await run(first)).exit_code == GAPS
        paid, unread = len(host.requested), host.count("judge-1")
        assert len(files_below(store)) == paid - unread > 0
        host.fault = None
        second = sharing(tmp_path / "second", host.url, store)
        assert (await run(second)).exit_code == 0
        assert len(host.requested) - paid == host.count("judge-1") - unread > 0
    scores = records(folder_of(second), "evaluation").values()
    assert all("scores" in each for each in scores if each["judge_model_id"] == "judge-1")


@pytest.mark.process
async def test_a_store_is_its_owners_unless_they_open_it(tmp_path: Path, store: Path) -> None:
    async with hosted() as host:
        await run(sharing(tmp_path / "first", host.url, store / "new"))
        shared = tmp_path / "shared"
        shared.mkdir()
        shared.chmod(0o770)
        await run(sharing(tmp_path / "second", host.url, shared))
    assert {path.stat().st_mode & 0o077 for path in (store / "new", *(store / "new").iterdir())} == {0}
    assert {path.stat().st_mode & 0o700 for path in shared.iterdir()} == {0o700}
    assert any(path.stat().st_mode & 0o070 for path in shared.iterdir())


@pytest.mark.process
async def test_damaged_and_foreign_files_are_asked_for_again(tmp_path: Path, store: Path) -> None:
    async with hosted() as host:
        first = sharing(tmp_path / "first", host.url, store)
        await run(first)
        files = files_below(store)
        paid = len(host.requested)
        assert len(files) == paid
        for at, path in enumerate(files[:6]):
            whole = path.read_bytes()
            path.unlink()
            match at:
                case 0:
                    path.write_bytes(whole[: len(whole) // 2])
                case 1:
                    path.write_bytes(b"")
                case 2:
                    path.write_bytes(whole.replace(b'"text"', b'"test"'))
                case 3:
                    path.write_bytes(whole[:-4] + bytes(4))
                case 4:
                    path.mkdir()
                case _:
                    os.mkfifo(path)
        second = sharing(tmp_path / "second", host.url, store)
        assert (await run(second)).exit_code == 0
        assert len(host.requested) == paid + 6
    assert content(folder_of(second)) == content(folder_of(first))


@pytest.mark.process
async def test_two_processes_that_are_killed_share_it(tmp_path: Path, store: Path) -> None:
    """What both ask at once may be asked twice; whatever is in the store is never asked again."""
    async with hosted(latency_s=0.002) as host:
        files = [sharing(tmp_path / name, host.url, store) for name in ("one", "two")]

        async def killed_and_resumed(file: Path, moments: tuple[int, ...]) -> None:
            with forks() as commands:
                for at in (*moments, 0):
                    goes_on = ["--continue"] if folder_of(file).meta.exists() else []
                    words = ("run", "--config", file, *goes_on)
                    ended = await asyncio.to_thread(commands.run, "coeval", *words, below=tmp_path, at=at)
                    assert (ended.code < 0) == bool(at), ended.said

        await asyncio.gather(
            killed_and_resumed(files[0], (20, 35, 61)), killed_and_resumed(files[1], (27, 44, 50))
        )
        assert content(folder_of(files[0])) == content(folder_of(files[1]))
        assert set(good_lines(folder_of(files[0])).values()) == {1}
        asked = len(host.requested)
        third = sharing(tmp_path / "three", host.url, store)
        assert (await run(third)).exit_code == 0
        assert len(host.requested) == asked


async def test_another_seed_of_the_run_is_asked_where_the_host_is_sent_none(tmp_path: Path) -> None:
    """Of most hosts two runs that repeat each other differ by their seeds alone."""
    spec = ModelSpec(
        name="m", interface="anthropic", model="claude-haiku-4-5", access_key="sk-test-0123456789"
    )
    address = resolve_address(spec, HOSTS["anthropic"], Keys.load(None, env={}, cwd=tmp_path, home=tmp_path))
    asked = 0

    class Hosted:
        name, interface, answer_limit = spec.name, spec.interface, ""

        async def complete(self, _: Request) -> Completion:
            nonlocal asked
            asked += 1
            return Completion(f"answer {asked}")

    request = Request((Message("user", "Which team?"),), call=CallId("item"))
    for seed, answer in ((0, "answer 1"), (7, "answer 2"), (0, "answer 1"), (7, "answer 2")):
        store = AnswerStore.open_or_make_if_named(str(tmp_path / "store"), {}, seed=seed)
        assert store is not None
        assert (await StoredModel(cast("Any", Hosted()), address, store).complete(request)).text == answer


def test_a_store_that_cannot_be_used_is_told_at_the_start(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("")
    with pytest.raises(UsageError, match="cannot be made"):
        AnswerStore.open_or_make_if_named(str(file / "store"), {})
    assert AnswerStore.open_or_make_if_named(None, {}) is None
    assert AnswerStore.open_or_make_if_named(str(file), {"COEVAL_STORE": ""}) is None


def test_a_store_that_fills_up_is_told_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    store = AnswerStore(tmp_path / "store")
    (tmp_path / "store").write_text("")
    for name in ("aa11", "bb22"):
        store.keep(name, Completion("text"))
        assert store.find(name) is None
    assert [record.getMessage().split(": ")[0] for record in caplog.records] == [
        f"the store {tmp_path / 'store'} cannot be written",
        f"the store {tmp_path / 'store'} cannot be read",
    ]


def test_an_estimate_says_that_answers_of_the_store_cost_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "paid"
    assert describe_paid_answers(None, {}) == ""
    assert describe_paid_answers(str(folder), {}) == ""
    assert not folder.exists(), "an estimate makes no store"
    folder.mkdir()
    assert describe_paid_answers(str(folder), {}) == "", "an empty one saves nothing"
    AnswerStore(folder).keep("ab12", Completion("an answer"))
    assert "The store paid holds paid answers." in describe_paid_answers(str(folder), {})
    assert describe_paid_answers(str(folder), {"COEVAL_STORE": ""}) == "", "none is used"
    assert "The store paid" in describe_paid_answers(None, {"COEVAL_STORE": str(folder)})
