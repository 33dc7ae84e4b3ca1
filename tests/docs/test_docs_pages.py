"""Links and paths of the pages lead somewhere, every page is found from the README, and terms stand once."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import docs_pages as pages
import pytest

PAGES = pages.pages()
FIELD = {
    "K-block",
    "K-iteration",
    "Role",
    "Channel",
    "Ring",
    "Slot",
    "Wave",
    "Tail wave",
    "Cooperative",
    "Ping-pong",
    "Persistent",
    "Candidates",
    "Validation",
    "Certificate",
    "Structure",
    "Simulation",
    "Prefetched",
    "Stationary operand",
    "Rescale factor",
    "Epilogue subtile",
    "Rasterization order",
    "Initiation interval",
    "Effective II",
    "Unit contention",
    "Store warp",
    "Pipeline ramp",
    "Rejected by ptxas",
}
"""Terms that the code was renamed to, and that a reader meets first."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    for path, heading in pages.links(page):
        target = (page.parent / path).resolve() if path else page
        assert target.exists(), path
        assert not heading or heading in pages.anchors(target), (path, heading)


@pytest.mark.parametrize("page", [p for p in PAGES if p.name != "CHANGELOG.md"], ids=lambda page: page.name)
def test_files_that_are_named_are_there(page: Path) -> None:
    """A path may be the repository's, of the package, of the docs, or of a folder that is compiled to."""
    places = (pages.ROOT, pages.ROOT / "wsopt", pages.ROOT / "docs", page.parent)
    named = pages.files_named(page)
    assert {name for name in named if not any((place / name).exists() for place in places)} == set()


def test_every_page_is_found_from_the_readme() -> None:
    found, left = set[Path](), [pages.ROOT / "README.md"]
    while left:
        page = left.pop()
        if page not in found:
            found.add(page)
            left += [(page.parent / path).resolve() for path, _ in pages.links(page) if path.endswith(".md")]
    assert set(PAGES) <= found


def test_terms_stand_once_with_the_fields_own_words() -> None:
    terms = pages.entries()
    assert [term for term, count in Counter(map(str.lower, terms)).items() if count > 1] == []
    text = (pages.ROOT / "docs" / "glossary.md").read_text(encoding="utf-8")
    other = {term for term in FIELD - set(terms) if f"**{term.lower()}**" not in text}
    assert other == set()


def test_a_link_that_leads_nowhere_is_seen(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text("# One: two\n[a](b.md#c) [d](#one-two)\n```\n[e](f.md)\n```\n", encoding="utf-8")
    assert list(pages.links(page)) == [("b.md", "c"), ("", "one-two")]
    assert pages.anchors(page) == {"one-two"}
