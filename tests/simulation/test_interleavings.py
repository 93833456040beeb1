"""Events, answers, losses and restarts in any order, on a simulated clock: in the end all is placed that fits, nothing
is over any limit, and the scheduler's memory is the API server's truth.

Everything above the wire is the real thing (reflectors, cache, queue, loop, binder, reporter).
"""

import asyncio
import json
import logging
from collections import deque
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context
from typing import Any, cast

import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
    run_state_machine_as_test,
)
from turb_kub.api.errors import Unreachable
from turb_kub.cluster.cluster import Cluster
from turb_kub.decision.decide import decide
from turb_kub.decision.policy import LeastRequestedMemory
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.scheduler import Scheduler, accounting_of
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import decode_pod
from turb_kub.settings import Settings

from tests.simulation.server import Fate, Object, SimulatedClient, SimulatedServer
from tests.simulation.virtual_time import VirtualLoop
from tests.unit.objects import wire_node, wire_pod

PODS = st.sampled_from(["p1", "p2", "p3", "p4", "p5"])
WHICH = st.integers(0, 4)
NODES = st.sampled_from(["n1", "n2", "n3"])
MEMORY = st.sampled_from(["0Mi", "300Mi", "500Mi", "900Mi"])
RESOURCES = st.sampled_from(["pods/binding", "pods/binding", "pods/binding", "pods/status", "pods", "nodes", "events"])
KINDS = st.sampled_from(["pods", "pods", "nodes"])
CHOSEN = Settings(node_mem_limit_mb=1500 * 2**20, binds_in_flight=3)
SECONDS = st.sampled_from([0.0015, 0.004, 0.01, 0.05, 0.5, 3.0, 11.0, 40.0])
UNDER_WAY = ("resized", "labelled", "made anew", "deleted")
#: Examples in a soak and without, and how many one process plays.
ALL, FEW, BATCH = 50_000, 300, 1000
#: Long enough for every time-out, backoff and confirmation to be over, shorter than the slow flush.
QUIET = 120.0
FLUSHED = 700.0


def there_are_pods(machine: Any) -> bool:
    return bool(machine.server.pods)


