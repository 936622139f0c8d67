"""A node as a real process, to be killed."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import redis

START_S = 30.0


class NodeProcess:
    """`esker serve` on a free port over `data`. Starting again after `kill` reuses the data."""

    def __init__(self, data: Path, *options: str) -> None:
        self._data = data
        self._options = options
        self._process: subprocess.Popen[bytes] | None = None
        self.port = 0
        self.http_port = 0
        self.said = ""  # what it wrote to standard error until it ended

    def start(self) -> NodeProcess:
        ports = self._data.parent / "ports.json"
        ports.unlink(missing_ok=True)
        self._process = subprocess.Popen(
            [
                sys.executable, "-m", "esker.cli.main", "serve", "--data", str(self._data), "--resp-port", "0",
                "--http-port", "0", "--port-file", str(ports), *self._options,
            ],
            stderr=subprocess.PIPE,
            env={name: value for name, value in os.environ.items() if not name.startswith("ESKER_")},
        )  # fmt: skip
        deadline = time.monotonic() + START_S
        while not ports.exists():
            if self._process.poll() is not None or time.monotonic() > deadline:
                self._process.kill()
                raise RuntimeError(self._process.communicate()[1].decode(errors="replace"))
            time.sleep(0.01)  # the file is the signal; there is nothing to wait on
        bound = json.loads(ports.read_text())
        self.port, self.http_port = bound["resp"], bound["http"]
        return self

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def client(self) -> redis.Redis:
        return redis.Redis(port=self.port, protocol=2)

    def kill(self) -> None:
        """As a power cut would: no handler runs."""
        self._signal(signal.SIGKILL)

    def stop(self, within_s: float = 60.0) -> int:
        return self._signal(signal.SIGTERM, within_s)

    def interrupt(self, within_s: float = 60.0) -> int:
        """As Ctrl-C does."""
        return self._signal(signal.SIGINT, within_s)

    def _signal(self, number: signal.Signals, within_s: float = 60.0) -> int:
        process = self._process
        assert process is not None
        process.send_signal(number)
        self.said = process.communicate(timeout=within_s)[1].decode(errors="replace")
        self._process = None
        return process.returncode

    def __enter__(self) -> NodeProcess:
        return self.start()

    def __exit__(self, *error: object) -> None:
        if self._process is not None:
            self.kill()
