"""`coeval status` for programs, for output folders, and as long as a run goes on."""

from __future__ import annotations

import json
import sys
import time
from pathlib import Path

from cli.coeval_process import called
from cli.eval_process import finish, start, surroundings, write_prompts
from cli.warm_process import WarmProcess
from fakes import openai_chat
from pipeline.experiments import Lab, model, task

COEVAL = (sys.executable, "-m", "coeval")


def lab(folder: Path) -> Lab:
    return Lab(folder, models=[model("ann")], tasks=[task(total=3)])


async def test_json_has_what_the_tables_show(tmp_path: Path) -> None:
    made = lab(tmp_path)
    made.settings |= {"budget_usd": 2.0, "quota": {"ann": {"max_calls": 500}}}
    made.models[0].setdefault("parameters", {})["max_tokens"] = 500
    assert made.run().exit_code == 0
    for file in (made.path / "phase5_evaluations").iterdir():
        kept = file.read_text().splitlines()[:-1]
        file.write_text("".join(f"{line}\n" for line in kept))
    done = await called(made.folder, "status", "--run", made.path, "--json")
    assert done.code == 0, done.err
    shown = json.loads(done.out)
    assert set(shown) == {"phases", "spend", "batches", "errors", "run", "state", "budget", "notes"}
    assert (shown["run"], shown["state"]) == ("exp", {"status": "completed", "pid": None})
    assert shown["budget"]["max_calls"] == {"ann": {"limit": 500, "sent": shown["spend"]["ann"]["requests"]}}
    money = {"spent_usd": 0.0, "perhaps_usd": 0.0, "in_jobs_usd": 0.0, "set_aside_usd": 0.0}
    assert shown["budget"]["max_cost_usd"] == {}
    assert shown["budget"]["total"] == {"limit_usd": 2.0, **money}
    assert shown["phases"]["response_collection"] == {"planned": 3, "good": 3, "failed": 0, "owed": 0}
    assert shown["phases"]["evaluation"] == {"planned": 3, "good": 2, "failed": 0, "owed": 1}
    told = {"requests", "input_tokens", "output_tokens", "cost_usd", "perhaps_usd"}
    assert set(shown["spend"]["ann"]) == told
    assert shown["spend"]["ann"]["requests"] > 0
    assert (shown["batches"], shown["errors"]) == ([], [])
    table = await called(made.folder, "status", "--run", made.path)
    assert "evaluations.jsonl" in table.out.partition("Files that lack records")[2]


async def test_output_folders_have_a_status_too(tmp_path: Path) -> None:
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(4)])
    async with openai_chat.fake(*[openai_chat.Answer("No.")] * 20) as host:
        flags = ("--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", host.url)
        done = await finish(await start(tmp_path, *flags, "--output-dir", "outputs"))
    assert done.code == 0, done.err
    seen = await called(tmp_path, "status", "--run", "outputs", "--json")
    assert seen.code == 0, seen.err
    shown = json.loads(seen.out)
    assert shown["phases"] == {"ifeval": {"planned": 4, "good": 4, "failed": 0, "owed": 0}}
    assert shown["spend"]["m"]["requests"] >= 4
    assert (shown["run"], shown["state"]) == (None, {"status": "completed", "pid": None})
    table = await called(tmp_path, "status", "--run", "outputs")
    assert table.code == 0, table.err
    assert ["ifeval", "4", "4", "0", "0"] in [line.split() for line in table.out.splitlines()]
    (tmp_path / "outputs" / "ifeval" / "summary.json").unlink()
    seen = await called(tmp_path, "status", "--run", "outputs", "--json")
    assert json.loads(seen.out)["state"]["status"] == "stopped"


def test_watching_ends_with_the_run_and_shows_its_end(tmp_path: Path) -> None:
    made = Lab(tmp_path, models=[model("ann", latency_s=0.7, max_concurrency=1)], tasks=[task(total=2)])
    running = WarmProcess("run", "--config", made.file, env=surroundings(tmp_path))
    while not (made.path / "meta.json").exists():
        assert running.poll() is None, running.communicate()
        time.sleep(0.05)
    watching = WarmProcess("status", "--run", made.path, "--watch", "--json", env=surroundings(tmp_path))
    shown = watching.communicate()
    assert watching.returncode == 0, shown.err
    running.communicate()
    seen = [json.loads(line)["phases"]["evaluation"]["good"] for line in shown.out.splitlines()]
    assert len(seen) > 1, "it was shown once only"
    assert seen == sorted(seen)
    assert seen[-1] == 2, "its end was not shown"


