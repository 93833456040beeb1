"""Pods that the kubelet turned away: counted, told, and their node avoided for pods of the same shape for a while.

A cool-down begins at `FIRST` seconds and doubles, up to `LONGEST`, each time the node turns such a pod away again after
it; where it did not for `LONGEST` seconds, the next one begins anew. Pods that were turned away while a cool-down is in
force were bound before it and do not make it longer.
"""

import logging
from collections.abc import Callable

import msgspec

from turb_kub.cluster.cluster import Cluster
from turb_kub.loop.metrics import Metrics
from turb_kub.loop.reporter import Reporter
from turb_kub.loop.timers import Timers
from turb_kub.objects.pod import Pod, Shape

log = logging.getLogger(__name__)

#: Seconds.
FIRST = 10.0
LONGEST = 300.0


class _CoolDown(msgspec.Struct):
    """One node and shape. Times are seconds on the caller's clock."""

    shape: Shape
    node_name: str
    seconds: float
    until: float
    in_force: bool = True


class Rejections:
    """Starts cool-downs, and ends them by the timers."""

    def __init__(
        self,
        cluster: Cluster,
        reporter: Reporter,
        metrics: Metrics,
        clock: Callable[[], float],
        timers: Timers,
    ) -> None:
        self._cluster = cluster
        self._reporter = reporter
        self._metrics = metrics
        self._clock = clock
        self._known: dict[tuple[str, Shape], _CoolDown] = {}
        self._timers = timers

    def note(self, pod: Pod) -> None:
        """Take a pod that was bound by us and has just been seen to be turned away; to be called once for each."""
        rejection = pod.rejection
        if rejection is None:
            return
        now = self._clock()
        self._metrics.kubelet_rejections.labels(rejection.label).inc()
        cooling = self._cool_down(pod, rejection.reason, now)
        self._reporter.rejected(
            pod,
            f"{pod.node_name} turned the pod away: {rejection.reason or 'no reason given'} ({rejection.message}). "
            f"The node is avoided for pods like it for {cooling.until - now:.0f} s.",
        )

    def _cool_down(self, pod: Pod, reason: str, now: float) -> _CoolDown:
        key = (pod.node_name, pod.shape)
        before = self._known.get(key)
        if before is not None and before.in_force:
            return before
        seconds = FIRST if before is None else min(2 * before.seconds, LONGEST)
        cooling = self._known[key] = _CoolDown(pod.shape, pod.node_name, seconds, now + seconds)
        self._cluster.cooling.start(pod.shape, pod.node_name, reason)
        self._wait(cooling, cooling.until)
        log.warning(
            "node %s turned away pod %s (%s), and is avoided for pods like it for %.0f s",
            pod.node_name,
            pod.key,
            reason,
            seconds,
        )
        return cooling

    def _over(self, cooling: _CoolDown) -> None:
        """End a cool-down, and later forget that there was one."""
        if cooling.in_force:
            cooling.in_force = False
            self._cluster.cooling.end(cooling.shape, cooling.node_name)
            self._cluster.note_relief(cooling.node_name)
            self._wait(cooling, cooling.until + LONGEST)
        elif self._known.get((cooling.node_name, cooling.shape)) is cooling:
            del self._known[cooling.node_name, cooling.shape]

    def _wait(self, cooling: _CoolDown, until: float) -> None:
        self._timers.at(until, lambda _: self._over(cooling))
