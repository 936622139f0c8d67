"""The programs that are measured: each a process on a free loopback port with a data folder of its own.

A peer is a context manager: whatever happens inside, its process is ended by its pid. Each starts in a session of its
own, so that an interrupt at the terminal reaches only the benchmark, which then stops its peers in order.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Self

import msgspec
import nats
from nats.js.api import ConsumerConfig, RetentionPolicy, StorageType, StreamConfig

from bench import http
from bench.talk import UnexpectedAnswer, resp

START_SECONDS = 120  # a node with millions of jobs may take a while to recover; the restart measure judges that
STOP_SECONDS = 60
POLL_SECONDS = 0.005
PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK")
BUSY_SHARE = 0.05  # of one core: below this a process is at rest


class PeerFailed(Exception):
    """A peer is missing, did not start or did not answer; the message says which and what it printed."""


class Peer:
    """A running server process. `port` is where it listens."""

    name = "peer"

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.port = 0
        self.process: subprocess.Popen[bytes] | None = None
        folder.mkdir(parents=True, exist_ok=True)

    def command(self) -> Sequence[str]:
        raise PeerFailed(f"{type(self).__name__} names no command")

    def ready(self) -> bool:
        """Whether it answers yet. Called again and again until it does."""
        return self.ask(resp(b"PING")).startswith(b"+PONG")

    def start(self) -> None:
        command = list(self.command())
        with (self.folder / "output").open("ab") as output:
            self.process = subprocess.Popen(
                command, stdin=subprocess.DEVNULL, stdout=output, stderr=output, cwd=self.folder, start_new_session=True
            )
        self.wait_until(self.ready, "answer")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        """Ends the process and waits for its end; one that ignores a polite request is killed."""
        if self.process is None:
            return
        self.process.send_signal(how)
        try:
            self.process.wait(STOP_SECONDS)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        self.process = None

    def wait_until(self, met: Callable[[], bool], what: str) -> None:
        """Asks `met` until it says yes. A refused connection is a no."""
        deadline = time.monotonic() + START_SECONDS
        while time.monotonic() < deadline:
            if self.process is not None and self.process.poll() is not None:
                raise PeerFailed(f"{self.name} ended with code {self.process.returncode}: {self.said()}")
            with contextlib.suppress(OSError):
                if met():
                    return
            time.sleep(POLL_SECONDS)
        raise PeerFailed(f"{self.name} did not {what} within {START_SECONDS} s: {self.said()}")

    def ask(self, request: bytes) -> bytes:
        """One request on a connection of its own, and the first of what comes back."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(request)
            return connection.recv(65536)

    def connect(self) -> socket.socket:
        connection = socket.create_connection(("127.0.0.1", self.port), timeout=30)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return connection

    def said(self) -> str:
        path = self.folder / "output"
        return path.read_text(errors="replace")[-1000:].strip() if path.exists() else ""

    @property
    def pid(self) -> int | None:
        return None if self.process is None else self.process.pid

    def resident_bytes(self) -> int | None:
        """Resident memory, from the kernel; None when the process is not ours."""
        if self.pid is None:
            return None
        return int(Path(f"/proc/{self.pid}/statm").read_text().split()[1]) * PAGE_BYTES

    def rest(self, seconds_max: float) -> None:
        """Waits until the process is at rest: what it does after one load would otherwise fall into the next figure."""
        deadline = time.monotonic() + seconds_max
        while self.pid is not None and time.monotonic() < deadline:
            before = self.processor_seconds()
            time.sleep(1)
            if self.processor_seconds() - before < BUSY_SHARE:
                return

    def processor_seconds(self) -> float:
        """What the process has used so far, in user mode and in the kernel."""
        fields = Path(f"/proc/{self.pid}/stat").read_text().rpartition(")")[2].split()
        return (int(fields[11]) + int(fields[12])) / TICKS_PER_SECOND

    def __enter__(self) -> Self:
        try:
            self.start()
        except BaseException:
            self.stop(signal.SIGKILL)
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()
        shutil.rmtree(self.folder, ignore_errors=True)


class Redis(Peer):
    """By default every write is synced before its reply; no snapshots and no rewrite of the file come between.

    `sync` is a value of `appendfsync`, or `off`: no file at all.
    """

    name = "Redis"

    def __init__(self, folder: Path, sync: str = "always") -> None:
        super().__init__(folder)
        keeping = ("no", "no") if sync == "off" else ("yes", sync)
        self._keeping = ["--appendonly", keeping[0], "--appendfsync", keeping[1]]

    def command(self) -> Sequence[str]:
        self.port = free_port()
        return [
            program("redis-server"), "--bind", "127.0.0.1", "--port", str(self.port), "--dir", str(self.folder),
            "--save", "", *self._keeping, "--auto-aof-rewrite-percentage", "0",
        ]  # fmt: skip


