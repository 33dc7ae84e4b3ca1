"""What `make test-fast` chooses by marks: some test of every room. And a mark must be described before it is used."""

from __future__ import annotations

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest
from room_imports import ROOT, imports_of, room

TESTS = ROOT / "tests"
CHOSEN = re.compile(r'^test-fast:.*\n.* -m "not \((.+)\)"$', re.MULTILINE)
"""The marks in the Makefile's expression."""


def collected(*arguments: str, where: Path = ROOT) -> subprocess.CompletedProcess[str]:
    """What pytest lists under the project's configuration, a line a file: its path and how many tests."""
    options = ["--collect-only", "-q", "-p", "no:cacheprovider", "-c", str(ROOT / "pyproject.toml")]
    return subprocess.run(
        [sys.executable, "-m", "pytest", *options, *arguments],
        capture_output=True, text=True, check=False, cwd=where,
    )  # fmt: skip


def left_out() -> set[str]:
    """The marks of tests that `make test-fast` leaves out: any of them does."""
    expression = CHOSEN.search((ROOT / "Makefile").read_text(encoding="utf-8"))
    assert expression, "the Makefile's test-fast leaves tests out by their marks"
    return set(expression[1].split(" or "))


def rooms_of(files: Iterable[Path]) -> set[str]:
    """Folders of tests that files lie in."""
    return {file.parent.name for file in files if file.parent != TESTS}


def is_whole(session: pytest.Session) -> bool:
    """Whether a run has collected tests of every room, and no choice among them has left some out."""
    chosen = session.config.option.markexpr or session.config.option.keyword
    rooms = rooms_of({item.path for item in session.items})
    return not chosen and rooms == rooms_of(TESTS.rglob("test_*.py"))


@pytest.fixture(scope="module")
def fast(request: pytest.FixtureRequest) -> set[Path]:
    """The files that `make test-fast` runs a test of. A run of all tests need not collect them again."""
    if is_whole(request.session):
        marks = [(item.path, {mark.name for mark in item.iter_markers()}) for item in request.session.items]
        return {path for path, own in marks if not own & left_out()}
    done = collected("-m", f"not ({' or '.join(left_out())})", "--rootdir", str(ROOT), str(TESTS))
    assert done.returncode == 0, done.stdout + done.stderr
    return {ROOT / found for found in re.findall(r"^(tests/.+\.py): [1-9]\d*$", done.stdout, re.MULTILINE)}


@pytest.mark.slow
def test_fast_tests_are_of_every_room(fast: set[Path]) -> None:
    assert rooms_of(fast) == rooms_of(TESTS.rglob("test_*.py"))
    names = [name for file in fast for _, name in imports_of(file)]
    imported = {room(name) for name in names if name.startswith("wsopt.")}
    assert {path.parent.name for path in (ROOT / "wsopt").glob("*/__init__.py")} <= imported


@pytest.mark.parametrize(("mark", "status"), [("slow", 0), ("sloow", 2)])
def test_a_mark_that_is_not_described_stops_the_tests(tmp_path: Path, mark: str, status: int) -> None:
    text = f"import pytest\n\n@pytest.mark.{mark}\ndef test_nothing() -> None:\n    pass\n"
    (tmp_path / "test_marked.py").write_text(text, encoding="utf-8")
    done = collected("--rootdir", str(tmp_path), str(tmp_path), where=tmp_path)
    assert done.returncode == status, done.stdout
    assert ("'sloow' not found in `markers`" in done.stdout) == (status == 2)
