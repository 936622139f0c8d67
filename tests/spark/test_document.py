"""The examples of docs/spark.md run as they stand there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from pyspark.sql.streaming.query import StreamingQuery

from tests.spark.lake import Lake

DOCUMENT = Path(__file__).parents[2] / "docs" / "spark.md"


def test_the_examples_of_the_document_run(lake: Lake, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    lake.broker.fill("documented", 30)
    listeners = []
    monkeypatch.setattr(type(lake.spark.streams), "addListener", lambda self, listener: listeners.append(listener))
    names: dict[str, object] = {}
    for text in re.findall(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL):
        example = text.replace('format("esker")', f'format("esker").option("endpoint", "{lake.broker.url}")')
        example = example.replace('foreach_batch("totals"', f'foreach_batch("totals", endpoint="{lake.broker.url}"')
        example = example.replace("checkpoints/", f"{tmp_path}/")  # Java does not follow a change of folder
        exec(example.replace('"orders"', '"documented"'), names)
        if "foreach_batch(" in example:
            query = names["query"]
            assert isinstance(query, StreamingQuery)
            query.processAllAvailable()
            query.stop()
    assert lake.values("copies") == list(range(30))
    assert lake.broker.next("totals") > 1
    assert len(listeners) == 1
