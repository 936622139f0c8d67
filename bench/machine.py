"""What the figures were measured on: enough to judge them, nothing that names the machine."""

from __future__ import annotations

import os
import platform
import subprocess
import tempfile
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import msgspec

from bench.figures import Latency, latency_of
from bench.peers import program

PROBE_WRITES = 300
PROBE_BYTES = 4096
PACKAGES = ("esker", "uvloop", "granian", "hiredis", "msgspec", "rocksdict")


class Machine(msgspec.Struct, frozen=True):
    """`sync` is the time of one 4 KiB append with fdatasync in the data folder: the floor under every durable reply."""

    cores: int
    processor: str
    memory_gib: float
    kernel: str
    python: str
    file_system: str
    sync: Latency
    versions: dict[str, str]


def describe(folder: Path) -> Machine:
    return Machine(
        cores=len(os.sched_getaffinity(0)),
        processor=_field(Path("/proc/cpuinfo"), "model name"),
        memory_gib=round(int(_field(Path("/proc/meminfo"), "MemTotal").split()[0]) / 2**20, 1),
        kernel=platform.release(),
        python=platform.python_version(),
        file_system=_file_system(folder),
        sync=sync_latency(folder),
        versions=_versions(),
    )


def sync_latency(folder: Path) -> Latency:
    waits = []
    with tempfile.NamedTemporaryFile(dir=folder, prefix="sync-probe-") as file:
        block = os.urandom(PROBE_BYTES)
        for _ in range(PROBE_WRITES):
            began = time.perf_counter()
            os.write(file.fileno(), block)
            os.fdatasync(file.fileno())
            waits.append(time.perf_counter() - began)
    return latency_of(waits)


def _versions() -> dict[str, str]:
    found = {
        "redis-server": _said("redis-server", "--version"),
        "beanstalkd": _said("beanstalkd", "-v"),
        "nats-server": _said("nats-server", "--version"),
    }
    for package in PACKAGES:
        try:
            found[package] = version(package)
        except PackageNotFoundError:
            found[package] = "not installed"
    return found


def _said(name: str, option: str) -> str:
    """The version among the words a program prints; a peer's own failure to start tells more than this could."""
    done = subprocess.run([program(name), option], capture_output=True, text=True, timeout=10, check=True)
    words = [word.lstrip("v=") for word in done.stdout.split()]
    return next((word for word in words if word[:1].isdigit()), done.stdout.strip())


def _field(path: Path, name: str) -> str:
    for line in path.read_text().splitlines():
        if line.startswith(name):
            return line.partition(":")[2].strip()
    return "unknown"


def _file_system(folder: Path) -> str:
    """The type of the file system below `folder`: the mount with the longest matching path."""
    target = folder.resolve()
    mounts = [line.split() for line in Path("/proc/mounts").read_text().splitlines()]
    around = [mount for mount in mounts if target.is_relative_to(mount[1])]
    return max(around, key=lambda mount: len(mount[1]))[2] if around else "unknown"
