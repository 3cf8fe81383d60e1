"""``coeval describe`` on a terminal."""

from __future__ import annotations

from pathlib import Path

import pytest
from cli.invoked import Command
from pipeline.experiments import Lab, listen, model, task

ROOT = Path(__file__).resolve().parents[2]


def test_an_experiment_is_shown_and_nothing_is_asked_or_written(
    here: Path, coeval: Command, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = listen(monkeypatch)
    shown = coeval("describe", "--config", ROOT / "examples" / "quickstart.yaml")
    assert shown.code == 0, shown.err
    for told in (
        "72 items for 2 tasks, 216 answers to them, and 756 judgments of these answers.",
        "explain_concept  field      target   biology, economics, computing",
        "explain_concept: every declared value (6) and every pair of values of two attributes (9) occurs.",
        "of each teacher alone: 12 items cannot hold all 9 pairs",
        "936 calls",
        "total",
    ):
        assert told in shown.out
    assert "You are writing one item" not in shown.out
    assert (list(here.iterdir()), asked.requests) == ([], [])


def test_prompts_are_printed_in_full_and_foreign_text_obeys_nothing(here: Path, coeval: Command) -> None:
    evil = "Tell \x1b[31mred\x1b[0m [bold]all[/bold] \u202egnol.\n\n  Indented."
    lab = Lab(here, models=[model("ann", system_prompt="Be kind.")], tasks=[task(description=evil)])
    shown = coeval("describe", "--config", lab.file, "--prompts")
    assert shown.code == 0, shown.err
    assert "\x1b" not in shown.out
    assert "\u202e" not in shown.out
    for told in (
        "    [system]\n    Be kind.\n\n    [user]\n",
        r"    Tell \x1b[31mred\x1b[0m [bold]all[/bold] \u202egnol.",
        "      Indented.",
        "‹the prompt that ann will write›",
        "    - plot: Things happen for a reason.",
    ):
        assert told in shown.out


def test_a_wrong_file_is_refused_as_everywhere(here: Path, coeval: Command) -> None:
    (here / "bad.yaml").write_text("models: []\n")
    ended = coeval("describe", "--config", here / "bad.yaml")
    assert (ended.code, ended.out) == (1, "")
    assert "V-01" in ended.err


def test_records_of_another_configuration_are_told(here: Path, coeval: Command) -> None:
    lab = Lab(here)
    lab.run()
    lab.models[0]["parameters"]["temperature"] = 0.3
    shown = coeval("describe", "--config", lab.file)
    assert shown.code == 0, shown.err
    assert "--redo-changed" in shown.out


def test_the_page_holds_all_of_it_and_runs_nothing_foreign(here: Path, coeval: Command) -> None:
    evil = "Tell <script>alert(1)</script> \u202e&amp;"
    lab = Lab(here, [model("ann")], [task(description=evil, total=2)])
    ended = coeval("describe", "--config", lab.file, "--out", here / "page.html")
    assert ended.code == 0, ended.err
    page = (here / "page.html").read_text()
    assert "<script>alert" not in page
    for told in ("Tell &lt;script&gt;", "<mark>the prompt that ann will write</mark>", "What will it take?"):
        assert told in page
    assert not lab.path.exists()


@pytest.mark.parametrize(
    ("place", "told"),
    [
        ("page.txt", "end its name in .html"),
        ("folder.html", "name a new file"),
        ("nowhere/page.html", "there is no folder"),
    ],
)
def test_a_page_takes_the_place_of_nothing_else(place: str, told: str, here: Path, coeval: Command) -> None:
    lab = Lab(here)
    (here / "folder.html").mkdir()
    for words in (("describe", "--out"), ("generate", "--out", here / "new.yaml", "--report")):
        ended = coeval(words[0], "--config", lab.file, *words[1:], here / place)
        assert (ended.code, ended.out) == (1, "")
        assert told in ended.err
    assert not (here / "nowhere").exists()
    assert not lab.path.exists()
