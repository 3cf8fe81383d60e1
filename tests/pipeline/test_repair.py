"""`coeval repair`: what is no valid record is set aside byte for byte, and made again."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pipeline.experiments import FOLDERS, Lab, content, model, task

from coeval.core.errors import UsageError
from coeval.core.records import Datapoint
from coeval.pipeline.config.schema import Phase
from coeval.pipeline.upkeep.gaps import FileGap
from coeval.pipeline.upkeep.repair import Examiner, Flaw, Reason, RepairOptions, RepairReport, repair_run
from coeval.store.rundir import RunDir

AUTO = {"target_attributes": "auto", "nuanced_attributes": "auto", "rubric": "auto"}
LABELLED: dict[str, Any] = {"label_attributes": ["mood"]}


@pytest.fixture(scope="module")
def original(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    """A finished run of three items with a label, and a copy of nothing else."""
    made = Lab(
        tmp_path_factory.mktemp("original"),
        models=[model("ann", "teacher", "student"), model("ben", "student", "judge"), model("cyd", "judge")],
        tasks=[task(total=3, **LABELLED), task("free", total=2, **AUTO)],
    )
    assert made.run().exit_code == 0
    return made


@pytest.fixture
def lab(original: Lab, tmp_path: Path) -> Lab:
    """A finished run of one's own, to be damaged."""
    return copy_of(original, tmp_path)


def copy_of(lab: Lab, folder: Path) -> Lab:
    shutil.copytree(lab.path, folder / "runs" / lab.id)
    return Lab(folder, models=lab.models, tasks=lab.tasks)


def tree(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in sorted(folder.rglob("*")) if p.is_file()}


def file_of(lab: Lab, phase: Phase, number: int = 0) -> Path:
    return sorted((lab.path / FOLDERS[phase]).glob("story.*.jsonl"))[number]


def change(path: Path, line: int, how: Callable[[dict[str, Any]], bytes | dict[str, Any]]) -> bytes:
    """Change one line of a file; the line as it is then."""
    lines = path.read_bytes().splitlines(keepends=True)
    changed = how(json.loads(lines[line]))
    lines[line] = changed if isinstance(changed, bytes) else json.dumps(changed).encode() + b"\n"
    path.write_bytes(b"".join(lines))
    return lines[line]


def run_again(lab: Lab, **how: Any) -> None:
    assert lab.run(continue_run=True, **how).exit_code == 0


def invalid(report: RepairReport) -> list[tuple[Phase, str]]:
    return sorted(report.reasons.elements())


Damage = Callable[[dict[str, Any]], bytes | dict[str, Any]]
EVALUATION: dict[str, tuple[Reason, Damage]] = {
    "not JSON": ("unreadable", lambda _: b'{"id": \xff}\n'),
    "cut off in the middle of the file": ("unreadable", lambda r: json.dumps(r).encode()[:-30] + b"\n"),
    "two records run together": ("unreadable", lambda r: (json.dumps(r) * 2).encode() + b"\n"),
    "a field is missing": ("fields", lambda r: {k: v for k, v in r.items() if k != "judge_model_id"}),
    "a field of another type": ("fields", lambda r: r | {"task_id": 7}),
    "an unknown status": ("fields", lambda r: r | {"status": "done"}),
    "a number instead of a record": ("fields", lambda _: b"17\n"),
    "another judge's id": ("id", lambda r: r | {"id": r["response_id"] + "__dan"}),
    "another response": ("id", lambda r: r | {"response_id": r["response_id"] + "x"}),
    "good without scores": ("value", lambda r: r | {"scores": {}}),
    "a level in lower case": ("level", lambda r: r | {"scores": r["scores"] | {"plot": "high"}}),
    "a number for a level": ("fields", lambda r: r | {"scores": {"plot": 3}}),
    "a factor nobody asked for": ("factor", lambda r: r | {"scores": r["scores"] | {"wit": "Low"}}),
}


