"""What has left memory, read back from the store (engine/logs/cold.py says what is asked for)."""

from __future__ import annotations

from collections.abc import Sequence

from esker.engine.logs.block import Content, Outline
from esker.engine.logs.cold import Pinned
from esker.store.interface import Store, StoreView
from esker.store.jobs import cold_payload, cold_payloads
from esker.store.logs import stored_content, stored_outline


class PinnedPayloads:
    def __init__(self, view: StoreView) -> None:
        self._view = view

    def payloads(self, topic: int, partition: int, seqs: Sequence[int]) -> list[bytes]:
        return cold_payloads(self._view, topic, partition, seqs)


class ColdStore:
    def __init__(self, store: Store) -> None:
        self._store = store

    def payload(self, topic: int, partition: int, seq: int) -> bytes:
        return cold_payload(self._store, topic, partition, seq)

    def pin(self) -> Pinned:
        return PinnedPayloads(self._store.snapshot())

    def block(self, topic: int, partition: int, first_seq: int) -> Content:
        return stored_content(self._store, topic, partition, first_seq)

    def outline(self, topic: int, partition: int, first_seq: int) -> Outline | None:
        return stored_outline(self._store, topic, partition, first_seq)
