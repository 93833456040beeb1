"""How many decisions an event costs in the running loop, from the watch to the binding, whoever waits.

What is promised (`turb_kub.queue.queue`): one decision for each pod that comes, one for each that an event lets in, and
none for pods that it does not help. Unschedulable pods that ask the same are as one: 1,000 of them cost no more.
"""

import pytest

from tests.simulation.world import World
from tests.unit.objects import wire_node, wire_pod

FEW, MANY = 50, 1000
#: Virtual seconds after which the slow flush decides all that wait once more.
FLUSH = 300.0
THEIRS = "default-scheduler"


@pytest.fixture
def world(monkeypatch):
    made = World(monkeypatch)
    yield made
    made.end()


def fill(world, equal):
    """Two full nodes and one with 200 MiB left; equal pods wait for 300 MiB each, and ten that ask something else."""
    for name in ("full", "full-too", "nearly"):
        world.server.put("nodes", wire_node(name, memory="1000Mi"))
    for name, node, memory in (
        ("big", "full", "700Mi"),
        ("small", "full", "100Mi"),
        ("tiny", "full", "200Mi"),
        ("huge", "full-too", "1000Mi"),
        ("leaves-some", "nearly", "800Mi"),
    ):
        world.server.put("pods", wire_pod(name, node=node, memory=memory))
    for number in range(equal):
        world.server.put("pods", wire_pod(f"p{number}", memory="300Mi"))
    for number in range(5):
        world.server.put("pods", wire_pod(f"ssd{number}", spec={"nodeSelector": {"disk": f"ssd-{number}"}}))
        world.server.put("pods", wire_pod(f"large{number}", memory=f"{3000 + number}Mi"))
    world.start()
    world.run(30.0)
    assert world.scheduler.queue.counts()["unschedulable"] == equal + 10
    world.forget_counts()


@pytest.fixture
def full(world):
    fill(world, FEW)
    return world


def heartbeat(world, name):
    """What a kubelet tells every few minutes: times, and images that it holds."""
    node = world.server.nodes[name]
    condition = node["status"]["conditions"][0] | {
        "lastHeartbeatTime": f"2026-01-01T00:00:{world.server.version % 60}Z"
    }
    images = [{"names": [f"image:{world.server.version}"], "sizeBytes": 1}]
    world.server.put("nodes", node | {"status": node["status"] | {"conditions": [condition], "images": images}})


def relabel(world, kind, name):
    kept = world.server.nodes if kind == "nodes" else world.server.pods
    item = kept[name]
    world.server.put(kind, item | {"metadata": item["metadata"] | {"labels": {"new": f"{world.server.version}"}}})


def has_phase(world, name, phase):
    item = world.server.pods[name]
    world.server.put("pods", item | {"status": item["status"] | {"phase": phase}})


def test_each_pod_that_comes_is_decided_once_whether_it_is_placed_or_not(world):
    for name in ("a", "b"):
        world.server.put("nodes", wire_node(name, memory="1000Mi"))
    placed, waiting = [f"p{number}" for number in range(40)], [f"w{number}" for number in range(40)]
    for one, other in zip(placed, waiting, strict=True):
        world.server.put("pods", wire_pod(one, memory="50Mi"))
        world.server.put("pods", wire_pod(other, memory="5000Mi"))
    world.start()
    world.run()
    assert all(world.node_of(name) for name in placed)
    assert sorted(world.decided) == sorted(placed + waiting)


