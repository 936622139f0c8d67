"""Keys, scopes, prefixes, and what a node refuses to start with."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from websockets.exceptions import InvalidStatus
from websockets.sync.client import connect

from tests.contracts.http.api import Api, Json, parsed, refusal, rows
from tests.contracts.http.events import Events
from tests.crash.process import NodeProcess

KEYS = "all,r:read,w:W,rw:rw,d:del,a:admin,rwd:read+write+delete,team::team1|team2:, ,reader-of-x:r:x.,colon::x:y"

# Every route with the scopes it needs; the key must hold all of them.
ROUTES: list[tuple[str, str, object, str]] = [
    ("GET", "/topics", None, "r"),
    ("GET", "/topics/t", None, "r"),
    ("POST", "/topics/t/diff", {}, "r"),
    ("GET", "/routers", None, "r"),
    ("GET", "/routers/t-r", None, "r"),
    ("POST", "/watch", {"topics": {"t": {}}}, "r"),
    ("GET", "/metrics", None, "r"),
    ("POST", "/topics/t", {"records": [{"data": 1}]}, "w"),
    ("POST", "/topics/q/ack", {"node": "w", "seqs": []}, "w"),
    ("POST", "/topics/q/nack", {"node": "w", "seqs": []}, "w"),
    ("POST", "/topics/q/extend", {"node": "w", "seqs": [], "lease_ms": 1000}, "w"),
    ("POST", "/topics/t/no-such-call", {}, "w"),
    ("POST", "/topics/q/claim", {"node": "w"}, "rw"),
    ("GET", "/topics/q/work?node=w", None, "rw"),
    ("POST", "/topics/t/delete", {"before_seq": 0}, "d"),
    ("DELETE", "/topics/none", None, "d"),
    ("DELETE", "/routers/none", None, "d"),
    ("PUT", "/topics/t", {}, "a"),
    ("PUT", "/routers/t-r", {"source": "t", "dest": "t2"}, "a"),
]
SCOPES = {"r": {"r"}, "w": {"w"}, "rw": {"r", "w"}, "d": {"d"}, "a": {"a"}, "all": {"r", "w", "d", "a"}}


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[NodeProcess]:
    node = NodeProcess(tmp_path_factory.mktemp("guarded") / "data", "--set", f"api_keys={KEYS}")
    with node, Api(node.http_port, key="all") as api:
        api.put("t")
        api.put("q", type="queue")
        api.router("t-r", "t", "t2")
        yield node


@pytest.fixture(scope="module", params=["HTTP/1.1", "h2c"])
def http(request: pytest.FixtureRequest, guarded: NodeProcess) -> Iterator[httpx.Client]:
    http2 = request.param == "h2c"
    with httpx.Client(
        base_url=f"http://127.0.0.1:{guarded.http_port}/v0", http1=not http2, http2=http2, verify=False, timeout=10
    ) as client:
        yield client


def _status(http: httpx.Client, method: str, path: str, body: object, key: str | None) -> httpx.Response:
    headers = {} if key is None else {"authorization": f"Bearer {key}"}
    request = http.build_request(method, path, json=body, headers=headers)
    response = http.send(request, stream=True)
    if not response.headers["content-type"].startswith("text/event-stream"):
        response.read()
    response.close()
    return response


@pytest.mark.parametrize(("method", "path", "body", "needed"), ROUTES)
def test_a_route_needs_its_scopes_and_nothing_else(
    http: httpx.Client, method: str, path: str, body: object, needed: str
) -> None:
    for key, held in SCOPES.items():
        response = _status(http, method, path, body, key)
        if set(needed) <= held:
            assert response.status_code in (200, 201, 404), (key, response.text)
        else:
            refusal(parsed(response, 403), "forbidden")


@pytest.mark.parametrize(("method", "path", "body", "needed"), ROUTES)
@pytest.mark.parametrize("key", [None, "wrong", "all:read", "ALL"])
def test_without_a_known_key_nothing_is_told(
    http: httpx.Client, method: str, path: str, body: object, needed: str, key: str | None
) -> None:
    refusal(parsed(_status(http, method, path, body, key), 401), "unauthorized")


def test_probes_need_no_key_and_other_schemes_are_none(http: httpx.Client) -> None:
    for path in ("/health", "/ready"):
        assert http.get(path).status_code == 200
    refusal(parsed(http.get("/topics", headers={"authorization": "Basic all"}), 401), "unauthorized")
    refusal(parsed(http.get("/topics?token=all"), 401), "unauthorized")


def test_a_write_that_brings_a_config_for_a_new_topic_needs_admin(http: httpx.Client) -> None:
    body = {"records": [{"data": 1}], "config": {"cap_records": 5}}
    refusal(parsed(_status(http, "POST", "/topics/fresh", body, "rw"), 403), "forbidden")
    assert _status(http, "POST", "/topics/t", body, "rw").status_code == 200
    plain = {"records": [{"data": 1}]}
    assert _status(http, "POST", "/topics/plain", plain, "rw").status_code in (200, 201)


def test_a_key_with_prefixes_reaches_only_names_that_begin_so(guarded: NodeProcess) -> None:
    with Api(guarded.http_port, key="team") as team, Api(guarded.http_port, key="all") as boss:
        for name in ("team1x", "team2:x", "team1"):
            assert team.write(name, 1, status=201)["topic"] == name
        body = {"records": [{"data": 1}]}
        for name in ("team2", "tea", "other", "Team1"):
            team.refused("POST", f"/topics/{name}", body, status=403, code="forbidden")
            team.refused("GET", f"/topics/{name}", status=403, code="forbidden")
        boss.write("other.topic", 1, status=201)
        names = [str(row["topic"]) for row in rows(team.ask("GET", "/topics"), "topics")]
        assert names == ["team1", "team1x", "team2:x"]
        team.refused(
            "POST", "/watch", {"topics": {"team1": {}, "other.topic": {}}}, status=403, code="forbidden",
            detail={"topic": "other.topic"},
        )  # fmt: skip


def test_routers_are_guarded_at_both_ends(guarded: NodeProcess) -> None:
    with Api(guarded.http_port, key="team") as team, Api(guarded.http_port, key="all") as boss:
        assert team.router("team1.r", "team1.a", "team1.b")["created"] is True
        for source, dest, bad in (("secret", "team1.c", "secret"), ("team1.a", "secret", "secret")):
            team.refused(
                "PUT", "/routers/team1.s", {"source": source, "dest": dest}, status=403, code="forbidden",
                detail={"topic": bad},
            )  # fmt: skip
        boss.router("team1.mixed", "outside", "team1.in")
        boss.router("outside.r", "team1.a", "team1.d")
        for name in ("team1.mixed", "outside.r"):
            team.refused("GET", f"/routers/{name}", status=403, code="forbidden")
            team.refused("DELETE", f"/routers/{name}", status=403, code="forbidden")
        assert [row["router"] for row in rows(team.ask("GET", "/routers"), "routers")] == ["team1.r"]
        assert team.ask("DELETE", "/routers/team1.r")["deleted"] is True


def test_a_prefix_may_hold_colons(guarded: NodeProcess) -> None:
    with Api(guarded.http_port, key="colon") as colon:
        assert colon.write("x:y1", 1, status=201)["topic"] == "x:y1"
        colon.refused("GET", "/topics/x", status=403, code="forbidden")


def test_a_token_in_the_query_opens_streams_only(guarded: NodeProcess) -> None:
    with Api(guarded.http_port, key="all") as boss, Api(guarded.http_port) as nobody:
        wid = boss.ask("POST", "/watch", {"topics": {"t": {"tail": True}}})["wid"]
        with Events(nobody, f"/watch/{wid}?token=all") as events:
            assert events.response.status_code == 200
        with Events(nobody, f"/watch/{wid}?token=%61ll&token=wrong") as events:
            assert events.response.status_code == 200
        with Events(nobody, "/topics/q/work?node=w&token=rw") as events:
            assert events.response.status_code == 200
        for token, status in (("wrong", 401), ("w", 403)):
            with Events(nobody, f"/topics/q/work?node=w&token={token}") as events:
                events.refused(status)
        nobody.refused("GET", "/topics/t?token=all", status=401, code="unauthorized")


def test_a_watch_belongs_to_the_key_that_made_it(guarded: NodeProcess) -> None:
    with Api(guarded.http_port, key="all") as boss, Api(guarded.http_port) as nobody:
        wid = boss.ask("POST", "/watch", {"topics": {"t": {"tail": True}}})["wid"]
        for key in ("r", "rw", "wrong", None):
            with Events(nobody, f"/watch/{wid}", key=key) as events:
                events.refused(401)
        with Events(nobody, f"/watch/{wid}", key="all") as events:
            assert events.response.status_code == 200


def test_without_keys_the_header_is_ignored(one: Api, topic: str) -> None:
    one.put(topic)
    one.ask("GET", f"/topics/{topic}", headers={"authorization": "Bearer whatever"})


# -- starting


def _start(data: Path, *options: str, **environment: str) -> subprocess.CompletedProcess[str]:
    """A node that must end by itself."""
    clean = {name: value for name, value in os.environ.items() if not name.startswith(("ESKER_", "TOPICS_"))}
    command = [sys.executable, "-m", "esker.cli.main", "serve", "--data", str(data), "--resp-port", "-1"]
    return subprocess.run(
        [*command, "--http-port", "0", *options], env=clean | environment, capture_output=True, text=True, timeout=20
    )


def test_a_node_refuses_to_listen_beyond_this_machine_without_keys(tmp_path: Path) -> None:
    ended = _start(tmp_path / "data", "--host", "0.0.0.0")
    assert ended.returncode != 0
    assert "key" in ended.stderr.lower()


@pytest.mark.parametrize("keys", ["k:fly", "ok,k:read+fly"])
def test_a_node_refuses_malformed_scopes(tmp_path: Path, keys: str) -> None:
    ended = _start(tmp_path / "data", "--set", f"api_keys={keys}")
    assert ended.returncode != 0
    assert "scope" in ended.stderr.lower()


def test_a_node_refuses_a_data_directory_in_use(tmp_path: Path) -> None:
    with NodeProcess(tmp_path / "data"):
        ended = _start(tmp_path / "data")
        assert ended.returncode != 0
        assert "use" in ended.stderr.lower() or "lock" in ended.stderr.lower()


# -- the WebSocket


def test_a_socket_needs_a_key_and_each_message_its_scope(guarded: NodeProcess) -> None:
    url = f"ws://127.0.0.1:{guarded.http_port}/v0/ws"
    for headers in ({}, {"authorization": "Bearer wrong"}):
        with pytest.raises(InvalidStatus) as refused, connect(url, additional_headers=headers):
            raise AssertionError("a socket without a key was opened")
        assert refused.value.response.status_code == 401
    subscribe: Json = {"op": "subscribe", "topic": "t", "from_seq": 10**6}
    publish: Json = {"op": "publish", "topic": "t", "records": [{"data": 1}]}
    create: Json = {**publish, "topic": "fresh.socket", "config": {"cap_records": 5}}
    for key, message, answer in (
        ("d", {"op": "ping"}, "pong"),
        ("w", subscribe, "error"),
        ("r", subscribe, "subscribed"),
        ("r", publish, "error"),
        ("w", publish, "ack"),
        ("rw", create, "error"),
        ("team", publish, "error"),
        ("team", subscribe, "error"),
    ):
        with connect(url, additional_headers={"authorization": f"Bearer {key}"}) as socket:
            socket.send(json.dumps(message))
            found = json.loads(socket.recv(timeout=5))
            assert found["op"] == answer, (key, message, found)
            if answer == "error":
                assert found["code"] == "forbidden"