def test_watching_what_nobody_works_on_shows_it_once(tmp_path: Path) -> None:
    made = lab(tmp_path)
    assert made.run().exit_code == 0
    watching = WarmProcess("status", "--run", made.path, "--watch", env=surroundings(tmp_path))
    shown = watching.communicate()
    assert watching.returncode == 0, shown.err
    assert shown.out.count("data_generation") == 1


async def test_a_benchmark_keeps_to_its_budget_over_all_starts(tmp_path: Path) -> None:
    """Each answer costs a cent; the budget is for some of them, and the next start has no more."""
    (tmp_path / "Config").mkdir()
    price = {"overrides": {"m": {"input_usd_per_mtok": 0.0, "output_usd_per_mtok": 100.0}}}
    (tmp_path / "Config" / "provider_pricing.yaml").write_text(json.dumps(price))
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(20)])
    answer = openai_chat.Answer("No.", usage=(10, 100))
    paid = 0

    def reply(_: object) -> openai_chat.Answer:
        nonlocal paid
        paid += 1
        return answer

    async with openai_chat.fake(reply=reply) as host:
        flags = ("--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", host.url)
        limits = ("--max-tokens", 100, "--budget-usd", 0.175, "--probe", "disable")
        for code in (3, 3):  # the second goes on, and what is left is for none of them
            done = await finish(await start(tmp_path, *flags, *limits))
            assert done.code == code, done.err
            assert "--budget-usd" in done.err + done.out
            assert paid == 17, "to the last cent that fits, and none more"
        done = await finish(
            await start(tmp_path, *flags, *limits[:2], "--probe", "disable", "--budget-usd", 1)
        )
        assert done.code == 0, done.err
        assert paid == 20


async def test_what_an_evaluation_perhaps_spent_is_settled_by_the_bill(tmp_path: Path) -> None:
    """Its host never says how long an answer was: all that was set aside stays, until a bill is there."""
    (tmp_path / "Config").mkdir()
    price = {"overrides": {"m": {"input_usd_per_mtok": 100.0, "output_usd_per_mtok": 100.0}}}
    (tmp_path / "Config" / "provider_pricing.yaml").write_text(json.dumps(price))
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(20)])
    answer = openai_chat.Answer("No.", body={"usage": {"prompt_tokens": 10}})
    paid = 0

    def reply(_: object) -> openai_chat.Answer:
        nonlocal paid
        paid += 1
        return answer

    async with openai_chat.fake(reply=reply) as host:
        flags = ("--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", host.url)
        limits = ("--max-tokens", 100, "--budget-usd", 1.0, "--probe", "disable", "--output-dir", "o")
        done = await finish(await start(tmp_path, *flags, *limits))
        assert (done.code, paid) == (3, 8), "what may have been spent is spent"
        settled = await called(tmp_path, "status", "--run", "o", "--settle", "m=0.09")
        assert settled.code == 0, settled.err
        assert "m: settled at $0.09" in " ".join(settled.err.split())
        done = await finish(await start(tmp_path, *flags, *limits))
        assert paid > 8
    account = json.loads((tmp_path / "o" / "usage.json").read_text())["models"]["m"]
    assert account["settled_usd"] == 0.09
    assert account["settled_usd"] + account["uncertain_usd"] <= 1.0


async def test_a_benchmark_that_cannot_fit_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    (tmp_path / "Config").mkdir()
    price = {"overrides": {"m": {"input_usd_per_mtok": 100.0, "output_usd_per_mtok": 100.0}}}
    (tmp_path / "Config" / "provider_pricing.yaml").write_text(json.dumps(price))
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(20)])
    asked = 0

    def reply(_: object) -> openai_chat.Answer:
        nonlocal asked
        asked += 1
        return openai_chat.Answer("No.")

    async with openai_chat.fake(reply=reply) as host:
        flags = ("--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", host.url)
        limits = ("--max-tokens", 100, "--budget-usd", 0.001)
        done = await finish(await start(tmp_path, *flags, *limits, "--output-dir", "o"))
    assert (done.code, asked) == (1, 0), done.err
    said = " ".join(done.err.split())
    assert "does not fit into its budget" in said
    assert (
        "--budget-usd is $0.001; the same command with --estimate-only shows what costs what. Raise" in said
    )
