"""The report of `lifecycle`: one HTML file that needs nothing else, with pictures that follow the reader's colours.

Pictures are SVG inside the page. Lines, ticks and texts take the colour of the page's text, so that one file is legible
on a light and on a dark screen; data has colours of middle lightness that are told apart by most people who see few.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from html import escape
from typing import TYPE_CHECKING, Final
from zlib import crc32

if TYPE_CHECKING:
    from matplotlib.axes import Axes

Line = Mapping[str, object]

TOPICS_MAX: Final = 6  # with pictures; all are in the table of topics
TOPICS_LISTED_MAX: Final = 200
PRIORITIES_MAX: Final = 16
WORKERS_MAX: Final = 12
MINUTES_MAX: Final = 1500  # points of a line: beyond, neighbours are joined

_INK: Final = "#010203"  # stands for the colour of the page's text
_BLUE, _ORANGE, _GREEN, _PINK, _GREY = "#4a8fd8", "#e08a3c", "#3fa37a", "#c96fa8", "#8b929c"
_SECOND, _MINUTE, _HOUR = 1000, 60_000, 3_600_000


@dataclass(frozen=True, slots=True)
class Collected:
    """The tables, as rows; of the minutes (`minute_ms`), only those of the topics that get pictures."""

    topics: Sequence[Line]
    minutes: Sequence[Line]
    priorities: Sequence[Line]
    workers: Sequence[Line]
    bucket_ms: int = 60_000  # the length of a minute
    warnings: Sequence[str] = ()  # what of the history is not known


def html(data: Collected, title: str = "Lifecycle of jobs") -> str:
    shown = [str(line["topic"]) for line in busiest(data.topics)]
    parts = [_topics_table(data.topics)]
    parts += [_topic_section(topic, data) for topic in shown]
    if not data.topics:
        parts = ["<p>The history tells of no jobs.</p>"]
    span = _span(data.minutes)
    parts = [*(f'<p class="warning">{escape(each)}</p>' for each in data.warnings), *parts]
    return _PAGE.format(title=escape(title), span=span, body="\n".join(parts))


def busiest(topics: Iterable[Line]) -> list[Line]:
    """Those that get pictures."""
    return sorted(
        topics, key=lambda line: (-_number(line, "delivered") - _number(line, "enqueued"), str(line["topic"]))
    )[:TOPICS_MAX]


# -- a section


def _topic_section(topic: str, data: Collected) -> str:
    minutes = _joined([line for line in data.minutes if line["topic"] == topic])
    priorities = _commonest([line for line in data.priorities if line["topic"] == topic])
    workers = [line for line in data.workers if line["topic"] == topic and _number(line, "delivered")][:WORKERS_MAX]
    total = next(line for line in data.topics if line["topic"] == topic)
    times = _time_axis(minutes, data.bucket_ms)
    pictures = [
        _picture(_flow_title(total), minutes, _draw_flow, "no minute to show", times),
        _picture(_backlog_title(minutes), minutes, _draw_backlog, "no minute to show", times),
        _picture(_wait_title(total), minutes, _draw_waits, "nothing was delivered", times),
        _picture(_priorities_title(priorities), priorities, _draw_priorities, "nothing was delivered"),
        _picture("How long jobs ran, by priority", priorities, _draw_runs, "nothing was acked under a lease"),
        _picture(_workers_title(workers), workers, _draw_workers, "no worker gave a name"),
    ]
    return (
        f"<section><h2>{escape(topic)}</h2><p>{_summary(total)}</p>"
        f'<div class="grid">{"".join(pictures)}</div>{_priorities_table(priorities)}</section>'
    )


def _summary(total: Line) -> str:
    words = [f"{_grouped(total, name)} {word}" for name, word in _EVENTS if _number(total, name)]
    waiting = _number(total, "waiting")
    if waiting:
        words.append(f"{waiting:,} still waiting, the longest for {_duration(_number(total, 'waiting_longest_ms'))}")
    inversions = _number(total, "inversions")
    words.append(f"{inversions:,} deliveries out of order" if inversions else "every delivery took the best ready job")
    return escape(", ".join(words)) + "."


def _flow_title(total: Line) -> str:
    came, acked = _number(total, "enqueued"), _number(total, "acked")
    return f"Jobs over time: {came:,} came, {acked:,} acked"


def _backlog_title(minutes: Sequence[Line]) -> str:
    most = max((_number(line, "backlog_max") for line in minutes), default=0)
    return f"Jobs in the queue: at most {most:,}"


def _wait_title(total: Line) -> str:
    if total["wait_p50_ms"] is None:
        return "Waiting for a lease"
    half, most = _duration(_number(total, "wait_p50_ms")), _duration(_number(total, "wait_p99_ms"))
    return f"Wait for a lease: half within {half}, 99 % in {most}"


def _priorities_title(priorities: Sequence[Line]) -> str:
    waits = [line for line in priorities if line["wait_p99_ms"] is not None]
    if len(waits) < 2:
        return "Waiting by priority"
    worst = max(waits, key=lambda line: _number(line, "wait_p99_ms"))
    return f"Waiting by priority: {worst['priority']} waits longest"


def _workers_title(workers: Sequence[Line]) -> str:
    if not workers:
        return "Who did the work"
    return f"Who did the work: {workers[0]['worker']} took {_real(workers[0], 'share'):.0%}"


# -- pictures


def _picture(
    title: str,
    lines: Sequence[Line],
    draw: Callable[[Axes, Sequence[Line]], bool],
    otherwise: str,
    times: tuple[float, float] | None = None,
) -> str:
    """`times`: where its axis of time begins and ends, if it has one."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({
        "svg.fonttype": "none", "font.family": "sans-serif", "font.size": 9, "text.color": _INK, "axes.edgecolor": _INK,
        "axes.labelcolor": _INK, "xtick.color": _INK, "ytick.color": _INK, "axes.spines.top": False,
        "axes.spines.right": False, "axes.linewidth": 0.6, "grid.color": _INK, "grid.alpha": 0.12, "axes.grid": True,
        "axes.grid.axis": "y", "legend.frameon": False, "legend.fontsize": 8.5, "svg.hashsalt": "esker",
        "text.parse_math": False,
    }):  # fmt: skip
        figure = Figure(figsize=(4.6, 2.5), layout="constrained")
        axes = figure.add_subplot()
        if times is not None:
            axes.set_xlim(*times)
        if not lines or not draw(axes, lines):
            return f"<figure><figcaption>{escape(title)}</figcaption><p class=none>{escape(otherwise)}</p></figure>"
        image = io.BytesIO()
        figure.savefig(image, format="svg", transparent=True, metadata={"Date": None, "Creator": None})
    return f"<figure><figcaption>{escape(title)}</figcaption>{_embedded(image.getvalue().decode(), title)}</figure>"


