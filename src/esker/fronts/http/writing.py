"""From the body of a write to an `Append`: every bound is checked here, before anything is made."""

from __future__ import annotations

from collections.abc import Sequence

from esker.engine import limits
from esker.engine.commands import Append, NewRecord
from esker.engine.meta import meta_problem
from esker.engine.replies import Written
from esker.fronts.access import Scope
from esker.fronts.http.answers import WrittenAnswer
from esker.fronts.http.bodies import (
    IDEMPOTENCY_KEY_BYTES_MAX,
    NO_META,
    AnyWriteBody,
    PlainRecordBody,
    PlainWriteBody,
    RecordBody,
    WriteBody,
)
from esker.fronts.http.calls import Call
from esker.fronts.http.configs import DEFAULT, to_config
from esker.fronts.http.errors import HttpError, invalid
from esker.fronts.http.payloads import compact
from esker.fronts.http.selectors import encoded


def to_append(call: Call, name: bytes, body: WriteBody | PlainWriteBody, header_key: bytes | None = None) -> Append:
    """The command of a write, which this caller may give. Raises 400, 403 and 429; changes nothing.

    Used by every way to write. The scope and the prefix of the topic itself were checked by the caller.
    """
    given: Sequence[RecordBody | PlainRecordBody] = body.records
    if not given:
        raise invalid("records is empty; expected 1 to 10000")
    if len(given) > limits.ENQUEUE_JOBS_MAX:
        raise HttpError(
            400,
            "batch_too_large",
            f"{len(given)} records in one write; at most {limits.ENQUEUE_JOBS_MAX}",
            {"records": len(given), "max": limits.ENQUEUE_JOBS_MAX},
        )
    origin = b"" if body.node is None else encoded(body.node, "node", limits.NODE_BYTES_MAX)
    records = _records(given, origin)
    key = _idempotency_key(body, header_key)
    config, create = DEFAULT, True
    if body.config is not None:
        config = to_config(body.config, name)
        create = config.auto_create
    if body.create is not None:
        create = body.create
    _check_creation(call, name, body)
    if call.front.options.max_total_bytes:
        size = sum(len(record.data) + len(record.meta) for record in records)
        call.front.census.allow_bytes(size, call.front.options)
    return Append(name, records, key, config, create)


def _check_creation(call: Call, name: bytes, body: AnyWriteBody) -> None:
    """A config is an administrator's, if the topic is made with it."""
    if body.config is not None:
        if body.config.dead_letter is not None:
            call.reach(body.config.dead_letter.encode(), in_body=True)
        may = call.key.may(Scope.ADMIN)
        if not may and call.front.broker.config_of(name) is None:
            call.need(Scope.ADMIN)


def _records(given: Sequence[RecordBody | PlainRecordBody], origin: bytes) -> list[NewRecord]:
    """Plain records are checked together, unless one of them needs a closer look."""
    if isinstance(given[0], PlainRecordBody) or all(map(_is_plain, given)):
        data = [bytes(record.data) for record in given]
        text = b"".join(data)
        if b"\n" not in text and b"\r" not in text and max(map(len, data)) <= limits.RECORD_BYTES_MAX:
            return [NewRecord(each, b"", origin) for each in data]
    return [
        _record(RecordBody(record.data) if isinstance(record, PlainRecordBody) else record, origin, position)
        for position, record in enumerate(given)
    ]


def _is_plain(record: RecordBody | PlainRecordBody) -> bool:
    if isinstance(record, PlainRecordBody):
        return True
    return record.meta is NO_META and record.tag is None and record.node is None


def _record(given: RecordBody, origin: bytes, position: int) -> NewRecord:
    data = compact(given.data)
    meta = b"" if given.meta is NO_META else compact(given.meta)
    if meta == b"null":
        meta = b""
    if meta:
        problem = meta_problem(meta)
        if problem is not None:
            raise invalid(f"records[{position}].meta: {problem}")
    size = len(data) + len(meta)
    if size > limits.RECORD_BYTES_MAX:
        raise HttpError(
            400,
            "record_too_large",
            f"records[{position}] has {size} bytes of data and meta; at most {limits.RECORD_BYTES_MAX}",
            {"record": position, "bytes": size, "max": limits.RECORD_BYTES_MAX},
        )
    tag = b"" if given.tag is None else encoded(given.tag, f"records[{position}].tag", limits.TAG_BYTES_MAX)
    if given.node is None:
        return NewRecord(data, tag, origin, meta)
    return NewRecord(data, tag, encoded(given.node, f"records[{position}].node", limits.NODE_BYTES_MAX), meta)


def _idempotency_key(body: AnyWriteBody, header: bytes | None) -> bytes:
    if header is not None and len(header) > IDEMPOTENCY_KEY_BYTES_MAX:
        raise invalid(f"Idempotency-Key has {len(header)} bytes; at most {IDEMPOTENCY_KEY_BYTES_MAX}")
    if body.idempotency_key is not None:
        return encoded(body.idempotency_key, "idempotency_key", IDEMPOTENCY_KEY_BYTES_MAX)
    return header or b""


def written_answer(topic: str, written: Written, with_seqs: bool) -> WrittenAnswer:
    answer = WrittenAnswer(
        topic=topic,
        first_seq=written.first_seq,
        last_seq=written.last_seq,
        head_seq=written.head_seq,
        count=written.last_seq - written.first_seq + 1,
        created=written.created,
        deduped=written.deduped,
    )
    if written.partition is not None:
        answer.partition = written.partition
    if with_seqs:
        answer.seqs = list(range(written.first_seq, written.last_seq + 1))
    return answer
