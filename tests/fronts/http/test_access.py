"""Who may do what over HTTP: keys, scopes, prefixes."""

from __future__ import annotations

import httpx
import pytest

from esker.errors import SettingsError
from esker.fronts.access import EVERYTHING, KeyRing, Scope
from esker.testing.broker import Broker
from tests.fronts.http.web import Refused

WRITE = {"records": [{"data": 1}]}
SEQS = {"node": "w", "seqs": [1], "lease_ms": 1000}
ROUTER = {"source": "a", "dest": "b"}

NEEDS: list[tuple[str, str, object, Scope]] = [
    ("GET", "/v0/topics", None, Scope.READ),
    ("GET", "/v0/topics/t", None, Scope.READ),
    ("POST", "/v0/topics/t/diff", {}, Scope.READ),
    ("GET", "/v0/routers", None, Scope.READ),
    ("GET", "/v0/routers/r", None, Scope.READ),
    ("POST", "/v0/watch", {"topics": {"t": {}}}, Scope.READ),
    ("GET", "/v0/metrics", None, Scope.READ),
    ("GET", "/metrics", None, Scope.READ),
    ("POST", "/v0/topics/t", WRITE, Scope.WRITE),
    ("POST", "/v0/topics/t/ack", SEQS, Scope.WRITE),
    ("POST", "/v0/topics/t/nack", SEQS, Scope.WRITE),
    ("POST", "/v0/topics/t/extend", SEQS, Scope.WRITE),
    ("POST", "/v0/topics/t/unheard-of", {}, Scope.WRITE),
    ("POST", "/v0/topics/t/claim", {"node": "w"}, Scope.READ | Scope.WRITE),
    ("DELETE", "/v0/topics/absent", None, Scope.DELETE),
    ("DELETE", "/v0/routers/absent", None, Scope.DELETE),
    ("POST", "/v0/topics/t/delete", {"before_seq": 1}, Scope.DELETE),
    ("PUT", "/v0/topics/t", {}, Scope.ADMIN),
    ("PUT", "/v0/routers/r", ROUTER, Scope.ADMIN),
]
HAVE = {
    "k-all": EVERYTHING, "k-read": Scope.READ, "k-write": Scope.WRITE, "k-both": Scope.READ | Scope.WRITE,
    "k-delete": Scope.DELETE, "k-admin": Scope.ADMIN,
}  # fmt: skip


def _ask(
    client: httpx.Client, key: str | None, method: str, path: str, body: object = None, **query: str
) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    if body is None:
        return client.request(method, path, headers=headers, params=query)
    return client.request(method, path, headers=headers, params=query, json=body)


def _refused(response: httpx.Response, status: int) -> Refused:
    assert response.status_code == status, response.text
    return Refused(response.json())


@pytest.mark.parametrize(("method", "path", "body", "needs"), NEEDS)
def test_every_route_wants_its_scopes(
    guarded: httpx.Client, method: str, path: str, body: object, needs: Scope
) -> None:
    assert _refused(_ask(guarded, None, method, path, body), 401).code == "unauthorized"
    for key, scopes in HAVE.items():
        response = _ask(guarded, key, method, path, body)
        if needs & scopes == needs:
            assert response.status_code not in (401, 403), f"{key}: {response.text}"
        else:
            assert _refused(response, 403).code == "forbidden", key


@pytest.mark.parametrize(
    "header", ["", "k-all", "Basic k-all", "Bearer", "Bearer k-al", "Bearer k-all:read", "Bearer k-read:read"]
)
def test_only_a_known_key_after_the_word_bearer_opens(guarded: httpx.Client, header: str) -> None:
    response = guarded.get("/v0/topics", headers={"authorization": header})
    assert _refused(response, 401).code == "unauthorized"


def test_the_word_bearer_is_known_in_any_case(guarded: httpx.Client) -> None:
    assert guarded.get("/v0/topics", headers={"authorization": "bearer k-all"}).status_code == 200


def test_a_key_in_the_query_opens_only_streams(guarded: httpx.Client) -> None:
    assert _refused(_ask(guarded, None, "GET", "/v0/topics", token="k-all"), 401).code == "unauthorized"
    told = _ask(guarded, None, "GET", "/v0/topics/absent/work", token="k-all", node="w")
    assert _refused(told, 404).code == "topic_not_found"
    wrong = _ask(guarded, None, "GET", "/v0/topics/absent/work", token="no", node="w")
    assert _refused(wrong, 401).code == "unauthorized"


def test_probes_are_open_unless_they_are_told_not_to_be(guarded: httpx.Client) -> None:
    for path in ("/v0/health", "/healthz", "/v0/ready", "/readyz", "/openapi.json", "/docs"):
        assert guarded.get(path).status_code == 200
    with Broker(api_keys="k:r", probe_auth="1") as broker, httpx.Client(base_url=broker.http_url) as client:
        for path in ("/v0/health", "/readyz"):
            assert _refused(client.get(path), 401).code == "unauthorized"
            assert _ask(client, "k", "GET", path).status_code == 200


