"""Broken graph files: what is wrong with each, and every fault that has to be reported, in order.

Each is the small graph `MLP` of `graph_examples` with the changes given: a value put at a JSON pointer,
appended (`/-`) or taken away (DROP). The files whose text matters lie beside this table, see `files.py`.
"""

from __future__ import annotations

from typing import Any

from graph_examples import DROP, node

Faults = list[tuple[str, str]]
"""JSON pointers and a part of each message."""

X, W = "/inputs/0", "/inputs/1"
HUGE = 2**31 - 1
AT_NAME = "/nodes/1/name"

STRUCTURE: dict[str, tuple[dict[str, Any], Faults]] = {
    "format missing": ({"/format": DROP}, [("", 'lacks the key "format"')]),
    "format is a number": ({"/format": 1}, [("/format", 'found 1; wants "wsopt.graph/1"')]),
    "name missing": ({"/name": DROP}, [("", 'lacks the key "name"')]),
    "inputs missing": ({"/inputs": DROP}, [("", 'lacks the key "inputs"')]),
    "nodes missing": ({"/nodes": DROP}, [("", 'lacks the key "nodes"')]),
    "outputs missing": ({"/outputs": DROP}, [("", 'lacks the key "outputs"')]),
    "inputs an object": ({"/inputs": {}}, [("/inputs", "found an object; wants an array of objects")]),
    "nodes a string": ({"/nodes": "h"}, [("/nodes", 'found the string "h"; wants an array')]),
    "outputs a string": ({"/outputs": "y"}, [("/outputs", "wants an array of names of nodes")]),
    "no outputs": ({"/outputs": []}, [("/outputs", "found none; a graph has at least one output")]),
    "no nodes": ({"/nodes": []}, [("/outputs/0", 'unknown node "y"')]),
    "doc a number": ({"/doc": 7}, [("/doc", "found 7; wants a string")]),
    "doc with half a character": ({"/doc": "\ud800"}, [("/doc", "an unpaired surrogate")]),
    "input a string": ({"/inputs/2": "b"}, [("/inputs/2", 'found the string "b"; wants an object')]),
    "node null": ({"/nodes/2": None}, [("/nodes/2", "found null; wants an object")]),
    "misspelt key of an input": (
        {f"{X}/dtpye": "bf16", f"{X}/dtype": DROP},
        [
            (
                f"{X}/dtpye",
                'unknown key "dtpye"; allowed: name, shape, dtype, constant, strides; did you mean "d',
            )
        ],
    ),
    "misspelt name key": (
        {"/nodes/0/nmae": "h", "/nodes/0/name": DROP},
        [("/nodes/0/nmae", 'did you mean "name"?')],
    ),
    "unknown key with slash and tilde": (
        {"/inputs/0": {"name": "x", "shape": [8, 16], "dtype": "bf16", "a/~": 1}},
        [(f"{X}/a~1~0", 'unknown key "a/~"')],
    ),
    "input without dtype": ({f"{X}/dtype": DROP}, [(X, 'lacks the key "dtype"')]),
    "node without op": ({"/nodes/1/op": DROP}, [("/nodes/1", 'lacks the key "op"')]),
    "op a list": (
        {"/nodes/1/op": ["add"]},
        [("/nodes/1/op", "found an array of 1; wants the name of an op")],
    ),
    "node inputs a string": (
        {"/nodes/1/inputs": "h"},
        [("/nodes/1/inputs", "wants an array of names and scalars")],
    ),
    "attrs an array": ({"/nodes/1/attrs": []}, [("/nodes/1/attrs", "found an array of 0; wants an object")]),
}

