"""How long one decision takes, by the number of nodes and by what the pod asks, and what a placed pod takes of memory.

    make bench-decide     or: .venv/bin/python bench/decide.py [NODES ...]

Each decision is followed by what follows it in the loop: the pod is assumed on its node, so that the next decision
sees another cluster. Times are the processor's for `decide` alone, so that other work on the machine disturbs little;
the median of each kind is judged. Absolute times differ between machines: what to look at is their growth over nodes,
and whether they keep to the limits below.
"""

import argparse
import gc
import json
import statistics
import sys
import time
import tracemalloc
import zlib
from typing import Any

import msgspec
from turb_kub.cluster.accounting import Accounting
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.ingest import PodSink
from turb_kub.loop.metrics import Metrics
from turb_kub.objects.node import Node, decode_node
from turb_kub.objects.pod import Pod, decode_pod
from turb_kub.queue.queue import SchedulingQueue

NODES = (100, 1_000, 5_000, 100_000)
PODS_A_NODE = 10
#: Making more takes longer than all that is measured.
MOST_PODS = 200_000
ZONES = 12
DECISIONS = 300
#: Microseconds that the median of a kind may take, by the number of nodes.
LIMITS = {("plain", 5_000): 100.0, ("plain", 100_000): 1000.0}
LIMIT_WITH_NEIGHBOURS = 1000.0
#: Bytes that one placed pod may take.
LIMIT_A_POD = 1024

REQUIRED = "requiredDuringSchedulingIgnoredDuringExecution"
SELECTOR = {"matchLabels": {"app": "bench"}}


