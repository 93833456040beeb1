"""What the runs say together: the median of each figure, its spread, and the ratios to kube-scheduler's.

Ratios are of one repeat, in which the schedulers had their turns one after the other: the machine is not the same an
hour later.
"""

import json
import statistics
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from bench.contenders import BEST, OURS, THEIRS
from bench.measure import Figures, Task

#: Pods a second of the stream whose latency is judged.
JUDGED_RATE = 200.0


@dataclass(frozen=True)
class Run:
    """One run of one scheduler. Schedulers of one task and one repeat ran in turn."""

    task: Task
    contender: str
    repeat: int
    figures: Figures


@dataclass(frozen=True)
class Ratio:
    """A figure's ratio of each repeat."""

    values: tuple[float, ...]

    def as_json(self) -> dict[str, float]:
        low, high = min(self.values), max(self.values)
        return {"median": _round(statistics.median(self.values)), "low": _round(low), "high": _round(high)}


#: What must be reached: figure, then at the least or at the most, at 100 and at 5,000 nodes.
TARGETS: dict[str, dict[int, tuple[str, float]]] = {
    "pods_per_second": {100: (">=", 1.8), 5000: (">=", 4.0)},
    "cpu_seconds": {100: ("<=", 0.5), 5000: ("<=", 0.2)},
    "peak_memory": {100: ("<=", 0.35), 5000: ("<=", 0.6)},
    "p99_latency": {100: ("<=", 1.0), 5000: ("<=", 0.5)},
    "writes_per_pod": {100: ("==", 2.0), 5000: ("==", 2.0)},
    "ceiling_share": {100: (">=", 0.9), 5000: (">=", 0.85)},
    "pods_per_second_topology-spread": {100: (">=", 1.0), 5000: (">=", 2.0)},
    "pods_per_second_anti-affinity": {100: (">=", 1.0), 5000: (">=", 2.0)},
}


def ratios(runs: Iterable[Run]) -> dict[str, dict[int, Ratio]]:
    """Return figure, then number of nodes, to the ratio to kube-scheduler with its default profile.

    `writes_per_pod` is no ratio but the number itself, and `ceiling_share` the ratio to the client that only sends
    bindings and events, both until the last event is written.
    """
    turns: dict[tuple[str, int, int], dict[str, Figures]] = defaultdict(dict)
    rates: dict[str, float] = {}
    for run in runs:
        turns[run.task.key, run.task.nodes, run.repeat][run.contender] = run.figures
        rates[run.task.key] = run.task.rate
    found: dict[str, dict[int, list[float]]] = defaultdict(lambda: defaultdict(list))
    for (key, nodes, _), turn in sorted(turns.items()):
        ours, theirs, best = turn.get(OURS.name), turn.get(THEIRS.name), turn.get(BEST.name)
        if ours is None:
            continue

        def note(figure: str, value: float, nodes: int = nodes) -> None:
            found[figure][nodes].append(value)

        if key == "plain":
            note("writes_per_pod", ours.writes)
            if best is not None:
                note("ceiling_share", ours.pods_per_second_events / best.pods_per_second_events)
        if theirs is None:
            continue
        if key == "plain":
            note("pods_per_second", ours.pods_per_second / theirs.pods_per_second)
            note("cpu_seconds", ours.cpu / theirs.cpu)
            note("cpu_seconds_api_server", ours.cpu_api_server / theirs.cpu_api_server)
            note("peak_memory", ours.peak_memory / theirs.peak_memory)
        elif not rates[key]:
            note(f"pods_per_second_{key}", ours.pods_per_second / theirs.pods_per_second)
        elif ours.latency_p99 and theirs.latency_p99:
            suffix = "" if rates[key] == JUDGED_RATE else f"_{rates[key]:g}_a_second"
            note(f"p99_latency{suffix}", ours.latency_p99 / theirs.latency_p99)
    return {
        figure: {nodes: Ratio(tuple(values)) for nodes, values in by_nodes.items()}
        for figure, by_nodes in found.items()
    }


