"""What a run of the fuzz test prints: how often each feature was met, and why graphs were refused."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from fuzz_judge import COMPILED, REFUSED, Verdict

_TOP_REASONS = 25


@dataclass(frozen=True, slots=True)
class Case:
    """A graph that was judged."""

    index: int
    features: frozenset[str]
    verdict: Verdict


_NAMES = re.compile(
    r"\b(graph|nodes?|tensor|input|output|matmuls|operand \d+ of the matmul is|here)( \w+(?:, \w+)*)"
)


def kind_of(text: str) -> str:
    """The first line of a message, without the names and numbers of its graph."""
    line = text.splitlines()[0] if text else ""
    return re.sub(r"\b\d[\d.e+-]*", "#", _NAMES.sub(r"\1 _", line))


def feature_table(cases: Iterable[Case]) -> str:
    """A line for each feature: the graphs that have it, and how many of them ended in each way."""
    cases = list(cases)
    graphs, compiled, refused, other = (Counter[str]() for _ in range(4))
    for case in cases:
        kind = {COMPILED: compiled, REFUSED: refused}.get(case.verdict.status, other)
        for counter in (graphs, kind):
            counter.update((*case.features, "(all)"))
    lines = [f"{'feature':32}{'graphs':>8}{'compiled':>10}{'refused':>9}{'findings':>10}"]
    lines += [
        f"{name:32}{graphs[name]:8}{compiled[name]:10}{refused[name]:9}{other[name]:10}"
        for name in sorted(graphs)
    ]
    return "\n".join(lines)


def reasons(cases: Iterable[Case]) -> str:
    """The most frequent reasons of refusals, without names and numbers."""
    counts = Counter(kind_of(case.verdict.text) for case in cases if case.verdict.status == REFUSED)
    return "\n".join(f"{count:5}  {text}" for text, count in counts.most_common(_TOP_REASONS))