class Interleavings(RuleBasedStateMachine):
    """One scheduler (one process after another) and the world around it."""

    def __init__(self) -> None:
        super().__init__()
        self.loop = VirtualLoop()
        self.server = SimulatedServer(self.loop)
        self.made = 0
        self.bound_by_others: set[str] = set()
        self.rescued, self.mended = 0, 0.0
        self._start()

    @initialize(seed=st.integers(0, 999), nodes=st.integers(0, 2))
    def some_nodes_are_there(self, seed: int, nodes: int) -> None:
        self.server.random.seed(seed)
        for number in range(1, nodes + 1):
            self.server.put("nodes", wire_node(f"n{number}", memory="1000Mi"))

    def _start(self) -> None:
        self.client = SimulatedClient(self.server)
        metrics = Metrics(CHOSEN.scheduler_name)
        self.scheduler = self.client.scheduler = Scheduler(
            cast(Any, self.client), CHOSEN, LeastRequestedMemory(), metrics, clock=self.loop.time
        )
        self.process = self.loop.create_task(self.scheduler.run())

    # The scheduler's world

    @rule(name=PODS, memory=MEMORY, priority=st.integers(0, 1), picky=st.booleans(), gated=st.booleans())
    def pod_is_made(self, name: str, memory: str, priority: int, picky: bool, gated: bool) -> None:
        if name in self.server.pods:
            self.server.delete("pods", name)
        spec: Object = {"priority": priority}
        if picky:
            spec["nodeSelector"] = {"zone": "z"}
        elif gated:
            spec["schedulingGates"] = [{"name": "g"}]
        self._make(name, memory=memory, spec=spec)

    @rule(
        names=st.lists(PODS, min_size=2, max_size=5, unique=True),
        memory=st.sampled_from(["300Mi", "500Mi", "900Mi"]),
        fates=st.lists(st.sampled_from(Fate), max_size=2),
        unheard=st.booleans(),
        seconds=SECONDS,
        leaves=st.sampled_from(["nobody", "deleted", "finished", "shrunk", "made anew"]),
    )
    def replicas_come_and_one_leaves(
        self, names: list[str], memory: str, fates: list[Fate], unheard: bool, seconds: float, leaves: str
    ) -> None:
        """Often there is room for some of them only, so that one that leaves lets another in."""
        self.server.put("nodes", wire_node("n1", memory="1000Mi"))
        self.server.harder("n1")
        for name in names:
            if name not in self.server.pods:
                self._make(name, memory=memory)
        self.server.fates.setdefault("pods/binding", deque()).extend(fates)
        self.loop.run(0.0005)
        if unheard:
            self.server.held.add("pods")
        self.loop.run(seconds)
        placed = [name for name in names if self.server.pods[name]["spec"].get("nodeName")]
        if placed:
            self._leave(placed[0], leaves)

    def _leave(self, name: str, how: str) -> None:
        pod = self.server.pods[name]
        match how:
            case "deleted":
                self.server.delete("pods", name)
            case "made anew":
                self.server.delete("pods", name)
                self._make(name, memory="300Mi")
            case "finished":
                self.server.put("pods", pod | {"status": pod["status"] | {"phase": "Succeeded"}})
            case "shrunk":
                self.server.change_pod(name, _asking("0Mi"))

    @rule(name=PODS, node=NODES, memory=MEMORY)
    def foreign_pod_is_made(self, name: str, node: str, memory: str) -> None:
        if name not in self.server.pods:
            self._make(name, memory=memory, node=node, scheduler="default-scheduler")
            self.server.harder(node)

    def _make(self, name: str, **how: Any) -> None:
        self.made += 1
        self.server.put("pods", wire_pod(name, uid=f"{name}-{self.made}", **how))

    def _pick(self, which: int) -> tuple[str, Object]:
        return sorted(self.server.pods.items())[which % len(self.server.pods)]

    @precondition(there_are_pods)
    @rule(which=WHICH, at_once=st.booleans())
    def pod_is_deleted(self, which: int, at_once: bool) -> None:
        name, pod = self._pick(which)
        if at_once or not pod["spec"].get("nodeName"):
            self.server.delete("pods", name)
        else:
            self.server.change_pod(name, {}, deletionTimestamp="2026-01-01T00:00:00Z")

    @precondition(there_are_pods)
    @rule(which=WHICH, memory=MEMORY)
    def pod_is_resized(self, which: int, memory: str) -> None:
        name, pod = self._pick(which)
        self.server.change_pod(name, _asking(memory))
        if pod["spec"].get("nodeName"):
            self.server.harder(pod["spec"]["nodeName"])

    @precondition(there_are_pods)
    @rule(which=WHICH, ungated=st.booleans())
    def pod_is_labelled_or_ungated(self, which: int, ungated: bool) -> None:
        name, _ = self._pick(which)
        spec: Object = {"schedulingGates": []} if ungated else {}
        self.server.change_pod(name, spec, labels={"changed": str(self.server.version)})

    @rule(name=PODS, memory=MEMORY, after=MEMORY, what=st.sampled_from(UNDER_WAY), fate=st.sampled_from(Fate))
    def pod_changes_while_its_binding_is_under_way(
        self, name: str, memory: str, after: str, what: str, fate: Fate
    ) -> None:
        if name in self.server.pods:
            self.server.delete("pods", name)
        self._make(name, memory=memory)
        self.server.fates.setdefault("pods/binding", deque()).appendleft(fate)
        self.loop.run(0.0005)  # sent by now, and not there yet
        if name not in self.server.pods or self.server.pods[name]["spec"].get("nodeName"):
            return
        match what:
            case "resized":
                self.server.change_pod(name, _asking(after))
            case "labelled":
                self.server.change_pod(name, {}, labels={"changed": str(self.server.version)})
            case "made anew":
                self.server.delete("pods", name)
                self._make(name, memory=after)
            case "deleted":
                self.server.delete("pods", name)
        self.loop.run(0.05)

    @precondition(there_are_pods)
    @rule(which=WHICH, phase=st.sampled_from(["Running", "Succeeded", "OutOfmemory"]))
    def pod_gets_a_phase(self, which: int, phase: str) -> None:
        _, pod = self._pick(which)
        if pod["spec"].get("nodeName") and pod["status"]["phase"] not in {"Succeeded", "Failed"}:
            failed = {"phase": "Failed", "reason": phase, "message": "no"}
            status = failed if phase == "OutOfmemory" else {"phase": phase}
            self.server.put("pods", pod | {"status": pod["status"] | status})

    @precondition(there_are_pods)
    @rule(which=WHICH, node=NODES)
    def waiting_pod_is_bound_by_others(self, which: int, node: str) -> None:
        name, pod = self._pick(which)
        if not pod["spec"].get("nodeName") and not pod["spec"].get("schedulingGates"):
            self.server.change_pod(name, {"nodeName": node})
            self.server.harder(node)
            self.bound_by_others.add(pod["metadata"]["uid"])

    @rule(
        name=NODES,
        memory=st.sampled_from(["600Mi", "1000Mi", "2000Mi"]),
        slots=st.sampled_from(["2", "110"]),
        zone=st.sampled_from("zzy"),
        ready=st.sampled_from(["True", "True", "False"]),
        cordoned=st.sampled_from([False, False, True]),
        limit=st.sampled_from([{}, {"turb-kub.io/node-mem-limit-mb": "800"}]),
    )
    def node_comes_or_changes(
        self, name: str, memory: str, slots: str, zone: str, ready: str, cordoned: bool, limit: dict[str, str]
    ) -> None:
        how: Any = {"labels": {"zone": zone}, "ready": ready, "unschedulable": cordoned, "annotations": limit}
        self.server.put("nodes", wire_node(name, memory=memory, pods=slots, **how))
        self.server.harder(name)

    @rule(name=NODES)
    def node_goes(self, name: str) -> None:
        if name in self.server.nodes:
            self.server.delete("nodes", name)
            self.server.harder(name)

    # What lies between

    @rule(resource=RESOURCES, fates=st.lists(st.sampled_from(Fate), min_size=1, max_size=3))
    def next_requests_meet(self, resource: str, fates: list[Fate]) -> None:
        self.server.fates.setdefault(resource, deque()).extend(fates)

    @rule(kind=KINDS)
    def watch_lags(self, kind: str) -> None:
        self.server.held.add(kind)

    @rule(kind=KINDS)
    def watch_catches_up(self, kind: str) -> None:
        self._release(kind)

    def _release(self, kind: str) -> None:
        self.server.held.discard(kind)
        self.server.wake(kind)

    @rule(kind=KINDS)
    def watch_repeats_itself(self, kind: str) -> None:
        if kind in self.server.streams:
            self.server.streams[kind].repeat()

    @rule(kind=KINDS, too_old=st.booleans(), broken=st.booleans())
    def watch_ends(self, kind: str, too_old: bool, broken: bool) -> None:
        stream = self.server.streams.get(kind)
        if stream is None:
            return
        if too_old:
            self.server.compact(kind)

        async def end() -> None:
            if broken:
                raise Unreachable("connection lost")

        stream.end = end
        stream.more.set()

    @rule(carried_out=st.booleans())
    def scheduler_is_killed_and_started_anew(self, carried_out: bool) -> None:
        self.rescued += self.scheduler.queue.rescued_by_flush
        self.mended += differences(self.scheduler)
        self.client.dead = True
        self.server.settle_calls(carried_out=carried_out)
        for task in asyncio.all_tasks(self.loop):
            task.cancel()
        self._start()

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.loop.run(seconds)

    @invariant()
    def nothing_forbidden_was_done(self) -> None:
        assert not self.server.violations, self.server.violations
        assert self.scheduler.cluster.check() == []

    # The end

    def teardown(self) -> None:
        try:
            self._come_to_rest()
            self._all_agree()
        finally:
            self.loop.end()

    def _come_to_rest(self) -> None:
        self.server.fates.clear()
        for kind in ("nodes", "pods"):
            self._release(kind)
        self.loop.run(QUIET)
        if self.scheduler.cluster.cooling:
            self.loop.run(FLUSHED)
        assert not self.process.done(), self.process.result()

    def _all_agree(self) -> None:
        server, scheduler = self.server, self.scheduler
        self.nothing_forbidden_was_done()
        truth = Cluster(accounting_of(CHOSEN))
        for node in server.nodes.values():
            truth.set_node(decode_node(json.dumps(node)))
        for pod in server.placed():
            truth.set_pod(decode_pod(json.dumps(pod)))
        waiting = [decode_pod(json.dumps(pod)) for pod in server.waiting()]
        policy = LeastRequestedMemory()
        forgotten = [pod.name for pod in waiting if not pod.gates and decide(truth, pod, policy).node is not None]
        assert not forgotten, "fit and were not placed"
        assert self.rescued + scheduler.queue.rescued_by_flush == 0
        assert scheduler.cluster.assumed_count == 0
        assert self.mended + differences(scheduler) == 0
        assert contents(scheduler.cluster) == contents(truth)
        assert {(one.uid, one.resource_version) for one in scheduler.queue.pods()} == {
            (one.uid, one.resource_version) for one in waiting
        }
        silent = [one.name for one in waiting if not one.gates and one.verdict is None]
        assert not silent, "wait, and nobody says why"
        scheduled = [event["regarding"]["uid"] for event in server.events.values() if event["reason"] == "Scheduled"]
        assert len(scheduled) == len(set(scheduled))
        # Whoever bound a pod to the very node that we meant it for while our answer was lost: nobody can tell.
        assert set(scheduled) <= {*server.bound_by_us, *self.bound_by_others}