class Beanstalkd(Peer):
    """Every write to its binlog is synced."""

    name = "beanstalkd"

    def command(self) -> Sequence[str]:
        self.port = free_port()
        return [
            program("beanstalkd"), "-l", "127.0.0.1", "-p", str(self.port), "-b", str(self.folder), "-f0",
        ]  # fmt: skip

    def ready(self) -> bool:
        return self.ask(b"stats\r\n").startswith(b"OK")


class JetStream(Peer):
    """NATS with JetStream. `synced`: every message is synced before its ack; else as it comes, every two minutes."""

    name = "JetStream"

    def __init__(self, folder: Path, synced: bool) -> None:
        super().__init__(folder)
        self._synced = synced

    def command(self) -> Sequence[str]:
        self.port = free_port()
        sync = ", sync_interval: always" if self._synced else ""
        config = self.folder / "nats.conf"
        config.write_text(f'listen: 127.0.0.1:{self.port}\njetstream {{ store_dir: "{self.folder}/data"{sync} }}\n')
        return [program("nats-server"), "--config", str(config)]

    def ready(self) -> bool:
        return self.ask(b"").startswith(b"INFO") and "Server is ready" in self.said()

    def add_stream(self, name: str, *, in_memory: bool = False, worked: str = "") -> None:
        """A stream of one subject, its name. `worked`: a work queue with a pull consumer of this name."""
        asyncio.run(self._add_stream(name, in_memory, worked))

    async def _add_stream(self, name: str, in_memory: bool, worked: str) -> None:
        client = await nats.connect(f"nats://127.0.0.1:{self.port}")
        try:
            stream = StreamConfig(
                name=name,
                subjects=[name],
                storage=StorageType.MEMORY if in_memory else StorageType.FILE,
                retention=RetentionPolicy.WORK_QUEUE if worked else RetentionPolicy.LIMITS,
                allow_direct=True,
                allow_atomic=True,
            )
            await client.jetstream().add_stream(stream)
            if worked:
                await client.jetstream().add_consumer(name, ConsumerConfig(durable_name=worked, max_ack_pending=10_000))
        finally:
            await client.close()


class Canned(Peer):
    """Answers claims and acks with the same bytes again and again, and does nothing else."""

    name = "canned answers"

    def __init__(self, folder: Path, batch: int) -> None:
        super().__init__(folder)
        self._batch = batch

    def start(self) -> None:
        self.port = free_port()
        self.process = subprocess.Popen(
            [sys.executable, "-m", "bench.canned", str(self.port), str(self._batch)],
            stdin=subprocess.DEVNULL, cwd=Path(__file__).resolve().parents[1], start_new_session=True,
        )  # fmt: skip
        self.wait_until(lambda: self.ask(b"POST /claim ").startswith(b"HTTP/1.1 200"), "answer")


class Ports(msgspec.Struct):
    """What the port file says; -1 where a front is off."""

    resp: int
    http: int
    pid: int


class Esker(Peer):
    """A node with only its Redis front. `executable` may name another build, to compare two of them."""

    name = "Esker"
    front = "resp"

    def __init__(self, folder: Path, executable: Path | None) -> None:
        super().__init__(folder)
        self._executable = executable or Path(sys.executable).with_name("esker")
        self._port_file = folder / "ports.json"

    def command(self) -> Sequence[str]:
        if not self._executable.exists():
            raise PeerFailed(f"{self._executable} is missing; run `make setup`")
        self._port_file.unlink(missing_ok=True)  # a restarted node binds anew
        self.port = 0
        fronts = [
            part
            for front in ("resp", "http", "grpc", "dashboard")
            for part in (f"--{front}-port", "0" if front == self.front else "-1")
        ]
        return [
            str(self._executable), "serve", "--data", str(self.folder / "data"), "--host", "127.0.0.1",
            *fronts, "--port-file", str(self._port_file),
        ]  # fmt: skip

    def ready(self) -> bool:
        return self._bound() and super().ready()

    def _bound(self) -> bool:
        if not self.port and self._port_file.exists():
            with contextlib.suppress(msgspec.DecodeError):  # read in the middle of its writing: ask again
                ports = msgspec.json.decode(self._port_file.read_bytes(), type=Ports)
                self.port = ports.http if self.front == "http" else ports.resp
        return self.port != 0

    @property
    def resp_port(self) -> int:
        return self.port

    def length(self, queue: str) -> int:
        """Jobs waiting in the queue; -1 while the node refuses to say."""
        answer = self.ask(resp(b"QLEN", queue.encode()))
        return int(answer[1:]) if answer.startswith(b":") else -1

    def info(self) -> dict[str, str]:
        """INFO as a dict of its `name:value` lines."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            connection.sendall(resp(b"INFO"))
            answer = connection.recv(65536)
            if not answer.startswith(b"$"):
                return {}
            head, _, _ = answer.partition(b"\r\n")
            while len(answer) < len(head) + 2 + int(head[1:]):
                answer += connection.recv(65536)
        lines = answer.decode().split("\r\n")[1:]
        return dict(line.split(":", 1) for line in lines if ":" in line)


class Held(msgspec.Struct):
    """Of a topic's state."""

    head_seq: int
    count: int


