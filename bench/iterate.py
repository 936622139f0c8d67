"""RocksDB alone: opens a database, goes through all of it and says how many records there were and how long it took.

`python -m bench.iterate DIRECTORY` is the yardstick of replay.py: a process that does nothing else and imports nothing
else.
"""

from __future__ import annotations

import sys
import time

from rocksdict import Options, Rdict


def options() -> Options:
    chosen = Options(raw_mode=True)
    chosen.create_if_missing(True)
    return chosen


def iterate(directory: str) -> tuple[int, float]:
    began = time.perf_counter()
    database = Rdict(directory, options())
    count = 0
    for _key, _value in database.items():
        count += 1
    database.close()
    return count, time.perf_counter() - began


if __name__ == "__main__":
    sys.stdout.write("{} {}".format(*iterate(sys.argv[1])))
