"""Errors of compiling, loading and running a kernel, with the exit status of a failed check."""

from __future__ import annotations

from wsopt.errors import CheckError, WsoptError


class CompileError(CheckError):
    """Triton or ptxas refused a kernel, or the result cannot be launched; the text is one or two lines."""


class HangError(CheckError):
    """A kernel did not end within its time limit.

    The device keeps running it, so nothing more can be asked of this process: a caller that wants to go on
    has to leave with `os._exit`, for the ordinary way out waits for the device.
    """


def launch_errors() -> tuple[type[Exception], ...]:
    """Exceptions of compiling and launching a kernel for which the kernel or the device is at fault.

    Triton's errors, torch's and the driver's (RuntimeErrors all), what both say of arguments, and ours. Anything
    else is a fault of the program that launches, and ends it with its traceback.
    """
    from triton.errors import TritonError

    return (TritonError, RuntimeError, ValueError, TypeError, OSError, WsoptError)


def first_line(error: Exception) -> str:
    """An error's kind and the first line of its text, at most 300 characters of it: what fits a row."""
    lines = str(error).strip().splitlines() or [""]
    return f"{type(error).__name__}: {lines[0][:300]}"
