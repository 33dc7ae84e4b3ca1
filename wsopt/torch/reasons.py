"""Reasons for which no kernel is made of a graph, told to one who wrote a model and no graph.

Such a reason names nodes and inputs of the graph, which here are numbers, and says what to change in it. A model is
changed otherwise, and most remedies are what a cut does by itself.
"""

from __future__ import annotations

import re

from wsopt.graph.types import Graph

_DOING = (
    "cast", "choose", "compile", "compute", "declare", "else write", "give", "hand", "leave", "let", "make",
    "multiply", "or cast", "or choose", "pad", "reduce", "rows of a multiple", "store", "take",
    "where [^,]+, declare", "where [^,]+, write", "write",
)  # fmt: skip
"""How a remedy begins."""
_REMEDY = re.compile(rf"(?:[;:] |, so )(?:{'|'.join(_DOING)})\b.*", re.DOTALL)


def without_remedy(reason: str) -> str:
    """A reason alone, where it says what to do instead."""
    return _REMEDY.sub("", reason)


def reason_in_words(reason: str, graph: Graph) -> str:
    """A reason alone, with what a graph's nodes do and which types its inputs have in the place of their names."""
    named = {node.name: node.op for node in graph.nodes}
    named |= {item.name: f"the input {item.type}" for item in graph.inputs}
    told = without_remedy(reason).removeprefix(f"graph {graph.name}: ")
    told = told.replace("an input of the graph", "an input of the kernel")
    # What a pass makes of a node bears its name, and more behind it.
    names = "|".join(map(re.escape, sorted(named, key=len, reverse=True)))
    found = re.compile(rf"(?:\w+ node |nodes? |tensor |input )?\b({names})(?:_[a-z]\w*)?\b")
    return found.sub(lambda match: named[match[1]], told)
