"""The kernel's entry of the `--json` object."""

from __future__ import annotations

import json

from report_examples import CERTIFICATE, verified

from wsopt.report.summary import kernel_summary


def test_summary_is_the_object_of_the_command_line() -> None:
    found = json.loads(json.dumps(kernel_summary(verified(), CERTIFICATE)))
    assert found == {
        "name": "by_hand",
        "structure": {
            "rows": 64,
            "columns": 128,
            "depth": 64,
            "consumers": 2,
            "consumer_warps": 4,
            "sharing": "cooperative",
            "persistent": True,
            "swap": False,
            "subtiles": 2,
            "group": 4,
            "copies": 1,
            "tail": 0,
            "transforms": 0,
            "exp2_eighths": 0,
            "early_release": True,
            "splits": 1,
            "shares": False,
            "operands": "registers",
            "corrections": 0,
            "paired": False,
            "lazy": False,
            "retained": 0,
            "in_registers": 0,
            "stored_by_threads": False,
            "dynamic": False,
            "scaled_sums": False,
            "occupancy": 0,
            "atomics": False,
            "flat": False,
            "ahead": False,
            "staggered": False,
        },
        "ii_cycles": 512,
        "partitions": [
            {"role": "consumer", "warps": 4, "registers": 160},
            {"role": "consumer", "warps": 4, "registers": 160},
            {"role": "loader", "warps": 1, "registers": 24},
        ],
        "rings": {"ring": 5},
        "shared_memory_bytes": 181328,
    }
