"""Pieces of source text that every kernel is written with: templates, blocks, subtiles' names."""

from __future__ import annotations

import importlib.resources
import textwrap
from functools import lru_cache
from pathlib import Path

import jinja2

from wsopt.emit.plan import KernelPlan


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


def block(text: str) -> str:
    """Lines moved to the right."""
    return textwrap.indent(text, "    ")


def split_subtiles(plan: KernelPlan, name: str, low: int, high: int) -> list[str]:
    """Lines that cut a tile of subtiles [low, high) into halves down to single subtiles."""
    if high - low == 1:
        return []
    middle = (low + high) // 2
    layout = "SUBTILE_LAYOUT" if high - low == 2 else f"LAYOUT_{plan.s.subtile_columns * (high - low) // 2}"
    left, right = (subtile_name(plan, name, a, b) for a, b in ((low, middle), (middle, high)))
    whole = subtile_name(plan, name, low, high)
    return [
        f"{left}, {right} = halves({whole}, {layout})",
        *split_subtiles(plan, name, low, middle),
        *split_subtiles(plan, name, middle, high),
    ]


def subtile_name(plan: KernelPlan, name: str, low: int, high: int) -> str:
    """The name of the subtiles [low, high) of a tile of sums."""
    if high - low == plan.s.subtiles:
        return name
    return f"{name}_{low}" if high - low == 1 else f"{name}_{low}_to_{high - 1}"


def of_slot(slot: str, per_slot: int, box: str) -> str:
    """Index of a box of a ring's tensor, where a slot has several."""
    if per_slot == 1:
        return slot
    return f"({slot}) * {per_slot}" + ("" if box == "0" else f" + {box}")
