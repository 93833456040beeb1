"""Measures one scheduler at one piece of work, from the first thing that it has to do to the last that it writes."""

import asyncio
import time
from collections import Counter
from dataclasses import dataclass

from bench.contenders import Contender
from bench.processes import Idle, Usage, usage
from bench.shapes import PODS_A_NODE, Shape, Trigger
from bench.workload import POLL, Stuck, Workload
from tests.cluster.control_plane import ControlPlane, Process

#: Seconds in which a scheduler must have taken in what it was told.
SETTLED_WITHIN = 120.0
#: Pods from which on a backlog is a task of its own beside the ordinary one.
LARGE = 10_000
#: What the benchmark itself asks of the API server, or what comes of the election.
_OWN_WRITES = {("POST", "pods"), ("DELETE", "pods"), ("DELETECOLLECTION", "pods"), ("PATCH", "pods"), ("POST", "nodes")}
_OWN_READS = {("LIST", "events"), ("GET", "")}
_WRITES = {"POST", "PUT", "PATCH", "DELETE", "APPLY", "DELETECOLLECTION"}


@dataclass(frozen=True)
class Task:
    """What is to be done.

    Attributes:
        nodes, pods: how many.
        rate: pods made a second while the scheduler works; 0: all are there before it begins.
    """

    shape: Shape
    nodes: int
    pods: int
    rate: float = 0.0

    @property
    def key(self) -> str:
        """What tells it from the other tasks with as many nodes."""
        if self.rate:
            return f"{self.shape.name} at {self.rate:g} a second"
        return f"{self.shape.name}-{self.pods}-pods" if self.pods >= LARGE else self.shape.name


@dataclass(frozen=True)
class Figures:
    """What one run came to. Times in seconds, memory in bytes.

    Attributes:
        pods_per_second: from the first pod that got its node (or, where something lets them go, from then) to the last.
        pods_per_second_events: until the last event was written.
        cpu, cpu_api_server: of the scheduler, and of the API server with its store, for 1,000 pods, from when the first
            pod was made until the last event was written.
        peak_memory: most that the scheduler held since its start.
        latency_p50, latency_p99, latency_p999: from a pod's creation to its node; only where pods come in a stream.
        calls: the scheduler's requests for each pod, by "VERB resource".
        writes: of these those that write, leases aside.
        events: for each pod.
    """

    pods_per_second: float
    pods_per_second_events: float
    cpu: float
    cpu_api_server: float
    peak_memory: int
    writes: float
    events: float
    calls: dict[str, float]
    latency_p50: float | None = None
    latency_p99: float | None = None
    latency_p999: float | None = None


async def measure(plane: ControlPlane, workload: Workload, contender: Contender, task: Task) -> Figures:
    """Have a scheduler do a task once.

    Raises:
        Stuck: it was not done in time.
        NotStarted: the scheduler could not be started.
    """
    lease = "bench"
    full = task.shape.trigger in (Trigger.DELETE, Trigger.NODES)
    places = max(1, -(-task.pods // task.nodes)) if full else PODS_A_NODE
    await workload.empty()
    await workload.nodes(task.nodes, places)
    await workload.hold(lease)
    with contender.run(plane, lease) as process:
        await _settled(process)
        stages = (process, plane.api_server, plane.etcd)
        before = [usage(each.process.pid) for each in stages]
        asked_before = await workload.requests()
        async with workload.watched():
            began = await _do(workload, contender, task, process, lease)
            await workload.all_bound(task.pods)
            done = max(at for name, at in workload.bound.items() if name.startswith("pod-"))
            events, written = await workload.events_written()
        asked = await workload.requests() - asked_before
        # The election is over before the first pod is placed where it waits for the lease, and long before else.
        asked["POST", "events"] -= contender.events_of_election
        after = [usage(each.process.pid) for each in stages]
    return _figures(workload, task, before, after, asked, events, began, done, max(done, written))


async def _do(workload: Workload, contender: Contender, task: Task, process: Process, lease: str) -> float:
    """Give it the work. Returns when the clock begins."""
    if task.rate or task.shape.trigger is not Trigger.LEASE:
        await workload.release(lease)
        # Nothing of what comes may be about the election.
        await workload.taken(lease)
    if task.rate:
        await workload.stream(task.shape, task.pods, task.nodes, contender.scheduler_name, task.rate)
    else:
        await workload.make(task.shape, task.pods, task.nodes, contender.scheduler_name)
        await _settled(process)
        if task.shape.trigger is not Trigger.LEASE:
            began = time.monotonic()
            await workload.let_go(task.shape.trigger, task.pods)
            return began
        await workload.release(lease)
    await workload.all_bound(1)
    return min(at for name, at in workload.bound.items() if name.startswith("pod-"))


async def _settled(process: Process) -> None:
    """Wait until a scheduler has taken in what it was told, which shows in that it has nothing to do."""
    idle, deadline = Idle(process.process.pid), time.monotonic() + SETTLED_WITHIN
    while not idle.reached():
        process.check()
        if time.monotonic() > deadline:
            raise Stuck(f"{process.name} still has something to do after {SETTLED_WITHIN:.0f} s")
        await asyncio.sleep(POLL)


def _figures(
    workload: Workload,
    task: Task,
    before: list[Usage],
    after: list[Usage],
    asked: Counter[tuple[str, str]],
    events: int,
    began: float,
    done: float,
    written: float,
) -> Figures:
    spent = [end.cpu - begin.cpu for begin, end in zip(before, after, strict=True)]
    theirs = {
        key: count
        for key, count in asked.items()
        if key not in _OWN_WRITES | _OWN_READS and "leases" not in key[1] and key[1] != "" and count > 0
    }
    waits = sorted(max(0.0, at - workload.made[name]) for name, at in workload.bound.items() if name in workload.made)

    def percentile(share: float) -> float | None:
        return waits[min(len(waits) - 1, int(share * len(waits)))] if task.rate else None

    return Figures(
        pods_per_second=task.pods / max(done - began, 1e-9),
        pods_per_second_events=task.pods / max(written - began, 1e-9),
        cpu=1000 * spent[0] / task.pods,
        cpu_api_server=1000 * sum(spent[1:]) / task.pods,
        peak_memory=after[0].peak,
        writes=sum(count for (verb, _), count in theirs.items() if verb in _WRITES) / task.pods,
        events=events / task.pods,
        calls={f"{verb} {what}": round(count / task.pods, 4) for (verb, what), count in sorted(theirs.items())},
        latency_p50=percentile(0.5),
        latency_p99=percentile(0.99),
        latency_p999=percentile(0.999),
    )
