"""YAML text into plain data with lines: YAML 1.2, every duplicate, no bomb, never a traceback."""

from __future__ import annotations

import os
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Timer
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from coeval.core.errors import ConfigError
from coeval.pipeline.config.document import Document, read_document
from coeval.pipeline.config.findings import render_path
from coeval.pipeline.config.load_file import load_config
from coeval.store.rundir import RunDir


def read(folder: Path, text: str | bytes) -> Document:
    file = folder / "e.yaml"
    file.write_bytes(text.encode() if isinstance(text, str) else text)
    return read_document(file)


def test_scalars_are_read_by_yaml_1_2(tmp_path: Path) -> None:
    text = "a: [yes, on, 2024-01-01, 12:30:00, 1_000, .inf, 5, -1, 0.5, 1e3, true, ~, '5', !!str 6]\n"
    assert read(tmp_path, text).data["a"] == [
        "yes",
        "on",
        "2024-01-01",
        "12:30:00",
        "1_000",
        ".inf",
        5,
        -1,
        0.5,
        1000.0,
        True,
        None,
        "5",
        "6",
    ]


def test_a_directive_does_not_bring_yaml_1_1_back(tmp_path: Path) -> None:
    assert read(tmp_path, "%YAML 1.1\n---\na: yes\n").data == {"a": "yes"}


def test_attribute_values_stay_as_they_are_spelled(tmp_path: Path) -> None:
    text = "tasks:\n  - target_attributes: {version: [3.10, 3.9, true, 007]}\n    other: {version: [3.10]}\n"
    task = read(tmp_path, text).data["tasks"][0]
    assert task["target_attributes"] == {"version": ["3.10", "3.9", "true", "007"]}
    assert task["other"] == {"version": [3.1]}


def test_every_duplicate_key_is_reported_with_both_lines(tmp_path: Path) -> None:
    document = read(tmp_path, "a: 1\nb: {c: 1,\n  c: 2}\na: 3\na: 4\n")
    assert [(p.location.line, render_path(p.finding.path), p.finding.rule) for p in document.problems] == [
        (4, "a", "V-19"),
        (5, "a", "V-19"),
        (3, "b.c", "V-19"),
    ]
    assert "line 1" in document.problems[0].finding.message
    assert document.data == {"a": 1, "b": {"c": 1}}


def test_merge_keys_and_aliases(tmp_path: Path) -> None:
    text = "base: &b {x: 1, y: 2}\none: {<<: *b, x: 3}\ntwo: {<<: [*b, {y: 9, z: 4}]}\n"
    data = read(tmp_path, text).data
    assert data["one"] == {"x": 3, "y": 2}
    assert data["two"] == {"x": 1, "y": 2, "z": 4}


def test_places_are_those_of_the_keys(tmp_path: Path) -> None:
    lines = read(tmp_path, "# first\nmodels:\n  - name: a\n\n    roles:\n      - x\n      - y\n").lines
    assert lines.find(("models", 0, "roles", 1)).line == 7
    assert lines.find(("models", 0, "roles")).line == 5
    assert lines.find(("models", 0, "interface")).line == 3  # absent: its mapping
    assert lines.find(("tasks",)).line == 1  # absent: the file


BOMB = "x: &a [1,1,1,1,1,1,1,1,1]\n" + "".join(
    f"x{i}: &a{i} [{','.join([f'*a{i - 1 if i else str()}'] * 9)}]\n" for i in range(9)
)


UNREADABLE: list[tuple[str | bytes, int, str]] = [
    ("", 1, "empty"),
    ("# only a comment\n", 1, "empty"),
    ("- 1\n", 1, "not a mapping"),
    ("just words", 1, "not a mapping"),
    ("a: 1\n---\nb: 2\n", 2, "more than one YAML document"),
    ("a:\n\t- 1\n", 2, "tab"),
    ("a: 1\nb: [1, 2\n", 3, "not YAML"),
    ("a: b: c\n", 1, "not YAML"),
    ("a: *nowhere\n", 1, "*nowhere is undefined"),
    ("a: 1\nb: \x00\n", 2, "not YAML"),
    (b"a: 1\nb: \xff\n", 2, "UTF-8"),
    ("a: &x [*x]\n", 1, "nested deeper"),
    ("a: &m {<<: *m}\n", 1, "nested deeper"),
    ("a: " + "[" * 1000, 1, "nested deeper"),
    (BOMB, 1, "aliases expand"),
    ("a: " + "x" * 2_000_001, 1, "larger than"),
]


