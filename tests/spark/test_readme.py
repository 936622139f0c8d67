"""The Spark example of the README runs as it stands there."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from tests.spark.lake import Lake

README = Path(__file__).parents[2] / "README.md"


def test_the_spark_example_of_the_readme_runs(lake: Lake, capsys: pytest.CaptureFixture[str]) -> None:
    (example,) = (
        text for text in re.findall(r"```python\n(.*?)```", README.read_text(), re.DOTALL) if "esker.spark" in text
    )
    lake.broker.write("orders", [{"data": {"id": 1}}])
    with lake.broker.process.client() as client:
        client.execute_command("ADDJOB", "mail", "to: ann", 0, "PRIORITY", 5)
    exec(example.replace('format("esker")', f'format("esker").option("endpoint", "{lake.broker.url}")'), {})
    printed = capsys.readouterr().out
    assert '{"id":1}' in printed
    assert re.search(r"\|ready\s*\|\s*5\|\s*1\|", printed)
