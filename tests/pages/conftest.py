"""Pages of five builds, and the browser that shows them, once for all tests."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from typing import TYPE_CHECKING

import pytest
from page_browser import launched
from page_builds import NAMES, TRACES, Pages, cut_folder, write_build

from wsopt.folder import BuildFolder, read_folder
from wsopt.pages.build import build_page, cut_page

if TYPE_CHECKING:
    from playwright.sync_api import Browser


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
