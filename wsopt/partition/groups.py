"""Nodes of a graph that no good cut separates: parts of it grow by whole groups of them."""

from __future__ import annotations

import itertools
import math
from collections.abc import Iterable, Iterator, Sequence

from wsopt.frontend.kinds import is_pointwise, reduces_rows
from wsopt.partition.accept import Oracle
from wsopt.partition.pieces import pieces_of
from wsopt.partition.web import Web, bits, members, union


def groups(web: Web, oracle: Oracle) -> tuple[int, ...]:
    """Nodes that no good cut separates, together; the others alone.

    A node is together with the one whose result it reads if a cut before it moves no fewer bytes than one behind it,
    unless the front end takes that one and not both. Nodes that reduce the same result, or the same inputs, are
    together if the front end takes them so.
    """
    of = [1 << number for number in range(len(web.solid))]
    for number in range(len(web.solid)):
        source = _belongs_to(web, number, of)
        together = 0 if source is None else of[source] | of[number]
        if source is None or (_refused(web, oracle, together) and not _refused(web, oracle, of[source])):
            continue
        for member in members(together):
            of[member] = together
    for together in itertools.chain(_siblings(web), _of_inputs(web, of)):
        joined = 0
        for member in members(together):
            joined |= of[member]
        if joined not in of and not _refused(web, oracle, joined):
            for member in members(joined):
                of[member] = joined
    _bring_elements_together(web, oracle, of)
    return tuple(dict.fromkeys(of))


def _bring_elements_together(web: Web, oracle: Oracle, of: list[int]) -> None:
    """Bring each group of elements together with all that is computed for it alone, as often as there is any."""
    refused, left = set[int](), True
    while left:
        left = False
        for group in dict.fromkeys(of):
            joined = _with_sources(web, group, of)
            if joined == group or joined in refused:
                continue
            if _refused(web, oracle, joined):
                refused.add(joined)
                continue
            for member in members(joined):
                of[member] = joined
            left = True


def _with_sources(web: Web, group: int, of: Sequence[int]) -> int:
    """A group of elements with those that are computed for it alone, where no cut between any of them moves fewer
    bytes than one before or behind all; else the group.

    One of them, the first of a kernel that does not compute the rest, reads all that comes from outside and gives no
    fewer bytes than the group does: that kernel may as well compute all. If that one is in the group's kernel, that
    has read all that the others want.
    """
    read = _read_by(web, group) & ~group
    own = bits(n for n in members(read) if not web.readers[n] & ~group and n not in web.results)
    sources = tuple(dict.fromkeys(of[n] for n in members(own)))
    together = group | union(sources)
    if not all(is_pointwise(web.solid[n]) for n in members(together)):
        return group
    if any(web.handed_on(source) & ~own for source in sources):
        return group
    outside, given = _read_by(web, together) & ~together, _given(web, group)
    inputs = _inputs_of_others(web, together)
    whole = any(
        not outside & ~_read_by(web, source)
        and inputs <= _inputs(web, source)
        and given <= _given(web, source)
        for source in sources
    )
    return together if whole else group


def _read_by(web: Web, nodes: int) -> int:
    """The nodes whose results these read, of themselves as well."""
    return union(web.reads[n] for n in members(nodes))


def _given(web: Web, nodes: int) -> int:
    """Bytes of what these hand on."""
    return sum(web.solid[n].type.nbytes for n in members(web.handed_on(nodes)))


def _inputs(web: Web, nodes: int) -> frozenset[str]:
    """The graph's inputs that these nodes read."""
    found = web.below(name for n in members(nodes) for name in web.solid[n].tensors)
    return frozenset(found) - set(web.number)


def _inputs_of_others(web: Web, nodes: int) -> frozenset[str]:
    """The graph's inputs that these nodes read and others as well."""
    others = (1 << len(web.solid)) - 1 & ~nodes
    return _inputs(web, nodes) & _inputs(web, others)


def _belongs_to(web: Web, number: int, of: Sequence[int]) -> int | None:
    """The node whose result a node reads, where a cut between them moves no fewer bytes than one behind both.

    The node alone reads that result, computes element by element or reduces, brings nothing else from memory than
    inputs of the graph, and gives no more bytes than it takes. None where the result was rounded to fewer bits than
    the node gives: a kernel may well end with it. None where the node reduces what a node of the other's group, as
    `of` has it, has reduced: a kernel that reduces along both axes has fewer rows, and leaves SMs without one where
    they are too few.
    """
    node, read = web.solid[number], web.reads[number]
    if read.bit_count() != 1 or not (is_pointwise(node) or reduces_rows(node)):
        return None
    (source,) = members(read)
    given = web.solid[source].type
    shared = web.readers[source].bit_count() > 1 or source in web.results
    rounded = web.solid[source].op == "cast" and node.type.dtype.bits > given.dtype.bits
    again = reduces_rows(node) and any(reduces_rows(web.solid[one]) for one in members(of[source]))
    return None if shared or node.type.nbytes > given.nbytes or rounded or again else source


def _siblings(web: Web) -> Iterator[int]:
    """Nodes that reduce rows of one result and read nothing else that is computed, such as quantized elements and
    their scales: together they read it once.
    """
    for source in range(len(web.solid)):
        found = 0
        for reader in members(web.readers[source]):
            if web.reads[reader] == 1 << source and reduces_rows(web.solid[reader]):
                found |= 1 << reader
        if found.bit_count() > 1:
            yield found


def _of_inputs(web: Web, of: list[int]) -> Iterator[int]:
    """Nodes that reduce one axis of the same inputs, by themselves or with what is computed for them alone: no result
    is between them that would bring them together, and apart each reads the inputs again. Of inputs that have all
    elements of what is reduced, if there are any: labels and vectors may be others.
    """
    found = dict[object, int]()
    for number, node in enumerate(web.solid):
        own = _with_makers(web, of[number]) if reduces_rows(node) else 0
        if not own or union(web.reads[one] for one in members(own)) & ~own:
            continue
        last = [one for one in members(own) if not web.readers[one] & own]
        if len(last) == 1 and sum(reduces_rows(web.solid[one]) for one in members(own)) == 1:
            read = frozenset(name for one in members(own) for name in web.below(web.solid[one].tensors))
            shape, axis = web.graph.type_of(node.tensors[0]).shape, dict(node.attrs).get("axis")
            given = read - set(web.number)
            key = _of_shape(web, given, shape) or given, shape, axis
            found[key] = found.get(key, 0) | own
    yield from (own for own in found.values() if own.bit_count() > 1)


def _with_makers(web: Web, nodes: int) -> int:
    """These nodes, and whatever is computed for them alone."""
    near = union(web.reads[one] for one in members(nodes)) & ~nodes
    alone = bits(one for one in members(near) if not web.readers[one] & ~nodes and one not in web.results)
    return _with_makers(web, nodes | alone) if alone else nodes


def _of_shape(web: Web, names: Iterable[str], shape: tuple[int, ...]) -> frozenset[str]:
    """Those tensors that have as many elements as this shape."""
    return frozenset(name for name in names if web.graph.type_of(name).size == math.prod(shape))


def _refused(web: Web, oracle: Oracle, nodes: int) -> bool:
    return all(oracle.ask(piece).refusal for piece in pieces_of(web, nodes))
