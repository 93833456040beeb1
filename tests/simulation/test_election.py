"""Two replicas and one lease, on a simulated clock: one binds, and the other as soon as it may, never both.

Everything above the wire is the real thing. The server audits each binding as it takes effect: its sender holds the
lease. And at every step at most one process takes itself for the active one.
"""

import itertools
import logging
import re
from collections import deque
from typing import Any

import msgspec
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule, run_state_machine_as_test
from turb_kub.loop.election import LeaseLost
from turb_kub.settings import Settings

from tests.simulation.replicas import Replicas
from tests.simulation.server import Fate
from tests.unit.objects import wire_node, wire_pod

CHOSEN = Settings(node_mem_limit_mb=1500 * 2**20, binds_in_flight=3, leader_elect=True)
#: Each bind has a read before it, and so a moment in which the process may stop.
GUARDED = msgspec.structs.replace(CHOSEN, shared_node_guard="always")
DURATION, DEADLINE, PERIOD = 15.0, 10.0, 2.0
#: In which a standby looks at the lease at least once: the retry period with its longest jitter, and a request.
LOOK = 2.2 * PERIOD + 0.1
HOUR = 3600.0


@pytest.fixture
def two():
    made = Replicas(CHOSEN)
    for name in ("n1", "n2"):
        made.server.put("nodes", wire_node(name, memory="1000Mi"))
    yield made
    assert not made.server.violations
    made.close()


def make_pods(world, *names, memory="300Mi"):
    for name in names:
        world.server.put("pods", wire_pod(name, uid=f"uid-{name}-{world.server.version}", memory=memory))


def unplaced(world):
    return sorted(pod["metadata"]["name"] for pod in world.server.waiting())


def spec_of(world):
    return world.server.leases["turb-kub"]["spec"]


def renewed_at(world):
    return world.server.lease_writes[-1][0]


def foreign(**spec: Any) -> Any:
    return {"metadata": {"name": "turb-kub", "namespace": "kube-system", "uid": "theirs"}, "spec": spec}


# Who leads


def test_one_replica_takes_the_lease_and_alone_places_pods(two):
    leader = two.until_one_leads()
    make_pods(two, "p1", "p2")
    two.run(5.0)
    assert unplaced(two) == []
    spec = spec_of(two)
    assert (spec["holderIdentity"], spec["leaseDurationSeconds"]) == (leader.elector.identity, 15)
    assert spec["leaseTransitions"] == 0
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{6}Z", spec["renewTime"])
    assert spec["acquireTime"] <= spec["renewTime"]


def test_the_standby_knows_all_and_writes_nothing(two):
    two.until_one_leads()
    make_pods(two, "p1", "p2", "huge", memory="900Mi")
    two.run(30.0)
    standby = two.standby().scheduler
    assert standby.synced
    assert standby.cluster.pod_count == 2
    assert [pod.name for pod in standby.queue.pods()] == ["huge"]
    assert not standby.metrics.registry.get_sample_value("scheduler_schedule_attempts_total")
    # The server's audit (`two`) has seen no write of it.


def test_the_standby_keeps_nothing_of_pods_that_came_and_went(two):
    two.until_one_leads()
    make_pods(two, "huge", memory="5000Mi")  # is in its queue all the while
    for number in range(20):
        # Labels of its own, as the pod of a Job has.
        two.server.put("pods", wire_pod("job", uid=f"u{number}", labels={"job-name": f"{number}"}, memory="100Mi"))
        two.run(3.0)
        assert two.server.pods["job"]["spec"].get("nodeName")
        two.server.delete("pods", "job")
        two.run(3.0)
    two.run(31.0)  # the slow flush takes what changed in the cluster
    standby = two.standby().scheduler
    assert (standby.cluster.pod_count, len(standby.queue)) == (0, 1)
    assert list(standby.cluster.changes.moved) == []


def test_the_active_one_writes_the_lease_once_a_period_and_the_other_reads_it_no_more_often(two):
    leader = two.until_one_leads()
    two.run(10.0)
    two.server.asked.clear()
    two.run(100.0)
    asked = [(who, verb) for who, verb, resource, _ in two.server.asked if resource == "leases"]
    ours = [verb for who, verb in asked if who == leader.elector.identity]
    theirs = [verb for who, verb in asked if who != leader.elector.identity]
    assert set(ours) == {"PUT"}
    assert 45 <= len(ours) <= 50
    assert set(theirs) == {"GET"}
    assert 20 <= len(theirs) <= 50