@pytest.mark.parametrize(("reason", "damage"), EVALUATION.values(), ids=EVALUATION)
def test_an_invalid_evaluation_is_set_aside_and_made_again(
    original: Lab, lab: Lab, reason: Reason, damage: Damage
) -> None:
    path = file_of(lab, "evaluation")
    undamaged = tree(lab.path)
    bad = change(path, 1, damage)
    before = tree(lab.path)

    looked = repair_run(RunDir(lab.path), RepairOptions(dry_run=True))
    assert invalid(looked) == [("evaluation", reason)]
    assert tree(lab.path) == before, "a dry run changes nothing"

    done = repair_run(RunDir(lab.path), RepairOptions())
    assert invalid(done) == [("evaluation", reason)]
    assert done.aside is not None
    assert (done.aside / path.relative_to(lab.path)).read_bytes() == bad
    name = str(path.relative_to(lab.path))
    left = undamaged[name].splitlines(keepends=True)
    assert path.read_bytes() == b"".join([left[0], *left[2:]])
    untouched = set(before) - {name, "meta.json", "run_errors.jsonl"}
    assert {key: tree(lab.path)[key] for key in untouched} == {key: before[key] for key in untouched}
    assert "evaluation" not in lab.meta()["phases_completed"]

    assert not repair_run(RunDir(lab.path), RepairOptions(dry_run=True)).reasons, "once is enough"
    run_again(lab)
    assert content(lab) == content(original)
    assert "evaluation" in lab.meta()["phases_completed"]


ITEMS: dict[str, tuple[Reason, Damage]] = {
    "not JSON": ("unreadable", lambda _: b"garbage\n"),
    "another teacher's id": ("id", lambda r: r | {"id": "story__dan__00001"}),
    "an id without a number": ("id", lambda r: r | {"id": "story__ann__"}),
    "good without a prompt": ("value", lambda r: {k: v for k, v in r.items() if k != "prompt"}),
}


@pytest.mark.parametrize(("reason", "damage"), ITEMS.values(), ids=ITEMS)
def test_what_was_made_from_an_invalid_item_goes_with_it(
    original: Lab, lab: Lab, reason: Reason, damage: Damage
) -> None:
    """The item is made anew, so its answers and their judgments no longer belong to it."""
    change(file_of(lab, "data_generation"), 0, damage)
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert invalid(report) == [
        ("data_generation", reason),
        *[("evaluation", "origin")] * 6,
        *[("response_collection", "origin")] * 2,
    ]
    run_again(lab)
    assert content(lab) == content(original)


def test_what_was_made_from_an_invalid_response_goes_with_it(original: Lab, lab: Lab) -> None:
    change(file_of(lab, "response_collection"), 2, lambda r: {k: v for k, v in r.items() if k != "response"})
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert invalid(report) == [*[("evaluation", "origin")] * 3, ("response_collection", "value")]
    run_again(lab)
    assert content(lab) == content(original)


def test_torn_ends_are_set_aside_in_every_file(original: Lab, lab: Lab) -> None:
    torn = {}
    for path in sorted(lab.path.rglob("*.jsonl")):
        path.write_bytes(path.read_bytes() + b'{"id": "torn')
        torn[path.relative_to(lab.path)] = b'{"id": "torn'
    (lab.path / "run_errors.jsonl").write_bytes(b'{"at": "to')
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert set(report.reasons) == {(file.phase, "torn") for file in report.files if not file.is_document}
    assert report.aside is not None
    assert {p: (report.aside / p).read_bytes() for p in torn} == torn
    assert (report.aside / "run_errors.jsonl").read_bytes() == b'{"at": "to'
    noted = [json.loads(line) for line in (lab.path / "run_errors.jsonl").read_text().splitlines()]
    assert {line["kind"] for line in noted} == {"set_aside"}
    assert len(noted) == len(torn)
    assert content(lab) == content(original)


