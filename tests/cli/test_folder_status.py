"""`coeval status` for programs, for output folders, and as long as a run goes on."""

from __future__ import annotations

import json
import os
import sys
import time
from pathlib import Path

import msgspec
import pytest
from cli.coeval_process import called
from cli.eval_process import finish, start, surroundings, write_price, write_prompts
from cli.terminal import on_terminal
from cli.warm_process import WarmProcess
from fakes import openai_chat
from pipeline.experiments import Lab, model, task

from coeval.store.rundir import ErrorLine, RunDir


def lab(folder: Path) -> Lab:
    return Lab(folder, models=[model("ann")], tasks=[task(total=3)])


@pytest.mark.process
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
    reported = {"requests", "input_tokens", "output_tokens", "cost_usd", "perhaps_usd"}
    assert reported < set(shown["spend"]["ann"])
    assert shown["spend"]["ann"]["requests"] > 0
    assert (shown["batches"], shown["errors"]) == ([], [])
    table = await called(made.folder, "status", "--run", made.path)
    assert "evaluations.jsonl" in table.out.partition("Files that lack records")[2]


@pytest.mark.process
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


@pytest.mark.system
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


@pytest.mark.process
def test_watching_what_nobody_works_on_shows_it_once(tmp_path: Path) -> None:
    made = lab(tmp_path)
    assert made.run().exit_code == 0
    watching = WarmProcess("status", "--run", made.path, "--watch", env=surroundings(tmp_path))
    shown = watching.communicate()
    assert watching.returncode == 0, shown.err
    assert shown.out.count("data_generation") == 1


@pytest.mark.process
async def test_a_benchmark_keeps_to_its_budget_over_all_starts(tmp_path: Path) -> None:
    """Each answer costs three cents; the budget is for some of them, and the next start has no more."""
    write_price(tmp_path, "m", 0.0, 100.0)
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(20)])
    answer = openai_chat.Answer("No.", usage=(10, 300))
    paid = 0

    def reply(_: object) -> openai_chat.Answer:
        nonlocal paid
        paid += 1
        return answer

    async with openai_chat.fake(reply=reply) as host:
        flags = ("--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", host.url)
        limits = ("--max-tokens", 300, "--budget-usd", 0.525, "--probe", "disable")
        for code in (3, 3):  # the second goes on, and what is left is for none of them
            done = await finish(await start(tmp_path, *flags, *limits))
            assert done.code == code, done.err
            assert "--budget-usd" in done.err + done.out
            assert paid == 17, "to the last answer that fits, and none more"
        done = await finish(
            await start(tmp_path, *flags, *limits[:2], "--probe", "disable", "--budget-usd", 1)
        )
        assert done.code == 0, done.err
        assert paid == 20


@pytest.mark.process
async def test_what_an_evaluation_perhaps_spent_is_settled_by_the_bill(tmp_path: Path) -> None:
    """Its host never says how long an answer was: all that was set aside stays, until a bill is there."""
    write_price(tmp_path, "m", 100.0, 100.0)
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


@pytest.mark.process
async def test_a_benchmark_that_cannot_fit_is_refused_before_anything_is_asked(tmp_path: Path) -> None:
    write_price(tmp_path, "m", 100.0, 100.0)
    prompts = write_prompts(tmp_path / "p.jsonl", "punctuation:no_comma", [f"Say {n}." for n in range(20)])
    async with openai_chat.fake() as host:
        flags = ("--tasks", "ifeval", "--ifeval-input", prompts, "--model", "m", "--base-url", host.url)
        limits = ("--max-tokens", 100, "--budget-usd", 0.001)
        done = await finish(await start(tmp_path, *flags, *limits, "--output-dir", "o"))
    assert (done.code, host.requested) == (1, []), done.err
    said = " ".join(done.err.split())
    assert "does not fit into its budget" in said
    assert "--budget-usd is $0.001; the same command with --estimate-only breaks the cost down. Raise" in said


# `coeval status` on a terminal of 80 columns: what a run holds, what went wrong, whether it is alive.

ESCAPE = "\x1b[2J\x9b31m"


@pytest.fixture
def whole(tmp_path: Path) -> Lab:
    made = Lab(tmp_path, models=[model("ann")], tasks=[task(total=2)])
    assert made.run().exit_code == 0
    return made


def status(whole: Lab) -> list[str]:
    seen = on_terminal([sys.executable, "-m", "coeval", "status", "--run", whole.path], 80, cwd=whole.folder)
    assert seen.code == 0, seen.screen
    return seen.screen


def write_errors(whole: Lab, *errors: ErrorLine) -> None:
    with (whole.path / "run_errors.jsonl").open("ab") as file:
        for error in errors:
            file.write(msgspec.json.encode(error) + b"\n")


def failure(n: int, kind: str = "server", message: str = "the host answered 500") -> ErrorLine:
    return ErrorLine(
        at=f"2026-01-01T00:00:{n:02d}Z",
        phase="evaluation",
        id=f"story__ann__{n:05d}__ann__ann",
        model="ann",
        kind=kind,
        message=message,
    )


