"""turb-kub and kube-scheduler side by side, on one API server and one machine.

    make bench            all sizes and shapes, five repeats of what has a goal, two of all else: about an hour
    make bench-quick      100 and 5,000 nodes, plain pods, three repeats: within 8 minutes

Starts etcd and kube-apiserver, and for each task lets each scheduler do it in turn, again and again. Only ratios within
one run say anything: whatever else the machine has to do is in all figures. See docs/performance.md.
"""

import argparse
import asyncio
import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterable, Iterator, Sequence
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn, TimeRemainingColumn
from rich.table import Table
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import ApiError, Unreachable

from bench import plots, shipped, summary
from bench.contenders import BEST, CONTENDERS, OURS, PYTHON, THEIRS, Contender
from bench.measure import LARGE, Figures, Task, measure
from bench.shapes import SHAPES
from bench.summary import Run
from bench.workload import Stuck, Workload
from tests.ansible.conftest import WITH_SCHEDULER, find_programs
from tests.cluster.control_plane import ControlPlane, NotStarted, control_plane

RESULTS = Path(__file__).parent / "results"
SIZES = (2, 100, 1000, 5000)
RATES = (50.0, 200.0, 500.0)
STREAM_SECONDS = 20.0
PLAIN = SHAPES["plain"]
#: What ends the benchmark with a sentence.
TROUBLE = (ApiError, Unreachable, Stuck, NotStarted, shipped.NotInstalled)


def quick() -> Iterator[tuple[Task, tuple[Contender, ...]]]:
    """What `make bench-quick` measures."""
    for nodes, pods in ((100, 1000), (5000, 2000)):
        yield Task(PLAIN, nodes, pods), (OURS, THEIRS, BEST)
        yield Task(PLAIN, nodes, int(summary.JUDGED_RATE * 5), summary.JUDGED_RATE), (OURS, THEIRS)


def whole() -> Iterator[tuple[Task, tuple[Contender, ...]]]:
    """What `make bench` measures."""
    main = (OURS, THEIRS)
    for nodes in SIZES:
        room = nodes * 100
        yield Task(PLAIN, nodes, min(room, 1000 if nodes < 1000 else 2000)), CONTENDERS
        if nodes >= 1000:
            yield Task(PLAIN, nodes, LARGE), (*main, BEST)
        for rate in RATES:
            pods = int(min(room, rate * STREAM_SECONDS))
            yield Task(PLAIN, nodes, pods, rate), main
        if nodes < 100:
            continue
        for shape in SHAPES.values():
            if shape is not PLAIN:
                yield Task(shape, nodes, 1000), main


Turn = tuple[Task, int, Sequence[Contender]]


def turns_of(tasks: Iterable[tuple[Task, Sequence[Contender]]], repeats: int, other_repeats: int) -> list[Turn]:
    """Return each task's repeats with who takes part: so many times where a goal is set, and so many else."""
    turns: list[Turn] = []
    for task, contenders in tasks:
        times = [repeats if summary.is_judged(task, each.name) else other_repeats for each in contenders]
        turns += (
            (task, repeat, [each for each, often in zip(contenders, times, strict=True) if repeat < often])
            for repeat in range(max(times))
        )
    return turns


async def _run(plane: ControlPlane, turns: Sequence[Turn], progress: Progress, runs: list[Run]) -> None:
    """Let each scheduler have its turns, and add what came of them to the runs."""
    bar = progress.add_task("", total=sum(len(chosen) for _, _, chosen in turns))
    async with Client(await load_credentials(str(plane.kubeconfig), None)) as client:
        workload = Workload(client)
        for task, repeat, chosen in turns:
            # Another one begins each time, so that none always finds the machine as the same one left it.
            first = repeat % len(chosen)
            for contender in (*chosen[first:], *chosen[:first]):
                what = f"{task.nodes} nodes, {task.pods} pods, {task.key}: {contender.name}"
                progress.update(bar, description=what)
                figures = await measure(plane, workload, contender, task)
                runs.append(Run(task, contender.name, repeat, figures))
                progress.console.print(f"{what}: {_sentence(figures)}")
                progress.advance(bar)


def _sentence(figures: Figures) -> str:
    late = "" if figures.latency_p99 is None else f", p99 {1000 * figures.latency_p99:.1f} ms"
    parts = (
        f"{figures.pods_per_second:.0f} pods/s, {figures.pods_per_second_events:.0f} with events",
        f"CPU {figures.cpu:.2f} s and API server {figures.cpu_api_server:.2f} s for 1,000 pods",
        f"{figures.peak_memory / 2**20:.0f} MiB",
        f"{figures.writes:.2f} writes a pod{late}",
    )
    return ", ".join(parts)


