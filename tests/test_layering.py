"""The architecture of docs/design.md, read off the source: who imports whom, how large, how it speaks.

An exception stands in a table here with its reason; what is in no table fails.
"""

from __future__ import annotations

import ast
import subprocess
import sys
from collections.abc import Iterator
from functools import cache
from graphlib import CycleError, TopologicalSorter
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).resolve().parents[1] / "src" / "coeval"

LAYERS: tuple[tuple[str, ...], ...] = (
    ("core",),
    ("store", "simulation"),
    ("pricing", "models"),
    ("engine", "tables"),
    ("analysis",),
    ("judging",),
    ("pipeline",),
    ("benchmarks",),
    ("sweeps",),
    ("reports",),
    ("exchange",),
    ("api",),
    ("cli",),
    ("__main__",),
)
"""A part imports from itself and from lines above its own; parts on one line leave each other alone."""
LINE_OF = {part: line for line, parts in enumerate(LAYERS) for part in parts}

LATE_IMPORTS = {
    "__init__.py": {
        "coeval.api": "importing the package costs nothing until it is used",
        "coeval.exchange": "the same",
        "coeval.sweeps": "the same",
    },
    "api/run_handle.py": {
        "coeval.analysis": "duckdb, numpy and scipy are loaded when results are asked for",
        "coeval.pipeline.plan.run_reading": "the same",
        "coeval.reports": "the same, and what draws charts",
    },
    "api/sweeping.py": {
        "coeval.analysis": "duckdb, numpy and scipy are loaded when results are asked for",
        "coeval.reports": "the same, and what draws charts",
    },
    "analysis/comparison/lower_bound.py": {"scipy.optimize": "a tenth of a second, for gates alone"},
    "reports/files.py": {"coeval.reports.report_workbook": "xlsxwriter, for workbooks alone"},
    "sweeps/submission.py": {"transformers": "an extra, and seconds to load"},
    "api/stoppable.py": {"IPython": "loaded already where there is a notebook, and wanted nowhere else"},
    "reports/result_tables.py": {"pandas": "the user's own"},
    "core/text.py": {"json_repair": "most replies need no repair"},
    "pricing/price_book.py": {
        "genai_prices": "a seventh of a second, with pydantic and an HTTP client; local models need no price"
    },
    "store/rundir.py": {"ruamel": "only a start writes YAML"},
    "pipeline/run_flow.py": {"coeval.pipeline.phases.document_items": "numpy, for items about documents"},
    "tables/documents.py": {"pypdf": "optional, for PDF files"},
    "models/transport/network.py": {"resource": "not on Windows"},
    "models/signers.py": {
        "botocore": "an extra, wanted where Bedrock is asked with IAM keys",
        "google": "an extra, wanted where Vertex AI is asked",
    },
    "models/local/local_model.py": {"torch": "an extra, and seconds to load", "vllm": "the user's own"},
    "models/local/local_transformers.py": {
        "jinja2": "comes with transformers",
        "torch": "an extra, and seconds to load",
        "transformers": "an extra, and seconds to load",
    },
    "sweeps/engine.py": {"ray": "an extra, and a second to load", "submitit": "an extra"},
    "exchange/trackers.py": {
        "coeval.exchange.headlines": "duckdb and what draws charts; a run asks first",
        "mlflow": "an extra",
        "wandb": "an extra",
        "trackio": "an extra",
    },
    "tables/table.py": {
        "duckdb": "a tenth of a second to load, and only Parquet files need it",
    },
    "pipeline/start/run_start.py": {
        "coeval.pipeline.plan.estimate": "only estimates and budgets need it, and a run should ask soon",
        "coeval.pipeline.plan.run_reading": "it loads duckdb, and only a finished run that grows needs it",
    },
    "cli/loop.py": {"uvloop": "not on Windows"},
    "benchmarks/tasks/ifbench_formats.py": {"emoji": "one instruction type of 58 needs its table"},
    "benchmarks/tasks/ifbench_words.py": {"syllapy": "one instruction type of 58 needs its dictionary"},
    "benchmarks/text_analysis.py": {"regex": "only texts beyond ASCII need it"},
    "judging/checks/rubric_check.py": {"regex": "only checks with a pattern need it"},
    "judging/checks/check_options.py": {
        "rapidfuzz": "one kind of check needs it",
        "langdetect": "its profiles are read where they are needed",
    },
    "judging/checks/value_checks.py": {
        "jsonschema": "a tenth of a second, and one kind of check needs it",
        "referencing": "comes with jsonschema",
        "math_verify": "an extra, and a second to load",
    },
    "models/open.py": {"coeval.simulation": "a fiftieth of a second, for runs with simulated models alone"},
    "models/transport/http.py": {
        "coeval.models.transport.proxied": "aiohttp is slow to load, and only proxies need it"
    },
    "models/batch/batches.py": {
        "coeval.models.batch.batch_http": "aiohttp is slow to load, and only batch jobs need it"
    },
}
"""File → what its functions import, and why not at the top. In ``cli/`` a command may import late what
few of its calls need; ``coeval --help`` loads no command."""

