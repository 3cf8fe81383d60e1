"""What is installed is what was locked, and holds what the program reads."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
import tarfile
import tomllib
from collections.abc import Iterator
from importlib.metadata import entry_points
from pathlib import Path
from typing import Any
from venv import EnvBuilder
from zipfile import ZipFile

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

from coeval.core.entry_points import extra_pip_command

ROOT = Path(__file__).resolve().parents[1]
PROJECT: dict[str, Any] = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
LOCKS = {"requirements.lock": ["build"], "requirements-dev.lock": ["build", "dev"]}
PIN = re.compile(r"(?P<name>[a-z0-9][a-z0-9.-]*)==(?P<version>[^\s;]+)(?: ; (?P<marker>.+?))?")
IMPORTED_AS = {
    "mlflow": "mlflow-skinny",
    "google": "google-auth",
    "ruamel": "ruamel-yaml",
    "vl_convert": "vl-convert-python",
    "markupsafe": "jinja2",
    "pydantic_core": "pydantic",
    "referencing": "jsonschema",
    "typing_extensions": "pydantic",
}
"""Where the names differ; the last four are what their package's own interface hands out."""
OF_THE_USERS_OWN = {"vllm", "IPython", "pandas"}
"""Taken where they are, and in no extra: vLLM's build has to fit the machine's CUDA, in a notebook IPython is
there, and whoever wants a frame has pandas."""


def entries(lock: str) -> Iterator[str]:
    """The requirements of a lock file, each with its hashes on one line, without comments."""
    text = (ROOT / lock).read_text(encoding="utf-8").replace("\\\n", " ")
    for line in text.splitlines():
        if line.strip() and not line.lstrip().startswith("#"):
            yield line


def pins(lock: str) -> dict[str, Version]:
    found = {}
    for entry in entries(lock):
        pin, *hashes = (part.strip() for part in entry.split("--hash="))
        matched = PIN.fullmatch(pin)
        assert matched, f"{lock}: {pin} is not pinned"
        assert hashes, f"{lock}: {pin} has no hash"
        assert all(re.fullmatch(r"sha256:[0-9a-f]{64}", value) for value in hashes)
        found[matched["name"]] = Version(matched["version"])
    return found


def needed(groups: list[str]) -> Iterator[Requirement]:
    names: list[str] = list(PROJECT["project"]["dependencies"])
    for group in groups:
        names += [entry for entry in PROJECT["dependency-groups"][group] if isinstance(entry, str)]
    return map(Requirement, names)


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_satisfies_the_project(lock: str) -> None:
    locked = pins(lock)
    for requirement in needed(LOCKS[lock]):
        name = canonicalize_name(requirement.name)
        assert name in locked, f"{lock} lacks {name}; run make lock"
        assert requirement.specifier.contains(locked[name]), f"{lock}: {name} {locked[name]}; run make lock"


@pytest.mark.parametrize("lock", LOCKS)
def test_a_lock_file_names_no_host_and_no_path(lock: str) -> None:
    text = (ROOT / lock).read_text(encoding="utf-8")
    assert "://" not in text
    assert not re.search(r"(^|\s)(/|--?i |--(find-links|trusted-host|\w*-?index))", text, re.MULTILINE)


def test_development_runs_on_the_versions_that_users_get() -> None:
    users, developers = pins("requirements.lock"), pins("requirements-dev.lock")
    assert {name: developers.get(name) for name in users} == users


@pytest.mark.process
def test_what_is_imported_is_declared() -> None:
    """Every third-party package that the source names is a dependency of its own, not another's."""
    extras = PROJECT["project"]["optional-dependencies"].values()
    optional = [Requirement(entry) for extra in extras for entry in extra]
    declared = {canonicalize_name(requirement.name) for requirement in (*needed([]), *optional)}
    assert imported("src") <= declared


def imported(folder: str) -> set[str]:
    """The third-party packages that the modules of a folder name."""
    found = set()
    for path in (ROOT / folder).rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            match node:
                case ast.Import():
                    found |= {alias.name.partition(".")[0] for alias in node.names}
                case ast.ImportFrom():
                    found.add((node.module or "").partition(".")[0])
    foreign = found - sys.stdlib_module_names - {"coeval", "perf"} - OF_THE_USERS_OWN
    return {canonicalize_name(IMPORTED_AS.get(name, name)) for name in foreign}


def test_make_perf_runs_where_what_it_imports_is_installed() -> None:
    """After `make demo` nothing of development is there."""
    rules = re.findall(
        r"^perf: \$\(MADE\)/(\w+)", (ROOT / "Makefile").read_text(encoding="utf-8"), re.MULTILINE
    )
    [lock] = [{"run": "requirements.lock", "dev": "requirements-dev.lock"}[rule] for rule in rules]
    assert imported("perf") <= pins(lock).keys()


