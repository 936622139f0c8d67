"""A client that speaks the API in few words, and fails loudly when an answer is not what was expected."""

from __future__ import annotations

from collections.abc import Mapping
from types import TracebackType

import httpx

KEYS = {
    "all": "k-all",
    "read": "k-read:read",
    "write": "k-write:w",
    "both": "k-both:RW",
    "delete": "k-delete:del",
    "admin": "k-admin:Admin",
    "team": "k-team::team-a|team-b:",
}


class Web:
    def __init__(self, url: str, http2: bool = False) -> None:
        self.client = httpx.Client(base_url=url, http1=not http2, http2=http2, timeout=30)

    def __enter__(self) -> Web:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.client.close()

    def ask(self, method: str, path: str, body: object = None, status: int = 200, **headers: str) -> dict[str, object]:
        """The answer as JSON; it must have this status and, if it is a success, tell its time."""
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        if body is None:
            response = self.client.request(method, path, headers=named)
        else:
            response = self.client.request(method, path, json=body, headers=named)
        assert response.status_code == status, response.text
        assert response.headers["content-type"] == "application/json"
        answer = response.json()
        assert isinstance(answer, dict)
        if status < 400:
            assert number(answer, "performance", "server_total_ms") >= 0
        return answer

    def refused(self, method: str, path: str, body: object = None, *, status: int, **headers: str) -> Refused:
        return Refused(self.ask(method, path, body, status, **headers))

    def put(self, topic: str, status: int = 201, **config: object) -> dict[str, object]:
        return self.ask("PUT", f"/v0/topics/{topic}", config, status)

    def write(self, topic: str, *data: object, status: int = 200, **fields: object) -> dict[str, object]:
        """Writes to a topic that exists."""
        return self.ask("POST", f"/v0/topics/{topic}", {"records": [{"data": one} for one in data], **fields}, status)

    def diff(self, topic: str, **fields: object) -> dict[str, object]:
        return self.ask("POST", f"/v0/topics/{topic}/diff", fields)

    def claim(self, topic: str, node: str, **fields: object) -> list[dict[str, object]]:
        answer = self.ask("POST", f"/v0/topics/{topic}/claim", {"node": node, **fields})
        jobs = listed(answer, "claimed")
        assert answer["count"] == len(jobs)
        return jobs

    def state(self, topic: str) -> dict[str, object]:
        return self.ask("GET", f"/v0/topics/{topic}?touch=false")


class Refused:
    """An error body, which has exactly this shape."""

    def __init__(self, answer: Mapping[str, object]) -> None:
        assert answer.keys() == {"error"}
        error = answer["error"]
        assert isinstance(error, dict)
        assert error.keys() <= {"code", "message", "detail"}
        self.code = error["code"]
        self.message = error["message"]
        assert isinstance(self.message, str)
        assert self.message
        self.detail = error.get("detail")


def number(answer: Mapping[str, object], *path: str) -> float:
    found: object = answer
    for name in path:
        assert isinstance(found, dict)
        found = found[name]
    assert isinstance(found, int | float)
    return found


def part(answer: Mapping[str, object], name: str) -> dict[str, object]:
    found = answer[name]
    assert isinstance(found, dict)
    return found


def listed(answer: Mapping[str, object], name: str) -> list[dict[str, object]]:
    found = answer[name]
    assert isinstance(found, list)
    return found
