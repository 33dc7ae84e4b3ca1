"""Makes the graph of a finding small: takes away outputs, nodes, strides and names while it ends as it did."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from wsopt.errors import InputError
from wsopt.graph.parse import parse_graph

Json = dict[str, Any]


def shrunk(data: Json, ends_alike: Callable[[Json], bool]) -> Json:
    """The graph after every step that is well-formed and `ends_alike`."""
    again = True
    while again:
        again = False
        for smaller in _smaller(data):
            if _is_well_formed(smaller) and ends_alike(smaller):
                data, again = smaller, True
                break
    return data


def _is_well_formed(data: Json) -> bool:
    try:
        parse_graph(data, "smaller")
    except InputError:
        return False
    return True


def _smaller(data: Json) -> Iterator[Json]:
    """Graphs that are one step smaller, large steps first."""
    if len(data["outputs"]) > 1:
        for name in data["outputs"]:
            yield _live({**data, "outputs": [other for other in data["outputs"] if other != name]})
    live = _live(data)
    if live != data:
        yield live
    types = parse_graph(data, "graph")
    for node in reversed(data["nodes"]):
        known = types.type_of(node["name"])
        for operand in (one for one in node["inputs"] if isinstance(one, str)):
            if operand in ("inf", "-inf", "nan") or types.type_of(operand).shape != known.shape:
                continue
            passed = {
                "name": node["name"],
                "op": "cast",
                "inputs": [operand],
                "attrs": {"dtype": known.dtype.value},
            }
            if passed != {**node, "attrs": node.get("attrs", {})}:
                yield _live({**data, "nodes": [passed if one is node else one for one in data["nodes"]]})
    for item in data["inputs"]:
        for key in ("strides", "constant"):
            if item.get(key):
                plain = {name: value for name, value in item.items() if name != key}
                yield {**data, "inputs": [plain if one is item else one for one in data["inputs"]]}


def _live(data: Json) -> Json:
    """The graph without what no output needs."""
    made = {node["name"]: node for node in data["nodes"]}
    needed, todo = set(), list(data["outputs"])
    while todo:
        name = todo.pop()
        if name not in needed:
            needed.add(name)
            todo += [one for one in made.get(name, {"inputs": ()})["inputs"] if isinstance(one, str)]
    return {
        **data,
        "inputs": [item for item in data["inputs"] if item["name"] in needed],
        "nodes": [node for node in data["nodes"] if node["name"] in needed],
    }
