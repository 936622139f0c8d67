"""A client of the HTTP API, over HTTP/1.1 or over cleartext HTTP/2 with prior knowledge."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping
from types import TracebackType

import httpx

from tests.contracts.http.shapes import PERFORMANCE, TEXT, check

Json = dict[str, object]
TIMEOUT_S = 30.0


class Api:
    def __init__(self, port: int, http2: bool = False, key: str | None = None) -> None:
        headers = {} if key is None else {"authorization": f"Bearer {key}"}
        self.port = port
        self.http2 = http2
        self.http = httpx.Client(
            base_url=f"http://127.0.0.1:{port}/v0",
            http1=not http2,
            http2=http2,
            headers=headers,
            timeout=TIMEOUT_S,
            verify=False,  # there is no TLS; reading its certificates would take most of a test's time
        )

    def __enter__(self) -> Api:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.http.close()

    # -- any call

    def ask(
        self, method: str, path: str, body: object = None, status: int = 200, headers: Mapping[str, str] | None = None
    ) -> Json:
        """An answer of this status. `body` None: no body at all."""
        if body is None:
            response = self.http.request(method, path, headers=headers)
        else:
            response = self.http.request(method, path, json=body, headers=headers)
        return parsed(response, status)

    def refused(
        self,
        method: str,
        path: str,
        body: object = None,
        *,
        status: int,
        code: str,
        detail: object = None,
        headers: Mapping[str, str] | None = None,
    ) -> Json:
        """An error of exactly the agreed shape; `detail` None: none is looked for."""
        return refusal(self.ask(method, path, body, status, headers), code, detail)

    # -- the calls that most tests make

    def put(self, topic: str, made: int = 201, /, **config: object) -> Json:
        return self.ask("PUT", f"/topics/{topic}", config, made)

    def write(self, topic: str, *data: object, status: int = 200, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{topic}", {"records": [{"data": one} for one in data], **fields}, status)

    def post(self, topic: str, *records: Mapping[str, object], status: int = 200, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{topic}", {"records": list(records), **fields}, status)

    def diff(self, topic: str, from_seq: int = 0, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{topic}/diff", {"from_seq": from_seq, **fields})

    def state(self, topic: str) -> Json:
        return self.ask("GET", f"/topics/{topic}?touch=false")

    def delete(self, topic: str, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{topic}/delete", fields)

    def router(self, name: str, source: str, dest: str, made: int = 201, /, **fields: object) -> Json:
        return self.ask("PUT", f"/routers/{name}", {"source": source, "dest": dest, **fields}, made)

    def claim(self, queue: str, node: str, max: int = 1, **fields: object) -> list[Json]:
        answer = self.ask("POST", f"/topics/{queue}/claim", {"node": node, "max": max, **fields})
        claimed = rows(answer, "claimed")
        assert answer["count"] == len(claimed)
        return claimed

    def ack(self, queue: str, node: str, *seqs: int, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{queue}/ack", {"node": node, "seqs": list(seqs), **fields})

    def nack(self, queue: str, node: str, *seqs: int, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{queue}/nack", {"node": node, "seqs": list(seqs), **fields})

    def extend(self, queue: str, node: str, *seqs: int, **fields: object) -> Json:
        return self.ask("POST", f"/topics/{queue}/extend", {"node": node, "seqs": list(seqs), **fields})

    def queue(self, name: str) -> Json:
        return part(self.state(name), "queue")


def parsed(response: httpx.Response, status: int) -> Json:
    assert response.status_code == status, f"{response.status_code} instead of {status}: {response.text[:500]}"
    assert response.headers["content-type"].split(";")[0] == "application/json", response.text[:500]
    answer = response.json()
    assert isinstance(answer, dict)
    assert ("error" in answer) == (status >= 400)
    return answer


def refusal(answer: Json, code: str, detail: object = None) -> Json:
    error = part(answer, "error")
    wanted: Json = {"code": code, "message": TEXT}
    if "detail" in error:
        assert isinstance(error["detail"], dict)
        wanted["detail"] = error["detail"] if detail is None else detail
    elif detail is not None:
        raise AssertionError(f"no detail: {error}")
    check(answer, {"error": wanted})
    return part(error, "detail") if "detail" in error else {}


def timed(answer: Json) -> Json:
    """The answer without its performance object, which must be a good one."""
    check(answer.get("performance"), PERFORMANCE, "performance")
    return {name: value for name, value in answer.items() if name != "performance"}


def part(answer: Json, name: str) -> Json:
    found = answer[name]
    assert isinstance(found, dict)
    return found


def rows(answer: Json, name: str) -> list[Json]:
    found = answer[name]
    assert isinstance(found, list)
    assert all(isinstance(one, dict) for one in found)
    return found


def whole(answer: Json, name: str) -> int:
    found = answer[name]
    assert isinstance(found, int)
    return found


def seqs(answer: Json, name: str = "records") -> list[int]:
    return [whole(one, "$seq") for one in rows(answer, name)]


def data(answer: Json, name: str = "records") -> list[object]:
    return [one["data"] for one in rows(answer, name)]


def eventually(condition: Callable[[], bool], seconds: float = 10.0) -> None:
    """For what the clock brings about. The condition must come true in time."""
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it never came true"
        time.sleep(0.02)
