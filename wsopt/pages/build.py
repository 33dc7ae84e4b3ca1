"""The page of a build of one kernel, or of several that run one after the other."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from wsopt.folder import BuildFolder
from wsopt.pages.content import Beside, kernel_data
from wsopt.pages.html import page, source_lines
from wsopt.partition.build import CutFolder
from wsopt.partition.document import Place, Step
from wsopt.ranges.build import RangeFolder
from wsopt.report.layout import clean

_SECTIONS = (
    ("binds", "what binds"),
    ("time", "time line"),
    ("interval", "operations"),
    ("measured", "measured"),
    ("against", "against"),
    ("budgets", "budgets"),
    ("predicted", "time"),
    ("search", "search"),
    ("whatif", "what if"),
)
"""Sections of a kernel's part of the page by anchor, with the words that lead there."""

_MOST_SOURCES = 6
"""Kernels of a build whose sources are on its page: with those of more it would be larger than a megabyte."""

_NS = 1e3
"""Nanoseconds in a microsecond: what a line of launches counts in."""


def build_page(found: BuildFolder, beside: Beside | None = None) -> str:
    """The page of a build of one kernel: HTML that asks for no other file."""
    return _page(clean(found.graph.name), [found], None, beside)


def cut_page(found: CutFolder) -> str:
    """The page of a build whose kernels run one after the other: the launches on one line, then each kernel."""
    return _page(clean(found.graph.name), list(found.kernels), whole_data(found), None)


def range_page(found: RangeFolder) -> str:
    """The page of a build for ranges of extents: each of its kernels."""
    return _page(clean(found.graph.name), list(found.kernels), None, None)


def _page(
    title: str, kernels: list[BuildFolder], whole: Mapping[str, Any] | None, beside: Beside | None
) -> str:
    data = [kernel_data(one, beside) for one in kernels]
    for one, build in zip(data, kernels, strict=True):
        one["elsewhere"] = _own_page(build.path) if len(kernels) > 1 else ""
        if len(kernels) > 1:
            one["search"]["every"] = None
        if len(kernels) > _MOST_SOURCES:
            one["source"], one["unlinked"] = "", f"Its kernel.py is on its own page: {one['elsewhere']}"
    # The source stands in the page as lines: the data need not have it again.
    sources = [one.pop("source") for one in data]
    # Texts that the template writes are no part of the data either.
    shown = [
        {key: value for key, value in one.items() if key not in ("report", "does", "doc")} for one in data
    ]
    return page(
        "build.html.jinja",
        "build.js",
        {"kernels": shown, "whole": whole},
        title=title,
        kernels=data,
        whole=whole,
        lines=[source_lines(source) for source in sources],
        sections=_sections,
    )


def _own_page(path: Path) -> str:
    """The command that writes the page of one kernel alone."""
    return f"wsopt inspect {clean(str(path))} --html FILE"


def _sections(kernel: Mapping[str, Any]) -> list[tuple[str, str]]:
    """The anchors of the sections that a kernel's part has."""
    return [(anchor, words) for anchor, words in _SECTIONS if kernel.get(anchor, True) is not None]


def whole_data(found: CutFolder) -> dict[str, Any]:
    """The launches of a build on one line, in nanoseconds: each kernel's own time, the gap that its launch is before
    it, and where tensors lie between kernels.
    """
    steps, gaps, now = list[dict[str, Any]](), list[dict[str, Any]](), 0.0
    launch = [one.verified.machine.kernel_launch_us * _NS for one in found.kernels]
    for number, step in enumerate(found.record.steps):
        kernel = found.record.folders.index(step.folder)
        end = now + step.predicted_us * _NS
        begin = min(end, now + launch[kernel])
        gaps.append({"begin": now, "end": begin, "label": f"launch {number}: {begin - now:,.0f} ns"})
        steps.append(_step_data(number, step, kernel, begin, end))
        now = end
    return {
        "steps": steps,
        "gaps": gaps,
        "total": now,
        "us": found.record.predicted_us,
        "places": [_place_data(one) for one in found.record.places],
        "workspace": found.record.workspace_bytes,
    }


def _step_data(number: int, step: Step, kernel: int, begin: float, end: float) -> dict[str, Any]:
    """A launch of a kernel by number, from `begin` to `end` in nanoseconds."""
    outputs = ", ".join(map(clean, step.outputs))
    return {
        "name": f"launch {number}",
        "key": f"{number}: {outputs}",
        "kernel": kernel,
        "words": f"{outputs} by {step.folder}, bound by {step.bound_by}",
        "label": f"{number}: {outputs}",
        "begin": begin,
        "end": end,
        "us": step.predicted_us,
        "roofline_us": step.roofline_us,
        "bound_by": step.bound_by,
        "outputs": outputs,
        "inputs": ", ".join(map(clean, step.inputs)),
    }


def _place_data(place: Place) -> dict[str, Any]:
    """Where a tensor lies between kernels, in bytes, and the first and last launch that need it."""
    return {
        "tensor": clean(place.tensor),
        "offset": place.offset,
        "bytes": place.nbytes,
        "first": place.first,
        "last": place.last,
    }