def _spread(key: str) -> dict[str, Any]:
    constraint = {"topologyKey": key, "maxSkew": 5, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": SELECTOR}
    return {"topologySpreadConstraints": [constraint]}


def _affinity(kind: str, key: str, app: str = "bench") -> dict[str, Any]:
    term = {"topologyKey": key, "labelSelector": {"matchLabels": {"app": app}}}
    return {"affinity": {kind: {REQUIRED: [term]}}}


KINDS: dict[str, dict[str, Any]] = {
    "plain": {},
    "node selector": {"nodeSelector": {"disk": "ssd"}},
    "spread over zones": _spread("topology.kubernetes.io/zone"),
    "spread over hosts": _spread("kubernetes.io/hostname"),
    "near a pod, by zone": _affinity("podAffinity", "topology.kubernetes.io/zone", "app-3"),
    "apart from its kind, by host": _affinity("podAntiAffinity", "kubernetes.io/hostname"),
}
WITH_NEIGHBOURS = frozenset(KINDS) - {"plain", "node selector"}


def make_node(number: int) -> Node:
    """A node of one of `ZONES` zones; every other one has an SSD."""
    name = f"node-{number:06d}"
    labels = {
        "kubernetes.io/hostname": name,
        "topology.kubernetes.io/zone": f"zone-{number % ZONES}",
        "disk": "ssd" if number % 2 else "hdd",
    }
    return decode_node(
        json.dumps(
            {
                "metadata": {"name": name, "uid": name, "labels": labels},
                "status": {
                    "allocatable": {"cpu": "32", "memory": "64Gi", "pods": "110"},
                    "conditions": [{"type": "Ready", "status": "True"}],
                },
            }
        )
    )


def wire_pod(name: str, number: int, app: str, spec: dict[str, Any], node: str = "") -> bytes:
    """A pod as the API server would send it, its uid as long as a real one; sizes differ by application."""
    memory = 64 + 8 * (hash_of(app) % 32)
    requests = {"cpu": "100m", "memory": f"{memory}Mi"}
    container = {"name": "app", "image": "x", "resources": {"requests": requests}}
    body = {"schedulerName": "turb-kub", "containers": [container], **spec}
    if node:
        body["nodeName"] = node
    meta = {
        "name": name,
        "namespace": "default",
        "uid": f"{number:08x}-0000-4000-8000-{number:012x}",
        "resourceVersion": str(number + 1),
        "creationTimestamp": "2026-01-01T00:00:00Z",
        "labels": {"app": app, "pod-template-hash": "5d4f8b"},
    }
    conditions = [{"type": "PodScheduled", "status": "True"}] if node else []
    return json.dumps(
        {"metadata": meta, "spec": body, "status": {"phase": "Running", "conditions": conditions}}
    ).encode()


def hash_of(text: str) -> int:
    """A number that looks random and is the same in every run."""
    return zlib.crc32(text.encode())


def filled(nodes: int) -> Cluster:
    """A cluster whose nodes hold some pods of fifty applications each."""
    cluster = Cluster(Accounting(node_memory_limit=32 * 2**30))
    for number in range(nodes):
        cluster.set_node(make_node(number))
    for number in range(min(nodes * PODS_A_NODE, MOST_PODS)):
        node = f"node-{number % nodes:06d}"
        app = f"app-{hash_of(str(number)) % 50}"
        cluster.set_pod(decode_pod(wire_pod(f"app-{number}", number, app, {}, node)))
    return cluster


def measure(cluster: Cluster, spec: dict[str, Any]) -> list[float]:
    """Return seconds of each decision."""
    policy = LeastRequestedMemory()
    times = []
    placed = []
    # Pods that keep apart take a node each.
    for number in range(min(DECISIONS, cluster.node_count // 2) + 5):
        pod: Pod = decode_pod(wire_pod(f"bench-{number}", 2**31 + number, "bench", spec))
        began = time.thread_time()
        decision = decide(cluster, pod, policy)
        took = time.thread_time() - began
        if decision.node is None:
            raise SystemExit(f"a pod of the benchmark fits nowhere: {decision.message}")
        if number >= 5:  # the first ones fill the memos
            times.append(took)
        cluster.assume(msgspec.structs.replace(pod, node_name=decision.node))
        placed.append(pod.uid)
    for uid in placed:
        cluster.remove_pod(uid)
    return times


def bytes_a_pod(nodes: int = 1_000) -> float:
    """Return what each of many placed pods takes, the sink's own books included."""
    cluster = Cluster()
    for number in range(nodes):
        cluster.set_node(make_node(number))
    sink = PodSink(cluster, SchedulingQueue(cluster), Metrics("bench"), lambda: 0.0)
    pods = nodes * 50
    gc.collect()
    tracemalloc.start()
    before = tracemalloc.get_traced_memory()[0]
    for number in range(pods):
        node = f"node-{number % nodes:06d}"
        sink.changed(msgspec.Raw(wire_pod(f"web-5d4f8b7c9-{number:05x}", number, f"app-{number % 50}", {}, node)))
    gc.collect()
    taken = tracemalloc.get_traced_memory()[0] - before
    tracemalloc.stop()
    return taken / pods


def main(sizes: list[int]) -> int:
    """Print the table. Returns 1 where a limit is not kept."""
    print(f"{'microseconds a decision, median (90th percentile)':50s}" + "".join(f"{size:>20,}" for size in sizes))
    medians: dict[tuple[str, int], float] = {}
    cells: dict[tuple[str, int], str] = {}
    for size in sizes:
        cluster = filled(size)
        gc.collect()
        gc.freeze()
        for kind, spec in KINDS.items():
            times = sorted(second * 1e6 for second in measure(cluster, spec))
            medians[kind, size] = statistics.median(times)
            cells[kind, size] = f"{medians[kind, size]:.0f} ({times[len(times) * 9 // 10]:.0f})"
    for kind in KINDS:
        print(f"{kind:50s}" + "".join(f"{cells[kind, size]:>20s}" for size in sizes))
    memory = bytes_a_pod()
    print(f"\n{memory:.0f} bytes a placed pod")
    broken = [
        f"{kind} at {size:,} nodes: {median:.0f} us, limit {limit:.0f}"
        for (kind, size), median in medians.items()
        if (limit := _limit(kind, size)) is not None and median > limit
    ]
    if memory > LIMIT_A_POD:
        broken.append(f"a placed pod takes {memory:.0f} bytes, limit {LIMIT_A_POD}")
    for line in broken:
        print(f"over its limit: {line}")
    return 1 if broken else 0


def _limit(kind: str, size: int) -> float | None:
    if kind in WITH_NEIGHBOURS:
        return LIMIT_WITH_NEIGHBOURS if size == 5_000 else None
    return LIMITS.get((kind, size))


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        prog="bench-decide", description="Measures decisions alone, and memory for each pod."
    )
    parser.add_argument("nodes", type=int, nargs="*", default=NODES, help=f"how many nodes; default: {NODES}")
    sys.exit(main(parser.parse_args().nodes))
