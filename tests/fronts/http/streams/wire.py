"""Clients that hide nothing: an API of plain requests, and a stream of server-sent events read frame by frame."""

from __future__ import annotations

import json
import socket
import time
from types import TracebackType
from typing import NamedTuple

import httpx

Json = dict[str, "Value"]
Value = None | bool | int | float | str | list["Value"] | Json
TIMEOUT_S = 20.0


class Api:
    """Requests over HTTP/1.1. `key` is sent as a bearer token."""

    def __init__(self, port: int, key: str | None = None) -> None:
        self.port = port
        self.key = key
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self._client = httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=TIMEOUT_S)

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._client.close()

    def __call__(self, method: str, path: str, body: object = None, status: int | None = 200) -> Json:
        response = self._client.request(method, path, json=body)
        assert status is None or response.status_code == status, (response.status_code, response.text)
        found: Json = response.json()
        return found

    def put(self, topic: str, **config: object) -> None:
        self("PUT", f"/v0/topics/{topic}", config, status=None)

    def write(self, topic: str, *data: object, **fields: object) -> Json:
        body = {"records": [{"data": one} for one in data], **fields}
        return self("POST", f"/v0/topics/{topic}", body, status=None)

    def watch(self, topics: dict[str, object], **fields: object) -> str:
        return str(self("POST", "/v0/watch", {"topics": topics, **fields})["wid"])

    def ack(self, queue: str, node: str, *seqs: int) -> Json:
        return self("POST", f"/v0/topics/{queue}/ack", {"node": node, "seqs": list(seqs)})

    def state(self, topic: str) -> Json:
        return self("GET", f"/v0/topics/{topic}?touch=false")


class Frame(NamedTuple):
    """One event, or a comment (then `event` is ':'), or the retry line."""

    event: str
    data: Json
    id: str | None
    text: str


class Events:
    """A stream, read only when asked to. Its frames are told apart by empty lines, as the standard says."""

    def __init__(
        self, port: int, path: str, last_id: str | None = None, key: str | None = None, receive_bytes: int = 0
    ) -> None:
        self.socket = socket.socket()
        if receive_bytes:
            self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_bytes)
        self.socket.settimeout(TIMEOUT_S)
        self.socket.connect(("127.0.0.1", port))
        lines = [f"GET {path} HTTP/1.1", "host: localhost", "accept: text/event-stream"]
        if last_id is not None:
            lines.append(f"last-event-id: {last_id}")
        if key is not None:
            lines.append(f"authorization: Bearer {key}")
        self.socket.sendall("\r\n".join([*lines, "", ""]).encode())
        self._file = self.socket.makefile("rb")
        self.status = int(self._file.readline().split()[1])
        self.headers: dict[str, str] = {}
        while (line := self._file.readline().decode().strip()) != "":
            name, _, value = line.partition(":")
            self.headers[name.lower()] = value.strip()
        self._text = ""

    def __enter__(self) -> Events:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._file.close()
        self.socket.close()

    def _chunk(self) -> bool:
        """Reads one more chunk; whether there was one."""
        line = self._file.readline()
        size = int(line, 16) if line.strip() else 0
        if not size:
            return False
        self._text += self._file.read(size).decode()
        self._file.readline()
        return True

    def frame(self) -> Frame | None:
        """The next frame, whatever it is; None at the end of the stream."""
        while "\n\n" not in self._text:
            if not self._chunk():
                return None
        text, _, self._text = self._text.partition("\n\n")
        if text.startswith(":"):
            return Frame(":", {}, None, text)
        fields = dict(line.split(": ", 1) for line in text.split("\n"))
        data = json.loads(fields["data"]) if "data" in fields else {}
        return Frame(fields.get("event", "retry"), data, fields.get("id"), text)

    def next(self, event: str | None = None) -> Frame:
        """The next event that is neither a heartbeat nor the retry line; `event`: it must be of this kind."""
        while (found := self.frame()) is not None:
            if found.event not in (":", "retry"):
                assert event is None or found.event == event, found
                return found
        raise EOFError("the stream has ended")

    def seqs(self, count: int) -> list[int]:
        """The seqs of the next `count` records, which may come in several frames."""
        found: list[int] = []
        while len(found) < count:
            frame = self.next()
            if frame.event == "record":
                found += seqs_of(frame)
        return found

    def ended(self) -> bool:
        """Whether the server has nothing more to say."""
        while self.frame() is not None:
            continue
        return True

    def silent(self, seconds: float = 0.2) -> bool:
        """Whether nothing comes for a while."""
        self.socket.settimeout(seconds)
        try:
            return self.socket.recv(1, socket.MSG_PEEK) == b"never"
        except TimeoutError:
            return True
        finally:
            self.socket.settimeout(TIMEOUT_S)


def work_path(queue: str, **query: object) -> str:
    path = "/v0/topics/q/work".replace("/q/", f"/{queue}/")
    return f"{path}?{'&'.join(f'{name}={value}' for name, value in query.items())}"


def seqs_of(frame: Frame) -> list[int]:
    records = frame.data["records"]
    assert isinstance(records, list)
    return [record["$seq"] for record in records if isinstance(record, dict) and isinstance(record["$seq"], int)]


def eventually(condition: object, seconds: float = 10.0) -> None:
    """Waits for what another process of the broker does in its own time."""
    assert callable(condition)
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.01)
