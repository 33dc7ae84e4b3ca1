"""A build as HTML for notebooks: self-contained, without scripts, every text from outside escaped."""

from __future__ import annotations

from collections.abc import Mapping
from html import escape
from typing import Any


def build_html(summary: Mapping[str, Any], report: str, kernel: str) -> str:
    """The figures of a build as a table, its report and its kernel as sections to open."""
    rows = "".join(
        f"<tr><th style='text-align:left'>{escape(head)}</th><td style='text-align:left'>{escape(text)}</td></tr>"
        for head, text in _facts(summary)
    )
    title = f"<b>{escape(str(summary['name']))}</b> on {escape(str(summary['machine']))}"
    sections = _section("report", report) + _section("kernel.py", kernel)
    return f"<div>{title}<table>{rows}</table>{sections}</div>"


def _facts(summary: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The first facts of a build, as heads and texts."""
    kernel, checks = summary["kernels"][0], summary["verified"]["interpreter"]
    roles = ", ".join(
        f"{p['role']} ({p['warps']} warps, {p['registers']} registers)" for p in kernel["partitions"]
    )
    rings = ", ".join(f"{name} of {depth} slots" for name, depth in kernel["rings"].items())
    return [
        ("schedule", f"{summary['status']}, gap {summary['gap']:.1%}"),
        ("predicted", f"{summary['predicted_us']:.1f} us; roofline {summary['roofline_us']:.1f} us"),
        ("initiation interval", f"{kernel['ii_cycles']:,} cycles"),
        ("roles", roles),
        ("rings", rings),
        ("shared memory", f"{kernel['shared_memory_bytes']:,} bytes"),
        ("checked", f"{checks['seeds']} interleavings, error at most {checks['max_relative_error']:.1e}"),
    ]


def _section(title: str, text: str) -> str:
    return f"<details><summary>{escape(title)}</summary><pre>{escape(text)}</pre></details>"
