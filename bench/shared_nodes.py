"""How often two schedulers overfill a node that both fill at full speed, with the guard of shared nodes and without.

    .venv/bin/python -m bench.shared_nodes [--guard auto --guard never] [--rounds N] [--qps 50]

On a bare API server, turb-kub and the real kube-scheduler (without its limit of requests a second, unless `--qps` sets
one) are both held while nodes are emptied and as many pods are made for each, together more than there is room for.
turb-kub is let go first and kube-scheduler once turb-kub has begun to bind, so that both fill the nodes at once: after
such a hold turb-kub takes longer to catch up, by which time the nodes would be full. A round is over when every node is
full. Each pod asks for the same memory, so that a node has a number of places.

Who overfills is whose bind came last: of each node the pods are taken in the order of the resourceVersion at which they
got their node, as a watch tells it, and a pod that finds no place left is one overcommit of its scheduler's. It takes
no place, as on a real node, whose kubelet turns it away.

Prints one line a guard, and as JSON with `-o json`. Speeds depend on the machine; the shares do not, much.
"""

import argparse
import asyncio
import contextlib
import json
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections import Counter
from collections.abc import AsyncIterator, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import msgspec
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.errors import ApiError
from turb_kub.objects.pod import decode_pod
from turb_kub.objects.wire import Decoder, WatchEvent, WireList

from tests.ansible.conftest import WITH_SCHEDULER, find_programs
from tests.cluster.control_plane import ControlPlane, control_plane, end_with_parent, free_ports

OURS, THEIRS = "turb-kub", "default-scheduler"
PODS = "/api/v1/namespaces/default/pods"
#: Seconds in which a round must be over; a machine that is busy with other things may need them.
PATIENCE = 120.0
#: Seconds without a bind after which the nodes, all full, stay as they are.
QUIET = 0.7
IN_FLIGHT = 32

_events = Decoder(WatchEvent)
_lists = Decoder(WireList)


@dataclass
class Binds:
    """Binds as the watch tells them. `places` is how many pods a node has room for."""

    places: int
    on: dict[str, list[tuple[int, str]]] = field(default_factory=dict)
    #: Nodes of the pods that have one, by uid.
    seen: set[str] = field(default_factory=set)
    last: float = 0.0
    #: When each scheduler's last bind was seen.
    lasts: dict[str, float] = field(default_factory=dict)

    def take(self, event: WatchEvent) -> int:
        """Take an event of a pod; return its resourceVersion."""
        pod = decode_pod(event.object)
        if event.type != "DELETED" and pod.node_name and pod.uid not in self.seen:
            self.seen.add(pod.uid)
            self.on.setdefault(pod.node_name, []).append((pod.resource_version, pod.scheduler_name))
            self.last = self.lasts[pod.scheduler_name] = time.monotonic()
        return pod.resource_version

    def full(self) -> int:
        return sum(len(bound) >= self.places for bound in self.on.values())

    def overcommits(self) -> Counter[str]:
        """Binds to nodes that were full by then, by scheduler."""
        return Counter(name for bound in self.on.values() for _, name in sorted(bound)[self.places :])

    def meanwhile(self) -> int:
        """How many binds turb-kub made between the first and the last of kube-scheduler's."""
        bound = [one for there in self.on.values() for one in there]
        theirs = [version for version, name in bound if name == THEIRS]
        return sum(name == OURS and min(theirs) < version < max(theirs) for version, name in bound) if theirs else 0

    def binds(self) -> Counter[str]:
        return Counter(name for bound in self.on.values() for _, name in bound)


@dataclass
class Outcome:
    """One guard's figures over all rounds."""

    guard: str
    binds: Counter[str] = field(default_factory=Counter)
    overcommits: Counter[str] = field(default_factory=Counter)
    seconds: float = 0.0
    #: Binds of turb-kub's while kube-scheduler was binding too.
    meanwhile: int = 0
    #: Of each round the seconds by which turb-kub placed its last pod after kube-scheduler its last.
    later: list[float] = field(default_factory=list)
    metrics: dict[str, float] = field(default_factory=dict)

    def line(self) -> str:
        parts = [f"guard {self.guard}:"]
        for name in (OURS, THEIRS):
            bound, over = self.binds[name], self.overcommits[name]
            share = 10_000 * over / bound if bound else 0.0
            parts.append(f"{name} {over} of {bound} binds too many ({share:.1f} in 10,000);")
        parts.append(f"{self.meanwhile} of {OURS}'s while {THEIRS} was binding;")
        parts.append(f"reads {self.metrics.get('turb_kub_fresh_reads_total', 0):.0f},")
        parts.append(f"conflicts avoided {self.metrics.get('turb_kub_conflicts_avoided_total', 0):.0f};")
        parts.append(f"last bind {min(self.later):.1f} to {max(self.later):.1f} s after kube-scheduler's;")
        parts.append(f"{sum(self.binds.values()) / self.seconds:.0f} binds a second")
        return " ".join(parts)


