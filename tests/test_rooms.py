"""Imports go one way: no circle, none against the order of docs/architecture.md, libraries in their rooms alone."""

from __future__ import annotations

from pathlib import Path

import pytest
from room_imports import (
    ARCHITECTURE,
    HOMES,
    ROOT,
    Import,
    against,
    astray,
    circles,
    documented_order,
    read_imports,
    room,
)

ORDER = documented_order(ARCHITECTURE.read_text(encoding="utf-8"))
VERSION = {"__version__"}
"""What rooms may take from the package's front page; its other names are for users and come from all rooms."""
HOUSE = {
    "__init__.py": "from house.right import c\n",
    "alone.py": "",
    "left/__init__.py": "",
    "left/a.py": "from house import __version__\n",
    "left/b.py": "from house.left.a import x\n",
    "right/__init__.py": "",
    "right/c.py": "import torch\nfrom house import alone\nfrom house.left import b\n",
}
"""A package without a fault, whose order is: alone, left -> right."""


@pytest.fixture(scope="module")
def imports() -> list[Import]:
    return read_imports(ROOT / "wsopt")


def test_every_room_and_file_has_one_place_in_the_documented_order() -> None:
    folders = [path.parent for path in (ROOT / "wsopt").glob("*/__init__.py")]
    files = [path for path in (ROOT / "wsopt").glob("*.py") if path.stem != "__init__"]
    assert sorted(name for tier in ORDER for name in tier) == sorted(path.stem for path in (*folders, *files))


def test_no_circle(imports: list[Import]) -> None:
    assert circles(imports, "wsopt") == []


def test_rooms_know_rooms_to_their_left_alone(imports: list[Import]) -> None:
    assert against(imports, [VERSION, *ORDER], "wsopt") == []


def test_regions_are_looked_into_by_the_front_end_and_the_lowering_alone(imports: list[Import]) -> None:
    rooms = {room(one.importer) for one in imports if one.imported.startswith("wsopt.frontend.types")}
    assert rooms == {"frontend", "lowering"}


def test_libraries_are_imported_in_their_rooms_alone(imports: list[Import]) -> None:
    assert astray(imports, HOMES) == []
    used = {(i.imported.partition(".")[0], room(i.importer)) for i in imports}
    assert {(library, home) for library, homes in HOMES.items() for home in homes} <= used


def _faults(folder: Path, files: dict[str, str]) -> tuple[list[list[str]], list[str], list[str]]:
    for name, text in files.items():
        (folder / "house" / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / "house" / name).write_text(text, encoding="utf-8")
    found = read_imports(folder / "house")
    order = documented_order("Text.\n\n```\nalone, left ->\nright\n```\n")
    return (
        circles(found, "house"),
        against(found, [VERSION, *order], "house"),
        astray(found, {"torch": {"right"}}),
    )


def test_a_package_without_a_fault_passes(tmp_path: Path) -> None:
    assert _faults(tmp_path, HOUSE) == ([], [], [])


@pytest.mark.parametrize(
    ("file", "text", "circle"),
    [
        ("left/a.py", "def f():\n    from house.left import b\n", ["house.left.a", "house.left.b"]),
        ("left/a.py", "if TYPE_CHECKING:\n    import house.left.b\n", ["house.left.a", "house.left.b"]),
        ("left/a.py", "from house.right import c\n", ["house.left.a", "house.left.b", "house.right.c"]),
        ("left/a.py", "from house.right import d\n", ["left", "right"]),
    ],
)
def test_a_circle_is_found(tmp_path: Path, file: str, text: str, circle: list[str]) -> None:
    assert circle in _faults(tmp_path, HOUSE | {"right/d.py": "", file: text})[0]


@pytest.mark.parametrize(
    ("file", "text", "imported"),
    [
        ("alone.py", "import house.right.c\n", "house.right.c"),
        ("alone.py", "from house.left import a\n", "house.left.a"),
        ("left/a.py", "from house import compile\n", "house.compile"),
        ("left/b.py", "from house import attic\n", "house.attic"),
    ],
)
def test_an_import_against_the_order_is_found(tmp_path: Path, file: str, text: str, imported: str) -> None:
    (found,) = _faults(tmp_path, HOUSE | {file: text})[1]
    importer = f"house.{file.removesuffix('.py').replace('/', '.')}"
    assert found == f"{importer}, line 1: imports {imported}"


@pytest.mark.parametrize("text", ["import torch.nn\n", "def f():\n    from torch import nn\n"])
def test_a_library_out_of_its_room_is_found(tmp_path: Path, text: str) -> None:
    (found,) = _faults(tmp_path, HOUSE | {"left/a.py": text})[2]
    assert found.startswith("house.left.a, line ")