def _show(console: Console, found: dict[str, dict[int, summary.Ratio]]) -> None:
    table = Table(title="turb-kub to kube-scheduler, median of the repeats (lowest to highest)")
    sizes = sorted({nodes for by_nodes in found.values() for nodes in by_nodes})
    table.add_column("figure")
    for nodes in sizes:
        table.add_column(f"{nodes} nodes", justify="right")
    for figure, by_nodes in found.items():
        cells = []
        for nodes in sizes:
            ratio = by_nodes[nodes].as_json() if nodes in by_nodes else None
            cells.append(f"{ratio['median']:g} ({ratio['low']:g} to {ratio['high']:g})" if ratio else "")
        table.add_row(figure, *cells)
    console.print(table)


def _count(text: str) -> int:
    if not (text.isascii() and text.isdecimal()):
        raise argparse.ArgumentTypeError(f"{text!r} is not a number of repeats: give one like 5")
    return int(text)


def main() -> None:
    """Run the benchmark by the command line's options."""
    parser = argparse.ArgumentParser(
        prog="bench", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--quick", action="store_true", help="two sizes, plain pods, three repeats")
    parser.add_argument("--repeats", type=_count, help="of what has a goal; default: 5, or 3 with --quick")
    parser.add_argument("--other-repeats", type=_count, default=2, help="of all else; default: 2")
    parser.add_argument("--nodes", type=int, action="append", choices=SIZES, help="only this size; may be given again")
    parser.add_argument("--shape", action="append", choices=list(SHAPES), help="only this shape; may be given again")
    parser.add_argument(
        "--scheduler", action="append", choices=[each.name for each in CONTENDERS], help="only this one"
    )
    parser.add_argument("--python", help="in which turb-kub runs; default: the fastest that is installed")
    options = parser.parse_args()
    # As an interrupt, which asyncio knows how to end by, so that what was started is ended.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    tasks = [
        (task, chosen)
        for task, contenders in (quick() if options.quick else whole())
        if not options.nodes or task.nodes in options.nodes
        if not options.shape or task.shape.name in options.shape
        if (
            chosen := tuple(
                each
                for each in contenders
                if (not options.scheduler or each.name in options.scheduler)
                and (not each.largest or task.nodes <= each.largest)
            )
        )
    ]
    repeats = options.repeats if options.repeats is not None else 3 if options.quick else 5
    turns = turns_of(tasks, repeats, options.other_repeats)
    if not turns:
        sys.exit("bench: nothing is left to measure: the options exclude each other")
    console = Console(stderr=True, soft_wrap=True)
    began = time.monotonic()
    programs = find_programs(**WITH_SCHEDULER)
    columns = (
        TextColumn("{task.description}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
        TextColumn("left"),
        TimeRemainingColumn(),
    )
    runs: list[Run] = []
    about: dict[str, Any] = {"processors": os.cpu_count(), "repeats": repeats}
    try:
        with (
            tempfile.TemporaryDirectory(prefix="turb-kub-bench-") as folder,
            Progress(*columns, console=console) as progress,
        ):
            python = shipped.install(Path(folder) / "environment", options.python)
            about["python"] = shipped.version(python)
            with control_plane(Path(folder), {**programs, PYTHON: python}) as plane:
                asyncio.run(_run(plane, turns, progress, runs))
    except (*TROUBLE, KeyboardInterrupt) as error:
        if not runs:
            raise
        # Hours of figures are not thrown away for the one that is missing.
        about["ended_early"] = str(error) or "interrupted"
    about["seconds"] = round(time.monotonic() - began)
    path = summary.write(RESULTS, runs, about)
    plots.draw(RESULTS, runs)
    found = summary.ratios(runs)
    _show(Console(), found)
    for sentence in summary.missed(found):
        print(f"missed: {sentence}")
    shown = path.relative_to(Path.cwd()) if path.is_relative_to(Path.cwd()) else path
    if "ended_early" in about:
        sys.exit(f"bench: {about['ended_early']}; what was measured until then is in {shown}")
    print(f"All figures are in {shown}")


if __name__ == "__main__":
    try:
        main()
    except TROUBLE as error:
        sys.exit(f"bench: {error}")
    except KeyboardInterrupt:
        sys.exit("bench: interrupted, nothing was measured")