def is_judged(task: Task, contender: str) -> bool:
    """Whether a scheduler's runs of a task go into a figure that has a goal."""
    backlogs = {figure.removeprefix("pods_per_second_") for figure in TARGETS} | {"plain"}
    if task.nodes not in TARGETS["pods_per_second"] or contender not in {OURS.name, THEIRS.name, BEST.name}:
        return False
    return task.rate == JUDGED_RATE if task.rate else task.key in backlogs


def missed(found: dict[str, dict[int, Ratio]]) -> list[str]:
    """Return a sentence for each target that was measured and not reached."""
    sentences = []
    for figure, by_nodes in TARGETS.items():
        for nodes, (how, target) in by_nodes.items():
            ratio = found.get(figure, {}).get(nodes)
            if ratio is None:
                continue
            value = ratio.as_json()["median"]
            held = {">=": value >= target, "<=": value <= target, "==": abs(value - target) < 1e-9}[how]
            if not held:
                sentences.append(f"{figure} at {nodes} nodes is {value:g}, to reach was {how} {target:g}")
    return sentences


def as_json(runs: Sequence[Run], about: dict[str, Any]) -> dict[str, Any]:
    """Return all that there is to keep, `ratios` as figure, then number of nodes, to the median."""
    found = ratios(runs)
    return {
        "about": about,
        "ratios": {
            figure: {str(nodes): ratio.as_json()["median"] for nodes, ratio in by_nodes.items()}
            for figure, by_nodes in found.items()
        },
        "spread": {
            figure: {str(nodes): ratio.as_json() for nodes, ratio in by_nodes.items()}
            for figure, by_nodes in found.items()
        },
        "growth": growth(runs),
        "missed": missed(found),
        "runs": [
            {
                "shape": run.task.shape.name,
                "nodes": run.task.nodes,
                "pods": run.task.pods,
                "rate": run.task.rate,
                "scheduler": run.contender,
                "repeat": run.repeat,
                **{
                    name: _round(value) if isinstance(value, float) else value
                    for name, value in asdict(run.figures).items()
                },
            }
            for run in runs
        ],
    }


def medians(runs: Iterable[Run], figure: str) -> dict[tuple[str, str, int], float]:
    """Return a figure's median by task, scheduler and number of nodes; without those that have no such figure."""
    values: dict[tuple[str, str, int], list[float]] = defaultdict(list)
    for run in runs:
        value = getattr(run.figures, figure)
        if value is not None:
            values[run.task.key, run.contender, run.task.nodes].append(float(value))
    return {key: statistics.median(all_of_it) for key, all_of_it in values.items()}


def growth(runs: Sequence[Run]) -> dict[str, dict[str, dict[str, float]]]:
    """Return each figure of plain pods as a multiple of that with the fewest nodes: figure, scheduler, nodes."""
    grown: dict[str, dict[str, dict[str, float]]] = {}
    for figure in ("pods_per_second", "cpu", "cpu_api_server", "peak_memory"):
        found = medians(runs, figure)
        by_name: dict[str, dict[str, float]] = defaultdict(dict)
        for name in {name for _, name, _ in found}:
            sizes = sorted(nodes for key, other, nodes in found if (key, other) == ("plain", name) and nodes >= 100)
            for nodes in sizes[1:]:
                first = found["plain", name, sizes[0]]
                by_name[name][str(nodes)] = _round(found["plain", name, nodes] / first) if first else 0.0
        grown[figure] = dict(by_name)
    return grown


def write(folder: Path, runs: Sequence[Run], about: dict[str, Any]) -> Path:
    """Write `latest.json` into a folder and return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / "latest.json"
    path.write_text(json.dumps(as_json(runs, about), indent=1) + "\n")
    return path


def _round(value: float) -> float:
    """Keep four digits: more than any run can tell."""
    return float(f"{value:.4g}")