def test_a_proposal_without_a_value_is_asked_for_again(original: Lab, lab: Lab) -> None:
    path = lab.path / "phase2_rubric" / "proposals.jsonl"
    change(path, 0, lambda r: {k: v for k, v in r.items() if k != "rubric"})
    (lab.path / "phase2_rubric" / "free.rubric.json").unlink()
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert invalid(report) == [("rubric_mapping", "value")]
    assert report.gaps.unsettled == ["free"]
    run_again(lab)
    assert content(lab) == content(original)


@pytest.mark.parametrize("damaged", [b"", b'{"plot": ', b'["plot"]', b'{"plot": 1}'])
def test_a_damaged_document_is_moved_and_drawn_again_from_what_was_proposed(
    original: Lab, lab: Lab, damaged: bytes
) -> None:
    path = lab.path / "phase2_rubric" / "free.rubric.json"
    path.write_bytes(damaged)
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert report.gaps.unsettled == ["free"]
    assert report.aside is not None
    assert (report.aside / "phase2_rubric" / "free.rubric.json").read_bytes() == damaged
    assert not path.exists()
    run_again(lab)
    assert path.read_bytes() == (original.path / "phase2_rubric" / "free.rubric.json").read_bytes()
    assert content(lab) == content(original)


def test_an_earlier_valid_record_of_the_same_id_counts_again(original: Lab, lab: Lab) -> None:
    path = file_of(lab, "evaluation", -1)
    last = json.loads(path.read_bytes().splitlines()[-1])
    with path.open("a") as file:
        file.write(json.dumps(last | {"scores": {"plot": "Superb"}}) + "\n")
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert invalid(report) == [("evaluation", "level")]
    assert not any(file.owed for file in report.files)
    assert content(lab) == content(original)


def test_failed_records_are_valid_and_counted_as_owed(lab: Lab) -> None:
    def fail(record: dict[str, Any]) -> dict[str, Any]:
        kept = {k: v for k, v in record.items() if k not in ("raw", "criteria")}
        return kept | {"scores": {}, "status": "failed", "error": {"kind": "server", "message": "500"}}

    path = file_of(lab, "evaluation", -1)
    change(path, 0, fail)
    before = tree(lab.path)
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert not report.reasons
    assert tree(lab.path) == before
    state = next(file for file in report.files if file.path == path)
    assert (state.lines, state.failed, state.gap) == (6, 1, FileGap("evaluation", planned=6, there=5))


def test_nothing_is_written_where_all_is_valid(lab: Lab) -> None:
    before = tree(lab.path)
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert report.aside is None
    assert tree(lab.path) == before
    assert all(file.owed == 0 for file in report.files)


def test_gaps_are_counted_by_file_also_where_there_is_none(lab: Lab) -> None:
    gone = file_of(lab, "evaluation", -1)
    gone.unlink()
    short = file_of(lab, "response_collection")
    short.write_bytes(b"".join(short.read_bytes().splitlines(keepends=True)[:-1]))
    report = repair_run(RunDir(lab.path), RepairOptions(dry_run=True))
    owed = {file.path: (file.gap.planned, file.gap.there) for file in report.files if file.gap and file.owed}
    assert owed.pop(gone) == (6, 0)
    assert owed.pop(short) == (3, 2)
    assert set(report.reasons) == {("evaluation", "origin")}
    assert sum(planned - there for planned, there in owed.values() if planned and there) == 2


def test_without_its_configuration_a_run_is_examined_all_the_same(lab: Lab) -> None:
    (lab.path / "config.yaml").write_text("models: 3\n")
    change(file_of(lab, "evaluation"), 0, lambda _: b"x\n")
    report = repair_run(RunDir(lab.path), RepairOptions())
    assert report.no_plan is not None
    assert "config.yaml" in report.no_plan
    assert all(file.gap is None for file in report.files)
    assert report.aside is not None


