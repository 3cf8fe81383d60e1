"""`coeval init`: of each kind of thing that somebody has, a file that runs; the old name of it as well."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.invoked import Command

from coeval.api import load_config, open_run

TICKETS = 'text,team\n"My parcel, ""late"" again; café",shipping\nRefund?,billing\nIt broke,shipping\n'
LOG = 'q,a\n"My parcel, ""late"" again; café",We are sorry.\nRefund?,Of course.\n'


def test_without_a_kind_its_help_names_all_with_an_example_each(here: Path, coeval: Command) -> None:
    ended = coeval("init")
    assert ended.code == 1
    for kind in ("description", "table", "answers", "function", "checkpoints"):
        assert f"coeval init {kind} " in ended.err + ended.out
    assert list(here.iterdir()) == []


@pytest.mark.process
def test_a_description_becomes_an_experiment_that_counts(here: Path, coeval: Command) -> None:
    ended = coeval("init", "description", "Answer: a customer's <message> #1.", "my.yaml")
    assert ended.code == 0, ended.err
    config = load_config(here / "my.yaml")
    assert (config.experiment.id, config.tasks[0].description) == ("my", "Answer: a customer's <message> #1.")
    assert (config.tasks[0].target_attributes, config.tasks[0].sampling.total) == ("auto", 20)
    assert config.experiment.budget_usd is None
    counted = coeval("run", "--config", "my.yaml", "--dry-run")
    assert counted.code == 0, counted.err
    assert ended.out.partition(" calls, ")[0] in counted.out
    assert "coeval run --config my.yaml" in ended.err


@pytest.mark.process
def test_the_file_alone_is_enough_and_runs(here: Path, coeval: Command) -> None:
    assert coeval("init", "description", "mine.yml").code == 0
    file = here / "mine.yml"
    file.write_text(file.read_text().replace("total: 20", "total: 2"))
    ran = coeval("run", "--config", "mine.yml")
    assert (ran.code, (here / "runs/mine/report.html").exists()) == (0, True), ran.err


def test_what_the_comments_show_can_be_put_in(here: Path, coeval: Command) -> None:
    assert coeval("init", "description", "Sort messages.").code == 0
    text = (here / "my-benchmark.yaml").read_text()
    for written, comment in (
        ("target_attributes: auto", "{reader: [child, expert]}"),
        ("rubric: auto", "{accuracy: What the answer says is true.}"),
    ):
        assert f"or {comment}" in text
        text = text.replace(written, f"{written.partition(' ')[0]} {comment}")
    text = text.replace("{reader: [child, expert]}", "{reader: [child, expert], team: [billing, sales]}")
    (here / "e.yaml").write_text(text.replace("# label_attributes", "label_attributes"))
    [task] = load_config(here / "e.yaml").tasks
    assert task.target_attributes == {"reader": ["child", "expert"], "team": ["billing", "sales"]}
    assert (task.rubric, [*task.label_attributes]) == (
        {"accuracy": "What the answer says is true."}, ["team"],
    )  # fmt: skip


def test_models_get_their_roles_and_a_budget(here: Path, coeval: Command) -> None:
    ended = coeval(
        "init", "description", "sorted.yaml",
        "--model", "openai/gpt-4o-mini=students, judge",
        "--model", "vllm/Qwen/Qwen3-4B@http://localhost:8000/v1=student",
        "--model", "openai/gpt-4o-mini=judge",
    )  # fmt: skip
    assert ended.code == 0, ended.err
    assert "$" in ended.out
    config = load_config(here / "sorted.yaml")
    assert [(model.name, [*model.roles]) for model in config.models] == [
        ("gpt-4o-mini", ["teacher", "student", "judge"]),
        ("Qwen3-4B", ["student"]),
        ("gpt-4o-mini-2", ["judge"]),
    ]
    assert config.models[1].spec().base_url == "http://localhost:8000/v1"
    assert config.models[1].spec().model == "Qwen/Qwen3-4B"
    assert config.experiment.budget_usd == 5


@pytest.mark.parametrize(
    ("rows", "flags", "ids"),
    [
        ("T-1,a\nT-2,b\n", ("--id", "code"), ["T-1", "T-2"]),
        ("T-1,a\nT-2,b\n", (), ["00001", "00002"]),
        ("T-1,a\nT-1,b\nT-2,c\n", ("--id", "code", "--skip-bad"), ["T-1", "T-2"]),
    ],
)
def test_the_column_of_ids_is_named_by_a_flag(
    rows: str, flags: tuple[str, ...], ids: list[str], here: Path, coeval: Command
) -> None:
    (here / "t.csv").write_text(f"code,q\n{rows}")
    made = coeval("init", "table", "t.csv", "made.yaml", "--prompt", "q", *flags)
    assert made.code == 0, made.err
    assert made.err.count("the id T-1 is on line 2 already") == ("--skip-bad" in flags)
    assert coeval("run", "--config", "made.yaml").code == 0
    items = open_run(here / "runs/made").records("data_generation")
    assert [item.id.rpartition("__")[2] for item in items] == ids
    wrong = coeval("init", "table", "t.csv", "wrong.yaml", "--prompt", "q", "--id", "cod")
    assert (wrong.code, "--id: there is no column cod; did you mean code?" in wrong.err) == (1, True)


@pytest.mark.process
def test_a_table_with_quotes_and_another_encoding_becomes_items(here: Path, coeval: Command) -> None:
    (here / "tickets.csv").write_bytes(TICKETS.encode("cp1252"))
    flags = ("--prompt", "text", "--label", "team", "--encoding", "cp1252")
    ended = coeval("init", "table", "tickets.csv", *flags)
    assert ended.code == 0, ended.err
    assert 'My parcel, "late" again; café' in ended.out
    assert "6 calls" in ended.out
    ran = coeval("run", "--config", "tickets.yaml")
    assert ran.code == 0, ran.err
    assert "billing, shipping" in (here / "tickets.yaml").read_text()


@pytest.mark.process
def test_answers_that_exist_are_judged_and_nobody_is_asked_for_them(here: Path, coeval: Command) -> None:
    (here / "log.csv").write_text(LOG)
    (here / "tickets.csv").write_text(TICKETS)
    flags = ("--response", "a", "--student", "prod-v7")
    same = coeval("init", "answers", "log.csv", "--prompt", "q", *flags)
    assert same.code == 0, same.err
    assert "2 calls" in same.out
    items = load_config(here / "log.yaml").tasks[0].items
    assert items is not None
    assert items.responses == {"prod-v7": "a"}
    ran = coeval("run", "--config", "log.yaml")
    assert (ran.code, "prod-v7" in ran.out) == (0, True), ran.err

    beside = (
        *flags,
        "--items",
        "tickets.csv",
        "--prompt",
        "text",
        "--answers-prompt",
        "q",
        "--encoding",
        "utf-8",
    )
    assert coeval("init", "answers", "log.csv", "beside.yaml", *beside).code == 0
    [student] = load_config(here / "beside.yaml").students
    assert (student.name, student.responses.prompt, student.responses.response) == ("prod-v7", "q", "a")
    ran = coeval("run", "--config", "beside.yaml")
    assert ran.code == 3, "one of three tickets has no answer"
    assert "prod-v7" in ran.out
    labelled = coeval("init", "answers", "log.csv", "labels.yaml", *beside, "--label", "team")
    assert (labelled.code, load_config(here / "labels.yaml").models) == (0, []), labelled.err


@pytest.mark.parametrize("command", ["init", "ingest"])
def test_answers_are_not_taken_for_their_own_references(command: str, here: Path, coeval: Command) -> None:
    (here / "log.csv").write_text("question,answer\nRefund?,Of course.\n")
    words = {
        "init": ("answers", "log.csv"),
        "ingest": ("log.csv", "--response", "mine=answer", "--new", "log.yaml"),
    }[command]
    ended = coeval(command, *words)
    assert ended.code == 0, ended.err
    items = load_config(here / "log.yaml").tasks[0].items
    assert items is not None
    assert (items.prompt, items.responses, items.reference) == ("question", {"mine": "answer"}, None)


@pytest.mark.process
def test_a_function_answers_the_items_of_a_table(here: Path, coeval: Command) -> None:
    (here / "tickets.csv").write_text(TICKETS)
    (here / "app.py").write_text("def answer(prompt):\n    return 'billing'\n")
    ended = coeval("init", "function", "app.py:answer", "--items", "tickets.csv", "--label", "team")
    assert ended.code == 0, ended.err
    assert "3 calls" in ended.out
    ran = coeval("run", "--config", "app.yaml")
    assert (ran.code, "33.3" in ran.out) == (0, True), ran.err


@pytest.mark.process
def test_checkpoints_become_a_sweep(here: Path, coeval: Command) -> None:
    (here / "log.csv").write_text(LOG)
    assert coeval("init", "answers", "log.csv", "--prompt", "q", "--response", "a").code == 0
    assert coeval("run", "--config", "log.yaml").code == 0
    for step in (10, 20):
        folder = here / "ckpts" / f"step_{step}"
        folder.mkdir(parents=True)
        (folder / "config.json").write_text("{}")
        (folder / "model.safetensors").touch()
    ended = coeval("init", "checkpoints", "ckpts", "--tasks", "coeval:runs/log")
    assert ended.code == 0, ended.err
    assert "2 checkpoints (steps 10, 20)" in ended.out
    assert "coeval sweep --config sweep.yaml" in ended.err
    counted = coeval("sweep", "--config", "sweep.yaml", "--dry-run")
    assert (counted.code, counted.out) == (0, ended.out)
    text = (here / "sweep.yaml").read_text()
    assert "judge_model: gpt-4.1" in text
    assert 'judge_base_url: "https://api.openai.com/v1"' in text


@pytest.mark.parametrize(
    ("words", "said"),
    [
        (("table",), "name your table: coeval init table SOURCE"),
        (("table", "none.csv"), "there is no file none.csv"),
        (("table", "tickets.csv", "--prompt", "tex"), "--prompt: there is no column tex; did you mean text?"),
        (("table", "other.csv"), "which column holds the prompts? Name it with --prompt COLUMN"),
        (("answers", "other.csv", "--prompt", "a"), "Name it with --response COLUMN; other.csv has a, b"),
        (("answers", "other.csv", "--student", "a b"), "--student: 'a b' is not a valid name"),
        (("function", "mod:answer"), "--items is missing"),
        (("function", "app.py"), "app.py: name the function too, as in app.py:answer"),
        (("function", "app.py:answer", "--items", "tickets.csv"), "there is no file app.py"),
        (
            ("answers", "other.csv", "--items", "tickets.csv", "--response", "b"),
            "column of other.csv holds the prompts? Name it with --answers-prompt COLUMN; there are a, b",
        ),
        (("description", "x", "--label", "team"), "--label does not apply to description"),
        (("function", "app.py:answer", "--response", "a"), "--response does not apply to function"),
        (("description", "x", "--model", "gpt-4o"), "--model gpt-4o: write INTERFACE/MODEL"),
        (("description", "x", "--model", "openai/gpt-4o=cook"), "the roles are teacher, student, judge"),
        (("description", "x", "kept.yaml"), "kept.yaml already exists; name another file"),
        (
            ("description", "x.yaml", "Sort."),
            "unlike Sort.: coeval init description SOURCE FILE",
        ),
        (
            ("table", "x.yaml", "tickets.csv"),
            "unlike tickets.csv: coeval init table SOURCE FILE",
        ),
        (("checkpoints", "none"), "none"),
        (("film",), "'film' is not one of 'description', 'table'"),
    ],
)
def test_what_is_wrong_is_named_and_nothing_is_written(
    words: tuple[str, ...], said: str, here: Path, coeval: Command
) -> None:
    (here / "tickets.csv").write_text(TICKETS)
    (here / "other.csv").write_text("a,b\n1,2\n")
    (here / "kept.yaml").touch()
    ended = coeval("init", *words)
    assert (ended.code, said in " ".join(ended.err.split())) == (1, True), ended.err
    assert sorted(path.name for path in here.iterdir()) == ["kept.yaml", "other.csv", "tickets.csv"]


def test_its_other_name_works_and_is_not_listed(here: Path, coeval: Command) -> None:
    assert coeval("wizard", "description", "Do it.", "my.yaml").code == 0
    assert (here / "my.yaml").exists()
    shown = coeval("--help").out
    assert ("  init " in shown, "wizard" in shown) == (True, False)