class Wal(msgspec.Struct):
    """What the node counted of its journal since it started."""

    frames_total: int
    batches_total: int
    fsyncs_total: int
    bytes_written_total: int


class _Metrics(msgspec.Struct):
    wal: Wal


class EskerHttp(Esker):
    """A node with only its HTTP front."""

    front = "http"

    def ready(self) -> bool:
        asked = b"GET /v0/ready HTTP/1.1\r\nhost: localhost\r\n\r\n"
        return self._bound() and self.ask(asked).startswith(b"HTTP/1.1 200")

    def call(self, method: str, path: str, body: object = None) -> bytes:
        """One request that is not timed; what is no success is this peer's failure."""
        try:
            return http.call(self.port, method, path, body)
        except UnexpectedAnswer as answer:
            raise PeerFailed(f"{self.name}: {answer}") from answer

    def put_topic(self, topic: str, **config: object) -> None:
        self.call("PUT", f"/v0/topics/{topic}", config)

    def held(self, topic: str) -> Held:
        return msgspec.json.decode(self.call("GET", f"/v0/topics/{topic}?touch=false"), type=Held)

    def wal(self) -> Wal:
        return msgspec.json.decode(self.call("GET", "/v0/metrics"), type=_Metrics).wal


class EskerWhole(EskerHttp):
    """A node with both fronts, and perhaps an archive into which records go as soon as they may."""

    def __init__(self, folder: Path, executable: Path | None, archive: bool) -> None:
        super().__init__(folder, executable)
        self._archive = archive

    def command(self) -> Sequence[str]:
        command = list(super().command())
        command[command.index("--resp-port") + 1] = "0"
        if self._archive:
            command += ["--archive", str(self.folder / "archive")]
            command += ["--set", "archive_hot_blocks=1", "--set", "archive_after_s=0"]
        return command

    @property
    def resp_port(self) -> int:
        return msgspec.json.decode(self._port_file.read_bytes(), type=Ports).resp

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    def archived(self) -> int:
        """Records that have left for the archive."""
        facts = msgspec.json.decode(self.call("POST", "/v0/bulk/plan", {"pattern": ".*"}), type=_Plan)
        return sum(file.rows for topic in facts.topics for part in topic.partitions for file in part.files)


class _File(msgspec.Struct):
    rows: int


class _Partition(msgspec.Struct):
    files: list[_File]


class _Topic(msgspec.Struct):
    partitions: list[_Partition]


class _Plan(msgspec.Struct):
    topics: list[_Topic]


class AttachedEsker(Esker):
    """A node somebody else runs: neither started nor stopped here, its memory not known, its queues not empty."""

    name = "Esker (attached)"

    def __init__(self, folder: Path, port: int) -> None:
        super().__init__(folder, None)
        self.port = port

    def start(self) -> None:
        self.wait_until(lambda: self.ask(resp(b"PING")).startswith(b"+PONG"), "answer")

    def stop(self, how: signal.Signals = signal.SIGTERM) -> None:
        del how  # not ours to stop


class Bench(msgspec.Struct, frozen=True):
    """What the measures share: where data goes, which Esker, how many rounds, how large."""

    folder: Path
    rounds: int
    quick: bool
    executable: Path | None = None
    attach_port: int | None = None

    def esker(self) -> Esker:
        if self.attach_port is not None:
            return AttachedEsker(self._fresh("esker"), self.attach_port)
        return Esker(self._fresh("esker"), self.executable)

    def esker_whole(self, *, archive: bool = False) -> EskerWhole:
        return EskerWhole(self._fresh("esker"), self.executable, archive)

    def esker_http(self) -> EskerHttp:
        return EskerHttp(self._fresh("esker"), self.executable)

    def redis(self, sync: str = "always") -> Redis:
        return Redis(self._fresh("redis"), sync)

    def jetstream(self, *, synced: bool) -> JetStream:
        return JetStream(self._fresh("jetstream"), synced)

    def canned(self, batch: int) -> Canned:
        return Canned(self._fresh("canned"), batch)

    def beanstalkd(self) -> Beanstalkd:
        return Beanstalkd(self._fresh("beanstalkd"))

    def _fresh(self, name: str) -> Path:
        return self.folder / f"{name}-{time.monotonic_ns()}"


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


def program(name: str) -> str:
    """Where it is: of the system, or beside this Python, where `make setup` puts nats-server."""
    path = shutil.which(name) or shutil.which(name, path=str(Path(sys.executable).parent))
    if path is None:
        raise PeerFailed(
            f"{name} is not installed; on Debian: apt-get install redis-server redis-tools beanstalkd; "
            "nats-server comes with `make setup`"
        )
    return path


@contextlib.contextmanager
def all_stopped_on_signal() -> Iterator[None]:
    """Turns SIGTERM into an exit that unwinds, so that every peer's `with` still ends it."""

    def leave(number: int, _frame: object) -> None:
        raise SystemExit(128 + number)

    before = signal.signal(signal.SIGTERM, leave)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)