def test_only_the_phase_that_is_asked_for_is_changed(lab: Lab) -> None:
    change(file_of(lab, "response_collection"), 0, lambda _: b"x\n")
    change(file_of(lab, "evaluation", -1), 0, lambda _: b"x\n")
    report = repair_run(RunDir(lab.path), RepairOptions(phases=("evaluation",)))
    assert {phase for phase, _ in report.reasons} == {"evaluation"}
    assert file_of(lab, "response_collection").read_bytes().startswith(b"x\n")


@pytest.mark.process
def test_a_run_at_work_is_left_alone_and_may_be_looked_at(lab: Lab) -> None:
    change(file_of(lab, "evaluation"), 0, lambda _: b"x\n")
    held = (
        "import sys; from coeval.store.rundir import RunDir\n"
        "with RunDir(sys.argv[1]).hold_lock(): print('held', flush=True); sys.stdin.read()"
    )
    with subprocess.Popen(
        [sys.executable, "-c", held, lab.path], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        holder.stdout.readline()
        before = tree(lab.path)
        assert repair_run(RunDir(lab.path), RepairOptions(dry_run=True)).reasons
        with pytest.raises(UsageError, match=f"in use by process {holder.pid} "):
            repair_run(RunDir(lab.path), RepairOptions())
        assert tree(lab.path) == before
        holder.communicate()


def test_no_run_and_older_layouts_are_refused(lab: Lab, tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run folder"):
        repair_run(RunDir(tmp_path), RepairOptions())
    for record in file_of(lab, "evaluation").parent.glob("*.jsonl"):
        change(record, 0, lambda r: {k: v for k, v in r.items() if k != "student_model_id"})
    (lab.path / "meta.json").unlink()  # which says who made the run
    with pytest.raises(UsageError, match=r"experiment\.resume_from"):
        repair_run(RunDir(lab.path), RepairOptions())


@pytest.mark.process
@settings(max_examples=30)
@given(seed=st.integers(0, 2**32), wounds=st.integers(1, 12))
def test_whatever_was_done_to_the_files_repair_and_continue_end_with_everything(
    original: Lab, seed: int, wounds: int
) -> None:
    draw = random.Random(seed)
    with TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        patch.setattr("os.fsync", lambda _: None)  # nothing pulls the plug here
        lab = copy_of(original, Path(folder))
        files = [path for phase in FOLDERS.values() for path in sorted((lab.path / phase).glob("*.jsonl"))]
        for _ in range(wounds):
            hurt(draw.choice(files), draw)
        repair_run(RunDir(lab.path), RepairOptions())
        assert not repair_run(RunDir(lab.path), RepairOptions(dry_run=True)).reasons
        run_again(lab, changed="redo")
        assert content(lab).keys() >= content(original).keys()
        assert not repair_run(RunDir(lab.path), RepairOptions(dry_run=True)).reasons


def hurt(path: Path, draw: random.Random) -> None:
    """Overwrite, cut out, double or cut off some bytes anywhere in a file."""
    data = bytearray(path.read_bytes())
    at, length = draw.randrange(len(data) + 1), draw.randint(1, 40)
    match draw.randrange(4):
        case 0:
            data[at : at + length] = draw.randbytes(length)
        case 1:
            del data[at : at + length]
        case 2:
            data[at:at] = data[at : at + 20 * length]
        case _:
            del data[at:]
    path.write_bytes(data)


def test_an_empty_answer_is_an_answer(original: Lab) -> None:
    """Of the reasons, "no value" must not reach what a student did say: nothing."""
    examiner = Examiner({})
    item = original.lines("data_generation")[0]
    answer = original.lines("response_collection")[0] | {"response": ""}
    examined = examiner.examine_line("data_generation", json.dumps(item).encode())
    assert isinstance(examined, Datapoint)
    assert not isinstance(examiner.examine_line("response_collection", json.dumps(answer).encode()), Flaw)
