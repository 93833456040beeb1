"""The benchmark measures what it says, on a few nodes: each scheduler places every pod, and its writes are counted."""

import dataclasses

import pytest

from bench.contenders import CONTENDERS, OURS, THEIRS
from bench.measure import Figures, Task, measure
from bench.shapes import SHAPES, Trigger
from bench.summary import Run, ratios
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
