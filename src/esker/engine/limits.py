"""Every bound of the engine, with its unit and its reason. A default that users may change lives in `config.py`."""

from __future__ import annotations

MS = 1
SECOND_MS = 1000
MINUTE_MS = 60 * SECOND_MS
HOUR_MS = 60 * MINUTE_MS
DAY_MS = 24 * HOUR_MS
YEAR_MS = 365 * DAY_MS

# The parts of a message id (see ids.py) bound what they count.
TOPIC_NUMBERS_MAX = (1 << 24) - 1
PARTITIONS_MAX = 1 << 10
SEQ_BITS = 46
SEQ_MAX = (1 << SEQ_BITS) - 1

PRIORITY_MIN = -(1 << 63)
PRIORITY_MAX = (1 << 63) - 1

# Any byte string may name a queue of the Redis front; 64 KiB keeps a journal frame and a scan reply sane.
TOPIC_NAME_BYTES_MAX = 65_535

TAG_BYTES_MAX = 256  # seeds/topics 1.2: keeps prefix matching cheap
NODE_BYTES_MAX = 128  # a node id is an identifier, not data
META_BYTES_MAX = 16 * 1024
META_KEYS_MAX = 64

# Redis's own limit of one argument, and so the largest job its front can carry.
PAYLOAD_BYTES_MAX = 512 * 1024 * 1024

RECORD_BYTES_MAX = 1024 * 1024  # data and meta of one record of a log
CAP_BYTES_MAX = 1 << 62
CLAIM_JITTER_MS_MAX = 5 * SECOND_MS
READ_RECORDS_MAX = 1000  # records in one reply
READ_BYTES_MAX = 8 * 1024 * 1024
READ_LOOK_MAX = 20_000  # records looked at for one reply, when most are filtered out

# A block is what the store keeps and drops as a whole: large enough that its key costs little, small enough to read
# for one record.
BLOCK_RECORDS_MAX = 256
BLOCK_BYTES_MAX = 64 * 1024

FORWARD_COPIES_PER_STEP = 4096  # copies made by routers before others have their turn: about 2 ms
ROUTER_HOPS_MAX = 8  # times a record is forwarded where routers may form a cycle
# A router whose destination is full tries again after this long, and waits twice as long each time, up to the second.
ROUTER_RETRY_MS_MIN = 50
ROUTER_RETRY_MS_MAX = SECOND_MS
ROUTER_DEPTH_MAX = 16  # topics that, each about to drop what is not yet forwarded, fill the next: bounds the stack

ENQUEUE_JOBS_MAX = 10_000  # jobs in one command: bounds one turn of the loop and one journal frame
LOADS_MAX = 100_000  # bulk loads whose progress is remembered; those that have long been idle are forgotten first
LOAD_NAME_BYTES_MAX = 128  # as clients name it
LOAD_KEY_BYTES_MAX = LOAD_NAME_BYTES_MAX + 64  # with the namespace it belongs to

# Records or jobs that one step of a delete looks at or removes: a few ms.
DELETE_STEP = 2000
DELETE_STEP_BLOCKS = 1000  # of a log, below a seq: whole blocks go at once

LEASE_JOBS_MAX = 10_000  # jobs leased by one command
SCAN_STEP_MAX = 10_000  # entries that one scan call may ask for
# Entries that it gets, or that one peek does: at about 10 us each, others wait for less than 50 ms.
PAGE_ENTRIES_MAX = 4000

LEASE_MS_MAX = DAY_MS
DELAY_MS_MAX = 10 * YEAR_MS
TTL_MS_MAX = 10 * YEAR_MS

# Jobs that one step lets go of to be within a cap: no fewer than one command may add, so that writers cannot outrun it.
TRIM_STEP = ENQUEUE_JOBS_MAX

# Timers handled in one turn: at about 2 us each, a turn stays well under 10 ms; the rest waits for the next turn.
TIMERS_PER_TURN = 1000

# Wakes of partitions that were overtaken by earlier ones, beyond as many as there are live ones.
STALE_WAKES_MAX = 1024

# Sequences promised on disk ahead of their use, so that a class that may lose its tail never reuses one.
SEQ_RESERVE = 4096

# A partition that gives out no seq for this long gives its reserve back, so that a crash later on leaves no gap. Longer
# would leave more gaps; shorter would make more slow writers wait for the sync of a new reserve.
SEQ_RESERVE_IDLE_MS = 5000

# At-most-once jobs already delivered, kept so that a late ACKJOB or SHOW finds them; the oldest leave first.
SPENT_JOBS_MAX = 10_000

# Remembered idempotency keys of one partition; the oldest are forgotten first.
DEDUP_KEYS_MAX = 1_000_000
DEDUP_KEY_BYTES_MAX = 1024
PRODUCER_NUMBER_MAX = (1 << 64) - 1  # epoch and sequence of a producer: what a frame can hold

DELIVERIES_MAX = 1 << 31  # that a config or a job may ask for before the dead letters

# Estimated memory of one waiting job beyond its payload, for the memory limit (bench/ measures the true figure).
JOB_MEMORY_BYTES = 350

# The same of a topic without anything in it, beyond its name, and of each of its partitions: empty structures, and what
# the next checkpoint has to know of them.
TOPIC_MEMORY_BYTES = 1000
QUEUE_PARTITION_MEMORY_BYTES = 6000
LOG_PARTITION_MEMORY_BYTES = 3000

# The same of a remembered idempotency key, of a tag that some record has, and of each record that has it; the bytes of
# the key or the tag come on top. They stay in memory when payloads do not.
DEDUP_KEY_MEMORY_BYTES = 240
TAG_MEMORY_BYTES = 110
TAGGED_MEMORY_BYTES = 8

# The same of one record of a log in memory: its struct, its place in the block, the headers of its byte strings.
RECORD_MEMORY_BYTES = 160

# A queue that was made without a config and stays empty leaves after this long (Disque: 300 s, sooner when full).
IDLE_TOPIC_MS = 300 * SECOND_MS
IDLE_TOPIC_MS_PRESSED = 10 * SECOND_MS
IDLE_TOPIC_MS_FULL = 2 * SECOND_MS
