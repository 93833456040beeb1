"""The scheduling queue, on a clock that the test turns."""

import pytest
from turb_kub.decision.filters import NODE_FILTERS, POD_FILTERS
from turb_kub.decision.filters.node_resources import FIT, LIMIT
from turb_kub.queue.queue import FLUSH_AFTER, SchedulingQueue
from turb_kub.queue.wakeups import Event

from tests.unit.objects import pod


def queue_of(*pods, now=0.0):
    queue = SchedulingQueue()
    for number, one in enumerate(pods):
        queue.add(one, now + number)
    return queue


def popped(queue, now):
    found = queue.pop(now)
    return found.name if found else None


def refuse(queue, now, *filters):
    """Pop a pod and park it."""
    found = queue.pop(now)
    queue.unschedulable(found.uid, frozenset(filters), now)
    return found


def test_priority_goes_first_then_age():
    queue = queue_of(pod("old"), pod("young"), pod("urgent", spec={"priority": 5}))
    assert [popped(queue, 9) for _ in range(4)] == ["urgent", "old", "young", None]


def test_a_pod_stays_known_while_it_is_decided_and_is_not_given_out_twice():
    queue = queue_of(pod("p"))
    assert popped(queue, 0) == "p"
    queue.add(pod("p"), 0)
    assert popped(queue, 0) is None
    assert queue.counts()["active"] == 1


@pytest.mark.parametrize(
    ("filters", "event", "wakes"),
    [
        ({FIT}, Event.ROOM_FREED, True),
        ({LIMIT}, Event.ROOM_FREED, True),
        ({LIMIT}, Event.NODE_CHANGED, True),
        ({"NodeAffinity"}, Event.ROOM_FREED, False),
        ({"NodeAffinity"}, Event.NODE_ADDED, True),
        ({"TaintToleration"}, Event.NODE_CHANGED, True),
        ({"NodeAffinity", FIT}, Event.ROOM_FREED, True),
        ({"PodSpecFields"}, Event.NODE_ADDED, False),
        ({"PodSpecFields"}, Event.ROOM_FREED, False),
        ({"NodePorts"}, Event.ROOM_FREED, True),
        (set(), Event.NODE_ADDED, True),
        (set(), Event.ROOM_FREED, False),
    ],
)
def test_only_an_event_that_could_help_wakes_a_pod(filters, event, wakes):
    queue = queue_of(pod("p"))
    refuse(queue, 0, *filters)
    assert queue.wake(event, 100) == int(wakes)
    assert popped(queue, 100) == ("p" if wakes else None)


@pytest.mark.parametrize("one", [*NODE_FILTERS, *POD_FILTERS], ids=lambda one: one.name)
def test_every_filter_has_its_wake_up(one):
    queue = queue_of(pod("p"))
    refuse(queue, 0, one.name)
    assert queue.wake(Event.NODE_ADDED, 100) == 1


def test_backoff_doubles_from_one_second_to_ten_and_gives_way_to_active_pods():
    queue = queue_of(pod("p"))
    now, waits = 0.0, []
    for _ in range(6):
        refuse(queue, now, FIT)
        queue.wake(Event.ROOM_FREED, now)
        assert queue.counts()["backoff"] == 1
        # While another pod is active, the one in backoff is not due until its time is over.
        wait = 0.0
        while True:
            queue.add(pod("other", uid=f"other-{now}-{wait}"), now - 100)
            first = queue.pop(now + wait)
            queue.remove(first.uid)
            if queue.counts()["backoff"] == 0:
                break
            wait += 0.5
        waits.append(wait)
        now += wait
    assert waits == [1, 2, 4, 8, 10, 10]


def test_with_nothing_else_to_do_backoff_does_not_wait():
    queue = queue_of(pod("p"))
    refuse(queue, 0, FIT)
    queue.wake(Event.ROOM_FREED, 0.1)
    assert queue.due_in(0.1) == 0
    assert popped(queue, 0.1) == "p"


def test_after_an_error_a_pod_does_wait():
    queue = queue_of(pod("p"))
    queue.pop(0)
    queue.retry("uid-default-p", 0)
    assert popped(queue, 0.5) is None
    assert queue.due_in(0.5) == 0.5
    assert popped(queue, 1) == "p"


def test_retry_after_is_kept_to():
    queue = queue_of(pod("p"))
    queue.pop(0)
    queue.retry("uid-default-p", 0, after=30)
    assert popped(queue, 29) is None
    assert popped(queue, 30) == "p"


def test_a_pod_that_was_only_misjudged_is_due_at_once_and_owes_no_backoff():
    queue = queue_of(pod("p"))
    queue.pop(0)
    queue.retry_at_once("uid-default-p")
    assert popped(queue, 0) == "p"
    assert queue.attempts("uid-default-p") == 1


def test_gates_hold_a_pod_until_they_are_gone():
    gates = {"schedulingGates": [{"name": "g"}]}
    queue = queue_of(pod("p", spec=gates))
    assert popped(queue, 0) is None
    assert queue.counts() == {"active": 0, "backoff": 0, "unschedulable": 0, "gated": 1}
    queue.add(pod("p"), 1)
    assert popped(queue, 1) == "p"


def test_a_parked_pod_that_asks_less_is_tried_again_and_one_with_a_new_condition_is_not():
    queue = queue_of(pod("p", memory="4Gi"))
    refuse(queue, 0, FIT)
    condition = {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]}
    queue.add(pod("p", memory="4Gi", status=condition), 1)
    assert popped(queue, 1) is None
    queue.add(pod("p", memory="1Gi"), 1)
    assert popped(queue, 1) == "p"


def test_an_older_state_of_a_pod_is_ignored():
    queue = queue_of(pod("p", memory="1Gi", version=900))
    queue.add(pod("p", memory="2Gi", version=899), 1)
    assert queue.pop(1).memory == 2**30


def test_the_version_of_our_own_write_moves_forward_only():
    queue = queue_of(pod("p", version=900))
    queue.seen_version("uid-default-p", 905)
    queue.seen_version("uid-default-p", 903)
    assert queue.get("uid-default-p").resource_version == 905


def test_the_slow_flush_counts_what_only_it_rescued():
    queue = queue_of(pod("p"), pod("q"))
    refuse(queue, 2, FIT)
    refuse(queue, 2, FIT)
    assert queue.flush(2 + FLUSH_AFTER - 1) == 0
    assert queue.flush(2 + FLUSH_AFTER) == 2
    queue.pop(400)
    queue.placed("uid-default-p")
    assert queue.rescued_by_flush == 1
    found = queue.pop(400)
    queue.unschedulable(found.uid, frozenset({FIT}), 400)
    queue.wake(Event.ROOM_FREED, 500)
    queue.pop(500)
    queue.placed(found.uid)
    assert queue.rescued_by_flush == 1


def test_a_pod_that_is_gone_is_not_given_out():
    queue = queue_of(pod("p"))
    queue.remove("uid-default-p")
    assert popped(queue, 0) is None
    assert len(queue) == 0
    for action in (queue.retry_at_once, queue.remove, queue.placed):
        action("uid-default-p")
    queue.retry("uid-default-p", 0)
    queue.unschedulable("uid-default-p", frozenset({FIT}), 0)
    assert queue.due_in(1000) is None
