"""The schedulers that are compared, each as a process of its own against the same API server.

Each takes part in an election, so that it can be made to wait: it knows all nodes and pods and places nothing while
somebody else holds the lease. That is how either runs as a Deployment, and it costs a write of the lease now and then.
"""

import subprocess
import sys
import urllib.request
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from typing import Any

from tests.cluster.control_plane import ControlPlane, Process, end_with_parent, free_ports

#: Seconds, as settings of either. Long, so that a machine that is busy ends no election; the retry period is short, so
#: that the lease is soon taken when it is given up.
LEASE, RENEW, RETRY = 600, 300, 0.5
CEILING, CEILING_WITH_EVENTS = "ceiling", "ceiling with events"


@dataclass(frozen=True)
class PythonProgram:
    """A program of this environment: turb-kub, or one of the benchmark's own.

    A program of the benchmark's own has no HTTP port: it writes a line when it is ready.

    Attributes:
        scheduler_name: of the pods that it takes.
        largest: most nodes that it is asked to handle; 0: any number.
        events_of_election: that it writes beside those about pods.
    """

    name: str
    module: str
    arguments: tuple[str, ...] = ()
    scheduler_name: str = "turb-kub"
    largest: int = 0
    events_of_election: int = 0

    @contextmanager
    def run(self, plane: ControlPlane, lease: str) -> Iterator[Process]:
        """Start it as a candidate for a lease. It has read all that there is when the block is entered."""
        (port,) = free_ports(1)
        words = self.module.split()
        command = [sys.executable, "-m", *words, "--kubeconfig", str(plane.kubeconfig), "--lease-name", lease]
        if words[0] == "turb_kub":
            command += [
                *("--http-port", str(port)),
                *("--leader-elect", "true"),
                *("--lease-duration-seconds", str(LEASE)),
                *("--renew-deadline-seconds", str(RENEW)),
                *("--retry-period-seconds", str(RETRY)),
            ]
        log = plane.folder / f"{self.name}.log".replace(" ", "-")
        with log.open("wb") as output:
            process = subprocess.Popen(
                [*command, *self.arguments],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                preexec_fn=end_with_parent,  # noqa: PLW1509 - it makes one system call
            )
        running = Process(self.name, process, log)
        try:
            if words[0] == "turb_kub":
                running.wait_until(lambda: _answers(f"http://127.0.0.1:{port}/readyz"))
            else:
                running.wait_until(lambda: b"ready" in log.read_bytes())
            yield running
        finally:
            process.terminate()
            process.wait()


@dataclass(frozen=True)
class KubeScheduler:
    """The real one, with the client's limits out of the way, and one profile or its default one."""

    name: str
    profile: Mapping[str, Any] | None = None
    scheduler_name: str = "default-scheduler"
    largest: int = 0
    #: It writes one when it takes the lease.
    events_of_election: int = 1

    def run(self, plane: ControlPlane, lease: str) -> AbstractContextManager[Process]:
        """Start it, as above."""
        election = {
            "leaderElect": True,
            "resourceName": lease,
            "resourceNamespace": "kube-system",
            "leaseDuration": f"{LEASE}s",
            "renewDeadline": f"{RENEW}s",
            "retryPeriod": f"{RETRY}s",
        }
        profiles = {} if self.profile is None else {"profiles": [dict(self.profile)]}
        (port,) = free_ports(1)
        return plane.kube_scheduler(self.name.replace(" ", "-"), port, leaderElection=election, **profiles)


#: Of all scores only the one that turb-kub has: free memory.
LEAST_ALLOCATED = {
    "schedulerName": "default-scheduler",
    "plugins": {"score": {"disabled": [{"name": "*"}], "enabled": [{"name": "NodeResourcesFit", "weight": 1}]}},
    "pluginConfig": [
        {
            "name": "NodeResourcesFit",
            "args": {
                "scoringStrategy": {"type": "LeastAllocated", "resources": [{"name": "memory", "weight": 1}]},
            },
        }
    ],
}

Contender = PythonProgram | KubeScheduler

OURS = PythonProgram("turb-kub", "turb_kub run")
THEIRS = KubeScheduler("kube-scheduler")
BEST = PythonProgram(CEILING_WITH_EVENTS, "bench.ceiling", ("--events",))
CONTENDERS: tuple[Contender, ...] = (
    OURS,
    THEIRS,
    PythonProgram("turb-kub with guard", "turb_kub run", ("--shared-node-guard", "always")),
    KubeScheduler("kube-scheduler least-allocated", LEAST_ALLOCATED),
    PythonProgram(CEILING, "bench.ceiling"),
    BEST,
    PythonProgram("demo", "bench.demo", largest=100),
)


def _answers(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5) as response:
            return bool(response.status == 200)
    except OSError:
        return False
