"""Results of other tools become output folders: no score is lost, invented or averaged over another panel."""

from __future__ import annotations

import json
import math
import tracemalloc
import zipfile
import zlib
from pathlib import Path
from statistics import fmean
from typing import Any

import pytest
import zstandard
from cli.invoked import Command

from coeval import compare, import_results
from coeval.analysis.load import open_reader
from coeval.core.errors import UsageError
from coeval.exchange.promptfoo_results import read_promptfoo
from coeval.reports.items.item_rows import make_item_tables

DATE = "2026-02-03T04-05-06.789"
HOSTILE = "a | b\n=cmd()‮ <script>\\textbf{x}"


def scores(folder: Path) -> dict[tuple[str, str, int, str], float | None]:
    with open_reader(folder) as reader:
        rows = reader.rows("SELECT task, item, sample, metric, value FROM scores")
    return {(task, item, sample, metric): value for task, item, sample, metric, value in rows}


def shown(folder: Path, item: str, task: str) -> tuple[str | None, str | None]:
    """Its prompt and its first answer."""
    with open_reader(folder) as reader:
        make_item_tables(reader)
        detail = reader.items().read_item(item, task)
    assert detail is not None
    return detail.prompt, detail.answers[0].text


def table(path: Path, *rows: str) -> Path:
    path.write_text("\n".join(rows) + "\n")
    return path


# --- Inspect


def sample(number: int, epoch: int = 1, **changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "id": number,
        "epoch": epoch,
        "input": [
            {"role": "system", "content": "Be brief."},
            {"role": "user", "content": f"{HOSTILE} {number}"},
        ],
        "target": "x",
        "output": {"completion": f"answer {number}", "usage": {"input_tokens": 5, "output_tokens": 2}},
        "scores": {
            "match": {"value": "C" if number % 2 else "I"},
            "rubric": {"value": {"tone": number / 20, "length": True}},
        },
        "events": [{"anything": "passed over"}],
    }
    return values | changes


def log_of(samples: list[dict[str, Any]], **changes: Any) -> dict[str, Any]:
    scorers = [{"name": "match"}, {"name": "rubric", "options": {"model": {"model": "openai/gpt-4o"}}}]
    header: dict[str, Any] = {
        "version": 2,
        "status": "success",
        "eval": {"task": "arithmetic", "model": "anthropic/claude-3-5-haiku-20241022", "scorers": scorers},
        "results": {"scores": []},
    }
    return header | {"samples": samples} | changes


def archive(path: Path, log: dict[str, Any], method: int = zipfile.ZIP_DEFLATED) -> Path:
    header = {name: value for name, value in log.items() if name != "samples"}
    with zipfile.ZipFile(path, "w", method) as file:
        file.writestr("_journal/start.json", "{}")
        for one in log["samples"]:
            file.writestr(f"samples/{one['id']}_epoch_{one['epoch']}.json", json.dumps(one))
        file.writestr("header.json", json.dumps(header))
    return path


def test_a_log_of_inspect_in_both_of_its_formats(tmp_path: Path) -> None:
    log = log_of([sample(number) for number in range(1, 12)])
    plain = tmp_path / "log.json"
    plain.write_text(json.dumps(log))
    packed = archive(tmp_path / "log.eval", log)
    import_results(plain, out=tmp_path / "a")
    import_results(packed, out=tmp_path / "b")
    found = scores(tmp_path / "a")
    assert found == scores(tmp_path / "b")
    assert len(found) == 11 * 3
    assert found["arithmetic", "3", 0, "match"] == 1.0
    assert found["arithmetic", "4", 0, "match"] == 0.0
    assert found["arithmetic", "7", 0, "rubric/tone"] == 0.35
    with open_reader(tmp_path / "a") as reader:
        assert reader.answering_models() == ("anthropic/claude-3-5-haiku-20241022",)
        assert reader.notes() == ()
    assert shown(tmp_path / "a", "3", "arithmetic") == (f"{HOSTILE} 3", "answer 3")


