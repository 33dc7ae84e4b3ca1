"""Compiles a graph at once with the kernels that are there, and again when the others have been built.

Builds take seconds to minutes. Meanwhile calls run what was compiled first, in which pieces without a kernel go the
usual way. The call that finds all builds done compiles the graph again, and from then on calls run that.
"""

from __future__ import annotations

import copy
import threading
from collections.abc import Callable, Sequence
from typing import Any

from torch import fx
from torch._guards import TracingContext

from wsopt.errors import InternalError
from wsopt.torch.late import compiled_late

_MOST = 4
"""Times that a graph is compiled, at most, should builds not be kept: then pieces stay without kernels."""

Work = Callable[[], object]
Compile = Callable[[fx.GraphModule, Sequence[Any], Callable[[Work], None]], Callable[..., Any]]
"""Compiles a graph for inputs; hands over the builds that it did not wait for."""


class Job:
    """Work in a thread of its own, which the end of the process does not wait for."""

    def __init__(self, work: Work) -> None:
        self._work, self._finished = work, False
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        self._work()
        self._finished = True

    @property
    def done(self) -> bool:
        """Whether it has ended. Raises InternalError if it failed; the thread has said on standard error how."""
        if self._thread.is_alive():
            return False
        if not self._finished:
            raise InternalError(
                "kernels that were built beside the calls of a compiled graph could not be built"
            )
        return True

    def wait(self) -> None:
        """Return when it has ended."""
        self._thread.join()


class Later:
    """A compiled graph that is compiled again when builds are done that its first compilation did not wait for."""

    def __init__(self, compile_: Compile, module: fx.GraphModule, inputs: Sequence[Any]) -> None:
        self._compile, self._module = compile_, copied(module)
        self._context, self._lock = TracingContext.try_get(), threading.Lock()
        self.jobs: list[Job] = []
        self._left = _MOST
        self._current = self._compiled(module, inputs)

    def _compiled(self, module: fx.GraphModule, inputs: Sequence[Any]) -> Callable[..., Any]:
        self._left -= 1
        self.jobs = jobs = []

        def pend(work: Work) -> None:
            # A backward graph hands over its builds when it is compiled, which is after this.
            if self._left:
                jobs.append(Job(work))

        return self._compile(module, inputs, pend)

    def __call__(self, *args: Any) -> Any:
        """What the graph computes. InternalError if a process that builds kernels has failed."""
        if self.jobs:
            with self._lock:
                if self.jobs and all(job.done for job in self.jobs):
                    again = compiled_late(self._compiled, copied(self._module), args, self._context)
                    self._current = again or self._current
        return self._current(*args)


def copied(module: fx.GraphModule) -> fx.GraphModule:
    """A module with a graph of its own and the same tensors: what compiles a graph may change it."""
    found = fx.GraphModule(module, copy.deepcopy(module.graph))
    found.meta.update(module.meta)
    return found
