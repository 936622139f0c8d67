"""`format("esker")`: the class that Spark finds through the package `pyspark_esker`.

Spark makes it anew for every step of a query, in processes of its own, and sends it from one to the other. So it keeps
the options as they came, connects to nothing, and everything it makes can be pickled. Being loaded changes nothing but
how a process of Spark's ends (workers.py).
"""

from __future__ import annotations

from collections.abc import Mapping, MutableMapping

from pyspark.sql.datasource import (
    DataSource,
    DataSourceReader,
    DataSourceStreamReader,
    DataSourceStreamWriter,
    DataSourceWriter,
)
from pyspark.sql.types import StructType

from esker.spark.deadletters import DeadLettersReader
from esker.spark.events import EventsReader, EventsStreamReader
from esker.spark.jobs import JobsReader
from esker.spark.options import Table, check_names, read_options, write_options
from esker.spark.reader import RecordsReader
from esker.spark.schemas import full_schema
from esker.spark.stream import RecordsStreamReader
from esker.spark.workers import end_quietly, of_spark
from esker.spark.writer import BatchWriter, StreamWriter

end_quietly(of_spark())

_Reader = RecordsReader | JobsReader | EventsReader | DeadLettersReader
_READERS: Mapping[Table, type[_Reader]] = {
    Table.RECORDS: RecordsReader,
    Table.JOBS: JobsReader,
    Table.EVENTS: EventsReader,
    Table.DEADLETTERS: DeadLettersReader,
}


class EskerSource(DataSource):
    """Topics of a broker as tables of Spark: see docs/spark.md for the options."""

    def __init__(self, options: MutableMapping[str, str]) -> None:
        super().__init__(options)
        check_names(options)

    @classmethod
    def name(cls) -> str:
        return "esker"

    def schema(self) -> StructType:
        """Of a batch or a stream: Spark does not say which, so what fits only one of them is found out later."""
        return full_schema(read_options(self.options, streaming=None))

    def reader(self, schema: StructType) -> DataSourceReader:
        options = read_options(self.options, streaming=False)
        return _READERS[options.table](options, schema)

    def streamReader(self, schema: StructType) -> DataSourceStreamReader:
        options = read_options(self.options, streaming=True)
        if options.table is Table.EVENTS:
            return EventsStreamReader(options, schema)
        return RecordsStreamReader(options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> DataSourceWriter:
        return BatchWriter(write_options(self.options), schema, overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> DataSourceStreamWriter:
        return StreamWriter(write_options(self.options), schema, overwrite)