def test_what_inspect_did_not_score_stays_without_a_score(tmp_path: Path) -> None:
    """A failed sample, an unscored one (NaN), words that are no score, and an epoch that lacks a sample."""
    failed = sample(2, error={"message": "the host | is away"}, scores=None, output={})
    unscored = sample(3, scores={"match": {"value": math.nan}, "rubric": {"value": {"tone": "unclear"}}})
    log = log_of([sample(1), failed, unscored, sample(1, 2), sample(2, 2)])
    (tmp_path / "log.json").write_text(json.dumps(log))
    import_results(tmp_path / "log.json", out=tmp_path / "out")
    found = scores(tmp_path / "out")
    assert ("arithmetic", "2", 0, "match") not in found
    assert found["arithmetic", "3", 0, "match"] is None
    assert found["arithmetic", "3", 0, "rubric/tone"] is None
    assert found["arithmetic", "2", 1, "match"] == 0.0
    summary = json.loads((tmp_path / "out/run_0/arithmetic/summary.json").read_text())
    assert summary["metrics"]["match"]["n"] == 1
    assert (summary["n_expected"], summary["n_failed"]) == (3, {"failed": 1, "unscored": 1})
    assert summary["complete"] is False
    assert summary["imported"]["judges"] == {"rubric": "openai/gpt-4o"}
    with open_reader(tmp_path / "out") as reader:
        assert any("1 failed, 1 unscored" in note for note in reader.notes())


def test_a_mean_that_the_log_reports_otherwise_is_told(tmp_path: Path) -> None:
    reported = [{"name": "match", "scorer": "match", "metrics": {"accuracy": {"value": 0.9}}}]
    log = log_of([sample(1), sample(2)], results={"scores": reported}, status="error")
    (tmp_path / "log.json").write_text(json.dumps(log))
    import_results(tmp_path / "log.json", out=tmp_path / "out")
    with open_reader(tmp_path / "out") as reader:
        notes = "\n".join(reader.notes())
    assert "inspect reports match 0.9000; the items' scores have the mean 0.5000" in notes
    assert "the log's status is error" in notes


def zstandard_archive(path: Path, members: dict[str, bytes], declared: int | None = None) -> Path:
    """Python below 3.14 writes none. ``declared``: bytes that the archive says, not those that there are."""
    with zipfile.ZipFile(path, "w", zipfile.ZIP_STORED) as target:
        for name, content in members.items():
            target.writestr(name, zstandard.compress(content))
            entry = target.infolist()[-1]
            entry.compress_type, entry.CRC = 93, zlib.crc32(content)
            entry.file_size = len(content) if declared is None else declared
    return path


def test_a_log_compressed_with_zstandard(tmp_path: Path) -> None:
    log = log_of([sample(number) for number in range(1, 5)])
    plain = archive(tmp_path / "plain.eval", log, zipfile.ZIP_STORED)
    with zipfile.ZipFile(plain) as source:
        members = {name: source.read(name) for name in source.namelist()}
    packed = zstandard_archive(tmp_path / "packed.eval", members)
    import_results(packed, out=tmp_path / "a")
    import_results(plain, out=tmp_path / "b")
    assert scores(tmp_path / "a") == scores(tmp_path / "b")
    whole = bytearray(packed.read_bytes())
    whole[whole.index(b"samples/2") + 60] ^= 0xFF
    packed.write_bytes(whole)
    with pytest.raises(UsageError, match="is damaged"):
        import_results(packed, out=tmp_path / "c")
    assert not (tmp_path / "c").exists()


def redeclared(path: Path, *, size: int | None = None, flags: int = 0) -> Path:
    """Say of each member in the archive's directory another size, or further flags."""
    data = bytearray(path.read_bytes())
    at = -1
    while (at := data.find(b"PK\x01\x02", at + 1)) >= 0:
        data[at + 8] |= flags
        if size is not None:
            data[at + 24 : at + 28] = size.to_bytes(4, "little")
    path.write_bytes(data)
    return path


@pytest.mark.parametrize("method", ["deflated", "zstandard"])
@pytest.mark.parametrize("declared", [0, 2, 90_000])
def test_a_log_unpacks_to_what_it_declares(tmp_path: Path, method: str, declared: int) -> None:
    members = {"header.json": b"{}" + b" " * (96 << 20)}
    path = tmp_path / "log.eval"
    if method == "zstandard":
        zstandard_archive(path, members, declared)
    else:
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as target:
            target.writestr("header.json", members["header.json"])
        redeclared(path, size=declared)
    tracemalloc.start()
    try:
        with pytest.raises(UsageError, match="is damaged"):
            import_results(path, out=tmp_path / "out")
        assert tracemalloc.get_traced_memory()[1] < 4 << 20
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("method", [zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED])
def test_an_encrypted_log_is_named(tmp_path: Path, coeval: Command, method: int) -> None:
    path = redeclared(archive(tmp_path / "log.eval", log_of([sample(1)]), method), flags=1)
    ended = coeval("import", path, "--out", tmp_path / "out")
    assert (ended.code, "header.json in the log is encrypted" in ended.err) == (1, True)


