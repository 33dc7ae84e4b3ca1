"""One build that the tests of the command line share."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from cli_runs import Done, product, write, wsopt


@dataclass(frozen=True)
class Compiled:
    """A folder in which `wsopt compile small.json --json` has run; its cache is warm."""

    folder: Path
    done: Done

    @property
    def build(self) -> Path:
        return self.folder / "small.wsopt"

    @property
    def summary(self) -> dict[str, Any]:
        found: dict[str, Any] = json.loads(self.done.stdout)
        return found


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