MOST_ENTRIES = 25
LONGEST_FILE, LONGEST_FUNCTION, MOST_PARAMETERS = 600, 60, 6
SHORTEST_FILE = 40
SHORT_FILES: dict[str, str] = {}
"""Files below that many lines, beside ``__init__`` and ``__main__``, and why each stands alone."""
FROZEN_WIRE = ("body", "connection", "pool", "proxied")
MOST_LINES = 97_300
"""Of ``src`` in all, Python and JavaScript: what moves from one to the other counts once. A new ability pays
with a subtraction; raising it needs a page in docs/decisions."""
MOST_LINES_OF_WIRE = 1206
"""The connections of `models/transport` grow no more: a library was tried in their place, and what they lack
is a reason to try one again (docs/decisions/0013-our-wire-stays.md)."""
LARGE_FUNCTIONS: dict[str, str] = {}
"""Beside the commands in ``cli/``: their parameters are their options, and their signatures not counted."""
WRITERS = {
    "judging/checks/check_worker.py": "the process of a user's function: what that printed is flushed",
    "pipeline/config/json_schema.py": "a developer's command of its own, run as python -m",
    "api/stoppable.py": "lines for whoever asks for them by progress=True",
}
LOOP_STARTERS = {"api/stoppable.py": "the synchronous face of the Python interface"}
BROAD_EXCEPTS = {
    "core/errors.py": "the text of another package's error is code of its own",
    "core/entry_points.py": "loading another package runs its code, and the error must name it",
    "engine/work.py": "one work item's bug must not end the run",
    "models/local/callables.py": "a user's function may raise anything, and its item must say so",
    "models/local/function_model.py": "so may a user's coroutine",
    "exchange/trackers.py": "a tracker's package may raise anything, and must not cost a run its end",
    "cli/entry.py": "a library that loads makes other exceptions of Ctrl-C",
    "cli/ending.py": "the process: whatever it is becomes a message and an exit code",
    "benchmarks/run/task_run.py": "one task's bug must not cost the other tasks their scores",
    "benchmarks/tasks/following.py": "one verifier's bug must cost neither the answer nor the task",
    "judging/checks/check_worker.py": "a user's function may raise anything, and its item must say so",
    "judging/checks/check_runner.py": "whatever interrupts a request, its worker is ended first",
}
"""The files that may catch everything, once each, and what for."""
DECODERS = {
    "core/foreign.py": "the one way to read foreign JSON",
    "core/text.py": "finds JSON amid prose, and reads back what it wrote itself",
    "benchmarks/tasks/ifeval_checks.py": "the published verdict on JSON is what json.loads says",
    "benchmarks/assets/library.py": "CSV is read as text",
    "models/keys.py": "YAML",
    "pipeline/config/document.py": "YAML",
    "pricing/pricing_file.py": "YAML",
    "tables/source_bytes.py": "an encoding that the user names",
    "tables/documents.py": "a document that is not UTF-8, or a damaged PDF",
}
"""Who else reads foreign text, or catches what reading it raises."""
RESULT_FILES = {
    "coeval.store.record_index": {"RecordFiles", "known_records"},
    "coeval.store.jsonl": {"read_whole_lines"},
    "coeval.store.legacy": {"read_legacy"},
    "coeval.store.output_folder": {"RESPONSES", "SCORES", "SUMMARY", "JUDGMENTS"},
}
"""What opens the files of results, or names them."""
CONSUMERS = ("analysis", "reports", "api", "cli", "exchange")
RESULT_READERS = {
    "analysis/load.py": "finds the reader of a folder, and its files",
    "exchange/imported.py": "writes them",
}
"""The consumers that read lines by themselves, beside ``analysis/readers``."""
KINDS = {"RunReader", "OutputReader"}
VAGUE = {"utils", "util", "helpers", "helper", "common", "manager", "misc"}