def test_that_a_kubelet_turned_a_pod_away_is_told_once(two):
    two.until_one_leads()
    make_pods(two, "p1")
    two.run(5.0)
    pod = two.server.pods["p1"]
    two.server.put("pods", pod | {"status": {"phase": "Failed", "reason": "OutOfmemory", "message": "no"}})
    two.run(5.0)
    assert [event["reason"] for event in two.server.events.values()] == ["Scheduled", "KubeletRejected"]


def test_the_metric_says_who_leads(two):
    leader = two.until_one_leads()

    def said(replica):
        registry = replica.scheduler.metrics.registry
        return registry.get_sample_value("leader_election_master_status", {"name": "turb-kub"})

    assert (said(leader), said(two.standby())) == (1.0, 0.0)


# How the lease changes hands


def test_after_a_clean_end_another_takes_over_at_once(two):
    leader = two.until_one_leads()
    two.run(5.0)
    leader.restarts = False
    leader.scheduler.stop()
    # No longer than it takes: the other one looks at the lease at a time of its own, which is random.
    for _ in range(50):
        two.run(0.01)
        if not spec_of(two)["holderIdentity"]:
            break
    assert spec_of(two) | {"acquireTime": "", "renewTime": ""} == {
        "holderIdentity": "",
        "leaseDurationSeconds": 1,
        "leaseTransitions": 0,
        "acquireTime": "",
        "renewTime": "",
    }
    make_pods(two, "p1")
    two.run(LOOK)
    assert unplaced(two) == []
    assert two.active[0] is not leader
    assert spec_of(two)["leaseTransitions"] == 1
    assert leader.ended_by is None


def test_the_lease_is_not_given_up_before_the_last_binding_has_ended(two):
    leader = two.until_one_leads()
    two.server.fates["pods/binding"] = deque([Fate.AT_THE_END])
    make_pods(two, "p1")
    two.run(0.5)
    leader.restarts = False
    leader.scheduler.stop()
    two.run(3.0)
    assert two.active == [leader]
    two.run(LOOK + 3.0)
    assert leader.ended_by is None
    assert len(two.active) == 1
    assert unplaced(two) == []
    # The audit knows who held the lease when the binding took effect.


def test_after_a_kill_another_takes_over_once_the_lease_has_run_out_and_not_before(two):
    leader = two.until_one_leads()
    two.run(7.0)
    leader.restarts = False
    leader.kill()
    last = renewed_at(two)
    make_pods(two, "p1")
    two.run(last + DURATION - 0.01 - two.now)
    assert two.active == []
    assert unplaced(two) == ["p1"]
    # It saw the last renewal up to a look later, and looks again up to a look after the lease has run out.
    two.run(2 * LOOK)
    assert len(two.active) == 1
    assert unplaced(two) == []
    assert spec_of(two)["leaseTransitions"] == 1


def test_take_over_costs_no_list(two):
    leader = two.until_one_leads()
    standby = two.standby()
    leader.client.cut_off = True
    make_pods(two, "p1", "p2", "p3")
    two.server.asked.clear()
    two.run(40.0)
    assert standby.active
    assert unplaced(two) == []
    mine = [query for who, verb, _, query in two.server.asked if who == standby.elector.identity and verb == "GET"]
    assert not [query for query in mine if "limit" in query and "fieldSelector" not in query]


def test_what_the_one_before_bound_counts_although_the_watch_has_not_told_of_it(two):
    leader = two.until_one_leads()
    standby = two.standby()
    two.server.delete("nodes", "n2")
    make_pods(two, "first", memory="500Mi")
    two.run(1.0)
    make_pods(two, "waits", memory="900Mi")
    two.run(12.0)
    leader.paused_until = two.now + 1.0
    two.server.delete("pods", "first")
    two.run(0.1)
    standby.client.held.add("pods")
    two.server.put("pods", wire_pod("urgent", memory="900Mi", spec={"priority": 10}))
    two.run(3.0)
    assert unplaced(two) == ["waits"]
    leader.restarts = False
    leader.scheduler.stop()
    # As the standby knows it the node is empty: of the pod that took it it has not heard. The audit looks on.
    two.run(20.0)
    assert standby.active
    assert unplaced(two) == ["waits"]
    assert "urgent" not in {pod.name for pod in standby.scheduler.queue.pods()}


