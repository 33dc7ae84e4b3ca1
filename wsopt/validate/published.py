"""Times that others have published of their kernels, and the model's predictions beside them.

`python -m wsopt.validate.published FILE` predicts every entry of a file again and writes that into it. An entry has
the graph that the kernel computes, the card, the figure with its source, and what is known of the kernel's schedule
as conditions (`schedule/spec.py`): the prediction is of the best schedule that meets them. Nothing is measured here.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from wsopt.exit_status import with_exit_status
from wsopt.frontend.region import find_region
from wsopt.graph.parse import parse_graph
from wsopt.graph.types import Graph
from wsopt.machine.load import load_machine
from wsopt.program.conditions import FREE
from wsopt.schedule.spec import parse_conditions
from wsopt.solve.search import Search
from wsopt.validate.files import load_json, write_json

FORMAT = "wsopt.published/1"
NEAR = 0.15
"""Relative difference beyond which an entry says what makes it."""

_UNITS = {"TFLOP/s": 1e-6, "GB/s": 1e-3}
"""Units of rates, with what a microsecond's work is multiplied by."""


@dataclass(frozen=True, slots=True)
class Predicted:
    """A prediction: microseconds, the roofline's, what bounds them, and the schedule's structure in words."""

    microseconds: float
    roofline_us: float
    bound_by: str
    structure: str


@dataclass(frozen=True, slots=True)
class Published:
    """A published figure in its `unit`, a rate or us: of a `kernel`, on the card `machine`, from a `source` (title,
    address, date), held against schedules `under` conditions, all if empty. One that is `fitted` has set a figure of
    the card's file. `difference` says what makes a large one.
    """

    name: str
    kernel: str
    machine: str
    graph: Mapping[str, Any]
    under: str
    figure: float
    unit: str
    fitted: bool
    source: Mapping[str, str]
    difference: str
    predicted: Predicted | None = None

    @property
    def work(self) -> float:
        """Floating-point operations of the products, or bytes of all tensors once: what the unit's rate is of."""
        region = find_region(self.parsed())
        return float(region.flops if self.unit == "TFLOP/s" else region.compulsory_bytes)

    @property
    def microseconds(self) -> float:
        """The published time."""
        return self.figure if self.unit == "us" else self.work * _UNITS[self.unit] / self.figure

    @property
    def ratio(self) -> float:
        """Predicted time over published time; ValueError where nothing was predicted yet."""
        if self.predicted is None:
            raise ValueError(f"{self.name} has no prediction")
        return self.predicted.microseconds / self.microseconds

    def parsed(self) -> Graph:
        """Its graph."""
        return parse_graph(dict(self.graph), self.name)


@dataclass(frozen=True, slots=True)
class Figures:
    """A file of published figures, with the title and the words before its page's table."""

    title: str
    introduction: str
    entries: tuple[Published, ...]


def predict(one: Published) -> Predicted:
    """The best schedule under an entry's conditions, before any compiler is asked."""
    conditions = parse_conditions(one.under, one.name, "/under") if one.under else FREE
    verified, _ = Search(find_region(one.parsed()), load_machine(one.machine), conditions=conditions).run()
    made, structure = verified.schedule.prediction, verified.program.structure
    return Predicted(
        round(made.microseconds, 2), round(made.roofline_us, 2), made.bound_by, structure.describe()
    )


def _entry(data: Mapping[str, Any]) -> Published:
    made = data.get("predicted")
    found = Published(**(dict(data) | {"predicted": None if made is None else Predicted(**made)}))
    if found.unit not in (*_UNITS, "us"):
        raise ValueError(f"{found.name} is in {found.unit}; known are us, {', '.join(_UNITS)}")
    return found


def load_published(path: Path) -> Figures:
    """The figures of a file. InputError if it is none."""
    return load_json(path, FORMAT, _figures)


def _figures(data: Mapping[str, Any]) -> Figures:
    return Figures(str(data["title"]), str(data["introduction"]), tuple(map(_entry, data["entries"])))


def _as_json(one: Published) -> dict[str, Any]:
    fields = {name: getattr(one, name) for name in Published.__dataclass_fields__}
    made = one.predicted
    told = None if made is None else {n: getattr(made, n) for n in Predicted.__dataclass_fields__}
    return fields | {"predicted": told}


def write_published(path: Path, figures: Figures) -> None:
    """Write the figures to a file. InputError if that cannot be."""
    entries = [_as_json(one) for one in figures.entries]
    head = {"format": FORMAT, "title": figures.title, "introduction": figures.introduction}
    write_json(path, head | {"entries": entries})


@with_exit_status
def main(arguments: Sequence[str]) -> int:
    """The command line: 0, or the exit status of what is wrong with an input."""
    parser = argparse.ArgumentParser(prog="python -m wsopt.validate.published", description=__doc__)
    parser.add_argument("file", type=Path)
    chosen = parser.parse_args(arguments)
    figures = load_published(chosen.file)
    entries = tuple(replace(one, predicted=predict(one)) for one in figures.entries)
    write_published(chosen.file, replace(figures, entries=entries))
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
