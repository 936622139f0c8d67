"""Settings: one table, three sources, and a clear word about what is wrong."""

from __future__ import annotations

from pathlib import Path

import pytest

from esker.engine.config import Durability
from esker.errors import SettingsError
from esker.node.settings import Settings, is_live, memory_default, parse_bytes, read_settings, table


def test_a_flag_beats_a_variable_beats_the_file_beats_the_default(tmp_path: Path) -> None:
    file = tmp_path / "esker.toml"
    file.write_text('resp_port = 1\nclients_max = 1\nmemory_limit = "1kb"\nidle_timeout_s = 7\n')
    environment = {"ESKER_RESP_PORT": "2", "ESKER_CLIENTS_MAX": "2", "HOME": "/nowhere"}
    settings = read_settings({"resp_port": "3"}, environment, file)
    assert (settings.resp_port, settings.clients_max, settings.memory_limit_bytes) == (3, 2, 1024)
    assert (settings.idle_timeout_s, settings.sync_interval_ms) == (7, 100)


@pytest.mark.parametrize(
    ("text", "size"),
    [("0", 0), ("17", 17), ("1k", 1000), ("1kb", 1024), ("2 MB", 2 << 20), ("3g", 3 * 10**9), ("4GB", 4 << 30)],
)
def test_sizes_are_written_as_in_redis(text: str, size: int) -> None:
    assert parse_bytes(text) == size


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("resp_port", "70000"), ("resp_port", "-2"), ("resp_port", "seven"), ("http_port", "70000"),
        ("grpc_port", "9090"), ("probe_auth", "maybe"), ("max_body_bytes", "much"),
        ("memory_limit", "2 tb"), ("memory_limit", "-1"),
        ("queue_durability", "eternal"), ("sync_interval_ms", "0"), ("clients_max", "-1"),
        ("idle_timeout_s", "-1"), ("checkpoint_interval_s", "1.5"),
    ],
)  # fmt: skip
def test_an_unusable_value_is_refused_by_name_and_value_and_changes_nothing(name: str, text: str) -> None:
    settings = Settings()
    with pytest.raises(SettingsError, match=name) as caught:
        settings.set(name, text)
    assert repr(text) in str(caught.value)
    assert settings == Settings()


def test_an_unknown_name_is_refused_with_the_nearest_known_one(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"memory_limt.*did you mean 'memory_limit'"):
        read_settings({"memory_limt": "1gb"}, {})
    with pytest.raises(SettingsError, match=r"qqq.*known are"):
        read_settings({}, {"ESKER_QQQ": "1"})
    file = tmp_path / "esker.toml"
    file.write_text("memori_limit = 5\n")
    with pytest.raises(SettingsError, match="memori_limit"):
        read_settings({}, {}, file)


def test_a_file_that_cannot_be_read_is_named(tmp_path: Path) -> None:
    with pytest.raises(SettingsError, match=r"missing\.toml"):
        read_settings({}, {}, tmp_path / "missing.toml")
    broken = tmp_path / "broken.toml"
    broken.write_text("a = = b")
    with pytest.raises(SettingsError, match=r"broken\.toml is not TOML"):
        read_settings({}, {}, broken)


def test_diagnostics_have_two_forms() -> None:
    assert read_settings({"diagnostics": "json"}, {}).diagnostics == "json"
    with pytest.raises(SettingsError, match="diagnostics cannot be 'loud'"):
        read_settings({"diagnostics": "loud"}, {})


def test_no_memory_limit_is_half_of_what_the_process_may_use() -> None:
    assert Settings().memory_limit_bytes == memory_default() > 0
    assert Settings(memory_limit=5).memory_limit_bytes == 5


def test_every_setting_is_in_the_table_and_only_live_ones_change_while_running() -> None:
    names = [name for name, _, _, _ in table()]
    assert len(names) == len(set(names)) >= 15
    assert all(says for _, _, _, says in table())
    assert is_live("memory_limit")
    assert not is_live("data")
    assert not is_live("nonsense")


def test_the_class_of_queues_made_on_first_use_is_fsync_by_default() -> None:
    assert Settings().queue_durability == Durability.FSYNC
    settings = Settings()
    settings.set("queue_durability", "Memory")
    assert settings.queue_durability == Durability.MEMORY
