"""The schedulers that are compared, each as a process of its own against the same API server.

Each takes part in an election, so that it can be made to wait: it knows all nodes and pods and places nothing while
somebody else holds the lease. That is how either runs as a Deployment, and it costs a write of the lease now and then.
"""

import sys
from collections.abc import Iterator, Mapping
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.cluster.control_plane import ControlPlane, Process, answers, free_ports, running

#: Seconds, as settings of either. Long, so that a machine that is busy ends no election; the retry period is short, so
#: that the lease is soon taken when it is given up.
LEASE, RENEW, RETRY = 600, 300, 0.5
#: Of the control plane's programs the Python in which turb-kub runs; by default this one.
PYTHON = "python"
#: Where the benchmark's own programs are found.
CHECKOUT = Path(__file__).resolve().parent.parent
CEILING, CEILING_WITH_EVENTS = "ceiling", "ceiling with events"


@dataclass(frozen=True)
class _Module:
    """A module that runs in turb-kub's Python and takes its pods.

    Attributes:
        flags: besides those that each has.
        scheduler_name: of the pods that it takes.
        largest: most nodes that it is asked to handle; 0: any number.
        events_of_election: that it writes beside those about pods.
    """

    name: str
    flags: tuple[str, ...] = ()
    scheduler_name: str = "turb-kub"
    largest: int = 0
    events_of_election: int = 0


@dataclass(frozen=True)
class TurbKub(_Module):
    """turb-kub as it is shipped."""

    @contextmanager
    def run(self, plane: ControlPlane, lease: str) -> Iterator[Process]:
        """Start it as a candidate for a lease. It has read all that there is when the block is entered."""
        (port,) = free_ports(1)
        flags = (
            *("--http-port", str(port)),
            *("--leader-elect", "true"),
            *("--lease-duration-seconds", str(LEASE)),
            *("--renew-deadline-seconds", str(RENEW)),
            *("--retry-period-seconds", str(RETRY)),
            *self.flags,
        )
        with _running_module(self.name, ("turb_kub", "run"), plane, lease, flags) as process:
            process.wait_until(lambda: answers(f"http://127.0.0.1:{port}/readyz"))
            yield process


@dataclass(frozen=True)
class OwnProgram(_Module):
    """A program of the benchmark's own. It writes a line when it is ready."""

    module: str = field(kw_only=True)

    @contextmanager
    def run(self, plane: ControlPlane, lease: str) -> Iterator[Process]:
        """Start it, as above."""
        with _running_module(self.name, (self.module,), plane, lease, self.flags) as process:
            process.wait_until(lambda: b"ready" in process.log.read_bytes())
            yield process


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

Contender = TurbKub | OwnProgram | KubeScheduler

OURS = TurbKub("turb-kub")
THEIRS = KubeScheduler("kube-scheduler")
BEST = OwnProgram(CEILING_WITH_EVENTS, ("--events",), module="bench.ceiling")
CONTENDERS: tuple[Contender, ...] = (
    OURS,
    THEIRS,
    TurbKub("turb-kub with guard", ("--shared-node-guard", "always")),
    KubeScheduler("kube-scheduler least-allocated", LEAST_ALLOCATED),
    OwnProgram(CEILING, module="bench.ceiling"),
    BEST,
    OwnProgram("demo", module="bench.demo", largest=100),
)


def _running_module(
    name: str, module: tuple[str, ...], plane: ControlPlane, lease: str, flags: tuple[str, ...]
) -> AbstractContextManager[Process]:
    where = ("--kubeconfig", str(plane.kubeconfig), "--lease-name", lease)
    python = plane.programs.get(PYTHON, sys.executable)
    return running(name.replace(" ", "-"), [python, "-m", *module, *where, *flags], plane.folder, CHECKOUT)
