"""The repository's Markdown pages: their links, their headings, the glossary's entries."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path

ROOT = Path(__file__).parents[2]

_CODE = re.compile(r"^```.*?^```$", re.MULTILINE | re.DOTALL)
_LINK = re.compile(r"!?\[[^\]]*\]\(([^)\s]+)\)")
_ENTRY = re.compile(r"^\*\*(.+?)\.\*\*", re.MULTILINE)


def pages() -> list[Path]:
    """Every page that a reader is meant to find."""
    return [ROOT / "README.md", ROOT / "CHANGELOG.md", *sorted((ROOT / "docs").glob("*.md"))]


def prose(page: Path) -> str:
    """A page without its blocks of code."""
    return _CODE.sub("", page.read_text(encoding="utf-8"))


def links(page: Path) -> Iterator[tuple[str, str]]:
    """A page's links within the repository: a path as the page has it, and a heading or nothing."""
    for target in _LINK.findall(prose(page)):
        if "://" not in target:
            path, _, heading = target.partition("#")
            yield path, heading


def anchors(page: Path) -> set[str]:
    """What a page's headings are called in links, as GitHub calls them."""
    headings = re.findall(r"^#+ (.+)$", prose(page), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).strip().replace(" ", "-") for heading in headings}


def files_named(page: Path) -> set[str]:
    """Paths in backquotes that look like files or folders of the repository."""
    return set(re.findall(r"`((?:[\w.-]+/)+[\w.-]*)`", prose(page)))


def entries() -> list[str]:
    """The terms of the glossary, in its order."""
    return _ENTRY.findall((ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"))
