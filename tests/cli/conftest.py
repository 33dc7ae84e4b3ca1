"""One build that the tests of the command line share."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from cli_runs import Compiled, product, write, wsopt


@pytest.fixture(scope="session")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Compiled:
    folder = tmp_path_factory.mktemp("compiled")
    write(folder, product(), "small.json")
    return Compiled(folder, wsopt(folder, "compile", "small.json", "--json"))


@pytest.fixture
def warm(compiled: Compiled, tmp_path: Path) -> Path:
    """A folder of the test's own with small.json, its build and its warm cache."""
    shutil.copytree(compiled.folder, tmp_path / "warm")
    return tmp_path / "warm"
