"""Options are checked before anything is asked of a broker, and errors name them. No Spark session is needed."""

from __future__ import annotations

import msgspec
import pytest

from esker.fronts.http.bodies import ConfigBody
from esker.spark.errors import EskerSparkError
from esker.spark.offsets import EARLIEST, LATEST, Edge, Progress, share
from esker.spark.options import TOPIC_FIELDS, Connection, Direct, Table, parse_endpoints, read_options, write_options

T = {"subscribe": "t"}


@pytest.mark.parametrize(
    ("options", "streaming", "said"),
    [
        ({"subscrib": "t"}, False, r"option subscrib: .* did you mean subscribe"),
        ({"nonsense": "t"}, False, r"option nonsense: there is no such option$"),
        ({}, False, r"option subscribe: say which topics"),
        ({**T, "assign": '{"t":[0]}'}, False, r"subscribe and assign: exactly one"),
        ({"subscribe": " , "}, False, r"option subscribe: it names nothing"),
        ({"subscribepattern": "("}, False, r"option subscribePattern: .* no regular expression"),
        ({"assign": "t"}, False, r"option assign"),
        ({"assign": '{"t":[-1]}'}, False, r"option assign: topic 't'"),
        ({**T, "table": "rows"}, False, r"option table: 'rows'; it is one of records, jobs, events, deadletters"),
        ({**T, "startingoffsets": "latest"}, False, r"option startingOffsets: a batch cannot start at latest"),
        ({**T, "endingoffsets": "earliest"}, False, r"option endingOffsets: a batch cannot end at earliest"),
        ({**T, "endingoffsets": "latest"}, True, r"option endingOffsets: a stream has no end"),
        ({**T, "startingoffsets": '{"t":5}'}, False, r"option startingOffsets: topic 't' needs its partitions"),
        ({**T, "startingoffsets": '{"t":{"x":5}}'}, False, r"option startingOffsets: .*'x' is no partition"),
        ({**T, "startingoffsets": '{"t":{"0":-3}}'}, False, r"option startingOffsets: .*-3"),
        ({**T, "startingoffsets": "soon"}, False, r"option startingOffsets: 'soon'"),
        ({**T, "startingtimestamp": "yesterday"}, False, r"option startingTimestamp: 'yesterday'"),
        ({**T, "startingoffsetsbytimestamp": '{"t":{"0":-5}}'}, False, r"option startingOffsetsByTimestamp"),
        ({**T, "startingoffsetsbytimestampstrategy": "x"}, False, r"option startingOffsetsByTimestampStrategy"),
        ({**T, "maxoffsetspertrigger": "0"}, True, r"option maxOffsetsPerTrigger: 0; it is at least 1"),
        ({**T, "maxoffsetspertrigger": "many"}, True, r"option maxOffsetsPerTrigger: 'many' is no whole number"),
        ({**T, "minpartitions": "-1"}, False, r"option minPartitions"),
        ({**T, "failondataloss": "perhaps"}, False, r"option failOnDataLoss: 'perhaps'; it is true or false"),
        ({**T, "table": "jobs", "states": "ready,odd"}, False, r"option states: 'odd'"),
        ({**T, "prioritymin": "1"}, False, r"option priorityMin: the table records has no such option; it is for jobs"),
        ({**T, "table": "jobs"}, True, r"option table: jobs cannot be streamed"),
        ({**T, "endpoint": "ftp://x"}, False, r"option endpoint"),
        ({**T, "endpoint": " , "}, False, r"option endpoint"),
        ({**T, "apikey": "a b"}, False, r"option apiKey"),
        ({**T, "since": "-1"}, False, r"option since: .* before 1970"),
        ({**T, "direct": "maybe"}, False, r"option direct"),
        ({**T, "type": "log"}, False, r"option type: it is for writing"),
        ({**T, "path": "t"}, False, r"option path: .*subscribe"),
        ({**T, "endpoint": "a:1", "bootstrap.servers": "b:1"}, False, r"endpoint is given twice"),
    ],
)
def test_a_wrong_read_option_is_named(options: dict[str, str], streaming: bool, said: str) -> None:
    with pytest.raises(EskerSparkError, match=said):
        read_options(options, streaming)


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"topic": "t", "subscribe": "t"}, r"option subscribe: it is for reading"),
        ({"topic": "t", "type": "kv"}, r"option type: 'kv'; it is log or queue"),
        ({"topic": "t", "valueformat": "xml"}, r"option valueFormat"),
        ({"topic": "t", "share": "2"}, r"option share"),
        ({"topic": "t", "share": "much"}, r"option share"),
        ({"topic": "t", "loadid": "a/b"}, r"option loadId"),
        ({"topic": "t", "batchid": "1"}, r"option batchId: .* loadId"),
        ({"topic": "t", "topic.Ttl!": "1"}, r"topic.Ttl!"),
        ({"topic": "t", "topic.durabilty": "fsync"}, r"option topic.durabilty: .*did you mean topic\.durability"),
        ({"topic": "t", "topic.mode": "max"}, r"option topic.mode: there is no such option"),
        ({"topic": "t", "create": "yes"}, r"option create"),
    ],
)
def test_a_wrong_write_option_is_named(options: dict[str, str], said: str) -> None:
    with pytest.raises(EskerSparkError, match=said):
        write_options(options)


