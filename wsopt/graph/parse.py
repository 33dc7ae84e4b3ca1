"""graph.json in: from a file, a text or JSON values to a checked Graph, or all faults at once."""

from __future__ import annotations

import os
from collections import Counter
from collections.abc import Mapping, Sequence
from itertools import islice
from typing import Any

from wsopt.graph.draft import (
    InputDraft,
    NodeDraft,
    check_references,
    read_input,
    read_node,
    type_node,
)
from wsopt.graph.faults import Faults, bare, hint, join, quote
from wsopt.graph.fields import read_doc, read_flag, read_list, read_name, read_object
from wsopt.graph.jsontext import decode, read_text
from wsopt.graph.order import cycles, topological_order
from wsopt.graph.types import Graph, Node

FORMAT = "wsopt.graph/1"
GRAPH_KEYS = (("format", "name", "inputs", "nodes", "outputs"), ("doc", "deterministic", "dims"))
_NUMBERS_WANTED = (
    "a graph of numbers is wanted here; `wsopt compile` takes named extents, or write numbers instead"
)
_LONGEST_CYCLE = 8
_MOST_CYCLES = 100


def load_graph(path: str | os.PathLike[str]) -> Graph:
    """The graph in a file. Raises InputError with every fault of it."""
    return parse_graph(read_text(path), os.fspath(path))


def parse_graph(text_or_obj: str | dict[str, Any], source: str) -> Graph:
    """The graph in a JSON text, or in the values that one decodes to; `source` names it in errors.

    Raises InputError with every fault: each with its JSON pointer, what was found and what is allowed. Named
    dimensions are one: `symbolic.parse_any` reads those.
    """
    value = decode(text_or_obj, source) if isinstance(text_or_obj, str) else text_or_obj
    faults = Faults(source)
    if isinstance(value, dict) and "dims" in value:
        faults.add("/dims", _NUMBERS_WANTED)
        faults.raise_any()
    graph = read_graph(value, faults)
    faults.raise_any()
    assert graph is not None, "a graph without faults is read whole"
    return graph


def read_graph(value: object, faults: Faults) -> Graph | None:
    """The graph in JSON values, or None, with faults noted. Extents may be expressions that were read already."""
    fields = read_object(value, "", *GRAPH_KEYS, faults)
    if fields is None:
        return None
    _check_format(fields, faults)
    name = read_name(fields["name"], "/name", faults) if "name" in fields else None
    doc = read_doc(fields.get("doc", ""), "/doc", faults)
    deterministic = read_flag(fields.get("deterministic", False), "/deterministic", faults)
    inputs = [read_input(*entry, faults) for entry in _entries(fields, "inputs", faults)]
    nodes = [read_node(*entry, faults) for entry in _entries(fields, "nodes", faults)]
    drafts: list[InputDraft | NodeDraft] = [*inputs, *nodes]
    known = _declare(drafts, faults)
    # A nameless or unreadable entry may be the very one that an unknown name means.
    unsure = not _readable(fields) or any(entry.label is None for entry in drafts)
    if not unsure:
        for node in nodes:
            check_references(node, known, faults)
    typed = _type_nodes(inputs, nodes, faults)
    outputs = _read_outputs(fields, known, faults, unsure=unsure)
    if faults or name is None:
        return None
    given = tuple(entry.input for entry in inputs if entry.input)
    return Graph(name, doc, given, typed, outputs, deterministic)


def _check_format(fields: dict[str, Any], faults: Faults) -> None:
    if "format" in fields and fields["format"] != FORMAT:
        faults.wants("/format", quote(FORMAT), fields["format"])


def _readable(fields: dict[str, Any]) -> bool:
    return all(isinstance(fields.get(section), list) for section in ("inputs", "nodes"))


