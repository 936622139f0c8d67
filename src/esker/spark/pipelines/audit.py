# mypy: disable-error-code="no-any-unimported"
# (pyarrow ships no types)
"""`audit`: Esker's promises, checked against its own history.

    from esker.spark.pipelines.audit import audit

    found = audit(spark.read.parquet("archive/events"))
    for violation in found.evidence:
        print(violation.rule, violation.position, violation.expected, violation.found)

One pass whatever the size: the rows of a partition of a topic go to one task, sorted, and are folded there (fold.py).
A task holds the living jobs of one partition, so its memory is bounded by the depth of the deepest queue. With a
snapshot of the queues (`live`) the jobs that live by the history are compared with those that are there, both ways, and
the next seqs of all topics with the last ones of the history.

Files of an archive say by their names which positions they have: a file that is missing is a violation of its own, and
nothing is concluded from what it may have held.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, NamedTuple

import pyarrow as pa
from pyspark import StorageLevel
from pyspark.sql import functions as sf
from pyspark.sql.types import LongType, StringType, StructField, StructType

from esker.errors import SettingsError
from esker.spark.pipelines.codes import Balance, Bound, Code
from esker.spark.pipelines.facts import Facts
from esker.spark.pipelines.fold import GRACE_MS, PartitionFold
from esker.spark.pipelines.positions import Span, span_of_frame
from esker.spark.pipelines.rows import check_columns, collect_facts, fold_rows, partitions_in
from esker.spark.pipelines.rules import EVIDENCE_MAX, RULES, Findings, Violation, disguised

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, Row

_FOUND: Final = StructType(
    [
        StructField("what", StringType(), False),  # violation, broken, note, balance, letter, deleted or rows
        StructField("name", StringType(), False),
        StructField("count", LongType(), False),
        StructField("topic_number", LongType(), True),
        StructField("partition", LongType(), True),
        StructField("position", LongType(), True),
        StructField("ordinal", LongType(), True),
        StructField("time_ms", LongType(), True),
        StructField("seq", LongType(), True),
        StructField("expected", StringType(), True),
        StructField("found", StringType(), True),
    ]
)
_ARROW: Final = pa.schema(
    [pa.field(each.name, pa.int64() if each.dataType == LongType() else pa.string(), each.nullable) for each in _FOUND]
)
_Line = tuple[
    str, str, int, int | None, int | None, int | None, int | None, int | None, int | None, str | None, str | None
]
_LINES: Final = 4096  # given to Spark at a time


@dataclass(frozen=True, slots=True)
class Evidence:
    """A violation with the name of its topic, which is empty where it is of no topic. `position` and `ordinal` find the
    row in the history."""

    rule: str
    topic: str
    topic_number: int
    partition: int
    position: int
    ordinal: int
    time_ms: int
    seq: int
    expected: str
    found: str

    def __str__(self) -> str:
        job = f"{self.topic}/{self.partition} seq {self.seq} " if self.topic else ""
        return (
            f"{self.rule}: {job}at position {self.position}.{self.ordinal}: expected {self.expected}; "
            f"found {self.found}"
        )


@dataclass(frozen=True, slots=True)
class Violations:
    """`broken`: how often each rule was broken; a rule that held is not there. `evidence`: the first ones, in the order
    of the history, at most as many as were asked for. `balance`: by topic number, how many jobs came and how they left.
    `span`: the positions that the history has; None: not known.
    """

    rows: int
    broken: Mapping[str, int]
    evidence: list[Evidence]
    notes: Mapping[str, int]
    balance: Mapping[int, Mapping[str, int]]
    names: Mapping[int, str] = field(default_factory=dict)
    span: Span | None = None

    @property
    def honest(self) -> bool:
        return not self.broken


class Head(NamedTuple):
    """The next seq of a partition, as a broker says it; `position` is one at which `bound` must hold."""

    topic_number: int
    partition: int
    position: int
    seq: int
    bound: Bound


@dataclass(frozen=True, slots=True)
class Live:
    """Snapshots of queues: `jobs` has topic_number, partition and seq of every living job; `positions` says, by topic
    number, at which position of the journal each was taken. A queue that is empty is in `positions` only."""

    jobs: DataFrame
    positions: Mapping[int, int]
    heads: Sequence[Head] = ()


def audit(
    events: DataFrame,
    live: Live | None = None,
    *,
    span: Span | None = None,
    grace_ms: int = GRACE_MS,
    best_of: int = 1,
    evidence_max: int = 1000,
    tasks: int | None = None,
) -> Violations:
    """Checks every rule of rules.py. Raises SettingsError when `events` is not a history.

    `span`: the positions that `events` has; None: as the names of its files say, if it is read from an archive.
    `grace_ms`: how long after its time a delayed job counts as ready for certain. `best_of`: a lease may take any of so
    many best jobs of a partition. `tasks`: how many tasks share the work; None: as Spark decides.
    """
    check_columns(events)
    facts = collect_facts(events)
    if facts.old_upto is not None:
        raise SettingsError(
            f"the events up to position {facts.old_upto} are of a format before 0.3, which tells too little; audit "
            f"what came later: events.filter('position > {facts.old_upto}')"
        )
    span = span_of_frame(events) if span is None else span
    facts.holes(() if span is None else span.holes)
    for number, position in (live.positions if live is not None else {}).items():
        facts.snapshot(number, position, 0)
    rows = fold_rows(events, None if live is None else _rows_of(live), tasks)

    def fold(batches: Iterator[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        return _fold(batches, facts, grace_ms, best_of)

    found = rows.mapInArrow(fold, _FOUND).persist(StorageLevel.MEMORY_AND_DISK)
    try:
        sums = (
            found.filter("what not in ('violation', 'letter', 'deleted')")
            .groupBy("what", "name", "topic_number")
            .agg(sf.sum("count").alias("count"))
            .collect()
        )
        worst = found.filter("what = 'violation'").orderBy("position", "ordinal", "name").limit(evidence_max).collect()
        letters = _wrong_letters(found).collect()
    finally:
        found.unpersist()
    names = _names(events, facts, {row["topic_number"] for row in worst})
    found_in_rows = replace(_violations(sums, worst, names), span=span)
    evidence = [*_letter_evidence(letters, names), *_holes_evidence(span)]
    return _with_more(found_in_rows, evidence, evidence_max)


def _wrong_letters(found: DataFrame) -> DataFrame:
    """Dead-letter topics and positions where more jobs left for it than records came, or where a record came and a job
    whose deliveries were used up was deleted."""
    letter, mine = sf.col("what") == "letter", sf.col("count") > 0
    place = sf.struct("topic_number", "partition")
    sums = found.filter("what in ('letter', 'deleted')").groupBy("name", "position").agg(
        sf.coalesce(sf.sum(sf.when(letter, sf.col("count"))), sf.lit(0)).alias("letters"),
        sf.coalesce(sf.sum(sf.when(~letter, sf.col("count"))), sf.lit(0)).alias("deleted"),
        sf.max(sf.when(mine & letter, place)).alias("left"),
        sf.max(sf.when(mine & ~letter, place)).alias("went"),
    )  # fmt: skip
    return sums.filter("letters > 0 or (letters < 0 and deleted > 0)").orderBy("position").limit(EVIDENCE_MAX)


def _letter_evidence(letters: list[Row], names: Mapping[int, str]) -> Iterator[tuple[Evidence, int]]:
    """What cannot be judged in one partition: the evidence names no row. With how often the rule was broken there."""
    for row in letters:
        lost, deleted = row["letters"], disguised(row["letters"], row["deleted"])
        if lost > 0:
            rule, place, count = "conservation", row["left"], lost
            told = f"the jobs that left as dead letters in {row['name']}, in the same batch", f"{lost} are missing"
        else:
            rule, place, count = "dead_letter_reason", row["went"], deleted
            told = f"dead letters: copies came to {row['name']} in the same batch", f"{deleted} were deleted"
        number, partition = place
        topic = names.get(number, str(number))
        yield Evidence(rule, topic, number, partition, row["position"], 0, 0, 0, *told), count


def _holes_evidence(span: Span | None) -> Iterator[tuple[Evidence, int]]:
    for first, last in () if span is None else span.holes:
        expected = f"the events of positions {first} to {last}"
        yield Evidence("continuous_positions", "", 0, 0, first, 0, 0, 0, expected, "they are missing"), 1


def _with_more(found: Violations, more: list[tuple[Evidence, int]], evidence_max: int) -> Violations:
    if not more:
        return found
    broken = Counter(found.broken)
    for each, count in more:
        broken[each.rule] += count
    every = sorted([*found.evidence, *(each for each, _ in more)], key=lambda each: (each.position, each.ordinal))
    in_order = {rule: broken[rule] for rule in RULES if rule in broken}
    return replace(found, broken=in_order, evidence=every[:evidence_max])


def _rows_of(live: Live) -> DataFrame:
    """The jobs with the positions of their snapshots, and the heads."""
    spark = live.jobs.sparkSession
    positions = spark.createDataFrame(sorted(live.positions.items()), "topic_number long, position long")
    jobs = live.jobs.join(sf.broadcast(positions), "topic_number")
    heads = spark.createDataFrame(
        [(head.topic_number, head.partition, head.position, head.seq, int(head.bound)) for head in live.heads],
        "topic_number long, partition long, position long, seq long, number long",
    )
    jobs = jobs.select(*heads.columns[:4], sf.lit(0).cast("long").alias("number"), _code(Code.LIVE))
    return jobs.union(heads.withColumn("code", _code(Code.HEAD)))


def _code(code: Code) -> Column:
    return sf.lit(int(code)).alias("code")


def _violations(sums: list[Row], worst: list[Row], names: Mapping[int, str]) -> Violations:
    by_what: dict[str, dict[str, int]] = {"broken": {}, "note": {}, "rows": {}}
    balance: dict[int, dict[str, int]] = {}
    for row in sums:
        if row["what"] == "balance":
            balance.setdefault(row["topic_number"], {})[row["name"]] = row["count"]
        else:
            by_what[row["what"]][row["name"]] = row["count"]
    evidence = [
        Evidence(
            row["name"], names.get(row["topic_number"], str(row["topic_number"])), row["topic_number"],
            row["partition"], row["position"], row["ordinal"], row["time_ms"], row["seq"], row["expected"],
            row["found"],
        )
        for row in worst
    ]  # fmt: skip
    broken = {rule: by_what["broken"][rule] for rule in RULES if rule in by_what["broken"]}
    return Violations(by_what["rows"].get("rows", 0), broken, evidence, by_what["note"], balance, names)


def _names(events: DataFrame, facts: Facts, numbers: set[int]) -> dict[int, str]:
    """Of topics whose making is older than the history, the rows themselves know it."""
    unknown = sorted(number for number in numbers if number not in facts.names)
    if not unknown:
        return dict(facts.names)
    rows = (
        events.filter(sf.col("topic_number").isin(unknown) & sf.col("topic").isNotNull())
        .groupBy("topic_number")
        .agg(sf.first("topic").alias("topic"))
        .collect()
    )
    return {**facts.names, **{row["topic_number"]: row["topic"] for row in rows}}


# -- in the tasks


def _fold(batches: Iterator[pa.RecordBatch], facts: Facts, grace_ms: int, best_of: int) -> Iterator[pa.RecordBatch]:
    """Folds the partitions of one task, one after the other; lines come out as they are found."""
    lines: list[_Line] = []
    place: tuple[int, int] | None = None
    fold: PartitionFold | None = None
    findings = Findings()
    sums: dict[tuple[str, str], int] = {}
    rows = 0
    for here, count, piece in partitions_in(batches):
        if here != place:
            if fold is not None:
                lines += _finish(fold, findings, sums)
            place, findings = here, Findings()
            fold = PartitionFold(
                *here,
                facts.story(here[0]),
                findings,
                starts_told=facts.starts_told,
                grace_ms=grace_ms,
                best_of=best_of,
                graves=facts.graves,
                name=facts.names.get(here[0]),
            )
        assert fold is not None
        fold.run(piece)
        rows += count
        lines += _letters(fold, findings)
        if len(lines) >= _LINES:
            yield _batch(lines)
            lines = []
    if fold is not None:
        lines += _finish(fold, findings, sums)
    lines += [_line(what, name, count) for (what, name), count in sums.items()]
    lines.append(_line("rows", "rows", rows))
    yield _batch(lines)


def _finish(fold: PartitionFold, findings: Findings, sums: dict[tuple[str, str], int]) -> Iterator[_Line]:
    fold.finish()
    for what, counts in (("broken", findings.broken), ("note", findings.notes)):
        for name, count in counts.items():
            sums[what, name] = sums.get((what, name), 0) + count
    for violation in findings.evidence:
        yield _violation_line(violation)
    for name in Balance.__slots__:
        count = getattr(fold.balance, name)
        if count:
            yield _line("balance", name, count, fold.topic)


def _letters(fold: PartitionFold, findings: Findings) -> list[_Line]:
    letters, findings.letters = findings.letters, Counter()
    deleted, findings.deleted = findings.deleted, Counter()
    return [
        (what, name, count, fold.topic, fold.partition, position, None, None, None, None, None)
        for what, counts in (("letter", letters), ("deleted", deleted))
        for (name, position), count in counts.items()
    ]


def _violation_line(violation: Violation) -> _Line:
    return (
        "violation", violation.rule, 1, violation.topic, violation.partition, violation.position, violation.ordinal,
        violation.time_ms, violation.seq, violation.expected, violation.found,
    )  # fmt: skip


def _line(what: str, name: str, count: int, topic: int | None = None) -> _Line:
    return what, name, count, topic, None, None, None, None, None, None, None


def _batch(lines: list[_Line]) -> pa.RecordBatch:
    columns = zip(*lines, strict=True) if lines else [()] * len(_ARROW)
    arrays = [pa.array(column, each.type) for column, each in zip(columns, _ARROW, strict=True)]
    return pa.RecordBatch.from_arrays(arrays, schema=_ARROW)
