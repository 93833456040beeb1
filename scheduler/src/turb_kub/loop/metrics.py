"""Metrics, by kube-scheduler's names where it has one of the same meaning, else with the prefix `turb_kub_`."""

from collections.abc import Callable, Iterator
from typing import Protocol

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric


class Metrics:
    """The counters of one scheduler, in a registry of its own so that tests and embedders can have several."""

    def __init__(self, profile: str) -> None:
        self.registry = CollectorRegistry()
        self._profile = profile
        self._by_request: dict[tuple[str, str, int], Counter] = {}
        self._by_result: dict[str, tuple[Counter, Histogram]] = {}
        self._attempts = Counter(
            "scheduler_schedule_attempts",
            "Attempts to place a pod, by result.",
            ["result", "profile"],
            registry=self.registry,
        )
        self._attempt_seconds = Histogram(
            "scheduler_scheduling_attempt_duration_seconds",
            "Seconds that an attempt took, the binding included.",
            ["result", "profile"],
            buckets=tuple(0.001 * 2**step for step in range(15)),
            registry=self.registry,
        )
        self.requests = Counter(
            "turb_kub_api_requests",
            "Requests to the API server, by verb, resource and HTTP status (0: no answer).",
            ["verb", "resource", "status"],
            registry=self.registry,
        )
        self.set_aside = Counter(
            "turb_kub_objects_set_aside",
            "Objects that could not be understood and were left as they were known.",
            ["kind"],
            registry=self.registry,
        )
        self.kubelet_rejections = Counter(
            "turb_kub_kubelet_rejections",
            "Pods placed by this scheduler that the kubelet turned away, by its reason.",
            ["reason"],
            registry=self.registry,
        )
        self.fresh_reads = Counter(
            "turb_kub_fresh_reads",
            "Lists of one node's pods right before a bind, because another scheduler fills it, by result.",
            ["result"],
            registry=self.registry,
        )
        self.conflicts_avoided = Counter(
            "turb_kub_conflicts_avoided",
            "Binds that were not sent because a fresh read found that others had taken the room.",
            registry=self.registry,
        )
        self.cache_differences = Counter(
            "turb_kub_cache_differences",
            "What the cache held otherwise than the API server, as a comparison with a list found.",
            ["kind"],
            registry=self.registry,
        )
        self.cache_checks = Counter(
            "turb_kub_cache_checks",
            "Comparisons of the cache with a fresh list, by result.",
            ["result"],
            registry=self.registry,
        )
        self.events_dropped = Counter(
            "turb_kub_events_dropped",
            "Kubernetes events that could not be written.",
            registry=self.registry,
        )

        self._leader = Gauge(
            "leader_election_master_status",
            "Whether this replica holds the lease of that name: 1, or 0 while it stands by.",
            ["name"],
            registry=self.registry,
        )

    def leads(self, lease: str, leading: Callable[[], bool]) -> None:
        """Have it read at collection time whether this replica holds a lease."""
        self._leader.labels(lease).set_function(lambda: float(leading()))

    def observe_request(self, verb: str, resource: str, status: int) -> None:
        # Found anew by its labels each time it would cost more than the counting.
        counter = self._by_request.get((verb, resource, status))
        if counter is None:
            counter = self._by_request[verb, resource, status] = self.requests.labels(verb, resource, str(status))
        counter.inc()

    def observe_attempt(self, result: str, seconds: float) -> None:
        """Count one attempt. `result` is scheduled, unschedulable or error."""
        found = self._by_result.get(result)
        if found is None:
            labels = result, self._profile
            found = self._by_result[result] = self._attempts.labels(*labels), self._attempt_seconds.labels(*labels)
        found[0].inc()
        found[1].observe(seconds)

    def watch(self, state: "State") -> None:
        """Have the state read whenever metrics are collected."""
        self.registry.register(_StateCollector(state))


class State(Protocol):
    """What is read at collection time rather than counted as it happens."""

    def pending_pods(self) -> dict[str, int]:
        """Pods that wait, by part of the queue."""

    def cache_size(self) -> dict[str, int]:
        """Nodes, pods and assumed pods known."""

    def scheduled_after_flush(self) -> int:
        """Pods that were placed only because the slow flush tried them again."""


class _StateCollector:
    def __init__(self, state: State) -> None:
        self._state = state

    def collect(self) -> Iterator[Metric]:
        pending = GaugeMetricFamily("scheduler_pending_pods", "Pods that wait, by part of the queue.", labels=["queue"])
        for part, count in self._state.pending_pods().items():
            pending.add_metric([part], count)
        yield pending
        cache = GaugeMetricFamily("scheduler_cache_size", "Nodes, pods and assumed pods known.", labels=["type"])
        for kind, count in self._state.cache_size().items():
            cache.add_metric([kind], count)
        yield cache
        yield CounterMetricFamily(
            "scheduler_pod_scheduled_after_flush",
            "Pods that were placed only because the slow flush tried them again: a missed event each.",
            value=self._state.scheduled_after_flush(),
        )
