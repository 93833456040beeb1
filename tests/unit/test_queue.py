"""The scheduling queue, on a clock that the test turns."""

import gc

from turb_kub.decision.filters.node_resources import FIT
from turb_kub.queue.queue import FLUSH_AFTER, Queued, SchedulingQueue

from tests.unit.objects import cluster_of, node, pod


def queue_of(*pods, now=0.0, cluster=None):
    queue = SchedulingQueue(cluster or cluster_of())
    for number, one in enumerate(pods):
        queue.add(one, now + number)
    return queue


def make_room(cluster):
    """Something that helps every pod that asks for no more than a whole new node."""
    cluster.set_node(node(f"new-{cluster.node_count}"))


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


def test_backoff_doubles_from_one_second_to_ten_and_gives_way_to_active_pods():
    cluster = cluster_of()
    queue = queue_of(pod("p"), cluster=cluster)
    now, waits = 0.0, []
    for _ in range(6):
        refuse(queue, now, FIT)
        make_room(cluster)
        queue.due_in(now)
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
    cluster = cluster_of()
    queue = queue_of(pod("p"), cluster=cluster)
    refuse(queue, 0, FIT)
    make_room(cluster)
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


def test_the_answer_to_our_own_write_moves_the_version_forward_only():
    queue = queue_of(pod("p", version=900))
    refuse(queue, 0, FIT)
    queue.update(pod("p", version=905))
    queue.update(pod("p", version=903))
    queue.update(pod("gone"))
    known = queue.get("uid-default-p")
    assert known is not None
    assert known.resource_version == 905
    assert len(queue) == 1
    assert popped(queue, 1) is None


def test_an_answer_that_shows_that_the_pod_asks_something_else_has_it_decided_afresh():
    queue = queue_of(pod("p", memory="1Gi", version=900))
    refuse(queue, 0, FIT)
    queue.update(pod("p", memory="2Gi", version=905))
    assert popped(queue, 1) == "p"


def test_the_slow_flush_tries_what_no_event_has_woken_and_counts_what_only_it_rescued():
    cluster = cluster_of(node("a"))
    queue = queue_of(pod("p"), pod("q"), cluster=cluster)
    cluster.changes.take()
    refuse(queue, 2, FIT)
    refuse(queue, 2, FIT)
    assert queue.due_in(3) is None  # both would fit, but nothing has happened
    assert queue.flush(2 + FLUSH_AFTER - 1) == 0
    assert queue.flush(2 + FLUSH_AFTER) == 2
    queue.pop(400)
    queue.placed("uid-default-p")
    assert queue.rescued_by_flush == 1
    refuse(queue, 400, FIT)
    make_room(cluster)
    queue.pop(500)
    queue.placed("uid-default-q")
    assert queue.rescued_by_flush == 1


def test_what_an_event_has_helped_is_no_rescue_of_the_slow_flush():
    cluster = cluster_of()
    queue = queue_of(pod("p"), pod("q"), cluster=cluster)
    refuse(queue, 2, FIT)
    refuse(queue, 2, FIT)
    make_room(cluster)
    queue.flush(2 + FLUSH_AFTER)
    for name in ("p", "q"):
        assert popped(queue, 400) == name
        queue.placed(f"uid-default-{name}")
    assert queue.rescued_by_flush == 0


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


def test_a_queue_that_nobody_takes_pods_from_does_not_keep_those_that_went():
    queue = queue_of(pod("first", spec={"priority": 5}))
    for number in range(5000):
        passing = pod(f"p{number}")
        queue.add(passing, number)
        queue.remove(passing.uid)
    assert sum(type(one) is Queued for one in gc.get_objects()) < 2000
    assert popped(queue, 9000) == "first"
    assert popped(queue, 9000) is None