TENSORS: dict[str, tuple[dict[str, Any], Faults]] = {
    "shape a number": ({f"{X}/shape": 8}, [(f"{X}/shape", "found 8; wants an array of extents")]),
    "extent true": ({f"{X}/shape/0": True}, [(f"{X}/shape/0", "found true; wants an integer from 1")]),
    "extent 8.0": ({f"{X}/shape/0": 8.0}, [(f"{X}/shape/0", "found 8.0; wants an integer from 1")]),
    "extent a string": ({f"{X}/shape/0": "8"}, [(f"{X}/shape/0", 'found the string "8"; wants an integer')]),
    "extent zero": ({f"{X}/shape/0": 0}, [(f"{X}/shape/0", "found 0; wants an integer from 1 to 2**31 - 1")]),
    "extent negative": ({f"{X}/shape/0": -8}, [(f"{X}/shape/0", "found -8; wants an integer from 1")]),
    "extent 2**31": (
        {f"{X}/shape/0": 2**31},
        [(f"{X}/shape/0", "found 2147483648; wants an integer from 1")],
    ),
    "extent of 30 digits": (
        {f"{X}/shape/0": 10**29},
        [(f"{X}/shape/0", "an integer of more than 20 digits")],
    ),
    "too many elements": (
        {f"{X}/shape": [HUGE, 2**20]},
        [(f"{X}/shape", "elements; at most 2**48 are allowed")],
    ),
    "too many axes": ({f"{X}/shape": [1] * 17}, [(f"{X}/shape", "17 extents; a tensor has at most 16 axes")]),
    "dtype misspelt": (
        {f"{X}/dtype": "bf61"},
        [(f"{X}/dtype", 'wants a dtype: f32 f16 bf16 f8e4m3 f8e5m2 i32 i8 i4 bool; did you mean "bf16"?')],
    ),
    "dtype null": ({f"{X}/dtype": None}, [(f"{X}/dtype", "found null; wants a dtype")]),
    "dtype in capitals": ({f"{X}/dtype": "BF16"}, [(f"{X}/dtype", 'did you mean "bf16"?')]),
    "constant a string": ({f"{W}/constant": "yes"}, [(f"{W}/constant", "wants true or false")]),
    "strides of wrong rank": (
        {f"{X}/strides": [1]},
        [(f"{X}/strides", "1 strides for shape [8, 16]; wants 2")],
    ),
    "stride negative": (
        {f"{X}/strides": [16, -1]},
        [(f"{X}/strides/1", "found -1; wants an integer from 0")],
    ),
    "strides null": ({f"{X}/strides": None}, [(f"{X}/strides", "found null; wants an array of strides")]),
    "strides too far": (
        {f"{X}/shape": [2**20, 16], f"{X}/strides": [HUGE, 1]},
        [(f"{X}/strides", "at most 2**48 are allowed")],
    ),
    "i4 of odd extent": (
        {"/inputs/-": {"name": "q", "shape": [4, 7], "dtype": "i4"}},
        [("/inputs/3/shape", "i4 is packed two to a byte, so its last extent has to be even")],
    ),
    "i4 with a stride": (
        {"/inputs/-": {"name": "q", "shape": [4, 8], "dtype": "i4", "strides": [1, 4]}},
        [("/inputs/3/strides", "the last stride has to be 1 and the others even")],
    ),
}

