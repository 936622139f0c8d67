"""Runs the measures and writes what they found. See the package's docstring for the method."""

from __future__ import annotations

import argparse
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from bench import (
    abuse,
    backlog,
    claims,
    enqueue,
    fanout,
    life,
    machine,
    records,
    replay,
    restart,
    spark,
    stall,
    tail,
    watchers,
)
from bench.load import LoadFailed
from bench.peers import Bench, PeerFailed, all_stopped_on_signal
from bench.report import Report, Row, save, show

HERE = Path(__file__).resolve().parent
ROUNDS, ROUNDS_QUICK = 3, 1

MEASURES: dict[str, Callable[[Bench], Iterator[Row]]] = {
    "enqueue": enqueue.measure,
    "life": life.measure,
    "backlog": backlog.measure,
    "restart": restart.measure,
    "stall": stall.measure,
    "abuse": abuse.measure,
    "single": records.single,
    "batches": records.batches,
    "diff": records.diff,
    "watchers": watchers.measure,
    "claims": claims.measure,
    "fanout": fanout.measure,
    "replay": replay.measure,
    "tail": tail.measure,
    "spark": spark.measure,
}
OVER_HTTP = ("single", "batches", "diff", "watchers", "claims", "fanout", "replay", "tail", "spark")
NEED_OWN_NODE = {
    "backlog": "compares several nodes",
    "restart": "stops the node",
    "abuse": "abuses several nodes",
    **dict.fromkeys(OVER_HTTP, "uses the HTTP front"),
}


def main() -> int:
    options = _options()
    console = Console(width=None if Console().is_terminal else 200)
    options.dir.mkdir(parents=True, exist_ok=True)
    with all_stopped_on_signal(), tempfile.TemporaryDirectory(dir=options.dir, prefix="bench-") as folder:
        bench = Bench(
            folder=Path(folder),
            rounds=options.rounds or (ROUNDS_QUICK if options.quick else ROUNDS),
            quick=options.quick,
            executable=options.esker,
            attach_port=options.esker_port,
        )
        report = _run(bench, options.only, console)
    show(report, console)
    # The saved results speak of this repository's node, measured in full; anything else must be asked for.
    whole = options.only == list(MEASURES) and not options.quick and not (options.esker or options.esker_port)
    out: Path | None = options.out or (HERE / "results" if whole else None)
    if out is not None:
        save(report, out)
        console.print(f"written: {out}")
    verdicts = [row.verdict for row in report.rows if row.bar is not None]
    console.print(f"{verdicts.count('pass')} of {len(verdicts)} bars hold, {verdicts.count('VOID')} without proof")
    return 1 if report.failed else 0


def _run(bench: Bench, names: Sequence[str], console: Console) -> Report:
    """Runs each measure; one that fails is reported and does not take the others with it."""
    facts = machine.describe(bench.folder)
    began = time.monotonic()
    rows: list[Row] = []
    skipped: list[str] = []
    failed: list[str] = []
    for name in names:
        if bench.attach_port is not None and name in NEED_OWN_NODE:
            skipped.append(f"{name} {NEED_OWN_NODE[name]}, so it needs one of its own")
            continue
        console.print(f"{name} ...")
        try:
            for row in MEASURES[name](bench):
                rows.append(row)
                console.print(f"  {row.case}: {row.value:.2f}{row.unit} {row.verdict}")
        except (PeerFailed, LoadFailed) as failure:
            failed.append(f"{name} failed: {failure}")
    return Report(
        date=datetime.now(UTC).date().isoformat(),
        quick=bench.quick,
        attached=bench.attach_port is not None,
        rounds=bench.rounds,
        seconds=time.monotonic() - began,
        machine=facts,
        rows=rows,
        skipped=skipped,
        failed=failed,
    )


class Options(argparse.Namespace):
    only: list[str]
    quick: bool
    rounds: int | None
    dir: Path
    out: Path | None
    esker: Path | None
    esker_port: int | None


def _options() -> Options:
    parser = argparse.ArgumentParser(prog="python -m bench", description="Measures Esker beside its peers.")
    parser.add_argument("--only", type=_names, default=list(MEASURES), help=f"some of {','.join(MEASURES)}")
    parser.add_argument(
        "--quick", action="store_true", help="small and one round: a first look; keeps the saved results"
    )
    parser.add_argument("--rounds", type=int, help=f"rounds per case; {ROUNDS}, or {ROUNDS_QUICK} with --quick")
    parser.add_argument("--dir", type=Path, default=HERE.parent / "data", help="where all peers keep their data")
    parser.add_argument("--out", type=Path, help="where to write results; a full run writes bench/results by itself")
    parser.add_argument("--esker", type=Path, help="another esker executable, to compare builds")
    parser.add_argument("--esker-port", type=int, help="measure a node that is already running on this loopback port")
    return parser.parse_args(namespace=Options())


def _names(text: str) -> list[str]:
    names = text.split(",")
    if unknown := [name for name in names if name not in MEASURES]:
        raise argparse.ArgumentTypeError(f"unknown measure {unknown[0]!r}; there are {', '.join(MEASURES)}")
    return names


if __name__ == "__main__":
    try:
        raise SystemExit(main())
    except KeyboardInterrupt:
        raise SystemExit(130) from None  # the peers are stopped by now
