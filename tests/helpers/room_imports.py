"""Who imports whom in the package: every import statement, read without running it, wherever it stands."""

from __future__ import annotations

import ast
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from pathlib import Path

import networkx as nx

ROOT = Path(__file__).parents[2]
ARCHITECTURE = ROOT / "docs" / "architecture.md"
HOMES = {
    "distributed": {"pool"},
    "onnx": {"importers"},
    "ortools": {"partition", "solve"},
    "perfetto": {"pages"},
    "torch": {"bench", "calibrate", "importers", "runtime", "torch", "trace", "validate"},
}
"""Rooms that may import a library: the solver's and Perfetto's alone, and torch where kernels are measured or run."""


@dataclass(frozen=True, slots=True, order=True)
class Import:
    """One import: the file that it stands in, its line, and what it names, both as dotted modules."""

    importer: str
    line: int
    imported: str

    def __str__(self) -> str:
        return f"{self.importer}, line {self.line}: imports {self.imported}"


def module_name(file: Path, package: Path) -> str:
    """Dotted name of a file of a package."""
    name = ".".join(file.relative_to(package.parent).with_suffix("").parts)
    return name.removesuffix(".__init__")


def room(module: str) -> str:
    """First name below the package: a room's folder, a file beside the rooms, or a name of the front page."""
    return module.split(".")[1]


def read_imports(package: Path) -> list[Import]:
    """Every import in a package, also inside functions and for types alone; in the order of files and lines.

    The package's front page is left out: it loads its names when they are first used.
    """
    modules = {module_name(file, package): file for file in sorted(package.rglob("*.py"))}
    return [
        Import(name, line, imported)
        for name, file in modules.items()
        if name != package.name
        for line, imported in imports_of(file, modules)
    ]


def imports_of(file: Path, modules: Collection[str] = ()) -> Iterator[tuple[int, str]]:
    """Line and dotted name of every import in a file; `modules` are those that names may be, not attributes."""
    fronts = {name.partition(".")[0] for name in modules}
    for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names)
        elif isinstance(node, ast.ImportFrom):
            assert not node.level, f"line {node.lineno}: imports are absolute in this package"
            for alias in node.names:
                below = f"{node.module}.{alias.name}"
                yield node.lineno, below if below in modules or node.module in fronts else str(node.module)


def circles(imports: list[Import], package: str) -> list[list[str]]:
    """Circles between files, then circles between rooms, each with its members in alphabetical order."""
    inside = [(i.importer, i.imported) for i in imports if i.imported.startswith(f"{package}.")]
    files = nx.DiGraph(inside)
    rooms = nx.DiGraph((room(a), room(b)) for a, b in inside if room(a) != room(b))
    return [
        sorted(found)
        for graph in (files, rooms)
        for found in nx.strongly_connected_components(graph)
        if len(found) > 1
    ]


def documented_order(text: str) -> list[set[str]]:
    """The rooms as docs/architecture.md puts them, from left to right; each set is what stands between two arrows."""
    block = re.search(r"^```\n(.+?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block, "docs/architecture.md has the order of the rooms in its first block"
    return [set(re.findall(r"\w+", tier)) for tier in block[1].split("->")]


def against(imports: list[Import], order: list[set[str]], package: str) -> list[str]:
    """Imports of another room that does not stand to the left of the importer's, or that has no place."""
    place = {name: i for i, tier in enumerate(order) for name in tier}
    last = len(order)
    return [
        str(i)
        for i in imports
        if i.imported.startswith(f"{package}.")
        and room(i.importer) != room(i.imported)
        and place.get(room(i.imported), last) >= place.get(room(i.importer), last)
    ]


def astray(imports: list[Import], homes: dict[str, set[str]]) -> list[str]:
    """Imports of a library outside the rooms that may have it."""
    return [
        str(i)
        for i in imports
        if (library := i.imported.partition(".")[0]) in homes and room(i.importer) not in homes[library]
    ]