HEAVY = {
    "aiohttp",
    "jinja2",
    "vl_convert",
    "boto3",
    "botocore",
    "duckdb",
    "genai_prices",
    "google",
    "numpy",
    "pandas",
    "pydantic",
    "ruamel",
    "scipy",
    "torch",
}

FunctionNode = ast.FunctionDef | ast.AsyncFunctionDef


class Module(NamedTuple):
    """A source file: its path below the package, its text's lines, its syntax."""

    path: str
    lines: int
    tree: ast.Module

    @property
    def part(self) -> str:
        """Its name in `LAYERS`: the folder, or the module where it lies in none."""
        return self.path.partition("/")[0].removesuffix(".py")


class Import(NamedTuple):
    module: str
    line: int
    late: bool


def read(root: Path) -> list[Module]:
    modules = []
    for path in sorted(root.rglob("*.py")):
        text = path.read_text(encoding="utf-8")
        modules.append(Module(path.relative_to(root).as_posix(), text.count("\n"), ast.parse(text)))
    return modules


@cache
def package() -> list[Module]:
    return read(SOURCE)


def functions(tree: ast.AST) -> Iterator[FunctionNode]:
    return (node for node in ast.walk(tree) if isinstance(node, FunctionNode))


def imports(module: Module) -> Iterator[Import]:
    """Every import, as a full module name; what stands below ``if TYPE_CHECKING`` counts as well."""
    late = {id(node) for function in functions(module.tree) for node in ast.walk(function)}
    for node in ast.walk(module.tree):
        if isinstance(node, ast.Import):
            yield from (Import(alias.name, node.lineno, id(node) in late) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert node.level == 0, f"{module.path}:{node.lineno} imports relatively"
            for alias in node.names:
                name = f"coeval.{alias.name}" if node.module == "coeval" else node.module or ""
                yield Import(name, node.lineno, id(node) in late)


def against_the_order(modules: list[Module]) -> list[str]:
    wrong = []
    for module in modules:
        if module.part == "__init__":
            continue
        for found in imports(module):
            package_name, _, rest = found.module.partition(".")
            part = rest.partition(".")[0]
            if package_name != "coeval" or part in ("", "__version__", module.part):
                continue
            if part not in LINE_OF or module.part not in LINE_OF:
                wrong.append(f"{module.path}:{found.line} {found.module}: in no layer")
            elif LINE_OF[part] >= LINE_OF[module.part]:
                wrong.append(f"{module.path}:{found.line} {module.part} imports {part}")
    return wrong


def import_graph(modules: list[Module]) -> dict[str, set[str]]:
    """Full module names, each with those of the package that it imports, late ones included."""
    names = {
        "coeval."
        + module.path.removesuffix(".py").removesuffix("__init__").rstrip("/").replace("/", "."): module
        for module in modules
    }
    graph: dict[str, set[str]] = {}
    for name, module in names.items():
        found = graph[name] = set[str]()
        for node in ast.walk(module.tree):
            if isinstance(node, ast.Import):
                found.update(alias.name for alias in node.names)
            elif isinstance(node, ast.ImportFrom):
                within = {f"{node.module}.{alias.name}" for alias in node.names}
                found.update(within & names.keys() or {node.module or ""})
        found &= names.keys() - {name}
    return graph


def unlisted_late_imports(modules: list[Module]) -> list[str]:
    wrong = []
    for module in modules:
        listed = LATE_IMPORTS.get(module.path, {})
        for found in imports(module):
            known = any(f"{found.module}.".startswith(f"{name}.") for name in listed)
            if found.late and not known and module.part != "cli":
                wrong.append(f"{module.path}:{found.line} {found.module}")
    return wrong


class Size(NamedTuple):
    lines: int
    parameters: int

    @property
    def large(self) -> bool:
        return self.lines > LONGEST_FUNCTION or self.parameters > MOST_PARAMETERS


def size(module: Module, function: FunctionNode) -> Size:
    end = function.end_lineno or function.lineno
    arguments = (*function.args.posonlyargs, *function.args.args, *function.args.kwonlyargs)
    hints = [ast.unparse(argument.annotation) for argument in arguments if argument.annotation]
    if module.part == "cli" and any("typer." in hint for hint in hints):
        return Size(end - function.body[0].lineno + 1, 0)
    names = [argument.arg for argument in arguments]
    return Size(end - function.lineno + 1, len(names) - (names[:1] in (["self"], ["cls"])))


def too_large(modules: list[Module]) -> list[str]:
    wrong = [f"{m.path} has {m.lines} lines" for m in modules if m.lines > LONGEST_FILE]
    for module in modules:
        for function in functions(module.tree):
            where, found = f"{module.path} {function.name}", size(module, function)
            if found.large and where not in LARGE_FUNCTIONS:
                wrong.append(f"{where} has {found.lines} lines, {found.parameters} parameters")
    return wrong


def mentions(tree: ast.AST, *names: str) -> list[int]:
    """The lines on which one of the dotted names stands."""
    return [
        node.lineno
        for node in ast.walk(tree)
        if isinstance(node, ast.Name | ast.Attribute) and ast.unparse(node) in names
    ]


def speaking_out_of_turn(modules: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line}"
        for module in modules
        if module.part != "cli" and module.path not in WRITERS
        for line in mentions(module.tree, "print", "sys.stdout", "sys.stderr")
    ]


