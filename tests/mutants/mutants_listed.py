"""The committed list of statements that may be deleted, and whether a run's outcomes agree with it."""

from __future__ import annotations

import tomllib
from collections.abc import Collection, Iterable
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from mutants_run import Outcome

from wsopt.interpret import Place

LIST = Path(__file__).with_name("superfluous.toml")
ENDS_NOTHING = "ends nothing"
"""The rule of waits that end no product and no store, wherever they stand: the simulation counts what they end."""


@dataclass(frozen=True, slots=True)
class Entry:
    """A statement of some kernels that another ordering makes superfluous, and which; `rule` is checked, if any."""

    place: Place
    kernels: tuple[str, ...]
    why: str
    rule: str


Listed = dict[tuple[str, Place], Entry]


def triton_release() -> str:
    """The release that kernels are compiled with here, as 3.6; empty where Triton is not installed."""
    try:
        return ".".join(version("triton").split(".")[:2])
    except PackageNotFoundError:
        return ""


def read_list(path: Path = LIST, release: str | None = None) -> Listed:
    """The list by kernel and place; ValueError for a statement that is listed twice or without a reason.

    An entry with `releases` is for those of Triton alone: what its compiler makes of a kernel may rule out the
    schedule, and another one is taken.
    """
    found: Listed = {}
    release = triton_release() if release is None else release
    for item in tomllib.loads(path.read_text(encoding="utf-8"))["superfluous"]:
        if release not in item.get("releases", [release]):
            continue
        place = Place(item["function"], item["statement"], item["occurrence"])
        entry = Entry(place, tuple(item["kernels"]), item["why"], item.get("rule", ""))
        if not entry.why or entry.rule not in ("", ENDS_NOTHING):
            raise ValueError(f"{path.name}: {place} has no reason, or an unknown rule {entry.rule!r}")
        for kernel in entry.kernels:
            if (kernel, place) in found:
                raise ValueError(f"{path.name}: {kernel}, {place} is listed twice")
            found[kernel, place] = entry
    return found


def places(listed: Listed, kernel: str) -> frozenset[Place]:
    """The places of a kernel that are listed."""
    return frozenset(place for name, place in listed if name == kernel)


def complaints(outcomes: Iterable[Outcome], listed: Listed, whole: Collection[str]) -> list[str]:
    """What does not agree with the list: mutants that nothing shows, entries that are not needed or not true.

    `whole` names the kernels of which all mutants were run, so that each of their entries has to be among them.
    """
    found: list[str] = []
    met: set[tuple[str, Place]] = set()
    for outcome in outcomes:
        key = (outcome.kernel, outcome.place)
        met.add(key)
        entry = listed.get(key)
        where = f"{outcome.kernel}, {outcome.place}"
        if entry is None and not outcome.fault:
            found.append(f"{where}: no run shows that it is missing, and no entry says why none needs it")
        elif entry is not None and outcome.fault:
            found.append(f"{where}: listed, but needed: {outcome.fault}")
        elif entry is not None and entry.rule == ENDS_NOTHING and not outcome.idle:
            found.append(f"{where}: listed as a wait that ends nothing, but it ends something")
    gone = sorted(key for key in listed if key[0] in whole and key not in met)
    return [*found, *(f"{kernel}, {place}: listed, but there is no such statement" for kernel, place in gone)]
