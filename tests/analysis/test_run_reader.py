from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from written_run import REFERENCE, WHY_SKIPPED, Run, append

from coeval.analysis.readers.reader import Damage, Stage
from coeval.analysis.readers.run_reader import Orphans, RunReader
from coeval.core.errors import UsageError

UNITS = "FROM scores WHERE value IS NOT NULL"
LEGACY = REFERENCE / "legacy_run"
needs_reference = pytest.mark.skipif(not LEGACY.is_dir(), reason=WHY_SKIPPED)


@pytest.fixture
def run(tmp_path: Path) -> Run:
    return Run(tmp_path / "run [1]")


def units(run: Run) -> list[tuple[str, str, str, float]]:
    with RunReader(run.folder) as reader:
        return reader.rows(f"SELECT model, judge, metric, value {UNITS} ORDER BY ALL")


def test_levels_become_values_and_nothing_else_does(run: Run) -> None:
    levels = {"a": "High", "b": "Medium", "c": "Low", "d": "HİGH", "e": "Good", "f": None}
    run.judged(1, "s", "j", levels)
    assert units(run) == [("s", "j", "a", 1.0), ("s", "j", "b", 0.5), ("s", "j", "c", 0.0)]
    with RunReader(run.folder) as reader:
        assert reader.rows("SELECT metric FROM scores WHERE failed ORDER BY ALL") == [
            ("d",),
            ("e",),
            ("f",),
        ]


def test_a_level_counts_however_it_is_spelled(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "HIGH", "b": " medium\n", "c": "low"})
    run.judged(2, "s", "j", {"a": "lOW"})
    assert units(run) == [
        ("s", "j", "a", 0.0),
        ("s", "j", "a", 1.0),
        ("s", "j", "b", 0.5),
        ("s", "j", "c", 0.0),
    ]


def test_the_last_record_of_an_id_wins_within_and_across_files(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "Low"})
    run.evaluation(1, "s", "j", {"a": "Medium"})
    assert units(run) == [("s", "j", "a", 0.5)]
    later = run.evaluations("j").with_name("zz.evaluations.jsonl")
    run.evaluations("j").rename(later)
    run.evaluation(1, "s", "j", {"a": "High"})
    assert units(run) == [("s", "j", "a", 0.5)], "zz comes after"


@pytest.mark.process
def test_the_last_record_wins_where_a_file_is_read_in_several_pieces(run: Run) -> None:
    """150,000 records: more than one of the blocks that are read side by side."""
    run.datapoint(1)
    run.response(1, "s")
    response = f"{run.datapoint_id(1)}__s"
    pad = "x" * 200
    append(
        run.evaluations("j"),
        *(
            f'{{"id":"{response}__j{i % 1000}","response_id":"{response}","judge_model_id":"j{i % 1000}",'
            f'"raw":"{pad}",'
            f'"scores":{{"a":"{"High" if i >= 149_000 else "Low"}"}}}}\n'
            for i in range(150_000)
        ),
    )
    with RunReader(run.folder) as reader:
        assert reader.rows(f"SELECT count(*), min(value) {UNITS}") == [(1000, 1.0)]


def test_failed_records_are_never_scores(run: Run) -> None:
    failed: dict[str, Any] = {"status": "failed", "error": {"kind": "unparsable", "message": "?"}}
    run.judged(1, "s", "j", {"a": "High"})
    run.datapoint(2)
    run.response(2, "s")
    run.evaluation(2, "s", "j", {"a": "Low"}, **failed)
    run.datapoint(3)
    run.response(3, "s", response=None, **failed)
    run.evaluation(3, "s", "j", {"a": "Low"})
    run.datapoint(4, prompt=None, **failed)
    run.response(4, "s")
    run.evaluation(4, "s", "j", {"a": "Low"})
    assert units(run) == [("s", "j", "a", 1.0)]


def test_a_failed_record_takes_no_good_ones_place(run: Run) -> None:
    """Whether it comes before or after; of two good ones the last counts, whatever failed since."""
    failed: dict[str, Any] = {"status": "failed", "error": {"kind": "timeout", "message": "?"}}
    for n in (1, 2):
        run.datapoint(n, prompt=None, **failed)
        run.judged(n, "s", "j", {"a": "Low"})
        run.evaluation(n, "s", "j", {"a": "Medium"})
        run.evaluation(n, "s", "j", {}, **failed)
        run.response(n, "s", response=None, **failed)
        run.datapoint(n, prompt=None, **failed)
    assert units(run) == [("s", "j", "a", 0.5)] * 2
    with RunReader(run.folder) as reader:
        counts = "SELECT count(*), sum(failed::INTEGER)::BIGINT FROM "
        assert reader.rows(f"{counts} items") == reader.rows(f"{counts} answers") == [(2, 0)]


