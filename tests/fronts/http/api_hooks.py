"""For schemathesis: what the document of the API cannot say (schemathesis.toml loads this).

JSON Schema takes 1.0 for an integer, and the server does not. It counts characters, where the server counts bytes. It
cannot say that two values differ or agree, nor which texts are regular expressions or cursors, nor what is inside an
Arrow stream.
"""

from __future__ import annotations

from typing import Final, Protocol

import pyarrow as pa
import schemathesis
from hypothesis import strategies as st

from esker.fronts.http.cursors import to_cursor
from esker.fronts.http.table import ARROW

_LONG_CHARS: Final = 32  # shorter ones have less bytes than any bound, whatever is in them


class _Operation(Protocol):
    label: str


class _Mode(Protocol):
    is_positive: bool


class _Generation(Protocol):
    mode: _Mode


class _Meta(Protocol):
    generation: _Generation


class Case(Protocol):
    """As much of a request of schemathesis as is used here."""

    operation: _Operation
    path_parameters: dict[str, object]
    body: object
    meta: _Meta | None


def _part(values: list[bytes]) -> bytes:
    sink = pa.BufferOutputStream()
    table = pa.table({"value": pa.array(values, pa.binary())})
    with pa.ipc.new_stream(sink, table.schema) as stream:
        stream.write_table(table)
    return bytes(sink.getvalue())


schemathesis.openapi.format(
    "cursor", st.from_regex(r"[a-z][a-z0-9.-]{0,20}", fullmatch=True).map(str.encode).map(to_cursor)
)
schemathesis.openapi.format("re2", st.sampled_from(["", ".*", "orders", "[a-z]+-\\d{1,3}", "(?i)A|b"]))
schemathesis.openapi.media_type(ARROW, st.lists(st.just(b"{}"), max_size=3).map(_part))


@schemathesis.hook
def before_call(context: object, case: Case, kwargs: dict[str, object]) -> None:
    """Makes a request that fits the document fit the rest of the rules, too."""
    if case.meta is None or not case.meta.generation.mode.is_positive or not isinstance(case.body, dict):
        return
    body = _whole(case.body)
    assert isinstance(body, dict)
    _agree(body, str((case.path_parameters or {}).get("topic")))
    case.body = body


def _agree(body: dict[str, object], topic: str) -> None:
    if body.get("wait_ms"):
        body["wait_ms"] = 1  # it would wait so long
    if "source" in body and body["source"] == body.get("dest"):
        body["dest"] = "another"
    for config in (body, body.get("config")):
        if isinstance(config, dict) and config.get("dead_letter") == topic:
            config["dead_letter"] = None
    seqs, lease_ids = body.get("seqs"), body.get("lease_ids")
    if "node" in body and isinstance(lease_ids, list):  # as many, of a queue with one partition
        body["seqs"] = seqs = (seqs if isinstance(seqs, list) else [])[: len(lease_ids)]
        body["lease_ids"] = ["" if "-" in lease else lease for lease in lease_ids[: len(seqs)]]
    if isinstance(parts := body.get("parts"), list):
        body.pop("type", None)  # which must be that of the config
        body["parts"] = list({int(name.partition("-")[0]): name for name in parts}.values())


def _whole(value: object) -> object:
    """With 1 instead of 1.0, and texts that have as many bytes as they had characters, if they are long."""
    if isinstance(value, float) and value.is_integer():
        return int(value)
    if isinstance(value, str) and len(value) >= _LONG_CHARS:
        return value.encode("utf-8", "surrogatepass")[: len(value)].decode("utf-8", "ignore")
    if isinstance(value, dict):
        return {name: _whole(item) for name, item in value.items()}
    return [_whole(item) for item in value] if isinstance(value, list) else value