def _embedded(svg: str, title: str) -> str:
    """The picture without its prologue, fluid, in the page's ink, with ids that no other picture has."""
    body = svg[svg.index("<svg") :].replace(_INK, "currentColor")
    body = re.sub(r"<metadata>.*?</metadata>", "", body, flags=re.DOTALL)
    body = re.sub(r'(<svg[^>]*?) width="[^"]*"', rf'\1 role="img" aria-label="{escape(title)}"', body, count=1)
    body = re.sub(r'(<svg[^>]*?) height="[^"]*"', r"\1", body, count=1)
    mark = f"{crc32(body.encode()):x}-"
    return re.sub(r'(id="|href="#|url\(#)', rf"\g<1>{mark}", body)


def _draw_flow(axes: Axes, minutes: Sequence[Line]) -> bool:
    times = _times(minutes)
    for name, colour, label in (
        ("enqueued", _BLUE, "came"), ("acked", _GREEN, "acked"), ("retried", _ORANGE, "came back"),
        ("dead_lettered", _PINK, "dead letters"), ("expired", _GREY, "expired"),
    ):  # fmt: skip
        values = [_number(line, name) for line in minutes]
        if any(values):
            axes.plot(times, values, color=colour, label=label, linewidth=1.4, marker="." if len(times) < 3 else None)
    axes.set_ylim(bottom=0)
    _legend(axes)
    _clock(axes)
    _thousands(axes)
    return True


def _draw_backlog(axes: Axes, minutes: Sequence[Line]) -> bool:
    """The peak of each minute. Where no minute follows, the last one goes on as it ended."""
    peaks, last = [_number(line, "backlog_max") for line in minutes], _number(minutes[-1], "backlog")
    times = [*_times(minutes), axes.get_xlim()[1]]
    axes.fill_between(times, [*peaks, last], color=_BLUE, alpha=0.25, linewidth=0, step="post")
    axes.step(times, [*peaks, last], color=_BLUE, linewidth=1.2, where="post")
    axes.set_ylim(bottom=min(0, *peaks))
    _clock(axes)
    _thousands(axes)
    return True