@pytest.mark.process
def test_a_source_archive_builds_and_documents_and_measures_nothing(tmp_path: Path) -> None:
    """Tests, measurements and evidence read each other and the repository: they stay in it."""
    build = f"import hatchling.build as b; print(b.build_sdist({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    with tarfile.open(next(tmp_path.glob("coeval-*.tar.gz"))) as archive:
        folders = {name.split("/")[1] for name in archive.getnames() if name.count("/") > 1}
    assert folders == {"src", "examples", "benchmark", "Config", "docs"}


@pytest.mark.process
def test_a_wheel_holds_all_that_the_program_reads(tmp_path: Path) -> None:
    build = f"import hatchling.build as b; print(b.build_wheel({str(tmp_path)!r}))"
    subprocess.run([sys.executable, "-c", build], cwd=ROOT, check=True, capture_output=True)
    [wheel] = tmp_path.glob("coeval-*.whl")
    with ZipFile(wheel) as archive:
        names = set(archive.namelist())
    source = {
        path.relative_to(ROOT / "src").as_posix()
        for path in (ROOT / "src" / "coeval").rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    }
    assert source <= names
    assert {"coeval/py.typed", "coeval/pricing/provider_pricing.yaml"} <= source
    assert any(name.endswith("licenses/LICENSE") for name in names)


def test_the_commands_exist() -> None:
    scripts = {script.name: script for script in entry_points(group="console_scripts")}
    for name in PROJECT["project"]["scripts"]:
        assert callable(scripts[name].load()), name


