"""Ranges of logs as files of the node, for readers on its machine."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from esker.node import ranges, spool
from esker.testing.broker import Broker
from tests.columns.streams import whole
from tests.fronts.http.streams.wire import eventually
from tests.fronts.http.unsynced import read_once_synced
from tests.fronts.http.web import KEYS, Refused, Web

Row = dict[str, object]


@pytest.fixture
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ranges, "CHUNK_ROWS", 8)


def _file(web: Web, topic: str, start: int = 1, **query: object) -> Row:
    asked = web.client.get(f"/v0/topics/{topic}/records/file", params={"from": start, **query})  # type: ignore[dict-item]
    assert asked.status_code == 200, asked.text
    found: Row = asked.json()
    return found


def _files(web: Web, topic: str, start: int = 1, **query: object) -> Iterator[Row]:
    """Of a range, one after the other."""
    while True:
        answer = _file(web, topic, start, **query)
        yield answer
        start = int(str(answer["next"]))
        if start >= int(str(answer["to"])):
            return


def _rows(web: Web, topic: str, start: int = 1, **query: object) -> list[Row]:
    """Each file is read when it comes: it may go when others are made."""
    paths = (answer["path"] for answer in _files(web, topic, start, **query))
    return [row for path in paths if path is not None for row in whole(Path(str(path)).read_bytes())]


def _streamed(web: Web, topic: str, **query: object) -> list[Row]:
    asked = web.client.get(f"/v0/topics/{topic}/records", params=query)  # type: ignore[arg-type]
    assert asked.status_code == 200, asked.text
    return whole(asked.content)


def _write(web: Web, topic: str, count: int) -> None:
    records = [{"data": {"n": n}, "tag": f"t{n % 3}"} for n in range(count)]
    answer = web.client.post(f"/v0/topics/{topic}", json={"records": records})
    assert answer.status_code in (200, 201), answer.text


def test_files_hold_what_a_stream_would(small_files: None, web: Web, topic: str) -> None:
    _write(web, topic, 30)
    assert _rows(web, topic) == _streamed(web, topic)
    assert _rows(web, topic, columns="value,offset") == _streamed(web, topic, columns="value,offset")
    assert _rows(web, topic, tag_prefix="t1") == _streamed(web, topic, tag_prefix="t1")
    assert [row["offset"] for row in _rows(web, topic, 5, to=21)] == list(range(5, 21))
    for window in ({"until_ms": 1}, {"since_ms": 1 << 50}, {"since_ms": 1, "until_ms": 1 << 50}):
        assert _rows(web, topic, **window) == _streamed(web, topic, **window)


def test_the_same_records_are_the_same_file_whoever_asks(small_files: None, one: Web, topic: str) -> None:
    _write(one, topic, 30)
    whole_range = {answer["next"]: answer["path"] for answer in _files(one, topic)}
    assert list(whole_range) == [9, 17, 25, 31]
    some = {answer["next"]: answer["path"] for answer in _files(one, topic, 4, to=27)}
    assert list(some) == [9, 17, 25, 27]
    assert (some[17], some[25]) == (whole_range[17], whole_range[25])
    assert some[9] != whole_range[9]


def test_what_was_deleted_since_is_in_no_file(small_files: None, one: Web, topic: str) -> None:
    gone = {3, *range(9, 17)}
    records = [{"data": seq, "tag": "gone" if seq in gone else "stays"} for seq in range(1, 25)]
    one.ask("POST", f"/v0/topics/{topic}", {"records": records}, 201)
    before = [answer["path"] for answer in _files(one, topic)]
    one.ask("POST", f"/v0/topics/{topic}/delete", {"match": "gone"})
    after = [answer["path"] for answer in _files(one, topic)]
    assert after[0] != before[0]
    assert after[1] is None, "nothing lives there"
    assert after[2] == before[2]
    assert _rows(one, topic) == _streamed(one, topic)


def test_records_that_come_later_are_in_the_next_file(small_files: None, one: Web, topic: str) -> None:
    _write(one, topic, 4)
    assert len(_rows(one, topic)) == 4
    _write(one, topic, 2)
    assert _rows(one, topic) == _streamed(one, topic)


def test_lost_records_are_refused_or_told(one: Web, topic: str) -> None:
    one.put(topic, cap_records=10)
    _write(one, topic, 30)
    lost = one.client.get(f"/v0/topics/{topic}/records/file", params={"from": 1})
    assert (lost.status_code, Refused(lost.json()).code) == (410, "data_loss")
    (answer,) = _files(one, topic, on_gap="skip")
    assert answer["gaps"] == [{"first": 1, "last": 20, "reason": "cap"}]
    assert _rows(one, topic, on_gap="skip") == _streamed(one, topic, on_gap="skip")


def test_old_files_make_room_for_new_ones(small_files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "BYTES_MAX", 20_000)
    with Broker() as broker, Web(broker.http_url) as web:
        _write(web, "log", 400)
        assert len(_rows(web, "log")) == 400
        (folder,) = (Path(broker.data) / "spool").iterdir()
        sizes = [file.stat().st_size for file in folder.iterdir()]
        assert 0 < sum(sizes) < 20_000 + 2 * max(sizes)
        assert len(_rows(web, "log")) == 400, "and are made again"


def test_files_that_nobody_asks_for_go(small_files: None, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spool, "UNUSED_S", 0.0)
    monkeypatch.setattr(spool, "_LOOK_S", 0.05)
    with Broker() as broker, Web(broker.http_url) as web:
        _write(web, "log", 20)
        for _ in _files(web, "log"):
            continue
        (folder,) = (Path(broker.data) / "spool").iterdir()
        eventually(lambda: not list(folder.iterdir()))


def test_a_full_disk_makes_no_file_and_says_so(monkeypatch: pytest.MonkeyPatch, own: Broker, own_web: Web) -> None:
    _write(own_web, "log", 20)
    monkeypatch.setattr(spool, "FREE_BYTES_MIN", 1 << 60)
    refused = own_web.client.get("/v0/topics/log/records/file")
    assert (refused.status_code, Refused(refused.json()).code) == (409, "no_file")
    assert len(_streamed(own_web, "log")) == 20
    (folder,) = (Path(own.data) / "spool").iterdir()
    assert list(folder.iterdir()) == []


def test_files_are_the_nodes_own_and_gone_with_it(own: Broker, own_web: Web) -> None:
    _write(own_web, "log", 20)
    path = Path(str(_file(own_web, "log")["path"]))
    plan = own_web.ask("POST", "/v0/bulk/plan", {})
    assert str(path.parent) == plan["spool"]
    assert path.parent.stat().st_mode & 0o077 == 0
    own.stop()
    assert not path.exists()


def test_no_file_is_told_of_before_it_is_durable() -> None:
    assert [row["offset"] for row in read_once_synced(_rows)] == [1]


def test_what_a_killed_node_left_is_removed(tmp_path: Path) -> None:
    with Broker(str(tmp_path)):
        pass
    left = tmp_path / "spool" / "of-another-life"
    left.mkdir(parents=True)
    (left / "1.arrow").write_bytes(b"x")
    with Broker(str(tmp_path)):
        assert not left.exists()


def test_keys_bound_what_is_made(guarded: httpx.Client) -> None:
    def ask(key: str, method: str, path: str) -> int:
        secret = KEYS[key].partition(":")[0]
        return guarded.request(method, path, headers={"authorization": f"Bearer {secret}"}).status_code

    for name in ("team-a.files", "other.files"):
        assert ask("all", "PUT", f"/v0/topics/{name}") in (200, 201)
    assert guarded.get("/v0/topics/other.files/records/file").status_code == 401
    assert ask("write", "GET", "/v0/topics/other.files/records/file") == 403
    assert ask("team", "GET", "/v0/topics/other.files/records/file") == 403
    assert ask("team", "GET", "/v0/topics/team-a.files/records/file") == 200
