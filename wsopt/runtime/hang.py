"""Waiting for a device without end: a guard against kernels that hang."""

from __future__ import annotations

import time
from typing import Any

import torch

from wsopt.codegen.errors import HangError


def wait(limit_s: float, what: str) -> None:
    """Wait for all that was launched so far. Raises HangError if it takes longer than `limit_s` seconds."""
    event = torch.cuda.Event()
    event.record()
    wait_for(event, limit_s, what)


def wait_for(event: Any, limit_s: float, what: str) -> None:
    """Wait for an event; HangError if it does not come within `limit_s` seconds."""
    # Polling, for nothing ends a call of the driver that waits for a kernel that does not end.
    end = time.monotonic() + limit_s
    while not event.query():
        if time.monotonic() > end:
            raise HangError(f"{what} did not end within {limit_s:g} s")
        time.sleep(5e-5)