def test_a_prefix_bounds_every_name(guarded: httpx.Client) -> None:
    for name in ("team-a.x", "team-b:y"):
        assert _ask(guarded, "k-team", "PUT", f"/v0/topics/{name}", {}).status_code in (200, 201)
    for method, path, body in [
        ("PUT", "/v0/topics/team-c", {}),
        ("GET", "/v0/topics/other", None),
        ("POST", "/v0/topics/other/diff", {}),
        ("GET", "/v0/routers/other", None),
        ("PUT", "/v0/routers/other", {"source": "team-a1", "dest": "team-a2"}),
    ]:
        refused = _refused(_ask(guarded, "k-team", method, path, body), 403)
        assert refused.code == "forbidden"
        assert refused.detail is None
    for body, topic in [
        ({"source": "other", "dest": "team-a2"}, "other"),
        ({"source": "team-a1", "dest": "other"}, "other"),
    ]:
        refused = _refused(_ask(guarded, "k-team", "PUT", "/v0/routers/team-a.r", body), 403)
        assert refused.detail == {"topic": topic}
    dead = _ask(guarded, "k-team", "PUT", "/v0/topics/team-a.q", {"dead_letter": "other"})
    assert _refused(dead, 403).detail == {"topic": "other"}


def test_lists_show_only_what_a_key_reaches(guarded: httpx.Client) -> None:
    for name in ("team-a.1", "mine", "team-b:2"):
        _ask(guarded, "k-all", "PUT", f"/v0/topics/{name}", {})
    for name, source, dest in [
        ("team-a.ok", "team-a.s", "team-a.d"),
        ("team-a.half", "team-a.s", "elsewhere"),
        ("foreign", "team-a.s", "team-a.e"),
    ]:
        made = _ask(guarded, "k-all", "PUT", f"/v0/routers/{name}", {"source": source, "dest": dest})
        assert made.status_code == 201
    seen: list[str] = []
    cursor: dict[str, str] = {}
    while True:
        page = _ask(guarded, "k-team", "GET", "/v0/topics", page_size="1", **cursor).json()
        seen += [one["topic"] for one in page["topics"]]
        if "next_cursor" not in page:
            break
        cursor = {"cursor": page["next_cursor"]}
    assert {"team-a.1", "team-b:2"} <= set(seen)
    assert all(name.startswith(("team-a", "team-b:")) for name in seen)
    routers = _ask(guarded, "k-team", "GET", "/v0/routers").json()["routers"]
    assert [one["router"] for one in routers] == ["team-a.ok"]
    assert _refused(_ask(guarded, "k-team", "GET", "/v0/routers/team-a.half"), 403).code == "forbidden"
    assert _refused(_ask(guarded, "k-team", "DELETE", "/v0/routers/team-a.half"), 403).code == "forbidden"


def test_the_config_of_a_write_that_creates_is_an_administrators(guarded: httpx.Client) -> None:
    body = {**WRITE, "config": {"ttl_ms": 1000}}
    assert _refused(_ask(guarded, "k-write", "POST", "/v0/topics/by-config", body), 403).code == "forbidden"
    assert _ask(guarded, "k-write", "POST", "/v0/topics/by-config", WRITE).status_code == 201
    assert _ask(guarded, "k-write", "POST", "/v0/topics/by-config", body).status_code == 200, "it exists: no effect"


def test_without_keys_the_header_is_ignored(shared_broker: Broker) -> None:
    with httpx.Client(base_url=shared_broker.http_url) as client:
        assert _ask(client, "whatever", "GET", "/v0/topics").status_code == 200


# -- the ring


def test_entries_of_every_form_are_read() -> None:
    ring = KeyRing.parse(" a , b:r+W , c:read:x|y:z ,, d::p:q , e: :, f:rw+del+a")
    found = {name: ring.find(name.encode()) for name in "abcdef"}
    assert all(found.values())
    told = {name: (key.scopes, key.prefixes) for name, key in found.items() if key is not None}
    assert told == {
        "a": (EVERYTHING, ()),
        "b": (Scope.READ | Scope.WRITE, ()),
        "c": (Scope.READ, (b"x", b"y:z")),
        "d": (EVERYTHING, (b"p:q",)),
        "e": (EVERYTHING, ()),
        "f": (EVERYTHING, ()),
    }
    assert ring.find(b"") is None
    assert not KeyRing.parse(" , ").required


@pytest.mark.parametrize("text", ["secret:reed", "secret:r+", "secret:r,w", ":read", "secret:read w"])
def test_a_malformed_entry_is_refused_without_its_secret(text: str) -> None:
    if text == "secret:r,w":
        assert KeyRing.parse(text).find(b"w") is not None, "a comma ends an entry"
        return
    with pytest.raises(SettingsError, match="api_keys") as caught:
        KeyRing.parse(text)
    assert "secret" not in str(caught.value).replace("no secret", "")


def test_no_secret_is_kept() -> None:
    ring = KeyRing.parse("plain-secret:read")
    key = ring.find(b"plain-secret")
    assert key is not None
    assert b"plain-secret" not in repr(key).encode()
