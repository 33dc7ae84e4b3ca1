"""Pieces of source text that every kernel is written with: templates, blocks, places in slots."""

from __future__ import annotations

import importlib.resources
import textwrap
from functools import lru_cache
from pathlib import Path

import jinja2


def template_folder() -> Path:
    """The templates: in an installed package beside it, in a checkout at the root."""
    package = Path(str(importlib.resources.files("wsopt")))
    shipped = package / "templates"
    return shipped if shipped.is_dir() else package.parent / "templates"


@lru_cache(maxsize=1)
def environment() -> jinja2.Environment:
    """The templates, in which a name that nobody gives is an error."""
    return jinja2.Environment(
        loader=jinja2.FileSystemLoader(template_folder()),
        undefined=jinja2.StrictUndefined,
        keep_trailing_newline=True,
        autoescape=False,
    )


def block(text: str) -> str:
    """Lines moved to the right."""
    return textwrap.indent(text, "    ")


def of_slot(slot: str, per_slot: int, box: str) -> str:
    """Index of a box of a ring's tensor, where a slot has several."""
    if per_slot == 1:
        return slot
    whole = slot if slot.isidentifier() else f"({slot})"
    return f"{whole} * {per_slot}" + ("" if box == "0" else f" + {box}")