@pytest.mark.system
def test_a_wheel_runs_the_demo_where_nothing_else_is(tmp_path: Path) -> None:
    """As whoever publishes this makes it, installed as a user does, with what the lock file pins."""
    build = [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", str(tmp_path), str(ROOT)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = tmp_path.glob("coeval-*.whl")
    EnvBuilder(with_pip=True).create(tmp_path / "fresh")
    python = str(tmp_path / "fresh" / "bin" / "python")
    pip = [python, "-m", "pip", "--disable-pip-version-check", "--quiet", "install"]
    locked = subprocess.run(
        [*pip, "--require-hashes", "--requirement", ROOT / "requirements.lock"],
        capture_output=True,
        text=True,
    )
    if locked.returncode != 0:
        pytest.skip(f"pip reaches no index: {locked.stderr.splitlines()[-1:]}")
    subprocess.run([*pip, "--no-index", "--no-deps", wheel], check=True)
    demo = [str(tmp_path / "fresh/bin/coeval"), "run", "--config", str(ROOT / "examples/quickstart.yaml")]
    ended = subprocess.run(demo, cwd=tmp_path, capture_output=True, text=True)
    assert ended.returncode == 0, ended.stderr
    assert "sim-large" in ended.stdout
    assert (tmp_path / "runs" / "quickstart" / "meta.json").exists()


def test_credentials_are_not_committed() -> None:
    ignored = (ROOT / ".gitignore").read_text(encoding="utf-8").splitlines()
    assert {"keys.yaml", "*.keys.yaml", ".coeval/"} <= set(ignored)


def test_continuous_integration_runs_what_developers_run() -> None:
    script = ROOT / ".ci" / "run"
    commands = [line for line in script.read_text(encoding="utf-8").splitlines() if line.startswith("make")]
    assert commands[-3:] == ["make check", "make test", "make test-system"]
    assert script.stat().st_mode & 0o111


def dockerfile() -> list[tuple[str, list[str]]]:
    """Its instructions with their words."""
    lines = (ROOT / "Dockerfile").read_text(encoding="utf-8").splitlines()
    words = [line.split() for line in lines if line.strip() and not line.startswith("#")]
    return [(first, rest) for first, *rest in words]


def test_the_image_is_of_the_lock_file_and_its_user_is_not_root() -> None:
    instructions = dockerfile()
    installed = [" ".join(rest) for first, rest in instructions if first == "RUN" and "install" in rest]
    assert all("--require-hashes --requirement requirements.lock" in line for line in installed[:1])
    assert all("--no-index --no-deps" in line for line in installed[1:])
    assert len(installed) == 2
    assert [rest[0] for first, rest in instructions if first == "FROM"] == ["python:3.13-slim"] * 2
    names = [first for first, _ in instructions]
    assert names.index("USER") > names.index("RUN", names.index("FROM", 1))
    assert not {"ARG", "ADD"} & set(names)
    (user,) = [rest[0] for first, rest in instructions if first == "USER"]
    assert any(first == "RUN" and rest[0] == "useradd" and rest[-1] == user for first, rest in instructions)
    (variables,) = [rest for first, rest in instructions if first == "ENV"]
    assert [name.partition("=")[0] for name in variables] == ["PATH"]


def test_what_goes_to_the_builder_is_what_the_image_needs(tmp_path: Path) -> None:
    """The files that are copied are those that .dockerignore lets through, and CoEval is built from them."""
    copied = [
        name
        for first, rest in dockerfile()
        if first == "COPY" and not rest[0].startswith("--")
        for name in rest[:-1]
    ]
    ignored = (ROOT / ".dockerignore").read_text(encoding="utf-8").splitlines()
    assert "*" in ignored
    assert sorted(line[1:] for line in ignored if line.startswith("!")) == sorted(copied)
    read = {PROJECT["project"]["readme"], *PROJECT["project"].get("license-files", ["LICENSE"])}
    assert read <= set(copied)
    assert all((ROOT / name).exists() for name in copied)


def test_the_workflow_of_the_gate_runs_commands_that_exist() -> None:
    """Their options are looked up by `test_named_commands`."""
    from ruamel.yaml import YAML

    workflow = YAML(typ="safe").load((ROOT / "examples" / "gate_pull_request.yml").read_bytes())
    steps = workflow["jobs"]["gate"]["steps"]
    commands = [step["run"].split()[:2] for step in steps if "run" in step]
    assert commands == [["pip", "install"], ["coeval", "run"], ["coeval", "gate"]]
    assert workflow["permissions"] == {"contents": "read"}


@pytest.mark.process
@pytest.mark.parametrize(("code", "gated"), [(0, True), (3, True), (1, False), (2, False), (130, False)])
def test_the_workflow_gates_a_run_with_gaps_and_no_other_failure(
    tmp_path: Path, code: int, gated: bool
) -> None:
    """Each step is run as GitHub runs it, until one fails; installing is left out."""
    from ruamel.yaml import YAML

    workflow = YAML(typ="safe").load((ROOT / "examples" / "gate_pull_request.yml").read_bytes())
    command = tmp_path / "coeval"
    command.write_text(f'#!/bin/sh\necho "$1" >> called\n[ "$1" != run ] || exit {code}\n')
    command.chmod(0o755)
    environment = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    steps = [step.get("run", "pip") for step in workflow["jobs"]["gate"]["steps"]]
    for words in (words for words in steps if not words.startswith("pip")):
        if subprocess.run(["bash", "-ec", words], cwd=tmp_path, env=environment, check=False).returncode:
            break
    called = (tmp_path / "called").read_text().split()
    assert called == (["run", "gate"] if gated else ["run"])


# An index has no `coeval`: whoever takes the name would be installed with a user's keys at hand.
_FROM_AN_INDEX = re.compile(r"pip3? install\b[^\n`]*?[\s\"']coeval\b(?![/\w-])")


@pytest.mark.process
def test_nothing_says_to_install_coeval_from_an_index() -> None:
    wrong = ("coeval", '"coeval[math]"', "-U 'coeval==1'", "requests coeval")
    right = ("./coeval", "'.[math]' in CoEval's folder", "git+https://example.org/coeval@v1")
    assert all(_FROM_AN_INDEX.search(f"pip install {words}") for words in wrong)
    assert not any(_FROM_AN_INDEX.search(f"pip install {words}") for words in right)
    listing = ["git", "-C", str(ROOT), "ls-files", "-z"]
    files = subprocess.run(listing, capture_output=True, text=True, check=False).stdout.split("\0")
    if not any(files):
        pytest.skip("this is no git checkout")
    kinds = (".py", ".md", ".yaml", ".yml", ".sh", ".ipynb", ".toml")
    for path in (ROOT / name for name in files if name.endswith(kinds)):
        if path != Path(__file__):
            assert not _FROM_AN_INDEX.search(path.read_text(encoding="utf-8", errors="replace")), path


@pytest.mark.parametrize("extra", sorted(PROJECT["project"]["optional-dependencies"]))
def test_a_message_names_the_packages_of_an_extra(extra: str) -> None:
    command = extra_pip_command(extra)
    for requirement in PROJECT["project"]["optional-dependencies"][extra]:
        assert re.split(r"[>=\[]", requirement)[0] in command
    assert "coeval" not in command


@pytest.mark.process
def test_no_tracked_file_is_ignored() -> None:
    if not (ROOT / ".git").exists():
        pytest.skip("this is no git checkout")
    listing = ["git", "-C", str(ROOT), "ls-files", "--cached", "--ignored", "--exclude-standard"]
    assert subprocess.run(listing, check=True, capture_output=True, text=True).stdout == ""