def test_what_belongs_to_no_datapoint_is_counted_and_left_out(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High"})
    run.response(2, "s")
    run.evaluation(2, "s", "j", {"a": "Low"})
    run.evaluation(1, "unknown", "j", {"a": "Low"})
    assert units(run) == [("s", "j", "a", 1.0)]
    with RunReader(run.folder) as reader:
        assert reader.orphans == Orphans(responses=1, evaluations=2)
        assert (
            "not counted: 1 answer without a good item, 2 judgments without a good answer"
            in reader.notes()[0]
        )


def test_factors_that_did_not_come_are_asked_and_no_units(run: Run) -> None:
    run.datapoint(1)
    run.response(1, "s")
    run.evaluation(1, "s", "j", {"a": "High"}, missing=["b", None])
    with RunReader(run.folder) as reader:
        assert reader.rows("SELECT metric, value FROM scores ORDER BY ALL") == [("a", 1.0), ("b", None)]
        assert reader.rows(f"SELECT metric {UNITS}") == [("a",)]
        assert reader.damage == ()


def test_a_torn_last_line_costs_only_itself(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High"})
    append(run.evaluations("j"), '{"id": "haiku__t.1__00002__s__j", "sco')
    assert units(run) == [("s", "j", "a", 1.0)]
    with RunReader(run.folder) as reader:
        assert reader.damage == (Damage("haiku.t.1.j.evaluations.jsonl", torn=1, damaged=0),)
        assert "cut off" in reader.notes()[0]


@pytest.mark.parametrize(
    "line",
    ["not json\n", "[1, 2]\n", "42\n", "\0\0\0\n", '{"id": "x"}\n', '{"id": "x", "scores": "High"}\n'],
    ids=["text", "array", "number", "zeros", "partial", "wrong type"],
)
def test_a_damaged_line_in_the_middle_costs_only_itself(run: Run, line: str) -> None:
    run.judged(1, "s", "j", {"a": "High"})
    append(run.evaluations("j"), line)
    run.judged(2, "s", "j", {"a": "Low"})
    assert units(run) == [("s", "j", "a", 0.0), ("s", "j", "a", 1.0)]
    with RunReader(run.folder) as reader:
        assert reader.damage == (Damage("haiku.t.1.j.evaluations.jsonl", torn=0, damaged=1),)


def test_a_whole_last_record_without_a_line_end_counts(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High"})
    path = run.evaluations("j")
    path.write_bytes(path.read_bytes().rstrip(b"\n"))
    append(run.datapoints, "broken\n")
    run.datapoint(2)
    assert units(run) == [("s", "j", "a", 1.0)]
    with RunReader(run.folder) as reader:
        assert reader.damage == (Damage("haiku.t.1.datapoints.jsonl", torn=0, damaged=1),)


def test_labels_are_kept_apart_from_units(run: Run) -> None:
    run.judged(1, "s", "j", {"a": "High"})
    label = {"expected": "spring", "predicted": "winter", "match": False}
    run.evaluation(1, "s", "exact_match", {}, label_scores={"season": label})
    assert units(run) == [("s", "j", "a", 1.0)]
    with RunReader(run.folder) as reader:
        assert reader.rows("SELECT model, attribute, expected, predicted, match FROM labels") == [
            ("s", "season", "spring", "winter", False)
        ]


def test_attributes_are_read(run: Run) -> None:
    run.datapoint(1, sampled_target_attributes={"form": "loose", "lines": 3})
    with RunReader(run.folder) as reader:
        assert reader.rows("SELECT attributes['form'], attributes['lines'] FROM items") == [("loose", "3")]


def test_a_run_that_has_only_begun_reads_as_empty(run: Run) -> None:
    run.folder.mkdir()
    (run.folder / "meta.json").write_text('{"simulated": true}')
    assert units(run) == []
    with RunReader(run.folder) as reader:
        assert reader.simulated
        assert reader.notes() == ()


def test_a_folder_that_is_no_run_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UsageError, match="is not a run"):
        RunReader(tmp_path / "nowhere")


def test_a_run_may_be_read_while_it_goes_on(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    """A judge and a factor that come up once the files were read are left for the next reading."""
    run.judged(1, "s", "j", {"a": "High"})
    made = RunReader._note_items_beyond_limits

    def append_then_go_on(self: RunReader, stage: Stage) -> None:
        run.evaluation(1, "s", "j", {"a": "High", "new": "Low"})
        run.evaluation(1, "s", "j", {"a": "High"}, id="other", judge_model_id="new-judge")
        made(self, stage)

    monkeypatch.setattr(RunReader, "_note_items_beyond_limits", append_then_go_on)
    assert units(run) == [("s", "j", "a", 1.0)]