def _draw_waits(axes: Axes, minutes: Sequence[Line]) -> bool:
    lines = [line for line in minutes if line["wait_p50_ms"] is not None]
    if not lines:
        return False
    times = _times(lines)
    for name, colour, label in (
        ("wait_p99_ms", _PINK, "99 %"),
        ("wait_p90_ms", _ORANGE, "90 %"),
        ("wait_p50_ms", _BLUE, "half"),
    ):
        axes.plot(times, [max(1, _number(line, name)) for line in lines], color=colour, label=label, linewidth=1.3,
                  marker="." if len(times) < 3 else None)  # fmt: skip
    axes.set_yscale("log")
    _legend(axes)
    _clock(axes)
    _durations(axes, "y")
    return True


def _draw_priorities(axes: Axes, lines: Sequence[Line]) -> bool:
    return _draw_ranges(axes, lines, "wait")


def _draw_runs(axes: Axes, lines: Sequence[Line]) -> bool:
    return _draw_ranges(axes, lines, "run")


def _draw_ranges(axes: Axes, lines: Sequence[Line], name: str) -> bool:
    """A line from the half to the 99 % for each priority, and a dot at the 90 %."""
    lines = [line for line in lines if line[f"{name}_p50_ms"] is not None]
    if not lines:
        return False
    for at, line in enumerate(lines):
        half, most, nearly = (max(1, _number(line, f"{name}_p{each}_ms")) for each in (50, 90, 99))
        axes.plot([half, nearly], [at, at], color=_GREY, alpha=0.6, linewidth=2, zorder=1)
        for value, colour in ((half, _BLUE), (most, _ORANGE), (nearly, _PINK)):
            axes.scatter([value], [at], color=colour, s=26, zorder=2)
    for colour, label in ((_BLUE, "half"), (_ORANGE, "90 %"), (_PINK, "99 %")):
        axes.scatter([], [], color=colour, s=26, label=label)
    axes.set_yticks(range(len(lines)), [str(line["priority"]) for line in lines])
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_ylabel("priority")
    ends = [max(1, _number(line, f"{name}_p{each}_ms")) for line in lines for each in (50, 99)]
    if max(ends) >= 10 * min(ends):
        axes.set_xscale("log")
    else:
        axes.set_xlim(0, max(ends) * 1.1)
    axes.grid(visible=True, axis="x")
    axes.grid(visible=False, axis="y")
    _legend(axes)
    _durations(axes, "x")
    return True


def _draw_workers(axes: Axes, lines: Sequence[Line]) -> bool:
    names = [_short(str(line["worker"])) for line in lines]
    shares = [100 * _real(line, "share") for line in lines]
    axes.barh(range(len(lines)), shares, color=_GREEN, height=0.66)
    for at, (share, line) in enumerate(zip(shares, lines, strict=True)):
        run = "" if line["run_p50_ms"] is None else f" · half run within {_duration(_number(line, 'run_p50_ms'))}"
        axes.annotate(f"{_grouped(line, 'delivered')}{run}", (share, at), xytext=(4, 0), textcoords="offset points",
                      va="center", fontsize=8)  # fmt: skip
    axes.set_yticks(range(len(lines)), names)
    axes.set_ylim(len(lines) - 0.4, -0.6)
    axes.set_xlim(0, max(shares) * 1.75)  # room for the words behind the bars
    axes.set_xticks([tick for tick in axes.get_xticks() if tick <= min(100, max(shares) * 1.75)])
    axes.set_xlabel("% of deliveries")
    axes.grid(visible=False, axis="y")
    return True


def _legend(axes: Axes) -> None:
    """Above the picture, where it hides nothing."""
    axes.legend(loc="lower center", bbox_to_anchor=(0.5, 0.98), ncols=5, handlelength=1.1, columnspacing=1.1)


def _clock(axes: Axes) -> None:
    from matplotlib.dates import AutoDateLocator, ConciseDateFormatter

    locator = AutoDateLocator(minticks=3, maxticks=7)  # type: ignore[no-untyped-call]
    axes.xaxis.set_major_locator(locator)
    axes.xaxis.set_major_formatter(ConciseDateFormatter(locator))  # type: ignore[no-untyped-call]


def _thousands(axes: Axes) -> None:
    from matplotlib.ticker import FuncFormatter, MaxNLocator

    axes.yaxis.set_major_locator(MaxNLocator(nbins=5, integer=True))
    axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:,.0f}"))


