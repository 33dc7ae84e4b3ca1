"""Does one task in an interpreter of its own: a function and its argument come in, a result or an error goes out."""

from __future__ import annotations

import base64
import os
import pickle
import sys
from typing import Any

from wsopt.errors import WsoptError


def main() -> None:
    """Read the task from standard input and write the outcome to standard output, where nothing else goes."""
    function, task = pickle.loads(base64.b64decode(sys.stdin.buffer.read()))
    out = os.fdopen(os.dup(sys.stdout.fileno()), "wb")
    os.dup2(sys.stderr.fileno(), sys.stdout.fileno())
    outcome: Any
    try:
        outcome = (function(task),)
    except WsoptError as error:
        outcome = error
    with out:
        out.write(base64.b64encode(pickle.dumps(outcome)))


if __name__ == "__main__":
    main()
