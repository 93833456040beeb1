"""How many bytes are kept of each pod, and that nothing is kept of those that are gone.

Measured by tracemalloc through the sink of the loop: what the watch delivers is decoded, counted or queued, and dropped
as in the loop. The number of bytes does not hang on how fast or busy a machine is.
"""

import gc
import json
import tracemalloc
from collections.abc import Callable, Iterator
from functools import lru_cache
from typing import Any

import msgspec
import pytest
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.pod import _shared_labels
from turb_kub.queue.queue import SchedulingQueue

from tests.unit.objects import node

NODES = 20
FIRST, PODS = 150, 600
#: Bytes. The first is that of bench/decide.py for 50,000 pods. A pod that waits has its verdict's text, and stands in
#: the queue's books.
LIMIT_PLACED, LIMIT_WAITING = 1024, 1536
#: Pods of one turn of churn, and bytes by which two turns may differ.
CHURN, A_FEW_PODS = 150, 32 * 1024
UNSCHEDULABLE = {
    "type": "PodScheduled",
    "status": "False",
    "reason": "Unschedulable",
    "message": "0/20 nodes are available: 20 Insufficient memory. no new claims to deallocate, preemption: 0/20 nodes",
}


class Sunk:
    """A sink with its cluster and queue. `decide_all` does what the loop does with what is due."""

    def __init__(self) -> None:
        self.cluster = Cluster()
        for number in range(NODES):
            self.cluster.set_node(node(f"node-{number}", pods="10000", memory="4Ti", cpu="4000"))
        self.queue = SchedulingQueue(self.cluster)
        self.sink = PodSink(self.cluster, self.queue, Metrics("turb-kub"), lambda: 0.0)

    def put(self, wire: bytes) -> None:
        self.sink.changed(msgspec.Raw(wire))
        self.decide_all()

    def delete(self, wire: bytes) -> None:
        self.sink.deleted(msgspec.Raw(wire))
        self.decide_all()

    def put_again(self, wire: bytes) -> None:
        """What the watch tells of a pod when its condition was written: a later state that asks the same."""
        item = json.loads(wire)
        item["metadata"]["resourceVersion"] = str(10**9)
        self.put(json.dumps(item).encode())

    def decide_all(self) -> None:
        while self.queue.due_in(0.0) == 0.0 and (pod := self.queue.pop(0.0)) is not None:
            decision = decide(self.cluster, pod, LeastRequestedMemory())
            if decision.node is None:
                self.queue.unschedulable(pod.uid, decision.filters, 0.0)
            else:
                self.cluster.assume(msgspec.structs.replace(pod, node_name=decision.node))
                self.queue.assumed(pod.uid)


def wire_pod(number: int, *, waits: bool = False, padding: int = 0, memory: str = "64Mi", job: int = 0) -> bytes:
    """A pod as a watch delivers it, its name and uid as long as real ones.

    Args:
        padding: bytes of managed fields, annotations, volumes, environment and status each, none of which is looked at.
        job: where not 0, it is one of a Job, and has labels that only pods of that Job have.
    """
    filler = "x" * padding
    container: dict[str, Any] = {
        "name": "app",
        "image": "x",
        "resources": {"requests": {"cpu": "100m", "memory": memory}},
    }
    spec: dict[str, Any] = {"schedulerName": "turb-kub", "containers": [container]}
    meta: dict[str, Any] = {
        "name": f"web-5d4f8b7c9-{number:05x}",
        "namespace": "default",
        "uid": f"{number:08x}-0000-4000-8000-{number:012x}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": f"app-{number % 50}", "pod-template-hash": "5d4f8b"},
    }
    status: dict[str, Any] = {"phase": "Pending", "conditions": [UNSCHEDULABLE] if waits else []}
    if job:
        meta["labels"] = {"job-name": f"job-{job}", "controller-uid": f"{job:08x}-0000-4000-8000-{job:012x}"}
    if not waits:
        spec["nodeName"] = f"node-{number % NODES}"
    if padding:
        meta["managedFields"] = [{"manager": filler, "fieldsV1": {f"f:{key}{filler}": {}}} for key in "abc"]
        meta["annotations"] = {"kubectl.kubernetes.io/last-applied-configuration": filler}
        spec["volumes"] = [{"name": "conf", "configMap": {"name": filler}}, {"name": "s", "secret": {"optional": True}}]
        container["env"] = [{"name": "SETTING", "value": filler}]
        container["args"] = [filler]
        status["containerStatuses"] = [{"name": "app", "imageID": filler, "ready": True}]
    return json.dumps({"metadata": meta, "spec": spec, "status": status}).encode()


@pytest.fixture
def kept() -> Iterator[Callable[[], int]]:
    """Tells the bytes that are held of all that was allocated since the test began."""

    def now() -> int:
        gc.collect()
        return tracemalloc.get_traced_memory()[0]

    tracemalloc.start()
    yield now
    tracemalloc.stop()


def bytes_a_pod(kept: Callable[[], int], **how: Any) -> float:
    sunk = Sunk()

    def put(numbers: range) -> None:
        for number in numbers:
            wire = wire_pod(number, **how)
            sunk.put(wire)
            if how.get("waits"):
                sunk.put_again(wire)

    # The first ones fill what is filled but once, and so do not count.
    put(range(FIRST))
    before = kept()
    put(range(FIRST, FIRST + PODS))
    taken = (kept() - before) / PODS
    counts = sunk.queue.counts()["unschedulable"], sunk.cluster.pod_count
    assert counts == ((FIRST + PODS, 0) if how.get("waits") else (0, FIRST + PODS))
    return taken


def test_a_placed_pod_takes_no_more_than_a_kilobyte(kept):
    assert bytes_a_pod(kept) <= LIMIT_PLACED


def test_a_pod_that_fits_nowhere_takes_no_more_than_half_as_much_again(kept):
    assert bytes_a_pod(kept, waits=True, memory="5Ti") <= LIMIT_WAITING


@pytest.mark.parametrize("how", [{}, {"waits": True, "memory": "5Ti"}], ids=["placed", "waiting"])
def test_what_no_decision_looks_at_is_not_kept(kept, how):
    padding = 4096
    assert len(wire_pod(0, padding=padding, **how)) > 8 * padding
    assert bytes_a_pod(kept, padding=padding, **how) < bytes_a_pod(kept, **how) + 64


@pytest.fixture
def small_memos(monkeypatch):
    """What is bounded by a number of entries has few, so that it is full soon and what grows beyond it shows."""
    monkeypatch.setattr("turb_kub.cluster.cluster._LONGEST_MOVES", 64)
    monkeypatch.setattr("turb_kub.queue.queue.SPARE_ENTRIES", 64)
    monkeypatch.setattr("turb_kub.objects.pod._shared_labels", lru_cache(64)(_shared_labels.__wrapped__))


@pytest.mark.parametrize(
    "how", [{}, {"waits": True, "memory": "5Ti"}, {"waits": True}], ids=["bound", "wait", "assumed"]
)
@pytest.mark.usefixtures("small_memos")
def test_of_pods_that_come_and_go_nothing_is_kept(kept, how):
    """Each is of a Job of its own, and so has labels and a signature that no other has."""
    sunk = Sunk()
    after = []
    for turn in range(10):
        wires = [wire_pod(number, job=number + 1, **how) for number in range(turn * CHURN, (turn + 1) * CHURN)]
        for wire in wires:
            sunk.put(wire)
        for wire in wires:
            sunk.delete(wire)
        assert sunk.cluster.pod_count == len(sunk.queue) == 0
        del wires, wire
        after.append(kept())
    assert after[-1] - after[1] < A_FEW_PODS
