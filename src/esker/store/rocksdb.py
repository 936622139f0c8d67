"""The store in RocksDB, through rocksdict.

RocksDB's own log is off: the journal is the log. A write lands in the memtable, and only a flush makes it durable; all
keys share one column family, so what a flush leaves behind is a prefix of the writes. rocksdict holds the GIL while it
writes (about 1 us a key, measured), which is why writes are small, and releases it while it flushes, which is why
`persist` is a flush and belongs in a thread.

After an error in the background (no space for a flush, no descriptor for a file) RocksDB takes no more writes, and
rocksdict has no way to resume it, so `reopen` opens it anew. That may fail again, on a disk that is still full, so a
handle that only reads is opened before the old one is closed: it needs no space, and reads go on with it.

RocksDB keeps a checksum of every block and looks at it whenever it reads one. A look-up raises what it finds; an
iterator only ends there, as it does behind the last key, and has to be asked for its status. No reader here may take
the one for the other: damage is `StoreDamaged`, never fewer keys.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator, Sequence
from ctypes import CDLL
from pathlib import Path
from threading import Lock
from weakref import ReferenceType, WeakSet, ref

from rocksdict import (
    AccessType,
    BlockBasedOptions,
    Cache,
    DBCompressionType,
    Env,
    Options,
    Rdict,
    RdictIter,
    Snapshot,
    WriteBatch,
    WriteOptions,
)

from esker.errors import DataDirectoryError, StoreDamaged, StoreFailed
from esker.store.interface import Puts, Ranges, StoreView
from esker.store.manifest import damaged_log

# Small on purpose: a checkpoint is flushed as a whole anyway, and what is read back the kernel caches as well.
_MEMTABLE_BYTES = 8 << 20
_BLOCK_CACHE_BYTES = 8 << 20

# Looked up once: each CDLL makes a class, and a class is a cycle. None where the C library is another than glibc.
_malloc_trim = getattr(CDLL(None), "malloc_trim", None)


class RocksStore:
    def __init__(self, directory: Path, *, read_only: bool = False) -> None:
        """`read_only` changes nothing in the directory, and may be used beside a process that has it open."""
        self._directory = directory
        self._db = _open(directory, read_only)
        self._writing = WriteOptions()
        # rocksdict's type stub calls this a method; it is a property.
        setattr(self._writing, "disable_wal", True)  # noqa: B010
        # RocksDB makes a writer wait when memtables or files pile up; here that would stall the event loop with the
        # GIL held.
        self._writing.no_slowdown = True
        self._reads_only = read_only  # what `_db` is: also while it cannot be opened again for writing
        self._view: ReferenceType[_View] | None = None  # the last one, while nothing was written since
        self._views: WeakSet[_View] = WeakSet()
        self._viewing = Lock()  # views are made on one thread and ended on another

    def get(self, key: bytes) -> bytes | None:
        while True:
            db = self._db
            try:
                value: bytes | None = db.get(key)
            except Exception as error:  # rocksdict raises plain Exception
                if db is self._db:
                    raise _damaged(self._directory, error) from error
                # Another thread has opened the store again in between, and closed the handle that was in hand here.
            else:
                return value

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        # RocksDB could stop at `end` by itself (iterate_upper_bound), but rocksdict frees that bound too early
        # (0.3.29: a scan silently ended short), so the end is checked here.
        key: bytes
        value: bytes
        last, db = start, self._db
        for key, value in db.items(from_key=start):  # type: ignore[assignment]  # raw mode has only bytes
            if key >= end:
                return
            yield key, value
            last = key
        _check_end(db, self._directory, last)

    def write(self, puts: Puts, deletes: Sequence[bytes] = (), ranges: Ranges = ()) -> bool:
        view = None if self._view is None else self._view()
        if view is not None:
            view.outdated = True  # before anything is written
        self._view = None
        batch = WriteBatch(raw_mode=True)
        for start, end in ranges:
            batch.delete_range(start, end)
        for key in deletes:
            batch.delete(key)
        put = batch.put
        for key, value in puts:
            put(key, value)
        try:
            self._db.write(batch, self._writing)
        except Exception as error:
            if "Write stall" in str(error):
                return False
            raise _write_failure(self._directory, error) from error
        return True

    def snapshot(self) -> StoreView:
        view = None if self._view is None else self._view()
        if view is None:
            view = _View(self._db, self._directory)
            self._view = ref(view)
            with self._viewing:
                self._views.add(view)
        return view

    def persist(self) -> None:
        try:
            self._db.flush()
        except Exception as error:
            raise _write_failure(self._directory, error) from error
        _return_memory()

    def reopen(self) -> None:
        try:
            if not self._reads_only:
                self._replace(_open(self._directory, read_only=True))
                self._reads_only = True
            self._replace(_open(self._directory, read_only=False))
            self._reads_only = False
        except DataDirectoryError as error:
            raise StoreFailed(str(error)) from error

    def _replace(self, db: Rdict) -> None:
        old, self._db = self._db, db
        self._view = None
        with self._viewing:
            views = list(self._views)
        for view in views:  # each keeps the old handle open, and with it the lock on the directory
            view.end()
        _close(old)

    def close(self) -> None:
        _close(self._db)


class _View:
    """A snapshot for look-ups and an iterator for scans.

    An iterator sees what was there when it was made; those that rocksdict makes from a snapshot (0.3.29) see what is
    there then, without a word. It has one place, so a scan is done in one go. As long as nothing was written since, a
    new iterator sees the same, and one that gives pairs costs half as much.
    """

    def __init__(self, db: Rdict, directory: Path) -> None:
        self._directory = directory
        self.outdated = False  # something was written since, or is about to be
        self._handles: tuple[Rdict, Snapshot, RdictIter] | None = (db, db.snapshot(), db.iter())
        self._scanning = Lock()

    def end(self) -> None:
        """The store is opened again: what this view saw may not be there any more. For any thread."""
        self._handles = None

    def _opened(self) -> tuple[Rdict, Snapshot, RdictIter]:
        handles = self._handles
        if handles is None:
            raise StoreFailed("the store was opened again after a failed write, which ended this read: start it again")
        return handles

    def get(self, key: bytes) -> bytes | None:
        _, snapshot, _ = self._opened()
        try:
            value: bytes = snapshot[key]
        except Exception as error:  # rocksdict raises plain Exception
            if "key not found" in str(error):
                return None
            raise _damaged(self._directory, error) from error
        return value

    def scan(self, start: bytes, end: bytes) -> Iterator[tuple[bytes, bytes]]:
        found: list[tuple[bytes, bytes]] = []
        pair: tuple[bytes, bytes]
        db, _, iterator = self._opened()
        if not self.outdated:
            pairs = db.items(from_key=start)
            if not self.outdated:  # so it was not when they were made
                for pair in pairs:  # type: ignore[assignment]  # raw mode has only bytes
                    if pair[0] >= end:
                        return iter(found)
                    found.append(pair)
                # Something may be written meanwhile: that can make a key follow, and no damage is taken for the end.
                _check_end(db, self._directory, found[-1][0] if found else start)
                return iter(found)
        with self._scanning:
            iterator.seek(start)
            while iterator.valid() and (key := iterator.key()) < end:
                found.append((key, iterator.value()))
                iterator.next()
            _check_status(iterator, self._directory)
        return iter(found)


def _check_end(db: Rdict, directory: Path, last: bytes) -> None:
    """For pairs that ended behind `last`: raises StoreDamaged unless that is because no key follows.

    The iterator that gives pairs does not tell its status, and the one that does costs twice as much a key. So another
    one is led to the same place, and only when pairs end before the caller's end does.
    """
    iterator = db.iter()
    iterator.seek(last)
    if iterator.valid() and iterator.key() == last:
        iterator.next()
    _check_status(iterator, directory)


def _check_status(iterator: RdictIter, directory: Path) -> None:
    try:
        iterator.status()
    except Exception as error:  # rocksdict raises plain Exception
        raise _damaged(directory, error) from error


def _damaged(directory: Path, error: Exception | str) -> StoreDamaged:
    return StoreDamaged(
        f"the store in {directory} is damaged: {error}; stop the node and restore the whole data directory from a "
        "backup"
    )


def _write_failure(directory: Path, error: Exception) -> StoreDamaged | StoreFailed:
    """After a compaction has met damage, RocksDB takes no writes; any other failure may pass."""
    if "Corruption" in str(error):
        return _damaged(directory, error)
    return StoreFailed(f"the store could not write: {error}")


def _open(directory: Path, read_only: bool) -> Rdict:
    access = AccessType.read_only(False) if read_only else AccessType.read_write()
    try:
        damaged = damaged_log(directory)
        if damaged is None:
            return Rdict(str(directory), _options(), access_type=access)
    except Exception as error:  # rocksdict raises plain Exception
        raise DataDirectoryError(
            f"cannot open the store in {directory}: {error}; if it is damaged, restore the whole data directory from a "
            "backup"
        ) from error
    raise _damaged(directory, f"{damaged.name} has a record of a kind that is never written")


def _close(db: Rdict) -> None:
    """Whatever a flush can still save is saved. When it cannot, `persist` has said so, or nobody asked for it."""
    with contextlib.suppress(Exception):  # rocksdict flushes, raises what that met as plain Exception, and closes
        db.close()


def _return_memory() -> None:
    """Gives memory that flushes and compactions have freed back to the system; glibc alone would keep it for later."""
    if _malloc_trim is not None:
        _malloc_trim(0)


def _options() -> Options:
    options = Options(raw_mode=True)
    options.create_if_missing(True)
    options.set_write_buffer_size(_MEMTABLE_BYTES)
    options.set_max_write_buffer_number(2)
    options.set_compression_type(DBCompressionType.lz4())
    options.set_level_compaction_dynamic_level_bytes(True)
    options.set_keep_log_file_num(2)
    options.set_max_background_jobs(2)
    options.set_level_zero_file_num_compaction_trigger(8)  # a checkpoint makes a file: compact every few, not every one
    options.set_level_zero_slowdown_writes_trigger(40)
    options.set_level_zero_stop_writes_trigger(80)
    environment = Env()
    environment.lower_thread_pool_cpu_priority()  # flushes and compactions give way to the event loop
    environment.lower_high_priority_thread_pool_cpu_priority()
    options.set_env(environment)
    table = BlockBasedOptions()
    table.set_block_cache(Cache(_BLOCK_CACHE_BYTES))
    table.set_bloom_filter(10, False)
    # Outside the cache: about 3 bytes a key that stay in memory, where a small cache would read them again and again.
    table.set_cache_index_and_filter_blocks(False)
    options.set_block_based_table_factory(table)
    return options
