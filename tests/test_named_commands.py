"""Whatever a message, a page, an example or a help text tells somebody to type can be typed."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import typer

from coeval.cli.eval_framework.command import make_app as eval_framework
from coeval.cli.main import build_app

ROOT = Path(__file__).resolve().parents[1]
PAGES = ("README.md", "Makefile", "docs/**/*.md", "examples/*", "benchmark/*", "Config/*")

CALL = re.compile(
    r"(?<![\w./-])coeval ((?:(?:datasets|judges|sweep) )?[a-z][a-z-]*)((?:(?! coeval )[^`\n;)])*)"
)
FLAG = re.compile(r"(?<![\w-])--[a-z][a-z0-9-]*")
PROSE = {"import", "puts"}
"""Words that follow the package's name and are no command."""
OTHERS = {
    "--chdir": "bwrap",
    "--check": "python -m coeval.pipeline.config.json_schema",
    "--dest": "pip download",
    "--dev": "bwrap",
    "--die-with-parent": "bwrap",
    "--disable-dev-shm-usage": "chromium",
    "--disable-extensions": "chromium",
    "--disable-gpu": "chromium",
    "--enable-lora": "vllm serve",
    "--enable-sleep-mode": "vllm serve",
    "--gpu-memory-utilization": "vllm serve",
    "--lora-target-modules": "sglang.launch_server",
    "--max-lora-rank": "vllm serve",
    "--model-path": "sglang.launch_server",
    "--new-session": "bwrap",
    "--no-deps": "pip download",
    "--no-input": "pip download",
    "--only-binary": "pip download",
    "--private": "hf upload",
    "--proc": "bwrap",
    "--progress-bar": "pip download",
    "--query-gpu": "nvidia-smi",
    "--remount-ro": "bwrap",
    "--repeat": "promptfoo eval",
    "--repo-type": "hf upload",
    "--ro-bind": "bwrap",
    "--ro-bind-try": "bwrap",
    "--served-model-name": "vllm serve",
    "--size": "bwrap",
    "--tensor-parallel-size": "vllm serve",
    "--tmpfs": "bwrap",
    "--unshare-all": "bwrap",
}
"""Options of other programs, and whose they are."""


class Reported(NamedTuple):
    """A text that somebody may follow, and where it stands."""

    where: str
    text: str


def strings(tree: ast.AST) -> Iterator[ast.Constant | ast.JoinedStr]:
    """The outermost string literals; the pieces of one that is put together stay together."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.JoinedStr) or (
            isinstance(node, ast.Constant) and isinstance(node.value, str)
        ):
            yield node
        else:
            yield from strings(node)


def written(node: ast.Constant | ast.JoinedStr) -> str:
    """A literal's text, with a word in place of each value."""
    if isinstance(node, ast.Constant):
        return str(node.value)
    return "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)


def reported() -> list[Reported]:
    messages = [
        Reported(f"{path.relative_to(ROOT)}:{node.lineno}", written(node))
        for path in sorted((ROOT / "src").rglob("*.py"))
        for node in strings(ast.parse(path.read_text(encoding="utf-8")))
    ]
    pages = [path for pattern in PAGES for path in sorted(ROOT.glob(pattern)) if path.is_file()]
    return messages + [
        Reported(str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")) for path in pages
    ]


def options(command: Any) -> set[str]:
    flags = (flag for each in command.params for flag in (*each.opts, *each.secondary_opts))
    return {"--help", *flags}


def commands(group: Any, path: str = "") -> dict[str, Any]:
    """Every command by its words, groups included."""
    found = {}
    for name, command in getattr(group, "commands", {}).items():
        found[f"{path}{name}"] = command
        found |= commands(command, f"{path}{name} ")
    return found


COEVAL: Any = typer.main.get_command(build_app())
COMMANDS = commands(COEVAL)
EVALUATE: Any = typer.main.get_command(eval_framework())
KNOWN_OPTIONS = options(EVALUATE) | options(COEVAL).union(*map(options, COMMANDS.values()))


def wrong_calls(texts: list[Reported]) -> list[str]:
    wrong = []
    for where, text in texts:
        for call in CALL.finditer(text):
            name = call[1]
            if name not in COMMANDS:
                if name.split()[0] not in PROSE:
                    wrong.append(f"{where}: there is no command coeval {name}")
                continue
            allowed = options(COMMANDS[name])
            shown = call[2].partition(" #")[0]
            wrong += [
                f"{where}: coeval {name} takes no {flag}"
                for flag in FLAG.findall(shown)
                if flag not in allowed
            ]
    return wrong


def docstrings() -> set[str]:
    """Those of the package: they speak of commands, and recommend none."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    return {
        node.body[0].value.value
        for path in (ROOT / "src").rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, kinds) and ast.get_docstring(node, clean=False) is not None
        if isinstance(node.body[0], ast.Expr) and isinstance(node.body[0].value, ast.Constant)
        if isinstance(node.body[0].value.value, str)
    }


def incomplete_calls(texts: list[Reported]) -> list[str]:
    """Calls with an option that lack what their command cannot do without: the folder or file that it is
    about."""
    incomplete = []
    for where, text in texts:
        for call in CALL.finditer(text):
            command = COMMANDS.get(call[1])
            if command is None or not FLAG.search(call[2]):
                continue
            words = [word.strip(".,:;'\"()`…") for word in call[2].split()]
            named = set(FLAG.findall(call[2]))
            places = [word for word in words if word.isupper() or "/" in word]
            about = [each for each in command.params if each.name == "word" or each.required]
            for parameter in about:
                options_too = {"--run"} if parameter.name == "word" else set(parameter.opts)
                is_word = parameter.param_type_name == "argument"
                if not (named & options_too or (is_word and places)):
                    incomplete.append(f"{where}: coeval {call[1]}{call[2].rstrip()} lacks {min(options_too)}")
    return incomplete


def unknown_options(texts: list[Reported]) -> list[str]:
    return [
        f"{where}: {flag} is no option of coeval or eval-framework"
        for where, text in texts
        for flag in FLAG.findall(text)
        if flag not in KNOWN_OPTIONS and flag not in OTHERS
    ]


@pytest.mark.process
def test_every_command_that_is_named_exists_and_takes_what_it_is_given() -> None:
    texts = reported()
    assert len(texts) > 1000
    assert wrong_calls(texts) == []


@pytest.mark.process
def test_every_recommended_command_has_what_it_cannot_do_without() -> None:
    without = docstrings()
    messages = [each for each in reported() if each.where.startswith("src/") and each.text not in without]
    assert len(messages) > 1000
    assert incomplete_calls(messages) == []
    assert incomplete_calls([Reported("a", "`coeval status --fetch-batches` collects them")]) == [
        "a: coeval status --fetch-batches lacks --run"
    ]


@pytest.mark.process
def test_every_option_that_a_message_names_exists() -> None:
    assert unknown_options([each for each in reported() if each.where.startswith("src/")]) == []


def test_what_does_not_exist_is_found() -> None:
    planted = [
        Reported("a", "see `coeval wizzard --config x`; coeval run --confg FILE, coeval datasets frob x")
    ]
    assert wrong_calls(planted) == [
        "a: there is no command coeval wizzard",
        "a: coeval run takes no --confg",
        "a: there is no command coeval datasets frob",
    ]
    assert unknown_options([Reported("a", "with --confg or --continue")]) == [
        "a: --confg is no option of coeval or eval-framework"
    ]
