"""`coeval view`: what it answers, whom it refuses, and that it leaves what it shows as it is."""

from __future__ import annotations

import hashlib
import json
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, model, task
from reports.view_process import JSON, ViewServer, viewing
from written_run import Run, append

from coeval.core.shown_names import ShownNames
from coeval.reports.view.viewed_folder import GrowthRate, _find_best_by_any_measure, read_summary

ITEM = "haiku__t.1__00002"
LINKED = {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "navigate", "Sec-Fetch-Dest": "document"}
"""What a browser sends as it follows a link of another page."""


def write_run(folder: Path, students: tuple[str, ...] = ("ann", "bob")) -> Run:
    run = Run(folder)
    for n in range(1, 4):
        for place, student in enumerate(students):
            run.judged(n, student, "j1", {"plot": ("High", "Medium", "Low")[(n + place) % 3]})
    return run


def contents(folder: Path) -> dict[str, str]:
    """All files of a folder by name, by their hashes."""
    files = sorted(path for path in folder.rglob("*") if path.is_file())
    return {str(path.relative_to(folder)): hashlib.sha256(path.read_bytes()).hexdigest() for path in files}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Two runs and an output below ``runs``, and a file beside them that nobody is to read."""
    here = tmp_path_factory.mktemp("view")
    write_run(here / "runs" / "first")
    write_run(here / "runs" / "second", ("ann", "cem"))
    task = here / "runs" / "output" / "ifeval"
    append(task / "responses.jsonl", {"id": "7", "prompt": "No commas.", "response": "a, b", "model": "m"})
    append(task / "scores.jsonl", {"id": "7", "scores": {"prompt_level_strict_accuracy": 0.0}})
    metrics = {"prompt_level_strict_accuracy": {"value": 0.0, "n": 1, "unit": "share"}}
    (task / "summary.json").write_text(json.dumps({"task": "ifeval", "model": "m", "metrics": metrics}))
    (here / "secret.txt").write_text("nobody's business")
    return here


@pytest.fixture(scope="module")
def server(place: Path) -> Iterator[ViewServer]:
    """It was told no path: it shows what lies below ``./runs``."""
    with viewing(folder=place) as found:
        for number in range(3):
            found.ready(number)
        yield found


@pytest.mark.system
def test_it_shows_the_runs_and_outputs_below_runs(server: ViewServer) -> None:
    folders = server.ask("/api/folders").value
    assert [(each["name"], each["kind"]) for each in folders] == [
        ("first", "run"), ("output", "eval-framework"), ("second", "run"),
    ]  # fmt: skip
    first = folders[0]
    assert first["status"]["phases"]["evaluation"]["good"] == 6
    assert (first["summary"]["students"], first["summary"]["items"]) == (2, 3)
    assert first["summary"]["best"]["name"] in {"ann", "bob"}
    assert first["changed"].endswith("Z")
    assert (folders[1]["summary"]["best"]["name"], folders[1]["summary"]["best"]["score"]) == ("m", 0)
    assert "results" not in first, "the list is asked for all the time"
    state = server.ask("/f/0/api/state").value
    assert {each["student"] for each in state["results"]["students"]} == {"ann", "bob"}
    assert len(state["headline"]) >= 1
    assert server.ask("/").text.startswith("<!doctype html>")
    for number in (0, 1):
        server.ask(f"/f/{number}/report")
        server.wait_for_text(f"/f/{number}/report", 'data-served-at="api/"')
    assert "frame-ancestors 'none'" in server.ask("/f/0/").headers["Content-Security-Policy"]


def test_it_answers_choices_of_items_beside_those_of_other_folders(server: ViewServer) -> None:
    page = server.ask("/f/0/api/items?student=ann&order=worst&first=0&most=2&beside=2").value
    assert page["total"] == 3
    assert [row["scores"]["ann"] for row in page["rows"]] == [0.0, 0.5]
    for order in ("lowest", "highest"):
        rows = server.ask(f"/f/0/api/items?order={order}&by=bob&most=2").value["rows"]
        every = [row["scores"].get("bob") for row in server.ask("/f/0/api/items?most=9").value["rows"]]
        known = sorted((one for one in every if one is not None), reverse=order == "highest")
        assert [row["scores"]["bob"] for row in rows] == known[:2]
    assert page["beside"]["2"][f"haiku {page['rows'][0]['item']}"] == {"ann": 0.0, "cem": 1.0}
    again = server.ask(
        f"/f/0/api/items?student=ann&order=worst&first=0&most=2&beside={'2,0,02,' * 1_000}"
    ).value
    assert again == page, "a folder is asked once, however often it is named, and never beside itself"
    detail = server.ask(f"/f/0/api/item?item={ITEM}").value
    assert (detail["prompt"], detail["answers"][1]["student"]) == ("prompt 2", "bob")
    assert server.ask("/f/1/api/item?item=7&task=ifeval").value["prompt"] == "No commas."
    for query, said in (
        ("items?order=best", "order=best: items are ordered by"),
        ("items?first=-1", "first=-1: write a whole number"),
        ("items?x=%3Cscript%3E", "x: items are not chosen by this"),
    ):
        answer = server.ask(f"/f/0/api/{query}")
        assert (answer.status, answer.headers["Content-Type"]) == (400, "application/json")
        assert answer.value["error"].startswith(said)
    for item in ("nobody", quote("../../secret.txt")):
        assert server.ask(f"/f/0/api/item?item={item}").value is None


@pytest.mark.parametrize(
    "path",
    [
        "/../secret.txt",
        "/assets/..%2f..%2fsecret.txt",
        "/assets/%2e%2e/view_app.py",
        "/f/../secret.txt",
        "/f/9/",
        "/f/0/api/../../../secret.txt",
        "/f/0/meta.json",
        "/f/%2e%2e/report",
        "/f/-1/api/state",
        "/f/0/api/items?beside=99",
        f"/f/0/api/items?beside={'9' * 5_000}",
    ],
)
def test_it_shows_nothing_beside_the_folders_that_it_was_given(path: str, server: ViewServer) -> None:
    said = server.ask(path)
    assert said.status == 404
    assert "nobody's business" not in said.text


@pytest.mark.process
@pytest.mark.parametrize(
    ("method", "path", "headers", "status"),
    [
        ("GET", "/", {"Host": "evil.example"}, 403),
        ("GET", "/f/0/api/state", {"Host": "127.0.0.1.evil.example"}, 403),
        ("GET", "/f/0/api/state", {"Host": ""}, 403),
        ("GET", "/f/0/api/state", {"Sec-Fetch-Site": "cross-site", "Sec-Fetch-Mode": "no-cors"}, 403),
        ("GET", "/f/0/", LINKED, 200),
        ("GET", "/f/0/", LINKED | {"Sec-Fetch-Dest": "iframe"}, 403),
        ("GET", "/f/0/report", LINKED | {"Sec-Fetch-Dest": "embed"}, 403),
        ("GET", "/f/0/", {"Sec-Fetch-Site": "same-site", "Sec-Fetch-Mode": "navigate"}, 403),
        ("GET", "/f/0/api/items?beside=0,1", LINKED, 403),
        ("GET", "/f/0/", {"Authorization": None}, 403),
        ("GET", "/assets/view.js", {"Authorization": None}, 403),
        ("GET", "/f/0/api/state", {"Authorization": "Bearer x"}, 403),
        ("GET", "/f/0/api/state?token=x", {"Authorization": None}, 403),
        ("POST", "/f/0/api/mark", {**JSON, "Authorization": None}, 403),
        ("GET", "/f/0/", {"Host": "localhost"}, 200),
        ("POST", "/f/0/api/mark", {**JSON, "Origin": "http://evil.example"}, 403),
        ("POST", "/f/0/api/mark", {**JSON, "Origin": "null"}, 403),
        ("POST", "/f/0/api/mark", {**JSON, "Sec-Fetch-Site": "same-site"}, 403),
        ("POST", "/f/0/api/mark", {"Content-Type": "text/plain"}, 415),
        ("OPTIONS", "/f/0/api/mark", {"Origin": "http://evil.example"}, 403),
        ("DELETE", "/f/0/api/mark", JSON, 405),
    ],
)
def test_it_answers_its_own_pages_only(
    method: str, path: str, headers: dict[str, str | None], status: int, server: ViewServer, place: Path
) -> None:
    body = json.dumps({"item": ITEM, "task": "haiku", "flag": True}) if method == "POST" else None
    said = server.ask(path, method, body, headers=headers)
    assert said.status == status
    assert "Access-Control-Allow-Origin" not in said.headers
    assert said.headers["X-Content-Type-Options"] == "nosniff"
    assert not (place / "runs" / "first" / "labels.jsonl").exists()


def test_the_printed_address_lets_one_in_and_a_cookie_stays(server: ViewServer) -> None:
    nobody = {"Authorization": None}
    entered = server.ask(f"/f/0/report?all=1&token={server.token}", headers=nobody)
    assert (entered.status, entered.headers["Location"]) == (303, "/f/0/report?all=1")
    cookie, *rules = entered.headers["Set-Cookie"].split("; ")
    assert {"HttpOnly", "SameSite=Lax", "Path=/"} <= set(rules)
    assert server.ask("/api/folders", headers=nobody | {"Cookie": cookie}).status == 200
    assert server.ask("/api/folders", headers=nobody | {"Cookie": f"{cookie}x"}).status == 403
    aside = server.ask(f"//evil.example/?token={server.token}", headers=nobody)
    assert aside.headers.get("Location", "/").lstrip("/") in ("", "evil.example/")
    assert not aside.headers.get("Location", "/").startswith("//")
    refused = server.ask("/f/0/", headers=nobody)
    assert "open the address that coeval view printed" in refused.value["error"]
    assert server.token not in refused.text


@pytest.mark.process
def test_a_browser_that_it_opens_gets_a_secret_that_opens_once(place: Path, tmp_path: Path) -> None:
    """What stands in the command line of a browser can be read by all users of a machine."""
    browser, reported = tmp_path / "browser", tmp_path / "told"
    browser.write_text(f'#!/bin/sh\necho "$1" > {reported}.part && mv {reported}.part {reported}\n')
    browser.chmod(0o755)
    with viewing("runs/first", "--open", folder=place, BROWSER=str(browser)) as server:
        while not reported.exists():
            assert server.process.poll() is None
        path = f"/{reported.read_text().strip().removeprefix(server.address)}"
        assert server.token not in path
        nobody = {"Authorization": None}
        assert [server.ask(path, headers=nobody).status for _ in range(2)] == [303, 403]


@pytest.mark.process
def test_without_a_token_every_user_of_the_machine_is_answered(place: Path) -> None:
    with viewing("runs/first", "--no-token", folder=place) as server:
        assert server.token == ""
        assert server.ask("/f/0/", headers={"Authorization": None}).status == 200
        assert server.ask("/f/0/", headers=LINKED | {"Sec-Fetch-Dest": "iframe"}).status == 403


@pytest.mark.process
def test_marks_are_kept_beside_the_run_and_are_none_of_it(
    server: ViewServer, place: Path, coeval: Command
) -> None:
    folder = place / "runs" / "second"
    shown = [
        coeval("results", "--run", folder, "--json").out,
        coeval("repair", "--run", folder, "--dry-run").out,
    ]
    before = contents(folder)

    def mark(**fields: object) -> int:
        given = {"item": ITEM, "task": "haiku", **fields}
        origin = {"Origin": server.address.rstrip("/"), "Sec-Fetch-Site": "same-origin"}
        return server.ask("/f/2/api/mark", "POST", json.dumps(given), headers=JSON | origin).status

    note = "</script><img src=x onerror=alert(1)>\u202e"
    assert mark(flag=True, note="first") == 200
    assert mark(flag=True, note=note) == 200
    assert mark(item="nobody") == 404
    assert mark(note="x" * 10_001) == 400
    assert mark(note="x" * 200_000) == 413
    assert mark(more=1) == 400
    [kept] = server.ask("/f/2/api/marks").value
    assert (kept["note"], kept["flag"]) == (note, True)
    assert [row["item"] for row in server.ask("/f/2/api/items?marked=1").value["rows"]] == [ITEM]
    assert len((folder / "labels.jsonl").read_text().splitlines()) == 2
    append(folder / "labels.jsonl", '{"item": "torn')
    assert server.ask("/f/2/api/marks").value == [kept]
    assert mark(flag=False, note="") == 200
    assert server.ask("/f/2/api/marks").value == []
    (folder / "labels.jsonl").unlink()
    (folder / "labels.jsonl").symlink_to(place / "secret.txt")
    assert mark(flag=True) == 500
    assert (place / "secret.txt").read_text() == "nobody's business"
    (folder / "labels.jsonl").unlink()
    assert mark(flag=True) == 200
    assert contents(folder).items() - before.items() == {
        ("labels.jsonl", contents(folder)["labels.jsonl"])
    }  # and nothing else was written or locked
    assert shown == [
        coeval("results", "--run", folder, "--json").out,
        coeval("repair", "--run", folder, "--dry-run").out,
    ]


@pytest.mark.system
def test_it_ends_quietly_and_says_why_it_does_not_begin(place: Path, coeval: Command) -> None:
    with viewing("runs/first", folder=place) as server:
        server.ready()
        assert server.ask("/").status == 302
        with socket.socket() as taken:
            taken.bind(("127.0.0.1", 0))
            taken.listen()
            port = taken.getsockname()[1]
            words = [sys.executable, "-m", "coeval", "view", "runs/first", "--port", str(port)]
            refused = subprocess.run(words, cwd=place, capture_output=True, text=True, timeout=60)
        assert refused.returncode == 1
        assert refused.stderr.startswith(f"cannot listen on 127.0.0.1 port {port}: ")
        assert "choose another --port, or 0 for any" in refused.stderr
        assert server.interrupt() == (0, "first; Ctrl-C ends it\n")
    for path, said in (
        (place / "secret.txt", "is a file; name a folder"),
        (place / "nowhere", "is not there"),
        (place / "runs" / "first" / "phase4_responses", "nothing to show"),
    ):
        ended = coeval("view", path)
        assert (ended.code, ended.out) == (1, "")
        assert said in ended.err
        assert "Traceback" not in ended.err


@pytest.mark.system
def test_it_follows_what_comes_to_lie_there(place: Path, tmp_path: Path) -> None:
    """Records that are added, a line that is torn, a run that begins, one that goes away."""
    run = write_run(tmp_path / "runs" / "one")
    with viewing("runs", folder=tmp_path) as server:
        server.ready()
        run.judged(4, "ann", "j1", {"plot": "High"})
        append(run.evaluations("j1"), '{"id": "torn')
        server.wait_for("/f/0/api/items", lambda page: page["total"] == 4)
        write_run(tmp_path / "runs" / "two")
        server.wait_for("/api/folders", lambda folders: len(folders) == 2)
        server.ready(1)
        (tmp_path / "runs" / "two").rename(tmp_path / "gone")
        server.wait_for("/f/1/api/state", lambda reported: reported["error"])
        assert server.ask("/f/1/api/items").value["total"] == 3  # as it was read last
        assert server.interrupt()[0] == 0


# `coeval view` beside a run that goes on, is killed and continued: it shows what is on disk.


@pytest.mark.system
def test_it_shows_a_run_that_goes_on_is_killed_and_continued(tmp_path: Path) -> None:
    models = [model("ann", latency_s=0.3, max_concurrency=1), model("ben", skill=0.3)]
    lab = Lab(tmp_path, models, [task(total=8)])
    words = [sys.executable, "-m", "coeval", "run", "--config", str(lab.file)]
    first = subprocess.Popen(words, cwd=tmp_path, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        while not lab.path.joinpath("meta.json").exists():
            assert first.poll() is None
        with viewing(lab.path, folder=tmp_path) as server:
            state = "/f/0/api/state"
            server.wait_for(
                state, lambda reported: (reported["status"] or {}).get("state", {}).get("pid") == first.pid
            )
            server.wait_for(state, lambda reported: reported["results"] and reported["results"]["students"])
            before = server.wait_for("/f/0/api/items", lambda page: page["total"])
            first.send_signal(signal.SIGKILL)
            first.wait()
            stopped = server.wait_for(
                state,
                lambda reported: reported["status"]["state"]["status"] == "stopped" and reported["status"],
            )
            assert 0 < stopped["phases"]["evaluation"]["good"] < 64
            lab.models[0]["parameters"]["max_concurrency"] = 64  # the rest need not take as long
            assert lab.file.exists()
            again = subprocess.run(
                [*words, "--continue"], cwd=tmp_path, capture_output=True, text=True, timeout=120
            )
            assert (again.returncode, "in use" in again.stderr) == (0, False)
            server.wait_for(state, lambda reported: reported["status"]["phases"]["evaluation"]["good"] == 64)
            server.wait_for("/f/0/api/items", lambda page: page["total"] == 16)
            assert before <= 16
            reported = server.ask(state).value
            assert (reported["error"], reported["status"]["state"]) == (
                None,
                {"status": "completed", "pid": None},
            )
            assert server.interrupt() == (0, "exp; Ctrl-C ends it\n")
    finally:
        first.kill()
        first.wait()


@pytest.mark.system
def test_it_compares_folders_by_their_numbers(server: ViewServer) -> None:
    page = server.ask("/compare?f=0&f=2")
    assert (page.status, "Comparison of" in page.text) == (200, True)
    assert "frame-ancestors 'none'" in page.headers["Content-Security-Policy"]
    for query, status in (("", 400), ("?f=0", 400), ("?f=0&f=0", 400), ("?f=0&f=9", 404), ("?f=0&f=..", 404)):
        assert server.ask(f"/compare{query}").status == status, query
    refused = server.ask("/compare?f=0&f=1")
    assert (refused.status, "nothing to compare" in refused.value["error"]) == (400, True)


@pytest.mark.system
def test_the_best_of_a_folder_is_whoever_its_results_name_first() -> None:
    """Not the highest mean: that of a student of some tasks only is over others."""
    whole = {"student": "ann", "task": None, "score": 0.6, "low": 0.5, "high": 0.7}
    partial = {"student": "ben", "task": None, "score": 0.9, "low": 0.8, "high": 1.0}
    found = _find_best_by_any_measure(
        {"pairs": [], "labels": [], "metrics": []}, [whole, partial], ShownNames({})
    )
    assert found is not None
    assert (found.name, found.tasks) == ("ann", 0)
    heads = [
        {"model": "m", "task": task, "metric": "strict", "unit": unit, "value": value}
        for task, unit, value in (
            ("ifeval", "percent", 50.0),
            ("other", "share", 1.0),
            ("other", "share", 0.0),
        )
    ]
    of_tasks = _find_best_by_any_measure({"pairs": [], "labels": [], "metrics": heads}, [], ShownNames({}))
    assert of_tasks is not None
    assert (of_tasks.score, of_tasks.what, of_tasks.tasks) == (0.75, "mean of 2 tasks", 2)


@pytest.mark.process
def test_it_shows_sweeps_by_their_checkpoints_and_folders_by_short_names(tmp_path: Path) -> None:
    """More folders than are read at once: each is read for its line alone."""
    for sweep in ("grpo", "dpo"):
        for step in (100, 20, 3):
            write_run(tmp_path / "all" / sweep / f"step_{step}", ("m",))
        (tmp_path / "all" / sweep / "sweep").mkdir()
    for name in ("one", "two", "three"):
        write_run(tmp_path / "all" / name)
    with viewing("all", folder=tmp_path) as server:

        def read(folders: list[dict[str, Any]]) -> list[dict[str, Any]] | None:
            return folders if len(folders) == 9 and all(each["summary"] for each in folders) else None

        folders = server.wait_for("/api/folders", read)
        shown = [(each["sweep"], each["name"]) for each in folders]
        assert shown == [
            (None, "one"), (None, "three"), (None, "two"), ("dpo", "dpo/step_3"), ("dpo", "dpo/step_20"),
            ("dpo", "dpo/step_100"), ("grpo", "grpo/step_3"), ("grpo", "grpo/step_20"),
            ("grpo", "grpo/step_100"),
        ]  # fmt: skip
        assert {each["generation"] for each in folders} == {0}, "none is kept open"
        assert server.ask("/compare?f=0&f=3").status == 200, "the best of each, since they share no student"
        assert {each["summary"]["items"] for each in folders} == {3}


def test_the_pace_is_that_of_the_last_looks(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("coeval.reports.view.viewed_folder.time.monotonic", lambda: now[0])
    pace = GrowthRate()
    for done in (0, 10, 20, 30):
        pace.add_status({"phases": {"evaluation": {"good": done, "failed": 0, "owed": 90 - done}}})
        now[0] += 5
    assert pace.estimate_pace_and_time_left() == {"per_minute": 90, "seconds_left": 40}
    pace.add_status({"phases": {"evaluation": {"good": 0, "failed": 0, "owed": 90}}})
    assert pace.estimate_pace_and_time_left() is None, "it began again"


@pytest.mark.process
def test_of_compared_answers_the_list_shows_who_wins_most(tmp_path: Path) -> None:
    models = [model("good", skill=0.95), model("bad", "student", skill=0.1), model("jury", "judge")]
    lab = Lab(tmp_path, models, [task(total=6, judging="pairwise")])
    assert lab.run().exit_code == 0
    best = read_summary(lab.path).best
    assert best is not None
    assert (best.name, best.what) == ("good", "wins in 100")
    assert best.score > 0.5