def _entries(fields: dict[str, Any], section: str, faults: Faults) -> list[tuple[object, str]]:
    if section not in fields:
        return []
    entries = read_list(fields[section], f"/{section}", "objects", faults) or []
    return [(entry, f"/{section}/{index}") for index, entry in enumerate(entries)]


def _declare(drafts: Sequence[InputDraft | NodeDraft], faults: Faults) -> dict[str, str]:
    """Everything that the file calls a tensor, right or wrong, with the place of the first to bear it."""
    known: dict[str, str] = {}
    for entry in drafts:
        if entry.label is None:
            continue
        first = known.setdefault(entry.label, entry.pointer)
        if first != entry.pointer:
            told = f"the name {quote(entry.label)} is taken by {first}"
            faults.add(join(entry.pointer, "name"), f"{told}; names are unique over inputs and nodes")
    return known


def _type_nodes(inputs: Sequence[InputDraft], nodes: Sequence[NodeDraft], faults: Faults) -> tuple[Node, ...]:
    """The nodes that can be typed, in topological order; cycles are noted."""
    # Of a name that is given twice nobody can say what it is.
    bearers = Counter([*(entry.label for entry in inputs), *(node.label for node in nodes)])
    types = {
        entry.input.name: entry.input.type for entry in inputs if entry.input and bearers[entry.label] == 1
    }
    place = {node.label: index for index, node in enumerate(nodes) if node.label and bearers[node.label] == 1}
    reads = [[place[name] for name in dict.fromkeys(node.operands) if name in place] for node in nodes]
    order = topological_order(reads)
    if len(order) < len(nodes):
        _note_cycles(nodes, reads, faults)
    typed = []
    for index in order:
        node = type_node(nodes[index], types, faults)
        if node is not None:
            typed.append(node)
            if bearers[node.name] == 1:
                types[node.name] = node.type
    return tuple(typed)


def _note_cycles(nodes: Sequence[NodeDraft], reads: Sequence[Sequence[int]], faults: Faults) -> None:
    for cycle in islice(cycles(reads), _MOST_CYCLES):
        # Told from the cycle's first node in the file, at the input that it reads within the cycle.
        turn = cycle.index(min(cycle))
        ring = cycle[turn:] + cycle[:turn]
        names = [bare(nodes[index].label or "") for index in ring]
        index = nodes[ring[0]].operands.index(nodes[ring[-1]].label)
        if len(names) > _LONGEST_CYCLE:
            names[_LONGEST_CYCLE - 2 : -1] = [f"... {len(names) - _LONGEST_CYCLE + 1} more ..."]
        message = "the node reads itself" if len(ring) == 1 else f"cycle {' -> '.join([*names, names[0]])}"
        message += "; a node reads inputs and other nodes' results alone, none that depends on it"
        faults.add(nodes[ring[0]].place(f"inputs/{index}"), message)


def _read_outputs(
    fields: dict[str, Any], known: Mapping[str, str], faults: Faults, *, unsure: bool
) -> tuple[str, ...]:
    """Names of nodes, each once, at least one."""
    if "outputs" not in fields:
        return ()
    entries = read_list(fields["outputs"], "/outputs", "names of nodes", faults)
    if entries == []:
        faults.add("/outputs", "found none; a graph has at least one output")
    results = [name for name, place in known.items() if place.startswith("/nodes/")]
    seen: dict[str, int] = {}
    for index, name in enumerate(entries or []):
        pointer = f"/outputs/{index}"
        if not isinstance(name, str):
            faults.wants(pointer, "the name of a node", name)
        elif name in seen:
            faults.add(pointer, f"{quote(name)} is an output already, /outputs/{seen[name]}")
        elif known.get(name, "").startswith("/inputs/"):
            faults.add(
                pointer, f"{quote(name)} is an input, which the caller has; an output is a node's result"
            )
        elif name not in known and not unsure:
            faults.add(pointer, f"unknown node {quote(name)}{hint(name, results)}")
        seen.setdefault(str(name), index)
    return tuple(seen)