def starting_a_loop(modules: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line}"
        for module in modules
        if module.part != "cli" and module.path not in LOOP_STARTERS
        for line in mentions(module.tree, "asyncio.run", "uvloop.run", "asyncio.Runner")
    ]


def broad_excepts(modules: list[Module]) -> list[str]:
    return [
        f"{module.path}:{node.lineno}"
        for module in modules
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ExceptHandler)
        and (node.type is None or mentions(node.type, "Exception", "BaseException"))
    ]


READING = (
    "msgspec.json.decode", "msgspec.json.Decoder", "msgspec.convert",
    "json.load", "json.loads", "json.JSONDecoder",
)  # fmt: skip
REFUSALS = (
    "msgspec.MsgspecError", "msgspec.DecodeError", "msgspec.ValidationError", "json.JSONDecodeError",
    "RecursionError", "UnicodeError", "UnicodeDecodeError", "UnicodeEncodeError",
)  # fmt: skip


def reading_foreign_text(modules: list[Module]) -> list[str]:
    return [
        f"{module.path}:{line}"
        for module in modules
        if module.path not in DECODERS
        for line in mentions(module.tree, *READING, *REFUSALS)
    ]


def opening_results(modules: list[Module]) -> list[str]:
    """The consumers outside the readers that import what opens files of results."""
    return [
        f"{module.path}:{node.lineno} {alias.name}"
        for module in modules
        if module.part in CONSUMERS
        and not module.path.startswith("analysis/readers/")
        and module.path not in RESULT_READERS
        for node in ast.walk(module.tree)
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
        if alias.name in RESULT_FILES.get(node.module or "", ())
    ]


