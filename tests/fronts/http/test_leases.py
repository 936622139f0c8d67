"""Claimed jobs as texts, against the structs that the documents describe: the same bytes, whatever the payloads are."""

from __future__ import annotations

import json

import pytest
from hypothesis import example, given
from hypothesis import strategies as st
from msgspec import UNSET, Raw

from esker.engine.commands import Details
from esker.engine.config import TopicConfig
from esker.engine.ids import SLOT_MASK, message_id, place
from esker.engine.limits import SEQ_MAX
from esker.engine.replies import Delivery
from esker.fronts.http.answers import JobAnswer, encode
from esker.fronts.http.leases import job_text, jobs_text, to_leases
from esker.fronts.http.payloads import of_job, text

ODD = [
    b"", b" ", b"null", b"1,2", b"]", b"[1", b"{}}", b"{", b'"', b"\xff", b'"\xff"', "ü".encode(), '"ü"'.encode(),
    b'{"a":"\x00"}', b"NaN", b"-", b"1e999", b'{"a":1}\n', b" [1, 2] ", b"0" * 100_000, b"[" * 20_000 + b"]" * 20_000,
    b'{"a":{"b":[1,{"c":null}]}}',
]  # fmt: skip
payloads = st.one_of(
    st.sampled_from(ODD),
    st.binary(max_size=20),
    st.text(max_size=20).map(str.encode),
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.text(max_size=5),
        lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3),
        max_leaves=6,
    ).map(lambda value: json.dumps(value).encode()),
)
details = st.none() | st.builds(
    Details, tag=st.binary(max_size=5), meta=st.sampled_from([b"", b'{"a":1}', '{"ü":[null]}'.encode()])
)
ids = st.builds(
    message_id, st.integers(0, 1 << 47) | st.just(5), st.just(3), st.integers(0, 1023), st.integers(1, SEQ_MAX)
)
jobs = st.builds(
    Delivery, topic=st.just(b"q"), id=ids, payload=payloads, priority=st.just(0), token=st.integers(1, (1 << 63) - 1),
    deadline_ms=st.integers(0, 1 << 48) | st.just(5), attempts=st.integers(1, 3), nacks=st.just(0),
    requeues=st.just(0), retry_ms=st.just(1000), ttl_ms=st.just(0), details=details,
)  # fmt: skip


def _shown(job: Delivery, wide: bool) -> JobAnswer:
    made, more = place(job.id), job.details
    place_part = f"{made.partition:x}-{made.seq:x}-" if wide else ""
    return JobAnswer(
        made.seq, f"lease_{place_part}{job.token:x}", job.deadline_ms, made.created_ms, job.attempts,
        Raw(of_job(job.payload)),
        UNSET if more is None or not more.tag else text(more.tag),
        UNSET if more is None or not more.meta else Raw(more.meta),
        made.partition if wide else UNSET,
    )  # fmt: skip


@pytest.mark.parametrize("partitions", [1, 1024])
@given(st.lists(jobs, max_size=5))
def test_claimed_jobs_are_the_texts_of_their_structs_in_the_order_of_the_lease(
    partitions: int, claimed: list[Delivery]
) -> None:
    config = TopicConfig(partitions=partitions)
    shown = [_shown(job, partitions > 1) for job in claimed]
    assert [job_text(job, config) for job in claimed] == [encode(each) for each in shown]
    assert jobs_text(claimed, config) == encode(shown)


@given(st.lists(jobs, max_size=5, unique_by=lambda job: job.id & SLOT_MASK))
def test_a_lease_id_of_a_queue_of_many_partitions_names_job_and_lease(claimed: list[Delivery]) -> None:
    config = TopicConfig(partitions=1024)
    ids = [_shown(job, wide=True).lease_id for job in claimed]
    named = to_leases(config, None, ids)
    assert list(named.slots) == [job.id & SLOT_MASK for job in claimed]
    assert named.tokens == [job.token for job in claimed]
    assert to_leases(config, [job.id & SEQ_MAX for job in claimed], ids) == named


@given(payloads)
@example(b"[" * 20_000 + b"]" * 20_000)
def test_any_payload_is_shown_as_json_and_json_as_it_is(payload: bytes) -> None:
    shown = of_job(payload)
    shown.decode()
    try:
        value = json.loads(shown)
    except RecursionError:
        assert shown == payload
        return
    try:
        wanted = json.loads(payload.decode(), parse_constant=_refuse)
    except UnicodeDecodeError:
        assert set(value) == {"$base64"}
    except (ValueError, RecursionError):
        assert value == payload.decode()
    else:
        assert (shown, value) == (payload, wanted)


def _refuse(name: str) -> object:
    raise ValueError(f"{name} is no JSON")
