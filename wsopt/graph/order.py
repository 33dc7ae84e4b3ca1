"""Topological order of the nodes, steady with respect to the file, and the cycles that forbid one."""

from __future__ import annotations

import heapq
from collections.abc import Iterator, Sequence

Edges = Sequence[Sequence[int]]
"""For each node the nodes that it reads."""


def topological_order(reads: Edges) -> list[int]:
    """Every node after those it reads; of the nodes that are ready, the first in the file comes first.

    Nodes on a cycle, and those that rest on one, are left out.
    """
    waiting = [len(set(sources)) for sources in reads]
    readers: list[list[int]] = [[] for _ in reads]
    for node, sources in enumerate(reads):
        for source in set(sources):
            readers[source].append(node)
    ready = [node for node, count in enumerate(waiting) if count == 0]
    order = []
    while ready:
        order.append(heapq.heappop(ready))
        for reader in readers[order[-1]]:
            waiting[reader] -= 1
            if waiting[reader] == 0:
                heapq.heappush(ready, reader)
    return order


def cycles(reads: Edges) -> Iterator[list[int]]:
    """A cycle for every back edge of a depth-first search, in the direction of the data.

    In `[u, ..., v]` each node is read by the next, and v by u.
    """
    done: set[int] = set()
    for root in range(len(reads)):
        yield from _cycles_from(root, reads, done)


def _cycles_from(root: int, reads: Edges, done: set[int]) -> Iterator[list[int]]:
    # An explicit stack: a chain of nodes may be far longer than Python's.
    if root in done:
        return
    path, place = [root], {root: 0}
    stack = [iter(reads[root])]
    while stack:
        source = next(stack[-1], None)
        if source is None:
            stack.pop()
            node = path.pop()
            del place[node]
            done.add(node)
        elif source in place:
            yield path[place[source] :][::-1]
        elif source not in done:
            place[source] = len(path)
            path.append(source)
            stack.append(iter(reads[source]))
