"""A session of Spark with settings that suit one machine, or whatever a cluster's own settings leave open.

from esker.spark import session

spark = session("report")                                    # two cores of this machine
spark = session("report", master="spark://host:7077")        # the same code on a cluster
"""

from __future__ import annotations

import logging
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Final

from esker.spark.errors import EskerSparkError
from esker.spark.home import light_home
from esker.spark.java import find_java

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

DEFAULT_MASTER: Final = "local[2,4]"  # two cores; a task may fail three times before its query does

_ALWAYS: Final = {
    "spark.sql.session.timeZone": "UTC",
    "spark.sql.execution.arrow.maxRecordsPerBatch": "65536",  # what the sink stages at a time
}
# The file-system checkpoint manager renames instead of going through permissions: a third of the time of a small batch.
# It is sound for one driver on a local disk, and only there.
_LOCAL: Final = {
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.sql.shuffle.partitions": "4",
    # Between the JVM and its Python processes, instead of TCP: a read takes about a tenth less of the processor.
    "spark.python.unix.domain.socket.enabled": "true",
    "spark.sql.streaming.minBatchesToRetain": "10",
    "spark.sql.streaming.checkpointFileManagerClass": (
        "org.apache.spark.sql.execution.streaming.checkpointing.FileSystemBasedCheckpointFileManager"
    ),
}


def session(
    name: str = "esker",
    master: str | None = None,
    config: Mapping[str, str] | None = None,
    warehouse: Path | str | None = None,
    quiet: bool = True,
) -> SparkSession:
    """The session of this process, made if there is none. Raises EskerSparkError where Spark or Java is missing.

    `master` None: MASTER of the environment, else two cores of this machine. `config` beats every default here.
    `warehouse`: where tables of Spark's own catalogue go; on one machine, else, nowhere near the working directory.
    `quiet`: warnings of Spark are not shown, errors are.
    """
    try:
        import pyspark
        from pyspark.sql import SparkSession
    except ImportError:
        raise EskerSparkError("PySpark is missing: pip install 'esker[spark]'") from None
    java_home = find_java()
    if java_home is not None:
        os.environ["JAVA_HOME"] = str(java_home)
    # Workers run `python3` of the path otherwise, which may be another Python without our packages.
    os.environ.setdefault("PYSPARK_PYTHON", sys.executable)
    os.environ.setdefault("PYSPARK_DRIVER_PYTHON", sys.executable)
    master = master or os.environ.get("MASTER") or DEFAULT_MASTER
    settings = {**_ALWAYS, **settings_for(master, quiet), **(config or {})}
    if master.startswith("local") and "SPARK_HOME" not in os.environ:
        home = light_home(Path(pyspark.__file__).parent)
        if home is not None:
            os.environ["SPARK_HOME"] = str(home)
    if warehouse is not None:
        settings["spark.sql.warehouse.dir"] = str(warehouse)
    builder = SparkSession.builder.appName(name).master(master)
    for key, value in settings.items():
        builder = builder.config(key, value)
    if quiet:
        logging.getLogger("py4j").setLevel(logging.ERROR)
    spark = builder.getOrCreate()
    if quiet:
        spark.sparkContext.setLogLevel("ERROR")
    return spark


def settings_for(master: str, quiet: bool) -> dict[str, str]:
    """What is set for a master beyond what is always set."""
    if not master.startswith("local"):
        return {}
    # Spark would find out the name of the machine otherwise, which takes seconds where that is not known.
    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")
    return {**_LOCAL, **({"spark.driver.extraJavaOptions": quiet_options()} if quiet else {})}


def quiet_options() -> str:
    """For Java: errors alone are logged, from the first line on. What is set later comes too late for the start."""
    return f"-Dlog4j2.configurationFile={Path(__file__).with_name('log4j2.properties').as_uri()}"
