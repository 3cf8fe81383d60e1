"""Kills inside what looks after files: each command, repeated, ends where it would have ended."""

from __future__ import annotations

import json
import random
import shutil
import signal
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from cli.invoked import Command
from fakes.asset_shelf import stock
from fakes.moments import Ended, Forks, forks
from fakes.package_index import PackageIndex, running
from pipeline.experiments import PHASES, Lab, content, model, quiz, task

pytestmark = pytest.mark.system

KILLS = 10
"""In each of five commands; every fifth by SIGTERM."""


def a_lab(folder: Path, **settings: Any) -> Lab:
    models = [
        model("tea", "teacher"),
        model("ann", "student"),
        model("ben", "student"),
        model("jim", "judge"),
    ]
    return Lab(
        folder, models, [task(total=2, rubric="auto"), quiz(total=2)], {"probe_mode": "disable", **settings}
    )


@pytest.fixture(scope="module")
def finished(tmp_path_factory: pytest.TempPathFactory) -> Path:
    lab = a_lab(tmp_path_factory.mktemp("finished"))
    assert lab.run().exit_code == 0
    return lab.folder


@pytest.fixture(scope="module")
def warm() -> Iterator[Forks]:
    with forks() as found:
        yield found


def killed_and_repeated(
    tmp_path: Path,
    name: str,
    make: Callable[[Path], Path],
    once: Callable[..., Ended],
    state: Callable[[Path], Any],
    again: Callable[[Path], Ended] | None = None,
) -> None:
    """``make`` sets a folder up, ``once`` runs the command on it, ``state`` is how it ended.

    The command is repeated after each kill; ``again`` is what a user would do in its place.
    """
    whole = make(tmp_path / "undisturbed")
    undisturbed = once(whole)
    assert undisturbed.code == 0, undisturbed
    expected, draw = state(whole), random.Random(name)
    moments = [1, undisturbed.moments, *(draw.randint(1, undisturbed.moments) for _ in range(KILLS - 2))]
    ends: Counter[int] = Counter()
    for number, at in enumerate(moments):
        folder = make(tmp_path / f"{number}")
        by = signal.SIGTERM if number % 5 == 4 else signal.SIGKILL
        ended = once(folder, at=at, by=by)
        ends[ended.code] += 1
        repeated = (again or once)(folder)
        assert repeated.code == 0, (at, repeated)
        assert state(folder) == expected, f"killed at moment {at} of {undisturbed.moments}"
        shutil.rmtree(folder)
    assert ends[-signal.SIGKILL] == KILLS - KILLS // 5, ends


def files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def _lines(path: Path) -> list[str]:
    return path.read_text().splitlines()


def test_repair(finished: Path, tmp_path: Path, warm: Forks) -> None:
    def make(folder: Path) -> Path:
        shutil.copytree(finished, folder)
        for path in sorted((folder / "runs/exp").glob("phase[345]*/*.jsonl"))[::2]:
            lines = path.read_bytes().splitlines(keepends=True)
            path.write_bytes(b"".join([b"{damaged}\n", *lines])[:-9])
        (folder / "runs/exp/phase2_rubric/quiz.rubric.json").write_text("{")
        return folder

    def once(folder: Path, **kill: Any) -> Ended:
        return warm.run("coeval", "repair", "--run", folder / "runs/exp", below=folder, **kill)

    def state(folder: Path) -> Any:
        """Records and documents, what was set aside of them, and which files the notes name."""
        run = folder / "runs/exp"
        records = {name: text for name, text in files(run).items() if name.startswith("phase")}
        aside = {name: text for name, text in files(run / "repaired").items() if "run_errors" not in name}
        notes = {json.loads(line)["message"].split(":")[0] for line in _lines(run / "run_errors.jsonl")}
        meta = json.loads((run / "meta.json").read_text())
        return (
            records,
            {line for text in aside.values() for line in text.splitlines()},
            notes,
            meta["status"],
            meta["phases_completed"],
        )

    killed_and_repeated(tmp_path, "repair", make, once, state)


def test_overwrite(finished: Path, tmp_path: Path, warm: Forks) -> None:
    old = {name: text for name, text in files(finished / "runs/exp").items() if name.startswith("phase")}

    def make(folder: Path) -> Path:
        shutil.copytree(finished, folder)
        return folder

    def once(folder: Path, **kill: Any) -> Ended:
        lab = a_lab(folder, seed=1)
        return warm.run("coeval", "run", "--config", lab.file, "--overwrite", below=lab.path, **kill)

    def state(folder: Path) -> Any:
        lab = a_lab(folder)
        moved = [files(place) for place in (lab.path / "replaced").iterdir()]
        whole = [place for place in moved if old.items() <= place.items()]
        return content(lab), lab.meta()["status"], len(whole), (lab.path / ".replacing.json").exists()

    killed_and_repeated(tmp_path, "overwrite", make, once, state)