def asking_for_the_kind(modules: list[Module]) -> list[str]:
    """Where it is asked which reader, and so which kind of folder, this is."""
    wrong = []
    for module in modules:
        for node in ast.walk(module.tree):
            if not isinstance(node, ast.Call | ast.MatchClass):
                continue
            if isinstance(node, ast.MatchClass) or ast.unparse(node.func) == "isinstance":
                named = {part.id for part in ast.walk(node) if isinstance(part, ast.Name)}
                wrong += [f"{module.path}:{node.lineno}"] * bool(named & KINDS)
    return wrong


@pytest.mark.process
def test_results_are_opened_by_readers_alone() -> None:
    assert opening_results(package()) == []


@pytest.mark.process
def test_nobody_asks_which_kind_of_folder_is_read() -> None:
    assert asking_for_the_kind(package()) == []


@pytest.mark.process
def test_foreign_json_is_read_in_one_place() -> None:
    assert reading_foreign_text(package()) == []


@pytest.mark.process
def test_imports_run_one_way() -> None:
    assert against_the_order(package()) == []


@pytest.mark.process
def test_no_module_imports_itself_by_way_of_others() -> None:
    TopologicalSorter(import_graph(package())).prepare()  # CycleError names those of a cycle
    with pytest.raises(CycleError):
        TopologicalSorter(import_graph(read_cycle())).prepare()


@pytest.mark.process
def test_functions_import_only_what_is_heavy_or_optional() -> None:
    assert unlisted_late_imports(package()) == []


@pytest.mark.process
def test_files_and_functions_are_small() -> None:
    assert too_large(package()) == []


def test_no_file_is_a_crumb() -> None:
    short = {m.path for m in package() if m.lines < SHORTEST_FILE and not Path(m.path).stem.startswith("__")}
    assert short == SHORT_FILES.keys()


def test_the_house_grows_no_more() -> None:
    scripts = sum(path.read_text(encoding="utf-8").count("\n") for path in SOURCE.rglob("*.js"))
    assert scripts + sum(m.lines for m in package()) <= MOST_LINES


def test_our_wire_grows_no_more() -> None:
    lines = {Path(m.path).stem: m.lines for m in package() if m.path.startswith("models/transport/")}
    assert sum(lines.get(name, 0) for name in FROZEN_WIRE) <= MOST_LINES_OF_WIRE


@pytest.mark.process
def test_only_the_command_line_prints() -> None:
    assert speaking_out_of_turn(package()) == []


@pytest.mark.process
def test_loops_are_started_at_the_edge() -> None:
    assert starting_a_loop(package()) == []


@pytest.mark.process
def test_broad_excepts_are_few_and_known() -> None:
    assert [found.partition(":")[0] for found in broad_excepts(package())] == sorted(BROAD_EXCEPTS)


def test_a_file_is_named_for_what_it_owns() -> None:
    vague = [module.path for module in package() if VAGUE & set(Path(module.path).with_suffix("").parts)]
    assert vague == []


def test_no_exception_outlives_its_reason() -> None:
    """Every file and function that the tables name is there, and still needs its entry."""
    by_path = {module.path: module for module in package()}
    named = {
        *LATE_IMPORTS,
        *WRITERS,
        *DECODERS,
        *LOOP_STARTERS,
        *RESULT_READERS,
        *(key.split()[0] for key in LARGE_FUNCTIONS),
    }
    assert named <= by_path.keys()
    assert all(mentions(by_path[path].tree, *READING, *REFUSALS, "ValueError") for path in DECODERS)
    for path, listed in LATE_IMPORTS.items():
        late = [found.module for found in imports(by_path[path]) if found.late]
        assert all(any(f"{m}.".startswith(f"{name}.") for m in late) for name in listed), path
    for key in LARGE_FUNCTIONS:
        module, name = by_path[key.split()[0]], key.split()[1]
        assert any(size(module, f).large for f in functions(module.tree) if f.name == name), key


