"""Named benchmarks and the hub: each row of the table maps invented rows of the data set's own shape."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.parquet
import pytest
from cli.invoked import Command
from fakes.hub import FakeHub, HubFile, serving_hub
from pipeline.experiments import Lab, model, task

from coeval.tables.table_source import named_benchmarks

TEACHER = {"name": "own", "interface": "benchmark", "roles": ["teacher"], "parameters": {"task": "story"}}

ARC = {
    "id": "Mercury_1",
    "question": "What falls down?",
    "choices": {"text": ["a stone", "smoke", "light"], "label": ["1", "2", "3"]},
    "answerKey": "1",
}
ROWS: dict[str, dict[str, Any]] = {
    "arc-challenge": ARC,
    "arc-easy": {**ARC, "choices": {"text": ["a stone", "smoke"], "label": ["A", "B"]}, "answerKey": "A"},
    "mmlu": {"question": "1 + 1?", "subject": "sums", "choices": ["1", "2", "3", "4"], "answer": 1},
    "gsm8k": {"question": "Two and two?", "answer": "2 + 2 = 4\n#### 4"},
    "hellaswag": {
        "ind": 4, "activity_label": "Cooking", "ctx_a": "She stirs.", "ctx_b": "the", "ctx": "She stirs. the",
        "endings": ["soup is hot", "car drives", "moon sings", "end"], "source_id": "x", "split": "val",
        "split_type": "indomain", "label": "0",
    },
    "truthfulqa": {
        "type": "Adversarial", "category": "Myths", "question": "Do cats fly?", "best_answer": "No",
        "correct_answers": ["No"], "incorrect_answers": ["Yes"], "source": "nobody",
    },
    "humaneval": {
        "task_id": "HumanEval/0", "prompt": "def one() -> int:\n", "canonical_solution": "    return 1\n",
        "test": "assert one() == 1", "entry_point": "one",
    },
    "medqa": {
        "question": "What hurts?", "answer": "the knee", "options": {"A": "the ear", "B": "the knee"},
        "meta_info": "step1", "answer_idx": "B", "metamap_phrases": ["knee"],
    },
}  # fmt: skip
ITEMS: dict[str, dict[str, Any]] = {
    "arc-challenge": {
        "id": "story__own__Mercury_1",
        "prompt": "What falls down?\n\nA. a stone\nB. smoke\nC. light",
        "reference_response": "A. a stone",
        "sampled_target_attributes": {"answer": "A"},
    },
    "arc-easy": {"reference_response": "A. a stone", "sampled_target_attributes": {"answer": "A"}},
    "mmlu": {
        "prompt": "1 + 1?\n\nA. 1\nB. 2\nC. 3\nD. 4",
        "reference_response": "B. 2",
        "sampled_target_attributes": {"subject": "sums", "answer": "B"},
    },
    "gsm8k": {"prompt": "Two and two?", "reference_response": "2 + 2 = 4\n#### 4"},
    "hellaswag": {
        "prompt": "Which ending goes on best with this text?\n\nShe stirs. the\n\n"
        "A. soup is hot\nB. car drives\nC. moon sings\nD. end",
        "reference_response": "A. soup is hot",
        "sampled_target_attributes": {"activity": "Cooking", "answer": "A"},
    },
    "truthfulqa": {"prompt": "Do cats fly?", "reference_response": "No"},
    "humaneval": {
        "id": "story__own__HumanEval/0",
        "prompt": "Complete this Python function.\n\ndef one() -> int:\n",
        "reference_response": "    return 1\n",
    },
    "medqa": {
        "prompt": "What hurts?\n\nA. the ear\nB. the knee",
        "reference_response": "B. the knee",
        "sampled_target_attributes": {"step": "step1", "answer": "B"},
    },
}


def parquet(path: Path, *rows: dict[str, Any]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    pyarrow.parquet.write_table(pyarrow.Table.from_pylist(list(rows)), path)
    return path


@pytest.fixture
def lab(here: Path, monkeypatch: pytest.MonkeyPatch) -> Lab:
    monkeypatch.setenv("COEVAL_CACHE", str(here / "cache"))
    return Lab(here, [TEACHER, model("ann", "student", "judge")], [task(total=1)])


@pytest.fixture
def hub(here: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[FakeHub]:
    files = []
    for name, row in ROWS.items():
        known = named_benchmarks()[name]
        path = parquet(here / "hub" / name / "0.parquet", row)
        files.append(HubFile(known.repo, known.config, known.split, path))
    many = [parquet(here / "hub" / f"lab-{n}.parquet", {"text": f"Part {n}?"}) for n in range(2)]
    files += [HubFile("lab/parts", "default", "train", path) for path in many]
    files.append(HubFile("lab/parts", "default", "test", many[1]))
    with serving_hub(files) as server:
        monkeypatch.setenv("HF_ENDPOINT", server.url)
        yield server


def test_every_named_benchmark_is_tried() -> None:
    assert set(named_benchmarks()) == set(ROWS) == set(ITEMS)


@pytest.mark.process
@pytest.mark.parametrize("name", ROWS)
def test_a_named_benchmark_comes_from_the_hub(name: str, hub: FakeHub, lab: Lab, coeval: Command) -> None:
    ended = coeval("ingest", name, "--config", lab.file)
    assert ended.code == 0, ended.err
    [item] = lab.lines("data_generation")
    assert item == item | ITEMS[name]
    origin = json.loads((lab.path / "sources.json").read_text())["story"]["own"][0]
    known = named_benchmarks()[name]
    assert (origin["source"], origin["license"], origin["revision"]) == (name, known.license, "c0ffee")
    assert origin["url"] == f"https://huggingface.co/datasets/{known.repo}"
    assert (origin["subset"], origin["split"]) == (known.config, known.split)
    assert origin["citation"]
    assert coeval("ingest", name, "--config", lab.file).code == 0
    assert sum("/parquet/" in path for path in hub.requested) == 1, (
        "what is in the cache is not fetched again"
    )


@pytest.mark.parametrize("name", ROWS)
def test_it_comes_from_a_copy_on_disk_too(name: str, here: Path, lab: Lab, coeval: Command) -> None:
    known = named_benchmarks()[name]
    parquet(here / "copy" / f"{known.split}-00000-of-00001.parquet", ROWS[name])
    parquet(here / "copy" / "train-00000-of-00001.parquet", {"question": "not this"})
    ended = coeval("ingest", name, "--from", "copy", "--config", lab.file)
    assert ended.code == 0, ended.err
    [item] = lab.lines("data_generation")
    assert item == item | ITEMS[name]


def test_subsets_and_splits_that_are_not_on_disk_are_told(here: Path, lab: Lab, coeval: Command) -> None:
    file = parquet(here / "copy" / "physics" / "test.parquet", {"text": "Of physics?"})
    for source, reported in (
        (["copy"], "(.parquet, .jsonl, .ndjson, .csv, .tsv, .json, plain or .gz); it holds physics/"),
        (["copy", "--subset", "physics"], "copy is local; name the subset's folder or file"),
        (["gsm8k", "--from", "copy", "--subset", "physics"], "copy is local; name the subset"),
        (["copy/physics", "--split", "tst"], "copy/physics has no split tst; did you mean test?"),
        (["gsm8k", "--from", file, "--split", "test"], "test.parquet is a single file; leave out the split"),
    ):
        ended = coeval("ingest", *source, "--config", lab.file)
        assert ended.code == 1
        assert reported in ended.err


@pytest.mark.process
@pytest.mark.usefixtures("hub")
def test_any_data_set_of_the_hub(lab: Lab, coeval: Command) -> None:
    ended = coeval("ingest", "lab/parts", "--config", lab.file)
    assert ended.code == 1
    assert "lab/parts (default) has the splits train, test; choose a split" in ended.err
    ended = coeval("ingest", "lab/parts", "--config", lab.file, "--split", "tran")
    assert "has no split tran; did you mean train?" in ended.err
    ended = coeval("ingest", "lab/parts", "--config", lab.file, "--subset", "defalt")
    assert "has no subset defalt; did you mean default?" in ended.err
    ended = coeval("ingest", "lab/parts", "--config", lab.file, "--split", "train")
    assert ended.code == 0, ended.err
    assert [item["prompt"] for item in lab.lines("data_generation")] == ["Part 0?", "Part 1?"]
    origin = json.loads((lab.path / "sources.json").read_text())["story"]["own"][0]
    assert (origin["license"], len(origin["files"])) == ("cc-by-4.0", 2)
    ended = coeval("ingest", "lab/nothing", "--config", lab.file)
    assert (ended.code, "the hub has no data set lab/nothing" in ended.err) == (1, True)


SUBSETS = (
    "a b",
    "a--b",
    "a/b",
    "a%20b",
    "A B",
    "日本語",
    "русский",
    "한국어",
    "..",
    ".hidden",
    "x" * 300,
    "x" * 301,
)


@pytest.mark.process
def test_subsets_whose_names_are_alike_have_items_of_their_own(
    here: Path, lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    files = [
        HubFile("lab/odd", name, "test", parquet(here / "hub" / f"{n}.parquet", {"text": f"Of {n}?"}))
        for n, name in enumerate(SUBSETS)
    ]
    with serving_hub(files) as hub:
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for n, name in enumerate(SUBSETS):
            ended = coeval("ingest", "lab/odd", "--config", lab.file, "--subset", name, "--replace")
            assert ended.code == 0, ended.err
            assert [item["prompt"] for item in lab.lines("data_generation")] == [f"Of {n}?"]
    cached = [path.relative_to(here / "cache") for path in (here / "cache").rglob("*.parquet")]
    assert len({str(path).lower() for path in cached}) == len(SUBSETS)


@pytest.mark.process
def test_a_revision_that_the_hub_does_not_name_is_not_kept(
    here: Path, lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    place = here / "hub" / "0.parquet"
    with serving_hub([HubFile("lab/odd", "default", "test", place)]) as hub:
        hub.sha = ""
        monkeypatch.setenv("HF_ENDPOINT", hub.url)
        for text in ("Once?", "Twice?"):
            parquet(place, {"text": text})
            assert coeval("ingest", "lab/odd", "--config", lab.file, "--replace").code == 0
            assert [item["prompt"] for item in lab.lines("data_generation")] == [text]


def test_a_hub_that_leads_to_the_credentials_of_a_machine_is_not_followed(
    hub: FakeHub, here: Path, lab: Lab, coeval: Command
) -> None:
    hub.leads = "http://169.254.169.254"
    ended = coeval("ingest", "gsm8k", "--config", lab.file)
    assert ended.code == 1
    assert "redirects to an address of this machine or its own network, which is refused" in ended.err
    assert [path for path in (here / "cache").rglob("*") if path.is_file()] == []


@pytest.mark.process
def test_what_is_cut_off_is_told_and_not_kept(hub: FakeHub, here: Path, lab: Lab, coeval: Command) -> None:
    hub.cut = True
    ended = coeval("ingest", "gsm8k", "--config", lab.file)
    assert ended.code == 1
    assert "was cut off after" in ended.err
    assert not lab.path.exists()
    assert [path for path in (here / "cache").rglob("*") if path.is_file()] == []
    hub.cut = False
    assert coeval("ingest", "gsm8k", "--config", lab.file).code == 0


def test_without_a_network_it_is_said_what_to_do(
    lab: Lab, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HF_ENDPOINT", "http://127.0.0.1:9")
    ended = coeval("ingest", "gsm8k", "--config", lab.file)
    assert ended.code == 1
    assert "openai/gsm8k cannot be fetched (http://127.0.0.1:9/" in ended.err
    assert "copy the folder here and name it instead" in ended.err
    assert not lab.path.exists()


def test_they_are_listed_with_their_licences(here: Path, coeval: Command) -> None:
    ended = coeval("ingest", "--list")
    assert ended.code == 0
    for name, row in named_benchmarks().items():
        assert f"{name} " in ended.out
        assert row.license in ended.out
    assert list(here.iterdir()) == []
