"""What makes a site of the pages: README.md is the first one, links that lead out of ``docs`` become paths.

mkdocs calls these functions (``hooks`` in ``mkdocs.yml``).
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

from mkdocs.config.defaults import MkDocsConfig
from mkdocs.structure.files import File, Files

ROOT = Path(__file__).resolve().parents[2]
_LINK = re.compile(r"\[(?P<text>[^\]]+)\]\((?P<target>[^)\s]+)\)")


def on_files(files: Files, config: MkDocsConfig) -> Files:
    """Add the first page."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    files.append(File.generated(config, "index.md", content=text.replace("](docs/", "](")))
    return files


def on_page_markdown(markdown: str, page: Any, files: Files, **_: Any) -> str:
    """Of files that are no pages, say where in the project they lie. A search finds how-to pages first."""
    folder = Path(page.file.src_uri).parent
    if folder.name in ("decisions", "evidence") or page.file.name == "datasets":
        page.meta["search"] = {"boost": 0.3}

    def link(found: re.Match[str]) -> str:
        target = found["target"].partition("#")[0]
        if not target or "://" in target or files.get_file_from_path(_within(folder, target)):
            return found[0]
        path = target.removeprefix("../")
        return found["text"] if path in found["text"] else f"{found['text']} (`{path}`)"

    return _LINK.sub(link, markdown)


def _within(folder: Path, target: str) -> str:
    """A link's path below ``docs``."""
    parts: list[str] = []
    for part in (folder / target).parts:
        if part == ".." and parts:
            parts.pop()
        else:
            parts.append(part)
    return "/".join(parts)
