"""What can go wrong on the way to and on the GPU, as errors with the exit status of a failed check."""

from __future__ import annotations

from wsopt.errors import CheckError


class CompileError(CheckError):
    """Triton or ptxas refused a kernel, or the result cannot be launched; the text is one or two lines."""


class HangError(CheckError):
    """A kernel did not end within its time limit.

    The device keeps running it, so nothing more can be asked of this process: a caller that wants to go on
    has to leave with `os._exit`, for the ordinary way out waits for the device.
    """