# When the API server is away


def test_an_absence_shorter_than_the_renew_deadline_changes_nothing(two):
    leader = two.until_one_leads()
    two.run(6.0)
    for one in two.replicas:
        one.client.cut_off = True
    two.run(renewed_at(two) + DEADLINE - 2.5 - two.now)
    for one in two.replicas:
        one.client.cut_off = False
    two.run(1.0 + PERIOD)
    assert two.active == [leader]
    make_pods(two, "p1")
    two.run(5.0)
    assert unplaced(two) == []
    assert spec_of(two)["leaseTransitions"] == 0


def test_a_longer_one_stops_the_binding_and_ends_the_process(two):
    leader = two.until_one_leads()
    two.run(6.0)
    last = renewed_at(two)
    leader.client.cut_off = True
    two.run(last + DEADLINE - 0.1 - two.now)
    assert leader.active
    two.run(0.1 + 0.1)
    assert not leader.active
    leader.client.cut_off = False
    make_pods(two, "p1")
    two.run(0.4)
    assert unplaced(two) == ["p1"]
    assert isinstance(leader.ended_by, LeaseLost)
    assert str(leader.ended_by) == "the lease kube-system/turb-kub could not be renewed for 10 s: connection lost"
    two.run(DURATION)
    assert unplaced(two) == []


def test_the_last_binding_before_the_deadline_has_ended_before_the_lease_can_be_anothers(two):
    leader = two.until_one_leads()
    two.run(6.0)
    last = renewed_at(two)
    leader.client.cut_off_from.add("leases")
    two.run(last + DEADLINE - 0.1 - two.now)
    two.server.fates["pods/binding"] = deque([Fate.AT_THE_END])
    make_pods(two, "p1")
    two.run(0.05)
    assert [verb for who, verb, resource, _ in two.server.asked if resource == "pods/binding"] == ["POST"]
    two.run(last + DURATION - 0.5 - two.now)
    assert unplaced(two) == []


def test_the_deadline_counts_from_when_a_slow_renewal_was_sent(two):
    leader = two.until_one_leads()
    two.run(6.0)
    two.standby().client.cut_off = True  # so that it does not meet the slow request
    before = renewed_at(two)
    two.server.fates["leases"] = deque([Fate.SLOW])
    while renewed_at(two) == before:
        two.run(0.05)
    sent_at = renewed_at(two) - 2.0
    two.run(2.5)  # answered by now
    leader.client.cut_off = True
    two.run(sent_at + DEADLINE - 0.1 - two.now)
    assert leader.active
    two.run(0.2)
    assert not leader.active


def test_a_process_that_stood_still_for_long_binds_no_more(two):
    leader = two.until_one_leads()
    two.run(6.0)
    leader.paused_until = two.now + 60.0
    make_pods(two, "p1")
    two.run(59.0)
    assert unplaced(two) == []
    make_pods(two, "p2")
    two.run(10.0)
    assert isinstance(leader.ended_by, LeaseLost)
    assert unplaced(two) == []


def test_a_binding_that_was_prepared_before_a_long_standstill_is_not_sent_after_it():
    world = Replicas(GUARDED, count=1)
    world.server.put("nodes", wire_node("n1", memory="1000Mi"))
    leader = world.until_one_leads()
    world.run(3.0)
    make_pods(world, "p1")
    while not read_before_bind(world, leader):
        world.run(0.0005)
    leader.restarts = False
    leader.paused_until = world.now + 60.0
    world.run(70.0)
    # The server's audit says so too where it was sent; nobody else was there to bind it.
    assert unplaced(world) == ["p1"]
    assert isinstance(leader.ended_by, LeaseLost)
    assert not world.server.violations
    world.close()


def read_before_bind(world, replica):
    return [
        query for who, _, _, query in world.server.asked if who == replica.elector.identity and "fieldSelector" in query
    ]