@pytest.mark.parametrize(
    "event",
    [
        lambda world: heartbeat(world, "nearly"),
        lambda world: relabel(world, "nodes", "nearly"),
        lambda world: relabel(world, "pods", "big"),
        lambda world: has_phase(world, "big", "Running"),
        lambda world: has_phase(world, "tiny", "Succeeded"),
        lambda world: world.server.delete("pods", "small"),
        lambda world: world.server.delete("pods", "ssd0"),
        lambda world: world.server.delete("nodes", "full-too"),
        lambda world: world.server.put("nodes", wire_node("new", memory="200Mi")),
        lambda world: world.server.put("nodes", wire_node("new", memory="1000Mi", unschedulable=True)),
        lambda world: world.server.put("nodes", wire_node("new", memory="1000Mi", ready="False")),
        lambda world: world.server.put("nodes", wire_node("full", memory="1100Mi")),
        lambda world: world.server.put("pods", wire_pod("comes", node="nearly", memory="50Mi", scheduler=THEIRS)),
        lambda world: world.server.put("pods", wire_pod("waits", memory="9000Mi", scheduler=THEIRS)),
    ],
    ids=[
        "heartbeat of a node",
        "label of a node",
        "label of a pod",
        "pod runs",
        "pod that finishes frees too little",
        "pod that is deleted frees too little",
        "one that waits is deleted",
        "node is deleted",
        "node is too small",
        "node is cordoned",
        "node is not ready",
        "node grows by too little",
        "pod of another scheduler is placed",
        "pod of another scheduler waits",
    ],
)
def test_an_event_that_helps_nobody_costs_no_decision_and_no_request(full, event):
    event(full)
    full.run()
    assert full.decided == []
    assert not full.server.requests


def test_a_storm_of_events_that_help_nobody_costs_no_decision_and_no_request(full):
    for number in range(100):
        for name in ("full", "full-too", "nearly"):
            heartbeat(full, name)
        relabel(full, "pods", "big")
        full.server.put("pods", wire_pod(f"daemon-{number}", node="nearly", scheduler=THEIRS))
        full.run(0.1)
    for number in range(100):
        full.server.delete("pods", f"daemon-{number}")
        full.run(0.1)
    assert full.decided == []
    assert not full.server.requests


@pytest.mark.parametrize(("gone", "let_in"), [("big", 2), ("huge", 3)])
def test_a_pod_that_leaves_costs_one_decision_for_each_of_a_thousand_equal_ones_that_its_room_lets_in(
    world, gone, let_in
):
    fill(world, MANY)
    world.server.delete("pods", gone)
    world.run()
    assert world.decided == [f"p{number}" for number in range(let_in)]
    assert world.server.requests == {("POST", "pods/binding"): let_in, ("POST", "events"): let_in}


def test_a_node_that_comes_wakes_only_those_that_fit_on_it(full):
    full.server.put("nodes", wire_node("new", memory="100Mi", labels={"disk": "ssd-3"}))
    full.run()
    assert full.decided == ["ssd3"]
    full.server.put("nodes", wire_node("newer", memory="350Mi"))
    full.run()
    assert full.decided == ["ssd3", "p0"]
    # Room for one large one or for ten of the equal ones: one of each kind that fits is woken, the first are placed.
    full.server.put("nodes", wire_node("newest", memory="3002Mi"))
    full.run()
    placed = sum(pod["spec"].get("nodeName") == "newest" for pod in full.server.pods.values())
    assert 1 <= placed <= len(full.decided) - 2 <= placed + 3
    assert ("PATCH", "pods/status") not in full.server.requests


def test_a_pod_that_waits_and_asks_something_else_is_decided_alone(full):
    pod = full.server.pods["p7"]
    full.server.put("pods", pod | {"metadata": pod["metadata"] | {"labels": {"other": "yes"}}})
    full.run()
    assert full.decided == ["p7"]
    assert not full.server.requests


def test_the_slow_flush_decides_each_that_waits_once_in_five_minutes_and_writes_nothing(full):
    full.run(12 * FLUSH)
    times = [full.decided.count(name) for name in ("p0", "p49", "ssd0", "large0")]
    assert all(0 < found <= 12 for found in times)
    assert len(full.decided) <= 12 * (FEW + 10)
    assert {verb for verb, _ in full.server.requests} == {"GET"}  # the self-check's
