"""What hands tasks out and collects results, whoever does the work: the one interface of this room."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from typing import Any, Generic, Protocol, TypeVar

_Task = TypeVar("_Task")
_Result = TypeVar("_Result")

Progress = Callable[[int, int], None]
"""Called with the tasks that are done, and with all."""


def silent(_done: int, _total: int) -> None:
    """Progress that nobody sees."""


def not_kept(_place: int, _result: Any) -> None:
    """Results that nobody wants before all are there."""


class Workers(Protocol):
    """Processes that apply a function to tasks."""

    @property
    def at_once(self) -> int:
        """How many tasks are done at once, at most."""

    def results(
        self,
        function: Callable[[_Task], _Result],
        tasks: Sequence[_Task],
        progress: Progress = silent,
        keep: Callable[[int, _Result], None] = not_kept,
    ) -> list[_Result]:
        """The function's results in the order of the tasks; `function`, tasks and results can be pickled.

        `keep` is called here with a task's place and its result as soon as that is there, so that an interruption
        loses no more than what is under way. Where tasks fail, the error of the first of them in their order is
        raised. What a process that ends has not handed back is done again.
        """


class Future(Protocol):
    """A task under way."""

    def exception(self) -> BaseException | None:
        """What it raised."""

    def result(self) -> Any:
        """What it gave."""

    def cancel(self) -> Any:
        """Give it up, if it has not begun."""


@dataclass(slots=True)
class Gathering(Generic[_Result]):
    """Results by place as tasks end, and errors; those of a kind that says a process was `lost` do not count."""

    total: int
    progress: Progress
    keep: Callable[[int, _Result], None]
    lost: type[BaseException] | tuple[()] = ()
    found: dict[int, _Result] = field(default_factory=dict)
    errors: dict[int, BaseException] = field(default_factory=dict)

    @property
    def left(self) -> list[int]:
        """Places of tasks that have neither a result nor an error."""
        return [place for place in range(self.total) if place not in self.found and place not in self.errors]

    @property
    def settled(self) -> bool:
        """Whether it is known what comes of it all: no task is left, or the first error has none before it."""
        left = self.left
        return not left or (bool(self.errors) and min(self.errors) < left[0])

    def take(self, places: dict[Any, int], ended: Iterable[Any]) -> None:
        """Take results as tasks end, until all is settled; what is not wanted any more is given up."""
        try:
            self.progress(len(self.found), self.total)
            for future in ended:
                error = future.exception()
                if error is None:
                    self.found[places[future]] = future.result()
                    self.keep(places[future], self.found[places[future]])
                    self.progress(len(self.found), self.total)
                elif not isinstance(error, self.lost):
                    self.errors[places[future]] = error
                if self.settled:
                    break
        finally:  # also where progress says that the time is over
            for future in places:
                future.cancel()

    def outcome(self) -> list[_Result]:
        """The results in order. Raises the first error."""
        if self.errors:
            raise self.errors[min(self.errors)]
        return [self.found[place] for place in range(self.total)]
