"""The documentation is a site that fetches nothing; what people expect beside it is there, and is so."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from reports.browser import chromium
from ruamel.yaml import YAML

import coeval

ROOT = Path(__file__).resolve().parents[1]


def read_yaml(name: str) -> Any:
    return YAML(typ="safe").load(ROOT / name)


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the built site."""
    folder = tmp_path_factory.mktemp("built") / "site"
    build = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    ended = subprocess.run(
        build, cwd=ROOT, env=os.environ | {"NO_MKDOCS_2_WARNING": "1"}, capture_output=True, text=True
    )
    assert ended.returncode == 0, ended.stderr
    return folder


@pytest.mark.system
@pytest.mark.parametrize("page", ["index.html", "evidence/gate.html"])
def test_search_works_from_disk(site: Path, page: str) -> None:
    with chromium() as browser:
        opened = browser.new_page()
        requested: list[str] = []
        opened.on("request", lambda request: requested.append(request.url))
        opened.goto((site / page).as_uri())
        opened.click("input.md-search__input")
        opened.keyboard.type("release gate", delay=20)
        hit = opened.locator('.md-search-result__link[href*="/gate.html"]').first
        hit.wait_for()
    assert all(url.startswith("file://") for url in requested)


@pytest.mark.system
def test_the_site_is_whole_and_fetches_nothing(site: Path) -> None:
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    written = {path.relative_to(ROOT / "docs").with_suffix(".html").as_posix() for path in _written()}
    assert written | {"index.html"} <= pages
    loads = re.compile(
        r'<(?:script|img|iframe|source)[^>]*\ssrc="(?:https?:)?//|<link[^>]*rel="stylesheet"[^>]*//'
    )
    for page in site.rglob("*.html"):
        text = page.read_text(encoding="utf-8")
        assert not loads.search(text), page
        assert "](" not in re.sub(r"<(pre|code)\b.*?</\1>", "", text, flags=re.DOTALL), f"{page}: a raw link"
    assert "continue_run" in (site / "api.html").read_text(encoding="utf-8")


def _written() -> list[Path]:
    return list((ROOT / "docs").rglob("*.md"))


def test_every_page_has_its_place_in_the_site() -> None:
    placed = set(re.findall(r": (\S+\.md)$", (ROOT / "mkdocs.yml").read_text(encoding="utf-8"), re.MULTILINE))
    assert placed == {path.relative_to(ROOT / "docs").as_posix() for path in _written()} | {"index.md"}


def test_links_between_pages_lead_somewhere() -> None:
    for page in [*ROOT.glob("*.md"), *_written()]:
        for target in re.findall(r"\]\(([^)\s]+)\)", page.read_text(encoding="utf-8")):
            path, _, anchor = target.partition("#")
            if "://" in path:
                continue
            found = (page.parent / path).resolve() if path else page
            assert found.exists(), f"{page.name}: {target}"
            if anchor and found.suffix == ".md":
                assert anchor in _anchors(found), f"{page.name}: {target}"


def _anchors(page: Path) -> set[str]:
    """The addresses of a page's headings, as GitHub and mkdocs make them."""
    headings = re.findall(r"^#+ (.+)$", page.read_text(encoding="utf-8"), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def test_the_citation_is_of_this_version() -> None:
    citation = read_yaml("CITATION.cff")
    assert citation["version"] == coeval.__version__
    assert citation["license"] == "Apache-2.0"


def test_the_workflow_runs_what_anybody_can_run_on_each_python() -> None:
    job = read_yaml(".github/workflows/ci.yml")["jobs"]["all"]
    assert job["steps"][-1] == {"run": "bash .ci/run"}
    classifiers = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text(encoding="utf-8"))
    assert job["strategy"]["matrix"]["python"] == classifiers
    [hook] = read_yaml(".pre-commit-config.yaml")["repos"][0]["hooks"]
    assert hook["entry"] == "make check"