class Bench:
    """The cluster under test, and the pods and nodes that the rounds make."""

    def __init__(self, client: Client, nodes: int, places: int, spare: float) -> None:
        self._client = client
        self._nodes = [f"node-{number:04}" for number in range(nodes)]
        self._places = places
        self._each = int(nodes * places * (1 + spare) / 2)

    async def call(self, verb: str, path: str, body: Any = None, **query: str) -> bytes:
        data = None if body is None else json.dumps(body).encode()
        return await self._client.request(verb, path, resource="", query=query, body=data, timeout=60)

    async def make_nodes(self) -> None:
        amounts = {"cpu": "1000", "memory": f"{self._places}Gi", "pods": "1000"}
        for name in self._nodes:
            status = {"allocatable": amounts, "capacity": amounts, "conditions": [{"type": "Ready", "status": "True"}]}
            labels = {"kubernetes.io/hostname": name}
            await self.call("POST", "/api/v1/nodes", {"metadata": {"name": name, "labels": labels}, "status": status})

    async def make_pods(self) -> None:
        """Make as many for either, in turns, some of which find no place."""
        slots = asyncio.Semaphore(IN_FLIGHT)

        async def make(number: int, scheduler: str) -> None:
            requests = {"requests": {"memory": "1Gi"}}
            spec = {"schedulerName": scheduler, "containers": [{"name": "c", "image": "x", "resources": requests}]}
            async with slots:
                await self.call("POST", PODS, {"metadata": {"name": f"{scheduler}-{number}"}, "spec": spec})

        await asyncio.gather(*(make(number, name) for number in range(self._each) for name in (OURS, THEIRS)))

    async def empty(self) -> str:
        """Delete all pods and events; return the resourceVersion after it."""
        await self.call("DELETE", PODS, gracePeriodSeconds="0")
        await self.call("DELETE", "/apis/events.k8s.io/v1/namespaces/default/events")
        return _lists.decode(await self.call("GET", PODS, limit="1")).metadata.resourceVersion

    async def round(self, ours: "subprocess.Popen[bytes]", theirs: "subprocess.Popen[bytes]") -> tuple[Binds, float]:
        """One round with both schedulers held while it is prepared. Returns its binds and the seconds it took."""
        binds = Binds(self._places)
        with _held(theirs):
            with _held(ours):
                watching = asyncio.create_task(self._watch(await self.empty(), binds))
                await self.make_pods()
            began = time.monotonic()
            while not (binds.seen or watching.done()) and time.monotonic() - began < PATIENCE:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        began = time.monotonic()
        try:
            while binds.full() < len(self._nodes) or time.monotonic() - binds.last < QUIET:
                if watching.done():
                    raise SystemExit(f"the watch of pods ended: {watching.exception()}")
                if time.monotonic() - began > PATIENCE:
                    raise SystemExit(f"after {PATIENCE:.0f} s only {binds.full()} of {len(self._nodes)} nodes are full")
                await asyncio.sleep(0.05)
        finally:
            watching.cancel()
            await asyncio.gather(watching, return_exceptions=True)
        return binds, binds.last - began

    async def _watch(self, version: str, binds: Binds) -> None:
        while True:
            # The API server ends a watch whose reader is slow: it is taken up where it ended.
            query = {"watch": "1", "resourceVersion": version}
            async for line in self._client.lines(PODS, resource="", query=query, read_timeout=60):
                event = _events.decode(line)
                if event.type == "ERROR":
                    raise RuntimeError(bytes(event.object).decode())
                version = str(binds.take(event))


@contextlib.contextmanager
def _held(process: "subprocess.Popen[bytes]") -> Iterator[None]:
    process.send_signal(signal.SIGSTOP)
    try:
        yield
    finally:
        process.send_signal(signal.SIGCONT)


