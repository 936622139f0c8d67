"""From the columns of any data to the columns of a topic, by SQL expressions."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.errors import AnalysisException, ParseException
from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812 the name that everybody knows it by
from pyspark.sql import types as T  # noqa: N812

from esker.errors import SettingsError
from esker.spark.pipelines.failures import in_one_line

_WHOLE_NUMBERS: Final = ("priority", "delay_ms", "ttl_ms", "retry_ms", "max_deliveries")


def to_topic_columns(
    data: DataFrame, value: str | None, mapped: Mapping[str, str], where: str = "map", where_value: str = "value"
) -> DataFrame:
    """`value` None: the column of this name, or else the row as a JSON object. Structs and lists become JSON, other
    values text. Raises SettingsError that names the expression that does not fit the data."""
    columns = [_payload(data, value, where_value).alias("value")]
    for name, expression in mapped.items():
        kind: T.DataType = T.LongType() if name in _WHOLE_NUMBERS else T.StringType()
        found = _checked(data, f"{where}.{name}", expression)
        if name == "key" and isinstance(_type_of(data, found), T.BinaryType):
            kind = T.BinaryType()
        columns.append(found.cast(kind).alias(name))
    return data.select(*columns)


def only_where(data: DataFrame, condition: str | None, name: str = "where") -> DataFrame:
    if condition is None:
        return data
    found = _checked(data, name, condition)
    if not isinstance(_type_of(data, found), T.BooleanType):
        raise SettingsError(f'{name}: {condition!r} is no condition; expected such as "priority > 5"')
    return data.where(found)


def _payload(data: DataFrame, expression: str | None, where: str) -> Column:
    if expression is None and "value" not in data.columns:
        return F.to_json(F.struct(*[data[f"`{name}`"] for name in data.columns]))
    found = F.col("value") if expression is None else _checked(data, where, expression)
    kind = _type_of(data, found)
    if isinstance(kind, T.StringType | T.BinaryType):
        return found
    if isinstance(kind, T.StructType | T.ArrayType | T.MapType):
        return F.to_json(found)
    return found.cast(T.StringType())


def _checked(data: DataFrame, name: str, expression: str) -> Column:
    try:
        column = F.expr(expression)
        _type_of(data, column)
    except (AnalysisException, ParseException) as error:
        raise SettingsError(f"{name}: {expression!r}: {in_one_line(error)}") from None
    return column


def _type_of(data: DataFrame, column: Column) -> T.DataType:
    return data.select(column).schema.fields[0].dataType