UNUSABLE = ["NaN", "Infinity", "-Infinity", "1e400", f"1{'0' * 400}", f'"{"9" * 500}"']


@pytest.mark.parametrize("number", UNUSABLE, ids=lambda number: number[:9])
def test_numbers_that_no_score_can_be_are_counted(tmp_path: Path, number: str) -> None:
    """Of Inspect and lm-eval; a count of tokens that cannot be is unknown."""
    usage = {"completion": "a", "usage": {"input_tokens": 10**400, "output_tokens": 2}}
    log = log_of(
        [sample(n, scores={"match": {"value": "x" if n < 3 else "C"}}, output=usage) for n in range(1, 5)]
    )
    (tmp_path / "log.json").write_text(json.dumps(log).replace('{"value": "x"}', f'{{"value": {number}}}'))
    lines = [
        f'{{"doc_id": {n}, "metrics": ["acc"], "acc": {number.strip(chr(34)) if n < 2 else 1}}}'
        for n in range(4)
    ]
    file = tmp_path / f"samples_t_{DATE}.jsonl"
    file.write_text("\n".join(lines))
    for path, metric in ((tmp_path / "log.json", "match"), (file, "acc,none")):
        out = tmp_path / path.stem
        (folder,) = import_results(path, model="m", out=out).folders.values()
        found = [value for (*_, name), value in scores(folder).items() if name == metric]
        assert sorted(found, key=str) == [1.0, 1.0, None, None]
        with open_reader(folder) as reader:
            assert f"{metric}: 2 scores NaN or infinite" in "\n".join(reader.notes())


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("a.eval", b"PK nothing", "is damaged, or no log of Inspect"),
        ("a.json", b"{", "is not an Inspect log"),
        ("a.json", json.dumps(log_of([])).encode(), "holds no samples"),
        ("a.json", b'{"results": {"version": 2, "results": []}}', "holds no results"),
        (
            "a.json",
            b'{"results": {"version": 4, "results": []}}',
            "version 4 of promptfoo's results; up to 3",
        ),
        (
            "a.jsonl",
            b'{"success": true, "provider": "p", "prompt": ""}\n{"a"\n{}\n',
            "a.jsonl:2 is not a promptfoo result",
        ),
        ("samples_x.jsonl", b"{}\n", "has no column for item, model, score"),
        (f"samples_x_{DATE}.jsonl", b"{}\n", "is not lm-eval output"),
        ("a.csv", b"item,score\n1,2\n", "or the model with --model"),
        ("a.csv", b"item,model,score\n1,m,good\n", "the score 'good' is not a number"),
        ("a.csv", b'item,model,score\n1,m,"1,234"\n', "the score '1,234' is not a number"),
        ("a.csv", b"item;model;score\n1;m;1.234,5\n", "the score '1.234,5' is not a number"),
        ("a.csv", b"item,model,score,sample\n1,m,1,1" + b"0" * 5000, "is not a whole number from 0 to"),
        ("a.csv", b"item,model,score\n1,m,1\n1,m,0\n", "1 of m has a second score"),
        (
            "a.csv",
            b"item,model,score\n1,m,7\n",
            "the worst and the best possible score, such as --scale 1,5",
        ),
        ("a.txt", b"", "cannot be imported; supported are"),
    ],
)
def test_what_cannot_be_read_writes_nothing(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UsageError, match=said.replace("(", r"\(")):
        import_results(tmp_path / name, model="m" if "lm-eval" in said else None, out=tmp_path / "out")
    assert not (tmp_path / "out").exists()


# --- lm-eval