@pytest.mark.process
def test_errors_are_grouped_and_the_last_ten_shown(whole: Lab) -> None:
    write_errors(whole, *(failure(n) for n in range(1, 15)), failure(15, "timeout"), failure(16, "timeout"))
    shown = status(whole)
    groups = [line.split() for line in shown if line.split()[:2] == ["evaluation", "ann"]]
    assert groups == [["evaluation", "ann", "server", "14"], ["evaluation", "ann", "timeout", "2"]]
    assert "Last 10 of 16:" in shown
    heads = [line.split() for line in shown if line.startswith("2026-01-01")]
    assert [head[2] for head in heads] == [f"story__ann__{n:05d}__ann__ann" for n in range(7, 17)]
    assert [head[1] for head in heads][-3:] == ["server", "timeout", "timeout"]


@pytest.mark.process
def test_foreign_text_is_shown_short_and_moves_no_cursor(whole: Lab) -> None:
    write_errors(whole, failure(1, message=ESCAPE + "x" * 5_000))
    with (whole.path / "run_errors.jsonl").open("ab") as file:
        file.write(b'{"at": "\xff"}\n{"at": 1}\n{"torn')
    shown = "\n".join(status(whole))
    assert not any(character in shown for character in ESCAPE if not character.isprintable())
    assert "Last 1:" in shown
    assert shown.count("x") < 400


@pytest.mark.process
def test_a_run_that_was_killed_is_not_called_running(whole: Lab) -> None:
    folder = RunDir(whole.path)
    meta = folder.read_meta()
    meta.status = "running"
    folder.write_meta(meta)
    with folder.hold_lock():
        assert any(f"running (process {os.getpid()})" in line for line in status(whole))
    assert "stopped before its end; continue with coeval run" in " ".join(status(whole))


@pytest.mark.process
def test_a_healthy_run_shows_no_errors(whole: Lab) -> None:
    shown = status(whole)
    assert shown[0] == "exp: completed (simulated models)"
    assert not any("rror" in line or "no record" in line for line in shown)


# `coeval repair` on a terminal of 80 columns.


@pytest.fixture
def hurt(tmp_path: Path) -> Lab:
    """A run with two damaged evaluations, and a control sequence in each of them."""
    long = "a-model-with-quite-a-long-name-1"
    made = Lab(tmp_path, models=[model("ann"), model(long)], tasks=[task(total=2)])
    assert made.run().exit_code == 0
    path = made.path / "phase5_evaluations" / f"story.{long}.{long}.evaluations.jsonl"
    lines = path.read_bytes().splitlines(keepends=True)
    lines[1] = '{"id": "\x9b31m", "scores": {"plot": "Great"}}\n'.encode()
    lines[2] = b"garbage \x1b[2J\n"
    path.write_bytes(b"".join(lines))
    return made


def repair(hurt: Lab, *words: str, code: int = 0) -> str:
    seen = on_terminal(
        [sys.executable, "-m", "coeval", "repair", "--run", hurt.path, *words],
        80,
        cwd=hurt.folder,
    )
    shown = "\n".join(seen.screen)
    assert seen.code == code, shown
    assert "\x1b" not in shown
    assert "\x9b" not in shown
    return shown.rstrip("\n")


@pytest.mark.process
def test_a_dry_run_shows_counts_reasons_and_examples_within_the_terminal(hurt: Lab) -> None:
    shown = repair(hurt, "--dry-run", "--stats", "--breakdown", "--examples", "1")
    paths = [line for line in shown.splitlines() if ".jsonl" in line]
    assert paths, "a path stays in one piece: the terminal folds it"
    assert [line for line in shown.splitlines() if line not in paths and len(line) > 80] == []
    table = {line.split()[0]: line.split()[1:] for line in shown.splitlines()[1:6]}
    assert table["evaluation"] == ["16", "0", "2", "16", "14", "2"]
    assert table["response_collection"] == ["8", "0", "0", "8", "8", "0"]
    assert "level" in shown
    assert "unreadable" in shown
    assert "plot: 'Great'" in shown
    assert r"garbage \x1b[2J" in shown
    assert "2 invalid records. Nothing was changed;" in shown
    assert not (hurt.path / "repaired").exists()


@pytest.mark.process
def test_repairing_says_where_the_records_went_and_how_to_go_on(hurt: Lab) -> None:
    shown = repair(hurt)
    [aside] = (hurt.path / "repaired").iterdir()
    assert f"2 invalid records set aside in repaired/{aside.name}" in " ".join(shown.split())
    assert f"coeval run --config {hurt.path}/config.yaml --continue" in shown
    again = repair(hurt, "--phase", "5")
    assert "All records are valid." in again
    assert again.splitlines()[1].split() == ["evaluation", "14", "0", "0", "16", "14", "2"]
    assert hurt.run(continue_run=True).exit_code == 0
    assert repair(hurt).splitlines()[-1] == "All records are valid."


@pytest.mark.process
def test_wrong_requests_exit_with_1_and_the_way_out(hurt: Lab) -> None:
    assert "the phases are attribute_mapping" in repair(hurt, "--phase", "judging", code=1)
    hurt.id = "other"
    assert "there is no folder" in repair(hurt, code=1)