@pytest.mark.parametrize("fate", [Fate.UNANSWERED, Fate.FAILS_AFTER, Fate.LATE, Fate.LOST, Fate.THROTTLED])
def test_a_renewal_whose_answer_is_lost_is_no_loss(two, fate):
    leader = two.until_one_leads()
    two.run(6.0)
    two.server.fates["leases"] = deque([fate, Fate.ANSWERED, Fate.ANSWERED, Fate.ANSWERED, Fate.ANSWERED])
    two.run(40.0)
    assert two.active == [leader]
    assert spec_of(two)["leaseTransitions"] == 0


# What others do to the lease


def test_a_label_on_the_lease_stays_and_disturbs_nobody(two):
    leader = two.until_one_leads()
    for _ in range(20):
        two.server.label_lease()
        two.run(1.3)
    assert two.active == [leader]
    assert two.server.leases["turb-kub"]["metadata"]["labels"]


def test_labels_do_not_keep_a_dead_holder_alive(two):
    leader = two.until_one_leads()
    two.run(6.0)
    leader.restarts = False
    leader.kill()
    for _ in range(25):
        two.server.label_lease()
        two.run(1.0)
    assert len(two.active) == 1


def test_the_holder_makes_a_deleted_lease_anew_and_the_other_waits(two):
    leader = two.until_one_leads()
    two.run(6.0)
    for _ in range(5):
        two.server.leases.clear()
        two.run(6.0)
        assert two.active == [leader]
        assert spec_of(two)["holderIdentity"] == leader.elector.identity


def test_one_that_comes_to_a_deleted_lease_of_a_dead_holder_waits_as_long_as_it_would_have_held(two):
    leader = two.until_one_leads()
    two.run(6.0)
    leader.restarts = False
    leader.kill()
    two.server.leases.clear()
    two.run(DURATION - PERIOD - 2.1)
    assert two.active == []
    two.run(10.0)
    assert len(two.active) == 1


@pytest.mark.parametrize("deleted_first", [False, True])
def test_a_holder_that_finds_another_in_the_lease_ends(two, deleted_first):
    leader = two.until_one_leads()
    two.run(6.0)
    if deleted_first:
        two.server.leases.clear()
        two.server.put_lease(foreign(holderIdentity="somebody", leaseDurationSeconds=15))
    else:
        lease = two.server.leases["turb-kub"]
        two.server.put_lease(lease | {"spec": lease["spec"] | {"holderIdentity": "somebody"}})
    two.run(PERIOD + 0.2)
    assert str(leader.ended_by) == "the lease kube-system/turb-kub is held by somebody"
    assert two.active == []


@pytest.mark.parametrize(
    ("spec", "wait"),
    [
        ({"holderIdentity": "somebody", "leaseDurationSeconds": 40, "leaseTransitions": 7}, 40.0),
        ({"holderIdentity": "somebody", "leaseDurationSeconds": 3}, 3.0),
        ({"holderIdentity": "somebody", "renewTime": "2199-01-01T00:00:00.000000Z"}, DURATION),
        ({"holderIdentity": "somebody", "leaseDurationSeconds": -5, "leaseTransitions": "many"}, DURATION),
        ({"holderIdentity": "", "leaseDurationSeconds": 40}, 0.0),
        ({"holderIdentity": None, "strategy": "OldestEmulationVersion"}, 0.0),
        ({}, 0.0),
    ],
)
def test_a_lease_of_others_is_kept_to_for_as_long_as_it_says_by_our_own_clock(spec, wait):
    world = Replicas(CHOSEN, count=1)
    world.server.put_lease(foreign(**spec))
    # The first look is some ms after the start, the next ones up to a look later.
    world.run(wait)
    assert not world.active
    world.run(LOOK)
    assert world.active
    written = world.server.leases["turb-kub"]["spec"]
    assert written["leaseTransitions"] == (8 if spec.get("leaseTransitions") == 7 else 1)
    assert written.get("strategy") == spec.get("strategy")
    assert written["leaseDurationSeconds"] == 15
    world.close()


def test_a_lease_without_a_spec_is_nobodys():
    world = Replicas(CHOSEN, count=1)
    world.server.leases["turb-kub"] = {"metadata": foreign()["metadata"] | {"resourceVersion": "7"}}
    world.run(1.0)
    assert world.active
    world.close()