def test_an_overwrite_cut_short_at_any_change_is_shown_as_what_it_is(
    finished: Path, tmp_path: Path, warm: Forks, coeval: Command
) -> None:
    """At the first changes, and each third up to the first of the new run: no reader takes a part of the old
    run for a run, and the next start finishes the move, asked to overwrite again or not."""
    old = {name: text for name, text in files(finished / "runs/exp").items() if name.startswith("phase")}
    shown: Counter[str] = Counter()
    for at in (*range(1, 7), *range(7, 1000, 3)):
        folder = tmp_path / str(at)
        shutil.copytree(finished, folder)
        lab = a_lab(folder, seed=1)
        start = ("coeval", "run", "--config", lab.file)
        warm.run(*start, "--overwrite", below=lab.path, at=at)
        if (lab.path / "meta.json").exists() and lab.meta()["status"] == "running":
            break
        left = {name: text for name, text in files(lab.path).items() if name.startswith("phase")}
        half = (lab.path / ".replacing.json").exists()
        assert half or left in (old, {}), f"change {at}"
        state = shown_state(coeval, lab.path)
        shown[state] += 1
        assert state == ("replacing" if half else "completed" if left else "not started"), f"change {at}"
        if half:
            for command in (*READING, ["compare", str(finished / "runs/exp")]):
                refused = coeval(*command, lab.path)
                assert (refused.code, "a command was cut short while it moved" in refused.err) == (1, True), (
                    command
                )
            for command in (["run", "--dry-run"], ["plan"], ["run", "--continue", "--dry-run"]):
                refused = coeval(*command, "--config", lab.file)
                assert (refused.code, "a command was cut short while it moved" in refused.err) == (1, True), (
                    command
                )
            repeated = warm.run(*start, below=lab.path)
            assert repeated.code == 0, (at, repeated)
            assert (lab.meta()["status"], len(list((lab.path / "replaced").iterdir()))) == ("completed", 1)
        shutil.rmtree(folder)
    assert set(shown) == {"completed", "replacing", "not started"}


READING = (
    ["results", "--run"],
    ["status", "--fetch-batches", "--run"],
    ["show", "--run"],
    ["repair", "--dry-run", "--run"],
    ["analyze", "all", "--run"],
)


def shown_state(coeval: Command, path: Path) -> str:
    ended = coeval("status", "--json", "--run", path)
    if ended.code:
        assert "no meta.json" in ended.err
        return "not started"
    reported = json.loads(ended.out)["state"]["status"]
    text = coeval("status", "--run", path).out
    assert (reported == "replacing") == ("exp: being replaced" in text)
    return str(reported)


def test_a_start_over_tables_of_ones_own(tmp_path: Path, warm: Forks) -> None:
    """A start that was cut short before it began is repeated as it was, and refuses only to be continued."""

    def lab_in(folder: Path) -> Lab:
        items = {"path": str(folder / "i.csv"), "prompt": "q", "id": "n", "responses": {"v8": "b"}}
        answers = {"path": str(folder / "a.csv"), "prompt": "q", "response": "a"}
        story = {"name": "story", "description": "Tell one.", "items": items}
        rubric = {"plot": "It has one.", "short": {"check": "length", "most": 9}}
        return Lab(
            folder,
            [model("ann", "student"), model("jim", "judge")],
            [story | {"rubric": rubric}],
            students=[{"name": "v7", "responses": answers}],
        )

    def make(folder: Path) -> Path:
        folder.mkdir()
        (folder / "i.csv").write_text("n,q,b\n1,Tell one.,Once.\n2,Tell two.,Twice.\n")
        (folder / "a.csv").write_text("q,a\nTell one.,One.\nTell two.,Two times.\n")
        return folder

    def once(folder: Path, **kill: Any) -> Ended:
        lab = lab_in(folder)
        return warm.run("coeval", "run", "--config", lab.file, below=lab.path, **kill)

    def again(folder: Path) -> Ended:
        lab = lab_in(folder)
        words = ("coeval", "run", "--config", lab.file)
        ended = warm.run(*words, "--continue", below=lab.path)
        if (lab.path / "meta.json").exists():
            return ended
        assert "there is no run" in ended.said
        return warm.run(*words, below=lab.path)

    def state(folder: Path) -> Any:
        lab = lab_in(folder)
        return content(lab), lab.meta()["status"]

    killed_and_repeated(tmp_path, "tables", make, once, state, again)
    refused = lab_in(make(tmp_path / "silent"))
    refused.models[0]["parameters"] = {"failure_rate": 1.0}
    assert warm.run("coeval", "run", "--config", refused.file, below=refused.path).code == 2
    assert not list(refused.path.glob("phase*"))


