"""Where the `esker` command begins: with Ctrl-C, before anything else is imported.

The imports take most of a second, and recovery may take many. Whoever presses Ctrl-C meanwhile gets one line and exit
code 130 instead of a traceback from the middle of it. It is safe to end there at once, as it is to kill a node.
"""

from __future__ import annotations

import os
import signal
from typing import Final

INTERRUPTED: Final = 128 + signal.SIGINT  # the exit code that shells give to a program that Ctrl-C ended


def interrupted(number: int, frame: object) -> None:
    os.write(2, b"esker: interrupted during the start\n")  # not buffered, so it can be written at any moment
    os._exit(INTERRUPTED)  # without waiting for threads of a start that is half done


def end_quietly_on_interrupt() -> None:
    signal.signal(signal.SIGINT, interrupted)


def interrupt_as_usual() -> None:
    """The start is over: Ctrl-C raises KeyboardInterrupt."""
    signal.signal(signal.SIGINT, signal.default_int_handler)


def main() -> None:
    end_quietly_on_interrupt()
    from esker.cli.main import app

    app()