def test_samples_of_lm_eval_keep_their_filters_and_their_reported_means(tmp_path: Path) -> None:
    def line(number: int, kept: str) -> str:
        return json.dumps(
            {
                "doc_id": number,
                "arguments": {"gen_args_0": {"arg_0": f"{HOSTILE} {number}", "arg_1": {"until": []}}},
                "resps": [[f"reply {number}"]],
                "filter": kept,
                "metrics": ["exact_match", "bleu", "perplexity"],
                "exact_match": float(number % (2 if kept == "strict" else 3) == 0),
                "bleu": ["a", "b"],
                "perplexity": 7.5,
            }
        )

    lines = [line(number, kept) for kept in ("strict", "loose") for number in range(12)]
    samples = tmp_path / f"samples_gsm8k_cot_{DATE}.jsonl"
    samples.write_text("\n".join(lines) + "\n")
    with pytest.raises(UsageError, match="name the model of these answers with --model"):
        import_results(samples, out=tmp_path / "out")
    results = {
        "results": {"gsm8k_cot": {"exact_match,strict": 0.5, "exact_match,loose": 1 / 3}},
        "higher_is_better": {"gsm8k_cot": {"exact_match": True, "perplexity": False}},
        "model_name": "meta-llama/Llama-3.3-70B-Instruct",
    }
    (tmp_path / f"results_{DATE}.json").write_text(json.dumps(results))
    made = import_results(samples, out=tmp_path / "out")
    assert list(made.folders) == ["meta-llama/Llama-3.3-70B-Instruct"]
    found = scores(tmp_path / "out")
    of_strict = [value or 0.0 for (*_, metric), value in found.items() if metric == "exact_match,strict"]
    assert (len(found), len(of_strict), fmean(of_strict)) == (24, 12, 0.5)
    with open_reader(tmp_path / "out") as reader:
        (note,) = reader.notes()
    assert note.endswith("left out, without a number per document, or lower is better: bleu, perplexity")
    assert shown(tmp_path / "out", "5", "gsm8k_cot") == (f"{HOSTILE} 5", "reply 5")


# --- promptfoo


def test_results_of_promptfoo_are_a_folder_for_each_provider(tmp_path: Path) -> None:
    def row(test: int, prompt: int, **changes: Any) -> dict[str, Any]:
        return {
            "testIdx": test,
            "promptIdx": prompt,
            "success": test % 2 == 0,
            "score": 0.25 * (test % 5),
            "provider": {"id": ("openai:gpt-4o-mini", "anthropic:claude")[prompt], "label": ""},
            "prompt": {"raw": f"{HOSTILE} {test}", "label": HOSTILE},
            "vars": {"n": test},
            "response": {"output": {"a": test}, "tokenUsage": {"prompt": 3, "completion": 4}},
            "namedScores": {"tone": 0.5},
            "failureReason": 0,
            "latencyMs": 120,
            "cost": 0.001,
        } | changes

    rows = [row(test, prompt) for test in range(8) for prompt in range(2)]
    rows[4] |= {"response": None, "failureReason": 2, "error": "timeout", "score": 0}
    content = {"results": {"version": 3, "results": rows}, "config": {"description": "Greeter"}}
    (tmp_path / "results.json").write_text(json.dumps(content))
    made = import_results(tmp_path / "results.json", out=tmp_path / "out")
    openai, anthropic = (made.folders[name] for name in ("openai:gpt-4o-mini", "anthropic:claude"))
    assert len(scores(anthropic)) == 8 * 3
    assert len(scores(openai)) == 7 * 3
    found = compare(openai, anthropic)
    assert found is not None
    summary = json.loads((openai / "Greeter/summary.json").read_text())
    assert (summary["n_scored"], summary["n_failed"]) == (7, {"failed": 1})


ALIKE = "You are a careful assistant of our support team. Answer in "


def foo(
    passes: str, number: int | None = 0, provider: Any = "p", label: str | None = "q", **changes: Any
) -> Any:
    """Rows of one column, a test each that passes or not."""
    places = [{} if number is None else {"testIdx": test, "promptIdx": number} for test in range(len(passes))]
    return [
        {
            **place,
            "success": passed == "1",
            "score": float(passed),
            "provider": provider,
            "prompt": {"raw": f"{label} {test}", "label": label},
            "vars": {"n": test},
            "response": {"output": passed},
        }
        | changes
        for test, (place, passed) in enumerate(zip(places, passes, strict=True))
    ]


def named(label: str | None, of: str = "openai:gpt-4o") -> dict[str, str | None]:
    return {"id": of, "label": label}


