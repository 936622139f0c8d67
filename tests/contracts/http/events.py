"""A stream of server-sent events, read frame by frame with a real HTTP client."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterator
from typing import NamedTuple

import httpx

from tests.contracts.http.api import Api, Json, parsed, seqs

PATIENCE_S = 5.0


class Frame(NamedTuple):
    """An event; or a comment, whose kind is ':'; or the line that sets the time to retry, whose kind is 'retry'."""

    kind: str
    data: Json
    id: str | None
    text: str


class Events:
    """Its own connection, in the version of HTTP that `api` speaks."""

    def __init__(self, api: Api, path: str, last_id: str | None = None, key: str | None = None) -> None:
        headers = {"accept": "text/event-stream"}
        if last_id is not None:
            headers["last-event-id"] = last_id
        if key is not None:
            headers["authorization"] = f"Bearer {key}"
        http2 = api.http2
        self._client = httpx.Client(http1=not http2, http2=http2, timeout=PATIENCE_S, verify=False)
        request = self._client.build_request("GET", f"http://127.0.0.1:{api.port}/v0{path}", headers=headers)
        self.response = self._client.send(request, stream=True)
        if self.response.status_code != 200:
            self.response.read()
        self._frames = self._read()

    def __enter__(self) -> Events:
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        self.response.close()
        self._client.close()

    def refused(self, status: int) -> Json:
        return parsed(self.response, status)

    def _read(self) -> Iterator[Frame]:
        lines: list[str] = []
        for line in self.response.iter_lines():
            if line:
                lines.append(line)
            elif lines:
                yield _frame(lines)
                lines = []

    def any(self) -> Frame | None:
        """The next frame of any kind; None at the end."""
        return next(self._frames, None)

    def next(self, kind: str) -> Frame:
        """The next event, which must be of this kind; comments and the retry line are passed over."""
        for frame in self._frames:
            if frame.kind not in (":", "retry"):
                assert frame.kind == kind, frame
                return frame
        raise AssertionError(f"the stream has ended; {kind} was expected")

    def records(self, count: int) -> list[int]:
        """The seqs of the next `count` records."""
        found: list[int] = []
        while len(found) < count:
            found += seqs(self.next("record").data)
        assert len(found) == count
        return found

    def ends(self) -> bool:
        return all(frame.kind in (":", "retry") for frame in self._frames)


def _frame(lines: list[str]) -> Frame:
    text = "\n".join(lines)
    if all(line.startswith(":") for line in lines):
        return Frame(":", {}, None, text)
    fields: dict[str, str] = {}
    for line in lines:
        name, _, value = line.partition(":")
        fields[name] = fields.get(name, "") + value.removeprefix(" ")
    data = json.loads(fields["data"]) if "data" in fields else {}
    return Frame(fields.get("event", "retry" if "retry" in fields else "message"), data, fields.get("id"), text)


def cursor_of(frame: Frame) -> dict[str, int]:
    """What an id says: base64url of a JSON map of topics to seqs, without padding."""
    assert frame.id is not None
    assert "=" not in frame.id
    places = json.loads(base64.urlsafe_b64decode(frame.id + "=" * (-len(frame.id) % 4)))
    assert isinstance(places, dict)
    return places


def id_of(places: dict[str, int]) -> str:
    return base64.urlsafe_b64encode(json.dumps(places).encode()).decode().rstrip("=")
