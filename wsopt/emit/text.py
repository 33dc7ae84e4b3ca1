"""Pieces of source text that every kernel is written with: instructions through their macros, lines, blocks."""

from __future__ import annotations

import importlib.resources
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path

import jinja2

from wsopt.emit.instructions import Instruction
from wsopt.emit.plan import KernelPlan
from wsopt.emit.tensors import Box
from wsopt.schedule.types import PartitionRole


def _template_folder() -> Path:
    """The templates: in an installed package beside it, in a checkout at the root."""
    package = Path(str(importlib.resources.files("wsopt")))
    shipped = package / "templates"
    return shipped if shipped.is_dir() else package.parent / "templates"


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The templates, in which a name that nobody gives is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(_template_folder()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


def write(instructions: Iterable[Instruction]) -> str:
    """Instructions as lines, each through the macro of its kind."""
    macros = environment().get_template("instructions.jinja").module
    return "\n".join(getattr(macros, one.macro)(**one.facts()) for one in instructions)


def block(text: str, indent: int = 4) -> str:
    """Lines moved to the right."""
    pad = " " * indent
    return "\n".join(pad + line if line else line for line in text.split("\n"))


def split_pieces(plan: KernelPlan, name: str, low: int, high: int) -> list[str]:
    """Lines that cut a tile of pieces [low, high) into halves down to single pieces."""
    if high - low == 1:
        return []
    middle = (low + high) // 2
    layout = "PIECE_LAYOUT" if high - low == 2 else f"LAYOUT_{plan.s.piece_columns * (high - low) // 2}"
    left, right = (piece_name(plan, name, a, b) for a, b in ((low, middle), (middle, high)))
    whole = piece_name(plan, name, low, high)
    return [
        f"{left}, {right} = halves({whole}, {layout})",
        *split_pieces(plan, name, low, middle),
        *split_pieces(plan, name, middle, high),
    ]


def piece_name(plan: KernelPlan, name: str, low: int, high: int) -> str:
    """The name of the pieces [low, high) of a tile of sums."""
    if high - low == plan.s.pieces:
        return name
    return f"{name}_{low}" if high - low == 1 else f"{name}_{low}_to_{high - 1}"


def allocate(name: str, dtype: str, count: str, box: Box) -> str:
    """The allocation of so many boxes."""
    shape = ", ".join([count, *map(str, box.shape)])
    return f"{name} = gl.allocate_shared_memory({dtype}, [{shape}], {box.layout})"


def barrier(name: str, count: str) -> str:
    """The allocation of so many barriers."""
    return f"{name} = gl.allocate_shared_memory(gl.int64, [{count}, 1], mbarrier.MBarrierLayout())"


def partitions(
    plan: KernelPlan, loader: list[str], consumer: list[str], own: set[str], store_warp: Sequence[str] = ()
) -> list[tuple[str, list[str]]]:
    """Each partition with its arguments: a consumer has buffers of its `own`, which its store warp sees too. Both
    have their number for the last parameter.
    """
    parameters = {
        PartitionRole.CONSUMER: consumer,
        PartitionRole.LOADER: loader,
        PartitionRole.STORE_WARP: store_warp,
    }
    found = []
    for partition in plan.verified.schedule.partitions:
        names = list(parameters[partition.role])
        if partition.role is not PartitionRole.LOADER:
            names = [f"{name}_{partition.index}" if name in own else name for name in names[:-1]]
            names.append(str(partition.index))
        found.append((partition.role.value, names))
    return found
