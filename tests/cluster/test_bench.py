"""The benchmark measures what it says, on a few nodes: each scheduler places every pod, and its writes are counted."""

import dataclasses
from collections import Counter

import pytest

from bench import shipped
from bench.__main__ import turns_of
from bench.contenders import BEST, CONTENDERS, OURS, THEIRS
from bench.measure import LARGE, Figures, Task, measure
from bench.shapes import SHAPES, Trigger
from bench.summary import JUDGED_RATE, TARGETS, Run, is_judged, ratios
from bench.workload import Workload

pytestmark = pytest.mark.cluster

PLAIN = SHAPES["plain"]
NODES, PODS = 3, 12


SCHEDULERS = [each for each in CONTENDERS if each.name in {"turb-kub", "kube-scheduler", "ceiling with events", "demo"}]


@pytest.mark.parametrize("contender", SCHEDULERS, ids=lambda contender: contender.name)
async def test_every_scheduler_places_all_pods_with_a_bind_and_an_event_each(bare, admin, contender):
    figures = await measure(bare, Workload(admin.client), contender, Task(PLAIN, NODES, PODS))
    with_events = contender.name != "demo"
    assert figures.calls["POST pods/binding"] == 1.0
    assert figures.events == figures.writes - 1.0 == float(with_events)
    assert figures.pods_per_second_events <= figures.pods_per_second
    assert figures.peak_memory > 2**20
    pods = await admin.pods()
    assert len(pods) == PODS
    assert {pod["spec"]["nodeName"] for pod in pods} == {f"node-{number:05}" for number in range(NODES)}


@pytest.mark.parametrize("name", ["unschedulable", "gated", "deleted", "node-added"])
async def test_every_shape_is_placed_once_it_is_let_go(bare, admin, name):
    shape = SHAPES[name]
    workload = Workload(admin.client)
    figures = await measure(bare, workload, OURS, Task(shape, NODES, PODS))
    assert figures.calls["POST pods/binding"] == 1.0
    placed = {name for name in workload.bound if name.startswith("pod-")}
    assert len(placed) == PODS
    # Those that waited for room have been told so; of those that fit nowhere each has its condition and event.
    waited = shape.trigger in (Trigger.DELETE, Trigger.NODES)
    assert figures.calls.get("PATCH pods/status", 0.0) == pytest.approx(
        1.0 if waited else int(PODS * shape.hopeless) / PODS, abs=1e-3
    )


async def test_a_stream_tells_how_long_each_pod_waited(bare, admin):
    figures = await measure(bare, Workload(admin.client), OURS, Task(PLAIN, NODES, PODS, rate=50.0))
    waits = [each for each in (figures.latency_p50, figures.latency_p99, figures.latency_p999) if each is not None]
    assert len(waits) == 3
    assert 0.0 <= waits[0] <= waits[1] <= waits[2]


def test_ratios_are_of_one_repeat_and_their_median_is_told():
    def figures(speed, latency=None):
        return Figures(
            speed,
            speed,
            cpu=1.0,
            cpu_api_server=1.0,
            peak_memory=8,
            writes=2.0,
            events=1.0,
            calls={},
            latency_p99=latency,
        )

    plain, stream = Task(PLAIN, 100, 10), Task(PLAIN, 100, 10, rate=200.0)
    # The machine was twice as slow in the second repeat, and turb-kub unlucky in the third.
    speeds = [(200.0, 100.0), (100.0, 50.0), (60.0, 100.0)]
    runs = [
        Run(task, name, repeat, figures(speed, latency))
        for repeat, pair in enumerate(speeds)
        for name, speed in zip((OURS.name, THEIRS.name), pair, strict=True)
        for task, latency in ((plain, None), (stream, 1.0 / speed))
    ]
    found = ratios(reversed(runs))
    assert found["pods_per_second"][100].as_json() == {"median": 2.0, "low": 0.6, "high": 2.0}
    assert found["p99_latency"][100].as_json() == {"median": 0.5, "low": 0.5, "high": 1.667}
    assert found["writes_per_pod"][100].as_json()["median"] == 2.0
    assert "ceiling_share" not in found
    assert not ratios(dataclasses.replace(run, contender="other") for run in runs)


def test_whatever_goes_into_a_figure_with_a_goal_is_judged():
    def figures(speed):
        return Figures(speed, speed, 1.0, 1.0, 8, 2.0, 1.0, {}, latency_p99=1.0)

    tasks = [Task(shape, nodes, 10) for shape in SHAPES.values() for nodes in (2, 100, 1000, 5000)]
    tasks += [Task(PLAIN, nodes, 10, rate) for nodes in (100, 1000) for rate in (50.0, JUDGED_RATE)]
    tasks += [Task(PLAIN, 5000, LARGE)]
    for task in tasks:
        found = ratios([Run(task, each.name, 0, figures(10.0)) for each in (OURS, THEIRS, BEST)])
        has_goal = any(task.nodes in TARGETS.get(figure, {}) for figure in found)
        assert is_judged(task, OURS.name) == is_judged(task, THEIRS.name) == has_goal, task
    assert not is_judged(Task(PLAIN, 100, 10), "demo")


def test_what_has_a_goal_is_repeated_as_often_as_asked_and_all_else_less_often():
    goal, other = Task(PLAIN, 100, 10), Task(PLAIN, 1000, 10)
    turns = turns_of([(goal, CONTENDERS), (other, (OURS, THEIRS))], repeats=3, other_repeats=1)
    had = Counter((task.nodes, each.name) for task, _, chosen in turns for each in chosen)
    judged = {OURS.name, THEIRS.name, BEST.name}
    assert had == {(goal.nodes, each.name): 3 if each.name in judged else 1 for each in CONTENDERS} | {
        (other.nodes, OURS.name): 1,
        (other.nodes, THEIRS.name): 1,
    }
    # All that is compared within a repeat has its turn in it.
    assert [len(chosen) for task, repeat, chosen in turns] == [len(CONTENDERS), 3, 3, 2]
    assert turns_of([(other, CONTENDERS)], repeats=3, other_repeats=0) == []


def test_a_large_backlog_is_not_taken_for_the_ordinary_one():
    assert Task(PLAIN, 5000, LARGE).key != Task(PLAIN, 5000, 2000).key


def test_the_fastest_python_that_runs_is_taken(tmp_path):
    said = {"slow": "echo 0.5", "fast": "echo 0.25", "silent": "exit 0", "broken": "echo 0.1; exit 127 # refuses"}
    paths = {}
    for name, line in said.items():
        paths[name] = str(tmp_path / name)
        (tmp_path / name).write_text(f"#!/bin/sh\n{line}\n")
        (tmp_path / name).chmod(0o755)
    assert shipped.fastest([*paths.values(), str(tmp_path / "gone")]) == paths["fast"]
    with pytest.raises(shipped.NotInstalled, match="--python"):
        shipped.fastest([paths["silent"]])


def test_a_python_that_is_not_there_gets_a_sentence(tmp_path):
    with pytest.raises(shipped.NotInstalled, match=r"uv venv failed: .*no-such-python"):
        shipped.install(tmp_path / "environment", str(tmp_path / "no-such-python"))