@pytest.mark.process
@pytest.mark.parametrize(("text", "line", "says"), UNREADABLE)
def test_what_cannot_be_read_is_one_clean_problem(
    tmp_path: Path, text: str | bytes, line: int, says: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        read(tmp_path, text)
    (problem,) = caught.value.problems
    assert problem.startswith(f"{tmp_path / 'e.yaml'}:{line}  (file)  V-27  ")
    assert says in problem


READABLE = [
    "base: &b {x: 1, y: 2}\none: {<<: *b, x: 3}\ntwo: {<<: [*b, {y: 9, z: 4}]}\n",
    "a: 1\nb: {c: 1,\n  c: 2}\na: 3\n? [1]\n: 2\n",
    'a: yes\nb: "yes"\nc: 2024-01-01\nd: 0o17\ne: .5\nf: ~\ng:\nh: !!int "3"\ni: !own 4\nj: ! 5\n',
    'a: "\\ud83d\\ude00"\nb: {"k":1,"l":[true,null]}\nc: \u00e9\u4e2d\n',
    "a: |\n  two\n   lines\nb: >-\n  folded\n  words\nc: 'it''s'\n? key\n: - 1\n  - - 2\n",
    "a: &x 1\nb: &x 2\nc: *x\n",
]


WRONG = [
    text for text, _, says in UNREADABLE if isinstance(text, str) and says not in ("empty", "larger than")
]


@pytest.mark.process
@pytest.mark.parametrize("text", READABLE + WRONG)
def test_a_large_file_reads_as_a_small_one(tmp_path: Path, text: str) -> None:
    def outcome(text: str, above: int) -> object:
        try:
            found = read(tmp_path, text)
        except ConfigError as error:
            place, _, problem = error.problems[0].partition("  ")
            words = "not YAML" if "not YAML" in problem else problem  # each parser has its own for that
            return int(place.rpartition(":")[2]) - above, words
        lines = {path: place.line - above for path, place in found.lines.locations.items()}
        return found.data, lines, [(p.location.line - above, *p.finding[:2]) for p in found.problems]

    large = outcome(f"# {'-' * 70_000}\n{text}", 1)  # beyond what the parser in Python is given
    assert large == outcome(text, 0)


@pytest.mark.parametrize("opening", ["[", "{", "- ", "? ", "a: [", "{a: "])
def test_depth_is_bounded_in_a_large_file(tmp_path: Path, opening: str) -> None:
    with pytest.raises(ConfigError, match=r"nested deeper|not YAML"):
        read(tmp_path, "x:\n  " + opening * 200_000)


def test_a_file_that_is_not_there(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"No such file.*experiment file"):
        read_document(tmp_path / "none.yaml")
    with pytest.raises(ConfigError, match="cannot be read"):
        read_document(tmp_path)


@pytest.mark.process
def test_devices_and_pipes_are_refused_and_what_a_shell_hands_over_is_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"/dev/zero:1 .*V-27 .*it is a device, not a file"):
        read_document(Path("/dev/zero"))
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    with pytest.raises(ConfigError, match=r"pipe:1 .*V-27 .*it is a pipe, not a file"):
        read_document(pipe)
    reading, writing = os.pipe()
    late = Timer(0.2, _write_and_close, (writing, b"a: 1\n"))
    late.start()
    try:
        assert read_document(Path(f"/dev/fd/{reading}")).data == {"a": 1}
    finally:
        late.join()
        os.close(reading)


def _write_and_close(descriptor: int, data: bytes) -> None:
    os.write(descriptor, data)
    os.close(descriptor)


def test_a_file_that_is_too_large_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"e\.yaml:1 .*V-27 .*larger than 2,000,000 bytes"):
        read(tmp_path, "#" * 2_000_001)


def test_foreign_tags_and_keys_are_problems_beside_the_rest(tmp_path: Path) -> None:
    document = read(tmp_path, "a: !!python/name:os.system x\nb: !thing {c: 1}\n? [1, 2]\n: d\n")
    assert [(p.location.line, p.finding.rule) for p in document.problems] == [
        (3, "V-20"),
        (1, "V-20"),
        (2, "V-20"),
    ]


@pytest.mark.process
@given(st.text(alphabet=st.sampled_from("ab:-[]{}&*!|>'\"%#? \n\t<0.~é\x01"), max_size=60))
@settings(max_examples=200)
def test_any_text_is_read_or_refused_cleanly(text: str) -> None:
    with TemporaryDirectory() as folder:
        try:
            problems = [problem.render() for problem in read(Path(folder), text).problems]
        except ConfigError as error:
            problems = error.problems
    assert all(":" in problem and "\n" not in problem for problem in problems)


words = st.text(st.characters(exclude_categories=("Cs", "Cc")), min_size=1, max_size=8) | st.sampled_from(
    ["yes", "1.0", "1e3", "~", "null", "2024-01-01", "<<", "0x1F", "- a", "a: b", " x "]
)
plain: st.SearchStrategy[Any] = st.recursive(
    words | st.integers(-(10**12), 10**12) | st.booleans() | st.none(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(words, inner, max_size=3),
    max_leaves=8,
)


@pytest.mark.process
@given(st.dictionaries(words, plain, min_size=1, max_size=4))
@settings(max_examples=60)
def test_a_snapshot_is_read_back_as_it_was(data: dict[str, Any]) -> None:
    with TemporaryDirectory() as folder:
        run = RunDir(folder)
        run.write_config_and_keep_older(data)
        assert read_document(run.config).data == data


def test_characters_in_two_halves_are_one_and_half_of_one_is_a_problem(tmp_path: Path) -> None:
    assert read(tmp_path, '{"a\\ud83d\\ude00": "\\ud83d\\ude00 b"}').data == {"a😀": "😀 b"}
    (problem,) = read(tmp_path, 'a: 1\n"\\ude00": 1\n').problems
    assert (problem.location.line, problem.finding.rule) == (2, "V-20")
    for data in ({"experiment": {"id": "\ud83d"}}, {"\ude00": 1}):
        with pytest.raises(ConfigError, match="V-20"):
            load_config(data)