def bare(rows: list[dict[str, Any]], **changes: Any) -> list[dict[str, Any]]:
    """Without variables but in the test case, as lines have them."""
    return [{**row, "vars": None, "testCase": {"vars": row["vars"]}, **changes} for row in rows]


@pytest.mark.parametrize(
    ("kind", "rows", "expected"),
    [
        (3, [foo("10", 0, label=f"{ALIKE}French"), foo("11", 1, label=f"{ALIKE}German")], ["10", "11"]),
        (3, [foo("10", 0, label="a  b"), foo("11", 1, label="a b")], ["10", "11"]),
        (3, [foo("10", 0, named(None)), foo("01", 1, named(None))], ["10", "01"]),
        (3, [foo("10", 0, named("x")), foo("01", 1, named("y"))], {"x": "10", "y": "01"}),
        (3, [foo("10", 0, named("x")), foo("01", 0, named("x", "azure:x"))], ["10", "01"]),
        (3, [foo("10", 0, "x"), foo("01", 1, "x"), foo("11", 2, "x (2)")], ["10", "01", "11"]),
        (3, [foo("10", 0, "azure:a"), foo("01", 1, "azure:b")], {"azure:a": "10", "azure:b": "01"}),
        (3, [foo("101", 0, vars=None, namedScores=None, gradingResult=None)], {"p": "101"}),
        (3, [foo("10", 0, named(None), namedScores={"tone": None}), foo("01", 1, named(""))], ["10", "01"]),
        (3, [foo("10", response="text", score=True, latencyMs=1.5, config=None)], {"p": "10"}),
        (3, [foo("10", prompt={"raw": [{"role": "user"}], "label": None}, provider=None)], {"model": "10"}),
        (3, [foo("10", label="one"), foo("01", 1, label="two")], {"p@one": "10", "p@two": "01"}),
        (3, [foo("10", testCase={"vars": {}, "assert": []}), foo("01", 1, label=None)], ["10", "01"]),
        (2, [foo("10", None, "a"), foo("01", None, "b")], {"a": "10", "b": "01"}),
        (2, [foo("10", None, named(None), "one"), foo("01", None, named(None), "two")], ["10", "01"]),
        (2, [foo("10", None, prompt={"raw": "", "display": "one"}), foo("11", None)], ["10", "11"]),
        (1, [foo("10", None, {"id": "a"}, failureReason=None, cost=None)], {"a": "10"}),
        ("plain", [foo("10", 0), foo("01", 1)], ["10", "01"]),
        ("lines", [bare(foo("10", 0, named(None))), bare(foo("01", 1, named(None)))], ["10", "01"]),
        ("lines", [foo("00"), foo("11", 1), foo("10")], ["10", "11"]),
        ("torn", [foo("10", 0, "a"), foo("011", 1, "b")], {"a": "10", "b": "01"}),
    ],
)
def test_each_column_of_promptfoo_is_a_model(
    tmp_path: Path, kind: int | str, rows: list[list[dict[str, Any]]], expected: dict[str, str] | list[str]
) -> None:
    every = [row for column in rows for row in column]
    file = tmp_path / ("f.jsonl" if kind in ("lines", "torn") else "f.json")
    if file.suffix == ".jsonl":
        text = "".join(json.dumps(row) + "\n" for row in every)
        file.write_text(text[: -20 if kind == "torn" else None])
    else:
        summary = {"version": 3 if kind == "plain" else kind, "results": every}
        file.write_text(json.dumps(summary if kind == "plain" else {"results": summary}))
    found = import_results(file, out=tmp_path / "out").folders
    passes = {
        model: "".join(
            str(round(value or 0))
            for (_, _, _, metric), value in sorted(scores(folder).items())
            if metric == "pass"
        )
        for model, folder in found.items()
    }
    assert (passes if isinstance(expected, dict) else sorted(passes.values())) == (
        expected if isinstance(expected, dict) else sorted(expected)
    )