def test_conversion_of_an_older_layout(finished: Path, tmp_path: Path, warm: Forks) -> None:
    def make(folder: Path) -> Path:
        shutil.copytree(finished, folder)
        (folder / "runs/exp").rename(folder / "runs/old")
        old = folder / "runs/old"
        (old / "meta.json").write_text('{"experiment_id": "old", "status": "completed"}')
        (old / "config.yaml").unlink()
        for path in old.glob("phase1*/*_attrs.json"):
            path.rename(
                path.with_name(path.name.replace("_target", ".target").replace("_nuanced", ".nuanced"))
            )
        for path in old.glob("phase5*/*.jsonl"):
            records = [json.loads(line) for line in _lines(path)]
            for record in records:
                del record["student_model_id"]
            path.write_text("".join(json.dumps(record) + "\n" for record in records))
        return folder

    def newer(folder: Path) -> Lab:
        return a_lab(folder, resume_from="old", phases=dict.fromkeys(PHASES, "Extend"))

    def once(folder: Path, **kill: Any) -> Ended:
        lab = newer(folder)
        return warm.run("coeval", "run", "--config", lab.file, below=lab.path, **kill)

    def again(folder: Path) -> Ended:
        lab = newer(folder)
        going_on = ["--continue"] if (lab.path / "meta.json").exists() else []
        return warm.run("coeval", "run", "--config", lab.file, *going_on, below=lab.path)

    def state(folder: Path) -> Any:
        lab = newer(folder)
        left = {name for name in files(lab.path) if ".converting" in name or name.endswith(".tmp")}
        return content(lab), lab.meta()["status"], left

    killed_and_repeated(tmp_path, "conversion", make, once, state, again)


def test_fetching_data(tmp_path: Path) -> None:
    names = ("bench/prompts", "bench/judge", "bench/table", "nltk/words")

    def make(folder: Path) -> Path:
        folder.mkdir()
        return folder

    def state(folder: Path) -> Any:
        """What was fetched; of what was noted beside it, which holds times, that it was."""
        found = {name: text for name, text in files(folder).items() if not name.startswith("locks/")}
        return {name: b"" if name.startswith("verified/") else text for name, text in found.items()}

    with running(stock(PackageIndex())) as index:
        hubs = {"HF_ENDPOINT": index.url, "COEVAL_GITHUB_MIRROR": index.url}
        home = {"HOME": str(tmp_path), "NLTK_DATA": "", "COEVAL_CACHE": str(tmp_path / "cache")}
        with forks(COEVAL_TEST_SHELF="1", **hubs, **home) as warm:

            def once(folder: Path, **kill: Any) -> Ended:
                cache = tmp_path / "cache"
                cache.unlink(missing_ok=True)
                cache.symlink_to(folder)
                return warm.run("coeval", "datasets", "fetch", *names, below=cache, **kill)

            killed_and_repeated(tmp_path, "fetch", make, once, state)


def test_scoring(tmp_path: Path, warm: Forks) -> None:
    def make(folder: Path) -> Path:
        folder.mkdir()
        kinds = ("punctuation:no_comma", "change_case:english_lowercase")
        prompts = [
            {"key": n, "prompt": f"Say {n}.", "instruction_id_list": [kind], "kwargs": [{}]}
            for n, kind in enumerate(kinds * 5)
        ]
        answers = [{"prompt": p["prompt"], "response": f"well, {p['key']}"} for p in prompts]
        for name, records in (("prompts", prompts), ("answers", answers)):
            (folder / f"{name}.jsonl").write_text("".join(json.dumps(r) + "\n" for r in records))
        return folder

    def once(folder: Path, **kill: Any) -> Ended:
        given = ["--ifeval-input", folder / "prompts.jsonl", "--ifeval-responses", folder / "answers.jsonl"]
        where = ["--output-dir", folder / "out"]
        return warm.run("eval-framework", "--tasks", "ifeval", *given, *where, below=folder / "out", **kill)

    def state(folder: Path) -> Any:
        found = files(folder / "out")
        assert not [name for name in found if name.endswith(".tmp")]
        for name in ("run_errors.jsonl", "run.log"):
            found.pop(name, None)  # tell of a line that the kill tore
        summary = json.loads(found.pop("ifeval/summary.json"))
        return sorted(found), summary["metrics"], summary["n_expected"], summary["complete"]

    killed_and_repeated(tmp_path, "scoring", make, once, state)
