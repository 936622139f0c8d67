"""Progress on the terminal: a line for each stage, with what is done and how fast."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.markup import escape
from rich.progress import BarColumn, ProgressColumn, SpinnerColumn, Task, TaskID, TextColumn, TimeElapsedColumn
from rich.progress import Progress as Bars
from rich.table import Column
from rich.text import Text


class _Amount(ProgressColumn):
    """`120,000 of 200,000 rows, 61,000/s`, as far as it is known."""

    def render(self, task: Task) -> Text:
        unit = str(task.fields.get("unit", ""))
        if not task.fields.get("counted"):
            return Text("")
        of = "" if task.total is None else f" of {int(task.total):,}"
        rate = f", {int(task.speed):,}/s" if task.speed else ""
        return Text(f"{int(task.completed):,}{of} {unit}{rate}", style="progress.download")


class Terminal:
    """A line per stage; the last one moves."""

    def __init__(self, bars: Bars) -> None:
        self._bars = bars
        self._task: TaskID | None = None
        self._total: int | None = None

    def stage(self, title: str, total: int | None = None, unit: str = "rows") -> None:
        self._finish()
        self._total = total
        self._task = self._bars.add_task(escape(title), total=total, unit=unit)

    def advance(self, done: int, total: int | None = None) -> None:
        if self._task is not None:
            self._bars.update(
                self._task, completed=done, total=self._total if total is None else total, counted=bool(done or total)
            )

    def note(self, text: str) -> None:
        self._bars.console.print(escape(text))

    def close(self) -> None:
        self._finish()

    def _finish(self) -> None:
        if self._task is not None:
            done = self._bars.tasks[self._task].completed
            self._bars.update(self._task, total=done or 1, completed=done or 1)


@contextmanager
def terminal(console: Console | None = None) -> Iterator[Terminal]:
    """On standard error, so that results can be piped; nothing moves where nobody looks."""
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description}"),
        BarColumn(24),
        _Amount(Column(no_wrap=True)),
        TimeElapsedColumn(),
    )
    with Bars(*columns, console=console or Console(file=sys.stderr, highlight=False)) as bars:
        shown = Terminal(bars)
        yield shown
        shown.close()