def test_options_become_what_they_say() -> None:
    options = read_options(
        {
            "esker.bootstrap.servers": "one:4000, https://two:4001/",
            "apikey": "secret",
            "subscribe": "a, b,a",
            "startingoffsets": '{"a":{"0":-2},"b":{"0":7},"$epochs":{"b":3}}',
            "endingtimestamp": "1970-01-01T00:00:01",
            "minpartitions": "3",
            "failondataloss": "FALSE",
            "direct": "true",
            "since": "1000",
            "checkpointlocation": "of Spark's own",
        },
        streaming=False,
    )
    assert options.connection == Connection(("http://one:4000", "https://two:4001"), "secret")
    assert options.choice.names == ("a", "b")
    assert options.starting == Edge(offsets={("a", 0): EARLIEST, ("b", 0): 7}, epochs={"b": 3})
    assert options.ending == Edge(time_ms=1000)
    assert (options.partitions_min, options.fail_on_data_loss, options.direct) == (3, False, Direct.ALWAYS)
    assert (options.table, options.since_ms) == (Table.RECORDS, 1000)


def test_a_key_is_in_no_representation_and_no_message() -> None:
    assert "secret" not in repr(read_options({**T, "apikey": "secret"}, streaming=False))
    with pytest.raises(EskerSparkError) as refused:
        parse_endpoints("http://user:secret@host:4000")
    assert "secret" not in str(refused.value)


def test_the_config_of_a_new_topic_comes_from_options() -> None:
    options = write_options({"topic": "t", "topic.ttl_ms": "60000", "topic.durability": "fsync"})
    assert options.config == {"ttl_ms": 60000, "durability": "fsync"}


def test_every_field_that_the_broker_takes_can_be_given_and_no_other() -> None:
    assert set(TOPIC_FIELDS) == {field.name for field in msgspec.structs.fields(ConfigBody)}


def test_progress_is_written_in_one_order_whatever_order_it_came_in() -> None:
    one = Progress({("b", 0): 2, ("a", 10): 3, ("a", 2): 4}, {"b": 2, "a": 1})
    text = '{"a": {"2": 4, "10": 3}, "b": {"0": 2}, "$epochs": {"a": 1, "b": 2}}'
    assert str(one.to_json()).replace("'", '"') == text
    assert Progress.from_json(one.to_json()) == one
    assert LATEST not in one.offsets.values()


def test_a_limit_is_shared_in_proportion_and_always_moves_on() -> None:
    spans = {("a", 0): (1, 901), ("b", 0): (11, 111), ("c", 0): (5, 5)}
    assert share(spans, 100) == {("a", 0): 91, ("b", 0): 21, ("c", 0): 5}
    assert share(spans, 10_000) == {("a", 0): 901, ("b", 0): 111, ("c", 0): 5}
    ends = share(spans, 1)
    assert sum(ends[spot] - spans[spot][0] for spot in spans) == 1
