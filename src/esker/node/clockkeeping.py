"""What tells a long stop from a wrong clock: a note of the time beside the machine's own count, and who reads it.

Once a minute, and at the end, the node writes down its time, how long the machine had been running then, and which run
of the machine that was. A start on the same run knows from it how much time has passed, whatever the wall clock says.
After a restart of the machine, or on another, only the time of the note is known.

Losing the note is harmless: the journal's last time is known without it.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import msgspec
import structlog

from esker.node.clock import Clock

_LOOK_S = 1.0
_NOTE_LOOKS = 60  # looks between two notes
_PROC = Path("/proc")

_diagnostics = structlog.get_logger("esker.node")


class Note(msgspec.Struct, frozen=True):
    """`run` names a run of the machine; empty where the system has no such name."""

    time_ms: int
    run: str
    uptime_ms: int


def machine_run(proc: Path = _PROC) -> tuple[str, int]:
    """Which run of the machine this is, and for how many ms it has lasted. From files, which follow no wall clock."""
    try:
        run = (proc / "sys/kernel/random/boot_id").read_text().strip()
        return run, int(float((proc / "uptime").read_text().split()[0]) * 1000)
    except OSError:
        return "", 0  # not Linux: nothing but the wall clock tells


def read_note(file: Path) -> Note | None:
    """None where there is none that can be understood."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Note)
    except (FileNotFoundError, msgspec.MsgspecError):
        return None


def started_clock(file: Path, last_ms: int, jump_ms_max: int) -> Clock:
    """The clock of a node whose journal ends at `last_ms`."""
    note = read_note(file)
    if note is None:
        return Clock(last_ms, jump_ms_max=jump_ms_max)
    run, uptime_ms = machine_run()
    expected_ms = note.time_ms + uptime_ms - note.uptime_ms if run and run == note.run else None
    return Clock(max(last_ms, note.time_ms), expected_ms=expected_ms, jump_ms_max=jump_ms_max)


class ClockKeeper:
    """Writes the notes, and reports when time is held and when no longer."""

    def __init__(self, file: Path, clock: Clock) -> None:
        self._file = file
        self._clock = clock
        self._loop = asyncio.get_running_loop()
        self._held = False
        self._looks = 0
        self._look()

    def _look(self) -> None:
        self._timer = self._loop.call_later(_LOOK_S, self._look)
        self.report()
        if self._looks % _NOTE_LOOKS == 0:
            self._write()
        self._looks += 1

    def report(self) -> None:
        held = self._clock.held
        if held != self._held:
            self._held = held
            if held:
                _diagnostics.warning(
                    "the wall clock is not believed: time is held, nothing expires by it",
                    wall_clock_ahead_s=self._clock.drift_ms // 1000,
                    remedy="set the clock right; or confirm it: CONFIG SET clock-jump-max 0, --set clock_jump_max_s=0",
                )
            else:
                _diagnostics.info("the wall clock is believed again")

    def _write(self) -> None:
        note = Note(self._clock.now_ms(), *machine_run())
        fresh = self._file.with_suffix(".new")
        try:
            fresh.write_bytes(msgspec.json.encode(note))
            fresh.rename(self._file)
        except OSError as error:
            _diagnostics.warning("the time could not be noted", file=str(self._file), why=error.strerror)

    def close(self) -> None:
        self._timer.cancel()
        self._write()
