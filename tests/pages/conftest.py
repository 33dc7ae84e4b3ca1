"""Pages of five builds, and the browser that shows them, once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from browser import launched
from page_builds import TRACES, cut_folder, write_build

from wsopt.folder import BuildFolder, read_folder
from wsopt.pages.build import build_page, cut_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser

NAMES = ("gemm_bf16", "gemm_swiglu", "attention_causal", "layer_norm")


@dataclass(frozen=True)
class Pages:
    """The files of the pages by name, and the builds of one kernel that they are of."""

    folder: Path
    builds: dict[str, BuildFolder]

    def __getitem__(self, name: str) -> Path:
        return self.folder / f"{name}.html"


@pytest.fixture(scope="session")
def pages(tmp_path_factory: pytest.TempPathFactory) -> Pages:
    folder, builds = tmp_path_factory.mktemp("pages"), dict[str, BuildFolder]()
    for name in NAMES:
        write_build(folder / name, name)
        if (TRACES / f"{name}.json").exists():
            (folder / name / "trace").mkdir()
            shutil.copy(TRACES / f"{name}.json", folder / name / "trace" / "trace.json")
        builds[name] = read_folder(folder / name)
        (folder / f"{name}.html").write_text(build_page(builds[name]), encoding="utf-8")
    (folder / "cut.html").write_text(cut_page(cut_folder(folder)), encoding="utf-8")
    return Pages(folder, builds)


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    with launched() as found:
        yield found