def test_prompts_of_promptfoo_are_compared_on_their_tests(tmp_path: Path) -> None:
    """Texts of two prompts differ, and what they are tried on does not."""
    rows = [
        row | {"prompt": {"raw": f"{style} {row['vars']}"}}
        for number, (style, passes) in enumerate((("Briefly:", "1011"), ("At length:", "0010")))
        for row in foo(passes, number)
    ]
    (tmp_path / "f.json").write_text(json.dumps({"version": 3, "results": rows}))
    made = import_results(tmp_path / "f.json", out=tmp_path / "out")
    assert list(made.folders) == ["p", "p (2)"]
    found = compare(*made.folders.values())
    assert found is not None
    assert [one.n for one in found.comparisons if one.metric == "pass"] == [4]


def test_repetitions_of_promptfoo_are_samples(tmp_path: Path) -> None:
    """Numbered as further tests, and without numbers; the second could be another entry, which is noted."""
    case = {"assert": [{"type": "equals"}]}
    repeated = [row | {"testCase": case} for row in foo("1100")]
    for row in repeated:
        row["vars"] = {"n": row["testIdx"] % 2}
    unnumbered = foo("10", None) + foo("11", None)
    for name, rows, version in (("a", repeated, 3), ("b", unnumbered, 2)):
        (tmp_path / f"{name}.json").write_text(json.dumps({"version": version, "results": rows}))
        import_results(tmp_path / f"{name}.json", out=tmp_path / name)
        found = scores(tmp_path / name)
        assert len({(item, sample) for _, item, sample, _ in found}) == 4
        assert {sample for _, _, sample, _ in found} == {0, 1}
    with open_reader(tmp_path / "b") as reader:
        assert "does not distinguish unlabelled entries of a provider" in "\n".join(reader.notes())


def test_many_rows_of_promptfoo_take_linear_time(tmp_path: Path) -> None:
    """Among them failures and repetitions, in numbers that squared would outlast the limit."""
    rows = foo("01" * 20_000)
    for row in rows[::2]:
        row["failureReason"] = 2
    (tmp_path / "f.json").write_text(json.dumps({"version": 3, "results": rows}))
    import_results(tmp_path / "f.json", out=tmp_path / "out")
    summary = json.loads((tmp_path / "out/f/summary.json").read_text())
    assert (summary["n_scored"], summary["n_failed"]) == (20_000, {"failed": 20_000})
    rows = foo("1" * 40_000, vars={}, testIdx=0)
    (tmp_path / "g.json").write_text(json.dumps({"version": 3, "results": rows}))
    (result,) = read_promptfoo(tmp_path / "g.json")
    assert result.answers[-1].sample == 39_999


# --- Tables


def test_a_table_of_judges_counts_what_all_of_them_scored(tmp_path: Path) -> None:
    rows = [
        f"q{n},{m},{j},{1 + (n + len(j)) % 5}" for n in range(9) for m in "xy" for j in ("anna", "gpt-4o")
    ]
    rows[3] = "q0,y,gpt-4o,"
    path = table(tmp_path / "scores.csv", "question_id,model,judge,points", *rows)
    made = import_results(path, out=tmp_path / "out", columns={"score": "points"}, scale=(1, 5))
    assert sorted(made.folders) == ["x", "y"]
    x, y = scores(made.folders["x"]), scores(made.folders["y"])
    assert y["scores", "q0", 0, "score"] is None
    assert x["scores", "q0", 0, "score"] == pytest.approx(((1 + 4 % 5) + (1 + 6 % 5) - 2) / 8, abs=1e-12)
    with open_reader(made.folders["y"]) as reader:
        notes = "\n".join(reader.notes())
    assert "score is the mean of anna, gpt-4o" in notes
    assert "1 answer without a score, as not all judges gave one" in notes


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        ("t.csv", "item;model;score\n1;m;0,75\n2;m;0.5\n3;m;,25\n4;m;1", [0.75, 0.5, 0.25, 1]),
        ("t.tsv", "item\tmodel\tscore\n1\tm\t0,75\n2\tm\t1,000", [0.75, 1]),
        ("t.csv", "item;model;score\n1;m;75%\n2;m;12,5 %\n3;m;100%", [0.75, 0.125, 1]),
        ("t.csv", 'item,model,score\n1,m,75%\n2,m,"0.5 %"\n3,m,NaN\n4,m,', [0.75, 0.005, None, None]),
        ("t.jsonl", '{"item":1,"model":"m","score":NaN}\n{"item":2,"model":"m","score":0.5}', [None, 0.5]),
        (
            "t.jsonl",
            '{"item":"NaN","model":"m","score":-Infinity}\n{"item":2,"model":"m","score":"5%"}',
            [None, 0.05],
        ),
        ("t.jsonl", '{"item":1,"model":"m","score":true,"prompt":"\\"Infinity"}', [1.0]),
        ("t.json", '[{"item":1,"model":"m","score":NaN},{"item":2,"model":"m","score":1}]', [None, 1]),
        ("t.csv", "item,model,judge,score\n1,m,a,inf\n1,m,b,-inf\n2,m,a,1\n2,m,b,1e999", [None, None]),
        ("t.csv", "item,model,judge,score" + "".join(f"\n1,m,{judge},1" for judge in range(9)), [1.0]),
    ],
)
def test_scores_as_spreadsheets_and_python_write_them(
    tmp_path: Path, name: str, text: str, expected: list[float | None]
) -> None:
    (tmp_path / name).write_text(text)
    columns = {"item": "item"} if name.endswith(".json") else None
    import_results(tmp_path / name, out=tmp_path / "out", columns=columns)
    assert list(scores(tmp_path / "out").values()) == expected
    if "inf" in text:
        with open_reader(tmp_path / "out") as reader:
            assert "score: 2 scores NaN or infinite" in "\n".join(reader.notes())


