"""The broken files of this folder, and every fault that has to be reported for each, in order."""

from __future__ import annotations

from broken.table import Faults

FILES: dict[str, Faults] = {
    "not_json": [("", "line 2, column 11: not JSON: Expecting value")],
    "cut_off": [("", "line 1, column 66: not JSON")],
    "empty": [("", "line 1, column 1: not JSON: Expecting value")],
    "byte_order_mark": [("", "line 1, column 1: a byte order mark")],
    "latin1": [("", "not UTF-8: byte 0xe9 at offset 10")],
    "two_values": [("", "line 1, column 4: not JSON: Extra data")],
    "single_quotes": [("", "line 1, column 2: not JSON: Expecting property name")],
    "trailing_comma": [("", "line 1, column 28: not JSON")],
    "duplicate_keys": [
        ("/name", 'the key "name" stands more than once'),
        ("/inputs/0/shape", 'the key "shape" stands more than once'),
        ("/nodes/0/attrs/dtype", 'the key "dtype" stands more than once'),
    ],
    "literals": [
        ("/doc", "found NaN, which JSON does not have; wants a string"),
        ("/inputs/0/shape/0", "found Infinity, which JSON does not have; wants an integer"),
        ("/nodes/0/inputs/1", 'found NaN, which JSON does not have; wants a tensor\'s name, a number, "inf"'),
        ("/nodes/1/inputs/1", "found -Infinity, which JSON does not have"),
        ("/nodes/2/inputs/1", 'a number beyond the range of f32; infinite scalars are written "inf"'),
        ("/nodes/3/inputs/1", 'found 1e+39; infinite scalars are written "inf" and "-inf"'),
        ("/nodes/4/attrs/eps", "found NaN, which JSON does not have; wants a number that is not negative"),
    ],
    "many_faults": [
        ("/author", 'unknown key "author"; allowed: format, name, inputs, nodes, outputs, doc'),
        ("/format", 'found the string "wsopt.graph/2"; wants "wsopt.graph/1"'),
        ("/name", 'the name "many faults" does not match [A-Za-z_][A-Za-z0-9_]*'),
        ("/inputs/0/shape/1", "found 0; wants an integer from 1 to 2**31 - 1"),
        ("/inputs/1/dtype", 'found the string "fp16"; wants a dtype'),
        ("/inputs/2/constant", "found 1; wants true or false"),
        ("/nodes/1/op", 'unknown op "softmx"; did you mean "softmax"?'),
        (
            "/nodes/3/attrs/keepdim",
            'unknown attr "keepdim"; allowed: axis, keepdims; did you mean "keepdims"?',
        ),
        ("/nodes/4/inputs", "found 2 inputs; cast wants 1: x"),
        ("/nodes/4", 'lacks the attr "dtype"'),
        ("/nodes/2/inputs/1", 'unknown tensor "k"'),
        ("/outputs/1", '"s" is an input, which the caller has; an output is a node'),
        ("/outputs/2", 'unknown node "z"'),
    ],
}