def _asking(memory: str) -> Object:
    return {"containers": [{"name": "app", "image": "x", "resources": {"requests": {"memory": memory}}}]}


def differences(scheduler: Scheduler) -> float:
    """How many differences from the truth the cache's self-check has mended."""
    counted = [sample for metric in scheduler.metrics.cache_differences.collect() for sample in metric.samples]
    return sum(sample.value for sample in counted if sample.name.endswith("_total"))


def contents(cluster: Cluster) -> Any:
    """All that a cluster holds, whatever the order in which it came."""
    return {
        node.name: (node, sorted((pod.uid, pod.requests) for pod in cluster.pods_on(node.name)))
        for _, node in cluster.each_node()
    }


def play(examples: int) -> None:
    """Play so many examples in this process."""
    logging.disable(logging.WARNING)
    try:
        run_state_machine_as_test(
            Interleavings,
            settings=settings(
                max_examples=examples,
                stateful_step_count=30,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        logging.disable(logging.NOTSET)


@pytest.mark.soak
def test_whatever_the_order_all_that_fits_is_placed_and_nothing_is_over_a_limit(soak: bool) -> None:
    if not soak:
        play(FEW)
        return
    # hypothesis keeps something of each example, which in one process would come to 10 GB.
    with ProcessPoolExecutor(1, get_context("spawn"), max_tasks_per_child=1) as pool:
        for _ in range(0, ALL, BATCH):
            pool.submit(play, BATCH).result()