def test_scores_without_answers_are_scores(tmp_path: Path, coeval: Command) -> None:
    """Where a table holds no texts, nothing failed and no answer is empty."""
    path = table(tmp_path / "t.csv", "item,model,score", *(f"{n},m,{n % 2}" for n in range(10)))
    ended = coeval("import", path, "--out", tmp_path / "out")
    assert ended.code == 0
    assert "coeval results" in ended.out
    with open_reader(tmp_path / "out") as reader:
        assert reader.rows("SELECT count(*), count(*) FILTER (failed), avg(value) FROM scores") == [
            (10, 0, 0.5)
        ]
    shown = coeval("results", tmp_path / "out")
    assert shown.code == 0
    assert "50.0" in shown.out
    assert "empty" not in shown.out + shown.err


def test_models_whose_names_make_one_folder_name_are_kept_apart(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "item,model,score", "1,a/b,1", "1,a b,0", "1,A_B,0.5")
    made = import_results(path, out=tmp_path / "out")
    assert len({str(folder).lower() for folder in made.folders.values()}) == 3
    assert [scores(folder)["t", "1", 0, "score"] for folder in made.folders.values()] == [1.0, 0.0, 0.5]


def test_nothing_is_written_over(tmp_path: Path) -> None:
    path = table(tmp_path / "t.csv", "item,model,score", "1,a,1")
    import_results(path, out=tmp_path / "out")
    with pytest.raises(UsageError, match="holds results already"):
        import_results(path, out=tmp_path / "out")
    with pytest.raises(UsageError, match="is in several of these files"):
        import_results(path, path, out=tmp_path / "other")


@pytest.mark.parametrize("options", [["--scale", "five"], ["--scale", "1"], ["--column", "points"]])
def test_wrong_options_are_told(tmp_path: Path, coeval: Command, options: list[str]) -> None:
    path = table(tmp_path / "t.csv", "item,model,score", "1,a,1")
    ended = coeval("import", path, "--out", tmp_path / "out", *options)
    assert ended.code == 1
    assert "1,5" in ended.err or "MEANING=COLUMN" in ended.err


def test_imported_answers_are_labelled_as_the_message_says(
    coeval: Command, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    rows = [f"{n},m,{n % 2},a | b {n},answer {n}" for n in range(4)]
    table(tmp_path / "s.csv", "item,model,score,prompt,answer", *rows)
    (folder,) = import_results("s.csv", out="theirs").folders.values()
    told = coeval("label", folder)
    assert told.code == 1
    commands = [part.split(" (")[0] for part in told.err.split("coeval ")[1:]]
    export, init = (command.split(", then")[0].split() for command in commands)
    assert coeval(*export).code == 0
    assert coeval(*init, "--student", "m", "graded.yaml").code == 0
    assert coeval("run", "--config", "graded.yaml").code == 0
    assert coeval("label", "runs/graded", "--n", "4", "--sheet", "labels.csv").code == 0
    sheet = Path("labels.csv").read_text()
    assert all(f"answer {n}" in sheet for n in range(4))