@pytest.mark.process
@pytest.mark.parametrize(
    ("module", "needed"),
    [
        ("coeval", set[str]()),
        ("coeval.cli.main", set[str]()),
        ("coeval.pipeline.run", {"pydantic", "ruamel"}),  # its configuration is read with them
    ],
)
def test_importing_loads_nothing_heavy(module: str, needed: set[str]) -> None:
    code = f"import sys, {module}; print(*sorted({{name.partition('.')[0] for name in sys.modules}}))"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert HEAVY & set(shown.stdout.split()) == needed


BREACHES = {
    "core/up.py": "from coeval.engine.work import Work",
    "models/sideways.py": "import coeval.pricing.pricing_file",
    "engine/late.py": "def f():\n    import duckdb",
    "store/loud.py": "import sys\nprint('x')\nsys.stderr.write('y')",
    "judging/loop.py": "import asyncio\nasyncio.run(None)",
    "store/lenient.py": "import msgspec\ntry:\n    msgspec.convert(1, int)\nexcept RecursionError:\n    pass",
    "pipeline/broad.py": "try:\n    pass\nexcept (OSError, Exception):\n    pass",
    "reports/raw.py": "from coeval.store.jsonl import read_whole_lines\nisinstance(1, RunReader)",
    "analysis/long.py": "def f():\n" + "    x = 1\n" * 60,
}


def read_cycle() -> list[Module]:
    texts = {
        "core/one.py": "from coeval.core import two",
        "core/two.py": "def f():\n    import coeval.core.one",
    }
    return [Module(path, 1, ast.parse(text)) for path, text in texts.items()]


def test_breaches_are_found(tmp_path: Path) -> None:
    for path, text in BREACHES.items():
        (tmp_path / path).parent.mkdir(exist_ok=True)
        (tmp_path / path).write_text(text)
    planted = read(tmp_path)
    assert against_the_order(planted) == [
        "core/up.py:1 core imports engine",
        "models/sideways.py:1 models imports pricing",
    ]
    assert unlisted_late_imports(planted) == ["engine/late.py:2 duckdb"]
    assert speaking_out_of_turn(planted) == ["store/loud.py:2", "store/loud.py:3"]
    assert starting_a_loop(planted) == ["judging/loop.py:2"]
    assert reading_foreign_text(planted) == ["store/lenient.py:4", "store/lenient.py:3"]
    assert broad_excepts(planted) == ["pipeline/broad.py:3"]
    assert opening_results(planted) == ["reports/raw.py:1 read_whole_lines"]
    assert asking_for_the_kind(planted) == ["reports/raw.py:2"]
    assert too_large(planted) == ["analysis/long.py f has 61 lines, 0 parameters"]


def test_one_name_stands_for_one_thing() -> None:
    """A module or a class is found by its name alone, wherever it is."""
    places: dict[str, list[str]] = {}
    for module in package():
        name = Path(module.path).stem
        if not name.startswith("__"):
            places.setdefault(f"module {name}", []).append(module.path)
        for node in module.tree.body:
            if isinstance(node, ast.ClassDef):
                places.setdefault(f"class {node.name}", []).append(module.path)
    assert {name: paths for name, paths in places.items() if len(paths) > 1} == {}


def test_a_folder_is_a_table_of_contents() -> None:
    """Of more entries nobody sees which belong together."""
    sizes = {
        folder.relative_to(SOURCE).as_posix(): sum(1 for entry in folder.iterdir() if entry.stem[:2] != "__")
        for folder in (SOURCE, *SOURCE.rglob("*/"))
        if (folder / "__init__.py").exists()
    }
    large = {name: size for name, size in sizes.items() if size > MOST_ENTRIES}
    assert large == {}
    assert sizes["pipeline"] <= 12