NAMES: dict[str, tuple[dict[str, Any], Faults]] = {
    "graph name with a dot": ({"/name": "a.b"}, [("/name", 'the name "a.b" does not match')]),
    "name with a dash": (
        {AT_NAME: "a-b", "/nodes/2/inputs": ["a-b"]},
        [(AT_NAME, 'the name "a-b" does not match')],
    ),
    "name with a line feed": (
        {AT_NAME: "a\n", "/nodes/2/inputs": ["a\n"]},
        [(AT_NAME, r'the name "a\n" does')],
    ),
    "name not ASCII": (
        {AT_NAME: "é", "/nodes/2/inputs": ["é"]},
        [(AT_NAME, r'the name "\u00e9" does not match')],
    ),
    "name empty": ({AT_NAME: "", "/nodes/2/inputs": [""]}, [(AT_NAME, 'the name "" does not match')]),
    "name a number": ({AT_NAME: 1}, [(AT_NAME, "found 1; wants a name")]),
    "name of a scalar": (
        {"/nodes/-": node("inf", "neg", "h")},
        [("/nodes/4/name", 'the name "inf" is the scalar')],
    ),
    "nan as graph name": ({"/name": "nan"}, [("/name", 'the name "nan" is the scalar')]),
    "two inputs of a name": (
        {"/inputs/2/name": "x", "/nodes/1/inputs/1": "x"},
        [("/inputs/2/name", 'the name "x" is taken by /inputs/0')],
    ),
    "node named as an input": (
        {"/nodes/-": node("x", "neg", "h")},
        [("/nodes/4/name", 'the name "x" is taken by /inputs/0; names are unique over inputs and nodes')],
    ),
    "two nodes of a name": ({AT_NAME: "h", "/nodes/2/inputs": ["h"]}, [(AT_NAME, "is taken by /nodes/0")]),
    "unknown tensor": ({"/nodes/1/inputs/1": "bias"}, [("/nodes/1/inputs/1", 'unknown tensor "bias"')]),
    "misspelt op": (
        {"/nodes/0/op": "matmull"},
        [("/nodes/0/op", 'unknown op "matmull"; did you mean "matmul"?')],
    ),
    "op of another library": (
        {"/nodes/0/op": "bmm"},
        [("/nodes/0/op", 'unknown op "bmm"; here that is "matmul"')],
    ),
    "op that several make": (
        {"/nodes/0/op": "clamp"},
        [("/nodes/0/op", 'unknown op "clamp"; here that is maximum, then minimum')],
    ),
    "op a little like another": (
        {"/nodes/0/op": "einsum"},
        [("/nodes/0/op", 'unknown op "einsum"; `wsopt ops` lists all')],
    ),
    "dims": (
        {"/dims": {"tokens": {"min": 1, "max": 8}}, f"{X}/shape/0": "tokens"},
        [
            ("/dims", "a graph of numbers is wanted here; `wsopt compile` takes named extents"),
        ],
    ),
    "an extent's name without dims": (
        {f"{X}/shape/0": "tokens"},
        [(f"{X}/shape/0", "2**31 - 1; names of extents want the graph's dims")],
    ),
    "deterministic": (
        {"/deterministic": "yes"},
        [("/deterministic", 'found the string "yes"; wants true or false')],
    ),
    "dtype of another library": ({f"{X}/dtype": "half"}, [(f"{X}/dtype", 'did you mean "f16"?')]),
    "dtype that is not there": ({f"{X}/dtype": "f64"}, [(f"{X}/dtype", "i32 i8 i4 bool")]),
    "dtypes of a matmul": (
        {f"{X}/dtype": "f16"},
        [
            (
                "/nodes/0/inputs",
                "dtypes f16 and bf16; the operands of matmul have one dtype: declare inputs alike",
            )
        ],
    ),
    "op unlike any": ({"/nodes/0/op": "qqqq"}, [("/nodes/0/op", "`wsopt ops` lists all")]),
    "op in capitals": ({"/nodes/0/op": "MatMul"}, [("/nodes/0/op", 'did you mean "matmul"?')]),
    "output unknown": ({"/outputs/0": "yy"}, [("/outputs/0", 'unknown node "yy"; did you mean "y"?')]),
    "output twice": ({"/outputs/-": "y"}, [("/outputs/1", '"y" is an output already, /outputs/0')]),
    "output an input": (
        {"/outputs/-": "x"},
        [("/outputs/1", '"x" is an input, which the caller has')],
    ),
    "output a number": ({"/outputs/-": 3}, [("/outputs/1", "found 3; wants the name of a node")]),
    "node reads itself": ({"/nodes/1/inputs/1": "a"}, [("/nodes/1/inputs/1", "the node reads itself")]),
    "cycle of three": ({"/nodes/0/inputs/0": "g"}, [("/nodes/0/inputs/0", "cycle h -> a -> g -> h")]),
    "two cycles": (
        {"/nodes/1/inputs/1": "g", "/nodes/3": node("q", "neg", "p"), "/nodes/-": node("p", "add", "q", "q")}
        | {"/outputs/0": "g"},
        [("/nodes/1/inputs/1", "cycle a -> g -> a"), ("/nodes/3/inputs/0", "cycle q -> p -> q")],
    ),
    "cycle of twelve": (
        {"/nodes": [node(f"c{i}", "neg", f"c{(i - 1) % 12}") for i in range(12)], "/outputs": ["c3"]},
        [("/nodes/0/inputs/0", "cycle c0 -> c1 -> c2 -> c3 -> c4 -> c5 -> ... 5 more ... -> c11 -> c0")],
    ),
}

