"""Bulk loads for tests: parts as Arrow streams, and a client that stages, commits and waits."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import httpx
import pyarrow as pa

_DONE_MS = 30_000


def stream(columns: Mapping[str, object], rows_a_batch: int = 65_536, compression: str | None = None) -> bytes:
    """An Arrow stream of these columns."""
    table = pa.table(dict(columns))
    out = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression=compression)
    with pa.ipc.new_stream(out, table.schema, options=options) as writer:
        writer.write_table(table, max_chunksize=rows_a_batch)
    made = out.getvalue().to_pybytes()
    assert isinstance(made, bytes)
    return made


class Loader:
    def __init__(self, url: str, load: str, key: str | None = None) -> None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self.client = httpx.Client(base_url=url, timeout=60, headers=headers)
        self.load = load

    def __enter__(self) -> Loader:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def put(self, body: bytes, batch: int = 0, part: int = 0, attempt: str = "a1", **query: str) -> httpx.Response:
        path = f"/v0/loads/{self.load}/{batch}/{part}"
        return self.client.put(path, params={"attempt": attempt, **query}, content=body)

    def stage(self, columns: Mapping[str, object], batch: int = 0, part: int = 0, attempt: str = "a1") -> str:
        answer = self.put(stream(columns), batch, part, attempt)
        assert answer.status_code == 201, answer.text
        name = answer.json()["staged"]
        assert isinstance(name, str)
        return name

    def try_commit(self, parts: list[str], batch: int = 0, **fields: object) -> httpx.Response:
        return self.client.post(f"/v0/loads/{self.load}/{batch}/commit", json={"parts": parts, **fields})

    def commit(self, parts: list[str], batch: int = 0, **fields: object) -> dict[str, object]:
        answer = self.try_commit(parts, batch, **fields)
        assert answer.status_code == 202, answer.text
        return dict(answer.json())

    def state(self, batch: int = 0, wait_ms: int = 0) -> dict[str, object]:
        answer = self.client.get(f"/v0/loads/{self.load}/{batch}", params={"wait_ms": wait_ms})
        assert answer.status_code == 200, answer.text
        return {name: value for name, value in answer.json().items() if name != "performance"}

    def ended(self, batch: int = 0) -> dict[str, object]:
        """Its state when it is done or has failed."""
        state = self.state(batch, _DONE_MS)
        assert state["state"] in ("done", "failed"), state
        return state

    def run(self, columns: Mapping[str, object], batch: int = 0, **fields: object) -> dict[str, object]:
        """Stages, commits, and waits until it is done."""
        self.commit([self.stage(columns, batch)], batch, **fields)
        state = self.ended(batch)
        assert state["state"] == "done", state
        return state


def error(answer: httpx.Response, status: int) -> dict[str, object]:
    """The error of a refusal with this status."""
    assert answer.status_code == status, answer.text
    found = answer.json()["error"]
    assert isinstance(found, dict)
    return found