def test_an_election_that_stands_still_is_stuck_and_one_that_tries_in_vain_is_not(two):
    leader = two.until_one_leads()
    standby = two.standby()
    standby.client.cut_off = True
    for _ in range(60):
        two.run(1.0)
        assert not leader.elector.stuck
        assert not standby.elector.stuck
    leader.paused_until = two.now + HOUR
    two.run(DURATION + 15.0)
    assert not leader.elector.stuck
    two.run(10.0)
    assert leader.elector.stuck
    assert not standby.elector.stuck


# Any order of all that

PODS = [f"p{number}" for number in range(1, 9)]
SECONDS = st.sampled_from([0.0015, 0.01, 0.1, 0.5, 2.1, 4.9, 9.9, 14.9, 15.2, 31.0])
WHO = st.integers(0, 1)
FATES = st.lists(st.sampled_from(Fate), min_size=1, max_size=6)


class Elections(RuleBasedStateMachine):
    """Two replicas, and all that may happen to them."""

    def __init__(self) -> None:
        super().__init__()
        self.world = Replicas(GUARDED)
        self.numbers = itertools.count()

    @initialize(seed=st.integers(0, 999))
    def nodes_are_there(self, seed: int) -> None:
        self.world.server.random.seed(seed)
        for name in ("n1", "n2"):
            self.world.server.put("nodes", wire_node(name, memory="1000Mi"))

    @rule(names=st.lists(st.sampled_from(PODS), min_size=1, unique=True), memory=st.sampled_from(["300Mi", "900Mi"]))
    def pods_are_made(self, names: list[str], memory: str) -> None:
        server = self.world.server
        for name in names:
            if name in server.pods:
                server.delete("pods", name)
            server.put("pods", wire_pod(name, uid=f"{name}-{next(self.numbers)}", memory=memory))

    @rule(seconds=SECONDS)
    def time_passes(self, seconds: float) -> None:
        self.world.run(seconds)

    @rule(resource=st.sampled_from(["leases", "leases", "pods/binding", "pods"]), fates=FATES)
    def next_requests_meet(self, resource: str, fates: list[Fate]) -> None:
        self.world.server.fates.setdefault(resource, deque()).extend(fates)

    @rule(who=WHO, seconds=SECONDS)
    def a_process_stands_still(self, who: int, seconds: float) -> None:
        if self.world.replicas[who].runs:
            self.world.replicas[who].paused_until = self.world.now + seconds

    @rule(who=WHO)
    def a_process_is_killed(self, who: int) -> None:
        if self.world.replicas[who].runs:
            self.world.replicas[who].kill()

    @rule(who=WHO)
    def a_process_is_asked_to_end(self, who: int) -> None:
        if self.world.replicas[who].runs:
            self.world.replicas[who].scheduler.stop()

    @rule(who=WHO, cut_off=st.booleans())
    def a_process_is_cut_off_or_back(self, who: int, cut_off: bool) -> None:
        self.world.replicas[who].client.cut_off = cut_off

    @rule(held=st.booleans())
    def watches_lag_or_catch_up(self, held: bool) -> None:
        if held:
            self.world.server.held.add("pods")
        else:
            self._release()

    @rule()
    def somebody_labels_the_lease(self) -> None:
        self.world.server.label_lease()

    @invariant()
    def nothing_forbidden_was_done(self) -> None:
        assert not self.world.server.violations, self.world.server.violations

    def _release(self) -> None:
        self.world.server.held.discard("pods")
        self.world.server.wake("pods")

    def teardown(self) -> None:
        try:
            self.world.server.fates.clear()
            self._release()
            for one in self.world.replicas:
                one.client.cut_off, one.paused_until = False, 0.0
            self.world.run(120.0)
            self.nothing_forbidden_was_done()
            assert len(self.world.active) == 1
            server = self.world.server
            for pod in server.waiting():
                assert all(server.refusals(pod, name) for name in server.nodes), "fits and was not placed"
            assert len(server.bound_by_us) == len(set(server.bound_by_us))
        finally:
            self.world.close()


def test_never_do_two_replicas_bind_and_in_the_end_all_that_fits_is_placed():
    logging.disable(logging.ERROR)
    try:
        run_state_machine_as_test(
            Elections,
            settings=settings(
                max_examples=100,
                stateful_step_count=25,
                deadline=None,
                report_multiple_bugs=False,
                suppress_health_check=list(HealthCheck),
            ),
        )
    finally:
        logging.disable(logging.NOTSET)