OPERANDS: dict[str, tuple[dict[str, Any], Faults]] = {
    "too few": ({"/nodes/1/inputs": ["h"]}, [("/nodes/1/inputs", "found 1 inputs; add wants 2: a, b")]),
    "too many": ({"/nodes/2/inputs": ["a", "a"]}, [("/nodes/2/inputs", "found 2 inputs; gelu wants 1: x")]),
    "none at all": ({"/nodes/1/inputs": DROP}, [("/nodes/1", "found 0 inputs; add wants 2: a, b")]),
    "operand for iota": (
        {"/nodes/-": node("i", "iota", "x", shape=[8], axis=0)},
        [("/nodes/4/inputs", "found 1 inputs; iota wants none")],
    ),
    "optional operand twice": (
        {"/nodes/-": node("q", "dequantize", "x", "b", "b", "b", group=8)},
        [("/nodes/4/inputs", "found 4 inputs; dequantize wants 2 to 3: q, scale, zero")],
    ),
    "operand true": (
        {"/nodes/1/inputs/1": True},
        [("/nodes/1/inputs/1", "found true; wants a tensor's name, a")],
    ),
    "operand null": (
        {"/nodes/1/inputs/1": None},
        [("/nodes/1/inputs/1", "found null; wants a tensor's name")],
    ),
    "operand an array": (
        {"/nodes/1/inputs/1": [1]},
        [("/nodes/1/inputs/1", "found an array of 1; wants a tensor")],
    ),
    "number in quotes": (
        {"/nodes/1/inputs/1": "1.5"},
        [("/nodes/1/inputs/1", 'unknown tensor "1.5"; a number stands without quotes')],
    ),
    "Infinity in quotes": (
        {"/nodes/1/inputs/1": "Infinity"},
        [
            (
                "/nodes/1/inputs/1",
                'unknown tensor "Infinity"; a number stands without quotes, an infinite one is "inf"',
            )
        ],
    ),
    "integer beyond i32": (
        {"/nodes/1/inputs/1": 2**31},
        [("/nodes/1/inputs/1", "found 2147483648; wants a scalar that fits i32")],
    ),
    "scalar for a matrix": (
        {"/nodes/0/inputs/1": 2},
        [("/nodes/0/inputs/1", "found 2; wants a tensor's name for b: matmul takes no scalar there")],
    ),
    "shapes do not broadcast": (
        {"/inputs/2/shape": [31]},
        [("/nodes/1/inputs", "shapes [8, 32] and [31] do not broadcast")],
    ),
    "contracted extents differ": (
        {"/nodes/0/attrs": {}},
        [
            (
                "/nodes/0/inputs",
                "shapes [8, 16] and [32, 16]: the contracted extents are 16 and 32 (transpose_a is",
            )
        ],
    ),
    "matmul of dtypes that differ, and extents": (
        {"/inputs/1": {"name": "w", "shape": [32, 17], "dtype": "f16"}},
        [
            ("/nodes/0/inputs", "the contracted extents are 16 and 17"),
            (
                "/nodes/0/inputs",
                "dtypes bf16 and f16; the operands of matmul have one dtype: declare inputs alike",
            ),
        ],
    ),
    "matmul of leading axes that clash": (
        {f"{X}/shape": [3, 8, 16], f"{W}/shape": [2, 32, 16]},
        [("/nodes/0/inputs", "shapes [3, 8, 16] and [2, 32, 16]: the leading axes do not broadcast")],
    ),
    "matmul of a vector": (
        {f"{X}/shape": [16]},
        [("/nodes/0/inputs/0", "shape [16]; matmul wants at least two axes")],
    ),
    "matmul of i32": (
        {f"{W}/dtype": "i32"},
        [
            (
                "/nodes/0/inputs/1",
                "dtype i32; wants one of f16 bf16 f8e4m3 f8e5m2 i8 f32: declare an input so, cast what is computed",
            )
        ],
    ),
    "matmul of f32 without precision": (
        {f"{X}/dtype": "f32", f"{W}/dtype": "f32"},
        [
            (
                "/nodes/0/attrs",
                'f32 operands want the attr precision: "tf32", which takes 10 fraction bits of them, or "ieee"',
            )
        ],
    ),
    "precision of bf16": (
        {"/nodes/0/attrs/precision": "tf32"},
        [("/nodes/0/attrs/precision", '"tf32" is for f32 operands; these are bf16')],
    ),
    "arithmetic on bools": (
        {"/inputs/2/dtype": "bool"},
        [("/nodes/1/inputs/1", "dtype bool; wants a number: cast it, or choose with where")],
    ),
    "logic on numbers": (
        {"/nodes/-": node("l", "logical_and", "x", "x")},
        [("/nodes/4/inputs/0", "dtype bf16; wants bool: compare first"), ("/nodes/4/inputs/1", "dtype bf16")],
    ),
    "where on numbers": (
        {"/nodes/-": node("l", "where", "x", "x", 0)},
        [("/nodes/4/inputs/0", "dtype bf16; wants bool: compare first")],
    ),
    "norm weight that enlarges": (
        {"/nodes/-": node("r", "rms_norm", "b", "w")},
        [("/nodes/4/inputs/1", "shape [32, 16] does not broadcast to [32]")],
    ),
    "scale of another grouping": (
        {"/nodes/-": node("q", "dequantize", "x", "b", group=8)},
        [("/nodes/4/inputs/1", "shape [32]; group 8 wants [8, 2]")],
    ),
    "result too large": (
        {"/inputs/-": {"name": "u", "shape": [HUGE, 1], "dtype": "f32"}, "/inputs/2/shape": [1, HUGE]}
        | {"/nodes": [node("y", "add", "u", "b")]},
        [("/nodes/0", "the result's shape [2147483647, 2147483647] has 4611686014132420609 elements")],
    ),
}

