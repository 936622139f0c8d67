"""`esker settings`: the table of all settings."""

from __future__ import annotations

from rich.console import Console
from rich.table import Table

from esker.node.settings import table


def show() -> None:
    """List every setting with its default, unit and meaning."""
    shown = Table(
        "setting", "default", "unit", "meaning", title="as --set NAME=VALUE, ESKER_NAME=VALUE or a key of esker.toml"
    )
    for row in table():
        shown.add_row(*row)
    Console().print(shown)
