"""`esker pipeline`: bulk work on Spark, by name.

Listing and showing need no Spark. Running does, and says so in one line where it is not installed.
"""

from __future__ import annotations

import json
import signal
from collections.abc import Iterator
from contextlib import AbstractContextManager, contextmanager, nullcontext
from importlib.util import find_spec
from pathlib import Path
from types import FrameType
from typing import TYPE_CHECKING, Annotated, NoReturn

import typer
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from esker.errors import EskerError, SettingsError
from esker.spark.options import DEFAULT_ENDPOINT
from esker.spark.pipelines import registry
from esker.spark.pipelines.progress import QUIET, Progress
from esker.spark.pipelines.terminal import terminal

if TYPE_CHECKING:
    from esker.spark.pipelines.registry import Order, Pipeline, Result

EXIT_FAILED = 1
EXIT_REFUSED = 2
_NEEDED = ("pyspark", "pyarrow", "pandas", "urllib3")

app = typer.Typer(name="pipeline", help="Bulk work on Spark: load, export, transform, replay, audit …",
                  no_args_is_help=True)  # fmt: skip


@app.command("list")
def list_pipelines(
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Name every pipeline."""
    if as_json:
        typer.echo(json.dumps({p.name: p.summary for p in registry.PIPELINES.values()}))
        return
    table = Table("pipeline", "what it does", "runs")
    for pipeline in registry.PIPELINES.values():
        table.add_row(pipeline.name, escape(pipeline.summary), "once, or on and on" if pipeline.streams else "once")
    Console().print(table)


@app.command()
def show(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    as_json: Annotated[bool, typer.Option("--json", help="For programs.")] = False,
) -> None:
    """Explain a pipeline and its parameters."""
    with _told_in_one_line():
        pipeline = registry.find(name)
    if as_json:
        typer.echo(json.dumps(_described(pipeline)))
        return
    console = Console()
    console.print(f"[bold]{pipeline.name}[/bold]: {escape(pipeline.summary)}\n")
    table = Table("--set", "value", "default", "meaning")
    for p in pipeline.parameters:
        default = "needed" if p.required else "" if p.default is None else str(p.default).lower()
        table.add_row(p.name, escape(p.kind), default, escape(p.help))
    for family in pipeline.families:
        parts = f": {', '.join(family.parts)}" if family.parts else ""
        table.add_row(f"{family.name}.*", "text", "", escape(family.help + parts))
    console.print(table)
    folders = "".join(f" [--{folder} DIR]" for folder in pipeline.folders)
    streams = " [--once | --continuous]" if pipeline.streams else ""
    needed = "".join(f" --set {p.name}=…" for p in pipeline.parameters if p.required)
    console.print(escape(f"\nesker pipeline run {pipeline.name}{needed}{folders}{streams}"), soft_wrap=True)


@app.command()
def run(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    set_: Annotated[
        list[str] | None, typer.Option("--set", metavar="NAME=VALUE", help="A parameter; see `esker pipeline show`.")
    ] = None,
    endpoint: Annotated[
        str, typer.Option(envvar="ESKER_ENDPOINT", help="HTTP address of the broker; several with commas.")
    ] = DEFAULT_ENDPOINT,
    api_key_file: Annotated[Path | None, typer.Option(help="File whose first line is the API key.")] = None,
    master: Annotated[str | None, typer.Option(help="Spark master, such as local[4] or spark://host:7077.")] = None,
    continuous: Annotated[
        bool, typer.Option("--continuous/--once", help="Go on until stopped, or do what is there and end.")
    ] = False,
    checkpoint: Annotated[str | None, typer.Option(help="Folder where a stream keeps its place.")] = None,
    output: Annotated[str | None, typer.Option(help="Folder for what the pipeline makes.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="One JSON object on standard output, no progress.")] = False,
) -> None:
    """Run a pipeline. Ends with 0, with 1 when it failed or an audit found violations, with 2 on bad input."""
    with _told_in_one_line():
        pipeline = registry.find(name)
        order = registry.make_order(
            pipeline,
            _pairs(set_ or []),
            endpoint=endpoint,
            api_key=_read_key(api_key_file),
            continuous=continuous,
            output=output,
            checkpoint=checkpoint,
        )
        _need_spark()
        result = _run(pipeline, order, master, quiet=as_json)
    if as_json:
        typer.echo(json.dumps({"pipeline": name, "exit": result.exit_code, "lines": result.lines, "paths": result.paths,
                               "facts": result.facts}, default=str))  # fmt: skip
    else:
        console = Console(soft_wrap=True, highlight=False)
        for line in result.lines:
            console.print(escape(line))
        for path in result.paths:
            console.print(f"→ {escape(path)}")
    raise typer.Exit(result.exit_code)


def _run(pipeline: Pipeline, order: Order, master: str | None, quiet: bool) -> Result:
    from esker.spark.pipelines.failures import in_one_line
    from esker.spark.session import session

    with _shown(quiet) as progress, _stopped_in_order(order):
        progress.stage("starting Spark")
        try:
            spark = session(f"esker {pipeline.name}", master=master)
        except EskerError:
            raise
        except Exception as error:
            raise EskerError(f"Spark did not start: {in_one_line(error)}") from error
        try:
            return pipeline.run(spark, order, progress)
        except EskerError:
            raise
        except Exception as error:
            raise EskerError(in_one_line(error)) from error
        finally:
            spark.stop()


def _shown(quiet: bool) -> AbstractContextManager[Progress]:
    return nullcontext(QUIET) if quiet else terminal()


def _pairs(given: list[str]) -> dict[str, str]:
    found: dict[str, str] = {}
    for pair in given:
        name, equals, value = pair.partition("=")
        if not equals or not name:
            raise SettingsError(f"--set {pair}: expected NAME=VALUE")
        if name in found:
            raise SettingsError(f"--set {name} is given twice")
        found[name] = value
    return found


def _read_key(path: Path | None) -> str | None:
    if path is None:
        return None
    try:
        key = path.read_text(encoding="utf-8").partition("\n")[0].strip()
    except (OSError, UnicodeDecodeError) as error:
        raise SettingsError(f"--api-key-file {path} cannot be read: {error}") from error
    if not key:
        raise SettingsError(f"--api-key-file {path}: its first line is empty")
    return key


def _need_spark() -> None:
    missing = [name for name in _NEEDED if find_spec(name) is None]
    if missing:
        raise SettingsError(f"this needs {', '.join(missing)}: pip install 'esker[spark]'")


def _described(pipeline: Pipeline) -> dict[str, object]:
    return {
        "name": pipeline.name,
        "summary": pipeline.summary,
        "streams": pipeline.streams,
        "folders": list(pipeline.folders),
        "parameters": [
            {"name": p.name, "value": p.kind, "default": p.default, "required": p.required, "help": p.help}
            for p in pipeline.parameters
        ],
        "families": {family.name: list(family.parts) for family in pipeline.families},
    }


@contextmanager
def _told_in_one_line() -> Iterator[None]:
    try:
        yield
    except SettingsError as error:
        _refuse(error, EXIT_REFUSED)
    except EskerError as error:
        _refuse(error, EXIT_FAILED)
    except KeyboardInterrupt as error:
        _refuse(EskerError("stopped; a rerun goes on from here"), EXIT_FAILED, error)


def _refuse(error: EskerError, code: int, cause: BaseException | None = None) -> NoReturn:
    typer.echo(f"esker: {error}", err=True)
    raise typer.Exit(code) from cause or error


@contextmanager
def _stopped_in_order(order: Order) -> Iterator[None]:
    """Ctrl-C, or a supervisor's SIGTERM, ends a stream behind its batch; anything else, or a second one, at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        if not order.continuous or order.stopping.is_set():
            raise KeyboardInterrupt
        order.stopping.set()

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
