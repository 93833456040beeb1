"""Draws the figures over the number of nodes, and the latencies over the rate, as SVG."""

from collections.abc import Sequence
from pathlib import Path

import matplotlib as mpl
from matplotlib.figure import Figure

from bench.contenders import CONTENDERS
from bench.summary import Run, medians

mpl.rcParams.update(
    {
        # The same figures make the same file.
        "svg.hashsalt": "turb-kub",
        "font.size": 9,
        "axes.grid": True,
        "grid.alpha": 0.3,
        "axes.spines.top": False,
        "axes.spines.right": False,
    }
)
#: File, figure, what the axis says, and what a value is divided by.
OVER_NODES = (
    ("pods_per_second", "pods_per_second", "pods a second, all bound", 1.0),
    ("cpu", "cpu", "CPU seconds of the scheduler for 1,000 pods", 1.0),
    ("cpu_api_server", "cpu_api_server", "CPU seconds of API server and etcd for 1,000 pods", 1.0),
    ("peak_memory", "peak_memory", "peak memory, MiB", float(2**20)),
)


def draw(folder: Path, runs: Sequence[Run]) -> list[Path]:
    """Write one file for each kind of figure that the runs have into a folder; return their paths."""
    for old in folder.glob("*.svg"):
        # Of a run that measured something else.
        old.unlink()
    written = []
    for file, figure, label, unit in OVER_NODES:
        found = medians(runs, figure)
        points = {
            name: {
                float(nodes): value / unit
                for (key, who, nodes), value in found.items()
                if (key, who) == ("plain", name)
            }
            for name in _names(found)
        }
        written += _write(folder / f"{file}.svg", points, "nodes", label)
    latencies = medians(runs, "latency_p99")
    rates = {run.task.key: run.task.rate for run in runs if run.task.rate}
    for nodes in sorted({nodes for _, _, nodes in latencies}):
        points = {
            name: {
                rates[key]: 1000 * value
                for (key, who, size), value in latencies.items()
                if (who, size) == (name, nodes)
            }
            for name in _names(latencies)
        }
        written += _write(
            folder / f"latency_p99_{nodes}_nodes.svg",
            points,
            "pods a second",
            "ms from creation to bound, 99th percentile",
        )
    return written


def _names(found: dict[tuple[str, str, int], float]) -> list[str]:
    there = {name for _, name, _ in found}
    return [each.name for each in CONTENDERS if each.name in there]


def _write(path: Path, points: dict[str, dict[float, float]], x: str, y: str) -> list[Path]:
    lines = {name: sorted(line.items()) for name, line in points.items() if line}
    if not lines:
        return []
    drawing = Figure(figsize=(6, 3.6), layout="constrained")
    axes = drawing.subplots()
    for name, line in lines.items():
        axes.plot([at for at, _ in line], [value for _, value in line], marker="o", markersize=4, label=name)
    # Sizes and figures lie powers of ten apart.
    axes.set_xscale("log")
    axes.set_yscale("log")
    ticks = sorted({at for line in lines.values() for at, _ in line})
    axes.set_xticks(ticks, [f"{tick:,.0f}" for tick in ticks], minor=False)
    axes.minorticks_off()
    axes.set_xlabel(x)
    axes.set_ylabel(y)
    axes.legend(frameon=False, fontsize=8)
    drawing.savefig(path, metadata={"Date": None})
    return [path]
