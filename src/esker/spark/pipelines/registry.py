"""The table of pipelines: what each is called, what it takes, and how it is run.

It names every pipeline without loading Spark, so that `esker pipeline list` and `show` answer at once. The code of a
pipeline is loaded when it runs. From Python:

    from esker.spark import session
    from esker.spark.pipelines import registry

    result = registry.run("export", session(), {"topic": "orders"}, output="orders-export")
    print(result.lines)
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from difflib import get_close_matches
from threading import Event
from typing import TYPE_CHECKING, Final, Protocol

from esker.errors import SettingsError
from esker.spark.errors import EskerSparkError
from esker.spark.options import DEFAULT_ENDPOINT, Connection, parse_endpoints
from esker.spark.pipelines.parameters import Family, Parameter, Values, read_values
from esker.spark.pipelines.progress import QUIET, Progress

if TYPE_CHECKING:
    from pyspark.sql import SparkSession


@dataclass(frozen=True, slots=True)
class Order:
    """One run as it was asked for. `output` and `checkpoint` are folders; None: the pipeline needs or picks none."""

    values: Values
    endpoint: str = DEFAULT_ENDPOINT
    api_key: str | None = field(default=None, repr=False)
    continuous: bool = False
    output: str | None = None
    checkpoint: str | None = None
    stopping: Event = field(default_factory=Event, repr=False)  # set it to end a stream behind its batch

    def source_options(self) -> dict[str, str]:
        """How Spark reaches the broker: the options that every read and write needs."""
        options = {"endpoint": self.endpoint}
        if self.api_key is not None:
            options["apiKey"] = self.api_key
        return options

    def connection(self) -> Connection:
        return Connection(parse_endpoints(self.endpoint), self.api_key)

    def folder(self, option: str) -> str:
        """`output` or `checkpoint` of a pipeline that says in `needs` that it cannot do without."""
        found = self.output if option == "output" else self.checkpoint
        assert found, f"make_order has checked that there is --{option}"
        return found


@dataclass(frozen=True, slots=True)
class Result:
    """What a run came to: lines for people, facts for programs, the files it made, and how the command should end."""

    lines: list[str]
    facts: Mapping[str, object] = field(default_factory=dict)
    paths: list[str] = field(default_factory=list)
    exit_code: int = 0


class Run(Protocol):
    def __call__(self, spark: SparkSession, order: Order, progress: Progress) -> Result: ...


@dataclass(frozen=True, slots=True)
class Pipeline:
    """`families`: parameters whose names have a free second part, such as `map.priority`. `folders`: which of output
    and checkpoint it uses; `needs`: those that it cannot do without. `streams`: it can run on and on
    (`--continuous`)."""

    name: str
    summary: str
    parameters: tuple[Parameter, ...]
    run: Run
    families: tuple[Family, ...] = ()
    folders: tuple[str, ...] = ()
    needs: tuple[str, ...] = ()
    streams: bool = False


def find(name: str) -> Pipeline:
    pipeline = PIPELINES.get(name)
    if pipeline is None:
        near = get_close_matches(name, PIPELINES, 3, 0.5)
        hint = f"did you mean {' or '.join(near)}?" if near else f"there are {', '.join(PIPELINES)}"
        raise SettingsError(f"unknown pipeline {name!r}; {hint}")
    return pipeline


def make_order(
    pipeline: Pipeline,
    given: Mapping[str, str],
    *,
    endpoint: str = DEFAULT_ENDPOINT,
    api_key: str | None = None,
    continuous: bool = False,
    output: str | None = None,
    checkpoint: str | None = None,
) -> Order:
    """Checks everything that can be checked before Spark starts. Raises SettingsError that names what is wrong."""
    values = read_values(f"pipeline {pipeline.name}", pipeline.parameters, pipeline.families, given)
    for option, folder in (("output", output), ("checkpoint", checkpoint)):
        if folder is not None and option not in pipeline.folders:
            raise SettingsError(f"pipeline {pipeline.name} takes no --{option}")
        if not folder and option in pipeline.needs:
            raise SettingsError(f"pipeline {pipeline.name} needs a folder: --{option} DIR")
    if continuous and not pipeline.streams:
        raise SettingsError(f"pipeline {pipeline.name} runs once; --continuous is for {', '.join(_streams())}")
    order = Order(values, endpoint, api_key, continuous, output, checkpoint)
    try:
        order.connection()
    except EskerSparkError as error:
        raise SettingsError(str(error)) from error
    return order


def run(
    name: str,
    spark: SparkSession,
    given: Mapping[str, str],
    *,
    endpoint: str = DEFAULT_ENDPOINT,
    api_key: str | None = None,
    continuous: bool = False,
    output: str | None = None,
    checkpoint: str | None = None,
    progress: Progress = QUIET,
) -> Result:
    """`esker pipeline run`, for programs. Values are texts, as after `--set`."""
    pipeline = find(name)
    order = make_order(
        pipeline,
        given,
        endpoint=endpoint,
        api_key=api_key,
        continuous=continuous,
        output=output,
        checkpoint=checkpoint,
    )
    return pipeline.run(spark, order, progress)


def _streams() -> list[str]:
    return [pipeline.name for pipeline in PIPELINES.values() if pipeline.streams]


# -- each is loaded when it runs


def _load(spark: SparkSession, order: Order, progress: Progress) -> Result:
    from esker.spark.pipelines import load

    return load.run(spark, order, progress)


def _export(spark: SparkSession, order: Order, progress: Progress) -> Result:
    from esker.spark.pipelines import export

    return export.run(spark, order, progress)


def _transform(spark: SparkSession, order: Order, progress: Progress) -> Result:
    from esker.spark.pipelines import transform

    return transform.run(spark, order, progress)


def _replay(spark: SparkSession, order: Order, progress: Progress) -> Result:
    from esker.spark.pipelines import replay

    return replay.run(spark, order, progress)


def _audit(spark: SparkSession, order: Order, progress: Progress) -> Result:
    from esker.spark.pipelines import history

    return history.run_audit(spark, order, progress)


def _lifecycle(spark: SparkSession, order: Order, progress: Progress) -> Result:
    from esker.spark.pipelines import history

    return history.run_lifecycle(spark, order, progress)


_ARCHIVE: Final = Parameter("archive", str, "folder or URL of an archive: its files alone; else the broker is asked")

_MAP: Final = Family(
    "map",
    "SQL expression over the input's columns for a column of the topic",
    ("topic", "tag", "node", "meta", "key", "priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries"),
)

_ALL: Final = (
    Pipeline(
        "load",
        "Files of Parquet, CSV or JSON into a queue or a log; a rerun goes on behind what is there",
        (
            Parameter("input", str, "file, folder or pattern to read", required=True),
            Parameter("topic", str, "where the rows go; else map.topic says it row by row"),
            Parameter("type", str, "of the topic when it is made", "queue", choices=("queue", "log")),
            Parameter("format", str, "of the files", "auto", choices=("auto", "parquet", "csv", "json")),
            Parameter("value", str, "SQL expression of the payload; else the column `value`, else the row as JSON"),
            Parameter("where", str, "SQL condition: which rows"),
            Parameter("value_format", str, "a log's values: JSON texts, or any text", "json", choices=("json", "text")),
            Parameter("share", float, "of the broker's time that the load may take", 0.5, low=0.05, high=1),
            Parameter("create", bool, "make a topic that is missing", True),
            Parameter("batch_mb", int, "files are loaded in groups of about this size", 256, low=1, high=65_536),
            Parameter("load_id", str, "name of the load; else made from the files and these parameters"),
        ),
        _load,
        families=(_MAP, Family("read", "option of Spark's reader, such as read.header=true")),
    ),
    Pipeline(
        "export",
        "A log as Parquet or a Delta table by day: each run adds what is new, each record once",
        (
            Parameter("topic", str, "the log to export", required=True),
            Parameter("format", str, "of the output", "parquet", choices=("parquet", "delta")),
            Parameter("starting", str, "where the first run begins: earliest or latest", "earliest",
                      choices=("earliest", "latest")),
            Parameter("batch_rows", int, "records of one batch", 1_000_000, low=1),
            Parameter("fail_on_data_loss", bool, "stop when records are lost, instead of going on without", True),
            Parameter("compact", bool, "afterwards, make large files out of small ones", False),
            Parameter("file_mb", int, "size of a compacted file", 128, low=1, high=4096),
        ),
        _export,
        folders=("output", "checkpoint"),
        needs=("output",),
        streams=True,
    ),
    Pipeline(
        "transform",
        "Topics, through SQL or a Python function that a file declares, into a topic",
        (
            Parameter("file", str, "the declaration, .toml or .yaml", required=True),
            Parameter("batch_rows", int, "records of one batch", 200_000, low=1),
            Parameter("share", float, "of the broker's time that writing may take", 0.5, low=0.05, high=1),
        ),
        _transform,
        folders=("checkpoint",),
        needs=("checkpoint",),
        streams=True,
    ),
    Pipeline(
        "replay",
        "Dead letters or old records, chosen by SQL, back into a queue; shows first, does it with apply=true",
        (
            Parameter("source", str, "the dead-letter topic, or a log", required=True),
            Parameter("table", str, "what the source holds", "deadletters", choices=("deadletters", "records")),
            Parameter("where", str, "SQL condition over its columns: which ones"),
            Parameter("target", str, "the queue to copy into; dead letters go back where they came from without it"),
            Parameter("apply", bool, "do it; else only count and show a sample", False),
            Parameter("upto", int, "only offsets below this; else the end of the source now", low=1),
            Parameter("sample", int, "how many to show", 5, low=0, high=100),
            Parameter("share", float, "of the broker's time that copying may take", 0.5, low=0.05, high=1),
        ),
        _replay,
        families=(_MAP,),
    ),
    Pipeline(
        "lifecycle",
        "What became of the jobs of each queue, how long they waited and ran: Parquet tables and an HTML report",
        (
            _ARCHIVE,
            Parameter("bucket_s", int, "seconds of a row of the table `minutes`", 60, low=1, high=86_400),
        ),
        _lifecycle,
        folders=("output",),
        needs=("output",),
    ),
    Pipeline(
        "audit",
        "Every promise checked against the whole history and the live state; violations with their evidence",
        (
            _ARCHIVE,
            Parameter("live", bool, "compare with the jobs that live now, too", True),
            Parameter("grace_ms", int, "how late a delayed job may become ready", 1000, low=0, high=3_600_000),
            Parameter("best_of", int, "a delivery may be any of so many best jobs of a partition", 1, low=1),
            Parameter("evidence", int, "violations to keep, with their evidence", 1000, low=1, high=1_000_000),
        ),
        _audit,
    ),
)  # fmt: skip

PIPELINES: Final[Mapping[str, Pipeline]] = {pipeline.name: pipeline for pipeline in _ALL}