@contextlib.asynccontextmanager
async def _turb_kub(plane: ControlPlane, guard: str) -> AsyncIterator[tuple["subprocess.Popen[bytes]", str]]:
    """turb-kub as a process of its own, ready; gives the process and the URL of its metrics."""
    (port,) = free_ports(1)
    url = f"http://127.0.0.1:{port}"
    command = [sys.executable, "-m", "turb_kub", "run", "--kubeconfig", str(plane.kubeconfig)]
    with (plane.folder / f"turb-kub-{guard}.log").open("wb") as log:
        process = subprocess.Popen(  # noqa: ASYNC220 - it only forks, and nothing else runs here yet
            [*command, "--http-port", str(port), "--shared-node-guard", guard],
            stdout=log,
            stderr=log,
            preexec_fn=end_with_parent,  # noqa: PLW1509 - it makes one system call
        )
    try:
        while not _answer(f"{url}/readyz"):  # noqa: ASYNC110 - another process is waited for
            await asyncio.sleep(0.1)
        yield process, f"{url}/metrics"
    finally:
        process.terminate()
        process.wait()


def _answer(url: str) -> str:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return str(response.read().decode())
    except OSError:
        return ""


def _metrics(text: str) -> dict[str, float]:
    found: dict[str, float] = {}
    for line in text.splitlines():
        name, _, value = line.rpartition(" ")
        name = name.partition("{")[0]
        if name.startswith("turb_kub_"):
            found[name] = found.get(name, 0.0) + float(value)
    return found


async def _run(options: argparse.Namespace, plane: ControlPlane) -> list[Outcome]:
    outcomes = []
    async with Client(await load_credentials(str(plane.kubeconfig), None)) as client:
        bench = Bench(client, options.nodes, options.places, options.spare)
        await bench.make_nodes()
        limits: dict[str, Any] = {
            "clientConnection": {"kubeconfig": str(plane.kubeconfig), "qps": options.qps, "burst": 2 * options.qps}
        }
        with plane.kube_scheduler(**(limits if options.qps else {})) as theirs:
            for guard in options.guard:
                outcome = Outcome(guard)
                async with _turb_kub(plane, guard) as (ours, metrics):
                    for _ in range(options.rounds):
                        binds, seconds = await bench.round(ours, theirs.process)
                        outcome.binds += binds.binds()
                        outcome.overcommits += binds.overcommits()
                        outcome.seconds += seconds
                        outcome.meanwhile += binds.meanwhile()
                        outcome.later.append(binds.lasts.get(OURS, 0.0) - binds.lasts.get(THEIRS, 0.0))
                        print(f"guard {guard}: {dict(binds.overcommits())} of {dict(binds.binds())}", file=sys.stderr)
                    outcome.metrics = _metrics(_answer(metrics))
                outcomes.append(outcome)
                if options.output != "json":
                    print(outcome.line(), flush=True)
    return outcomes


def main() -> None:
    """Run the benchmark by the command line's options."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--guard", action="append", choices=["auto", "always", "never"], help="default: auto and never")
    parser.add_argument("--rounds", type=int, default=6)
    parser.add_argument("--nodes", type=int, default=60)
    parser.add_argument("--places", type=int, default=10, help="pods that fit a node")
    parser.add_argument("--spare", type=float, default=0.5, help="pods beyond the places there are, as a share of them")
    parser.add_argument(
        "--qps", type=int, default=0, help="kube-scheduler's requests a second, in bursts twice as many"
    )
    parser.add_argument("-o", "--output", choices=["table", "json"], default="table")
    options = parser.parse_args()
    options.guard = options.guard or ["auto", "never"]
    # As an exception, so that what was started is ended.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit("bench: ended by SIGTERM"))
    programs = find_programs(**WITH_SCHEDULER)
    with (
        tempfile.TemporaryDirectory(prefix="turb-kub-bench-") as folder,
        control_plane(Path(folder), programs) as plane,
    ):
        outcomes = asyncio.run(_run(options, plane))
    if options.output == "json":
        print(json.dumps([vars(outcome) for outcome in outcomes], indent=2))


if __name__ == "__main__":
    try:
        main()
    except (ApiError, msgspec.MsgspecError) as error:
        raise SystemExit(f"bench: {error}") from error
