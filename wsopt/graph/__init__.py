"""The tensor graph: what to compute. Its types, operations, file format, builder and NumPy reference."""

from wsopt.graph.builder import GraphBuilder, Symbol
from wsopt.graph.op_spec import AttrSpec, CostClass, OpSpec
from wsopt.graph.ops import OPS
from wsopt.graph.parse import load_graph, parse_graph
from wsopt.graph.reference import evaluate, random_inputs, relative_error
from wsopt.graph.schema import json_schema
from wsopt.graph.serialize import canonical_bytes, graph_to_json
from wsopt.graph.symbolic import SymbolicGraph, bound, load_any, parse_any
from wsopt.graph.types import AttrValue, DType, Graph, Input, Node, Operand, TensorType

__all__ = [
    "OPS",
    "AttrSpec",
    "AttrValue",
    "CostClass",
    "DType",
    "Graph",
    "GraphBuilder",
    "Input",
    "Node",
    "OpSpec",
    "Operand",
    "Symbol",
    "SymbolicGraph",
    "TensorType",
    "bound",
    "canonical_bytes",
    "evaluate",
    "graph_to_json",
    "json_schema",
    "load_any",
    "load_graph",
    "parse_any",
    "parse_graph",
    "random_inputs",
    "relative_error",
]