def _durations(axes: Axes, which: str) -> None:
    """Durations as labels, at round ones where the axis is logarithmic."""
    from matplotlib.ticker import FixedLocator, FuncFormatter, MaxNLocator, NullLocator

    axis = axes.xaxis if which == "x" else axes.yaxis
    low, high = axes.get_xlim() if which == "x" else axes.get_ylim()
    inside = [each for each in _ROUND_MS if low <= each <= high]
    if axis.get_scale() == "log" and inside:
        axis.set_major_locator(FixedLocator(inside[:: -(-len(inside) // _TICKS)]))
    else:
        axis.set_major_locator(MaxNLocator(nbins=_TICKS))
    axis.set_minor_locator(NullLocator())
    axis.set_major_formatter(FuncFormatter(lambda value, _: _duration(value)))


_TICKS: Final = 6
_ROUND_MS: Final = (
    1, 2, 5, 10, 20, 50, 100, 200, 500, _SECOND, 2 * _SECOND, 5 * _SECOND, 10 * _SECOND, 30 * _SECOND, _MINUTE,
    2 * _MINUTE, 5 * _MINUTE, 10 * _MINUTE, 30 * _MINUTE, _HOUR, 3 * _HOUR, 12 * _HOUR, 24 * _HOUR, 72 * _HOUR,
    240 * _HOUR, 2400 * _HOUR,
)  # fmt: skip


# -- tables


_EVENTS: Final = (
    ("enqueued", "came"), ("delivered", "deliveries"), ("acked", "acked"), ("retried", "came back"),
    ("expired", "expired"), ("dead_lettered", "dead letters"), ("deleted", "deleted"),
)  # fmt: skip


def _topics_table(topics: Sequence[Line]) -> str:
    lines = sorted(topics, key=lambda line: -_number(line, "enqueued") - _number(line, "delivered"))
    more = len(lines) - TOPICS_LISTED_MAX
    note = f"<p>{more:,} more are in the table <code>topics</code>.</p>" if more > 0 else ""
    heads = ["topic", *(word for _, word in _EVENTS), "waiting", "wait p50", "wait p99", "run p50", "run p99"]
    rows = [
        [
            escape(str(line["topic"])),
            *(_grouped(line, name) for name, _ in _EVENTS),
            _grouped(line, "waiting"),
            *(_cell(line, name) for name in ("wait_p50_ms", "wait_p99_ms", "run_p50_ms", "run_p99_ms")),
        ]
        for line in lines[:TOPICS_LISTED_MAX]
    ]
    return f"<section><h2>All topics</h2>{_table(heads, rows)}{note}</section>"


_SHOWN: Final = ("wait_p50", "wait_p90", "wait_p99", "wait_max", "run_p50", "run_p99")


def _priorities_table(priorities: Sequence[Line]) -> str:
    heads = ["priority", "deliveries", "wait p50", "wait p90", "wait p99", "longest wait", "run p50", "run p99",
             "out of order", "worst rank", "still waiting", "for"]  # fmt: skip
    rows = [
        [
            str(line["priority"]), _grouped(line, "delivered"),
            *(_cell(line, f"{name}_ms") for name in _SHOWN),
            _grouped(line, "inversions"), _grouped(line, "rank_max"), _grouped(line, "waiting"),
            _cell(line, "waiting_longest_ms"),
        ]
        for line in priorities
    ]  # fmt: skip
    return _table(heads, rows) if rows else ""


def _table(heads: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    head = "".join(f"<th>{escape(each)}</th>" for each in heads)
    body = "".join(f"<tr>{''.join(f'<td>{each}</td>' for each in row)}</tr>" for row in rows)
    return f'<div class="wide"><table><thead><tr>{head}</tr></thead><tbody>{body}</tbody></table></div>'


# -- numbers


def _joined(minutes: Sequence[Line]) -> list[Line]:
    """Few enough points for a line: neighbours become one, with the mean of counts and the worst of times."""
    step = -(-len(minutes) // MINUTES_MAX)
    if step <= 1:
        return list(minutes)
    joined: list[Line] = []
    for at in range(0, len(minutes), step):
        some = minutes[at : at + step]
        line: dict[str, object] = {**some[-1], "minute_ms": some[0]["minute_ms"]}
        for name, _ in _EVENTS:
            line[name] = sum(_number(each, name) for each in some) / len(some)
        for name in ("wait_p50_ms", "wait_p90_ms", "wait_p99_ms", "backlog_max"):
            line[name] = max((_number(each, name) for each in some if each[name] is not None), default=None)
        joined.append(line)
    return joined


def _commonest(priorities: Sequence[Line]) -> list[Line]:
    most = sorted(priorities, key=lambda line: -_number(line, "delivered") - _number(line, "waiting"))[:PRIORITIES_MAX]
    return sorted(most, key=lambda line: _number(line, "priority"))


def _times(minutes: Sequence[Line]) -> list[float]:
    """In days since the epoch, as matplotlib counts."""
    return [_real(line, "minute_ms") / (24 * _HOUR) for line in minutes]


def _time_axis(minutes: Sequence[Line], bucket_ms: int) -> tuple[float, float] | None:
    """From the begin of the first minute to the end of the last one: a single minute has no length of its own."""
    times = _times(minutes)
    return (times[0], times[-1] + bucket_ms / (24 * _HOUR)) if times else None


def _span(minutes: Sequence[Line]) -> str:
    if not minutes:
        return ""
    times = [_real(line, "minute_ms") / _SECOND for line in minutes]
    first, last = (datetime.fromtimestamp(each, UTC) for each in (min(times), max(times)))
    return f"{first:%Y-%m-%d %H:%M} to {last:%Y-%m-%d %H:%M} UTC"


def _number(line: Line, name: str) -> int:
    return int(_real(line, name))


def _real(line: Line, name: str) -> float:
    found = line[name]
    return found if isinstance(found, int | float) else 0.0


def _grouped(line: Line, name: str) -> str:
    return f"{_number(line, name):,}"


def _cell(line: Line, name: str) -> str:
    return "" if line[name] is None else _duration(_number(line, name))


def _duration(ms: float) -> str:
    """
    >>> [_duration(ms) for ms in (7, 1500, 90_000, 7_200_000, 400_000_000)]
    ['7 ms', '1.5 s', '1.5 min', '2 h', '4.6 d']
    """
    for most, unit, one in (
        (_SECOND, "ms", 1),
        (_MINUTE, "s", _SECOND),
        (_HOUR, "min", _MINUTE),
        (24 * _HOUR, "h", _HOUR),
    ):
        if ms < most:
            return f"{ms / one:.3g} {unit}"
    return f"{ms / (24 * _HOUR):.3g} d"


def _short(name: str) -> str:
    return name if len(name) <= 22 else name[:10] + "…" + name[-11:]


_PAGE: Final = """<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title><style>
:root {{ color-scheme: light dark; --ink: #20242b; --soft: #6b7280; --paper: #fbfbfa; --card: #ffffff; --line: #8883; }}
@media (prefers-color-scheme: dark) {{
  :root {{ --ink: #dfe3ea; --soft: #98a0ac; --paper: #15171b; --card: #1c1f25; }} }}
body {{ margin: 0 auto; max-width: 78rem; padding: 2rem 1.2rem; background: var(--paper); color: var(--ink);
  font: 15px/1.5 system-ui, "Segoe UI", Roboto, "Helvetica Neue", Arial, sans-serif; }}
h1 {{ font-size: 1.6rem; margin: 0; }} h2 {{ font-size: 1.2rem; margin: 2.2rem 0 .3rem; overflow-wrap: anywhere; }}
p {{ color: var(--soft); margin: .2rem 0 .9rem; }}
.grid {{ display: grid; grid-template-columns: repeat(auto-fit, minmax(22rem, 1fr)); gap: .9rem; }}
figure {{ margin: 0; padding: .8rem .9rem .5rem; background: var(--card); border: 1px solid var(--line);
  border-radius: 8px; }}
figcaption {{ font-weight: 600; font-size: .93rem; margin-bottom: .3rem; }}
figure svg {{ display: block; width: 100%; height: auto; }} figure svg text {{ font-family: inherit !important; }}
.warning {{ color: var(--ink); font-weight: 600; }}
.none {{ margin: 2.5rem 0; text-align: center; }}
.wide {{ overflow-x: auto; margin-top: .9rem; }}
table {{ border-collapse: collapse; font-size: .86rem; font-variant-numeric: tabular-nums; width: 100%; }}
th, td {{ padding: .28rem .6rem; text-align: right; border-bottom: 1px solid var(--line); white-space: nowrap; }}
th:first-child, td:first-child {{ text-align: left; }} th {{ color: var(--soft); font-weight: 600; }}
</style></head><body>
<h1>{title}</h1><p>{span}</p>
{body}
</body></html>
"""
