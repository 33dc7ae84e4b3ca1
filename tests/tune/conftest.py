"""A small graph whose candidates the tests of tuning share: they are found once, and kept in a cache."""

from __future__ import annotations

from pathlib import Path

import pytest

from wsopt.graph.builder import GraphBuilder
from wsopt.graph.types import Graph


@pytest.fixture(scope="session")
def small() -> Graph:
    g = GraphBuilder("small")
    p = g.matmul(g.input("x", (128, 128), "bf16"), g.input("w", (128, 128), "bf16"), transpose_b=True)
    g.output(g.cast(p, dtype="bf16", name="y"))
    return g.build()


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture
def cache(shared_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache folder with no measurements, whose finished builds are shared."""
    folder = tmp_path / "cache"
    folder.mkdir()
    (shared_cache / "builds").mkdir(exist_ok=True)
    (folder / "builds").symlink_to(shared_cache / "builds")
    monkeypatch.setenv("WSOPT_CACHE_DIR", str(folder))
    return folder