ATTRS: dict[str, tuple[dict[str, Any], Faults]] = {
    "unknown attr": (
        {"/nodes/0/attrs/transB": True},
        [
            (
                "/nodes/0/attrs/transB",
                'unknown attr "transB"; allowed: transpose_a, transpose_b, precision, accu',
            )
        ],
    ),
    "attr of an op that has none": (
        {"/nodes/1/attrs": {"axis": 0}},
        [("/nodes/1/attrs/axis", 'unknown attr "axis"; none is allowed here')],
    ),
    "flag as a number": (
        {"/nodes/0/attrs/transpose_b": 1},
        [("/nodes/0/attrs/transpose_b", "found 1; wants true")],
    ),
    "unknown choice": (
        {"/nodes/2/attrs/approximate": "tan"},
        [
            (
                "/nodes/2/attrs/approximate",
                'found the string "tan"; wants "none" or "tanh"; did you mean "tanh"?',
            )
        ],
    ),
    "cast without dtype": ({"/nodes/3/attrs": {}}, [("/nodes/3/attrs", 'lacks the attr "dtype"')]),
    "cast without attrs": ({"/nodes/3/attrs": DROP}, [("/nodes/3", 'lacks the attr "dtype"')]),
    "axis out of range": (
        {"/nodes/-": node("s", "softmax", "a", axis=2)},
        [("/nodes/4/attrs/axis", "axis 2 of shape [8, 32]; allowed: -2 to 1")],
    ),
    "axis negative out of range": (
        {"/nodes/-": node("s", "reduce_max", "a", axis=-3)},
        [("/nodes/4/attrs/axis", "axis -3 of shape [8, 32]; allowed: -2 to 1")],
    ),
    "axis of rank 0": (
        {"/inputs/-": {"name": "u", "shape": [], "dtype": "f32"}, "/nodes/-": node("s", "softmax", "u")},
        [("/nodes/4/attrs/axis", "allowed: none: a tensor of rank 0 has no axis")],
    ),
    "several axes": (
        {"/nodes/-": node("s", "reduce_sum", "a", axis=[0, 1])},
        [
            (
                "/nodes/4/attrs/axis",
                "found an array of 2; wants an integer, negative to count from the end; several axes",
            )
        ],
    ),
    "axis a real number": (
        {"/nodes/-": node("s", "softmax", "a", axis=1.0)},
        [("/nodes/4/attrs/axis", "found 1.0; wants an integer, negative to count from the end")],
    ),
    "reshape of another size": (
        {"/nodes/-": node("s", "reshape", "a", shape=[8, 33])},
        [("/nodes/4/attrs/shape", "shape [8, 32] with 256 elements cannot become [8, 33] with 264")],
    ),
    "reshape with -1": (
        {"/nodes/-": node("s", "reshape", "a", shape=[-1, 8])},
        [
            (
                "/nodes/4/attrs/shape/0",
                "found -1; wants an integer from 1 to 2**31 - 1; none is left to be inferred",
            )
        ],
    ),
    "transpose that repeats an axis": (
        {"/nodes/-": node("s", "transpose", "a", perm=[0, 0])},
        [("/nodes/4/attrs/perm", "[0, 0] for shape [8, 32]; allowed: each of 0 to 1 once")],
    ),
    "iota axis beyond its shape": (
        {"/nodes/-": node("i", "iota", shape=[4], axis=1)},
        [("/nodes/4/attrs/axis", "axis 1 of shape [4]; allowed: -1 to 0")],
    ),
    "group that does not divide": (
        {"/nodes/-": node("q", "dequantize", "x", "b", group=3)},
        [("/nodes/4/attrs/group", "3 does not divide the last extent of shape [8, 16]")],
    ),
    "group zero": (
        {"/nodes/-": node("q", "dequantize", "x", "b", group=0)},
        [("/nodes/4/attrs/group", "found 0; wants a positive integer")],
    ),
    "eps negative": (
        {"/nodes/-": node("r", "rms_norm", "x", "x", eps=-1e-6)},
        [("/nodes/4/attrs/eps", "found -1e-06; wants a number that is not negative")],
    ),
    "softmax of a bool at a bad axis": (
        {"/nodes/-": node("c", "less", "x", 0)} | {"/nodes/1": node("a", "softmax", "c", axis=5)},
        [
            ("/nodes/1/attrs/axis", "axis 5 of shape [8, 16]"),
            ("/nodes/1/inputs/0", "dtype bool; wants a number"),
        ],
    ),
}
CHANGES = STRUCTURE | TENSORS | NAMES | OPERANDS | ATTRS
