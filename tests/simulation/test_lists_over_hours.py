"""What the scheduler asks of the API server in hours in which nothing happens: watches, and the self-check's lists.

Lists are what costs an API server most. After the start there are two reasons for one (`turb_kub.loop.self_check`,
`turb_kub.api.reflector`): the comparison of nodes and pods with the cache every ten minutes or so, and a watch that the
server no longer serves from where it ended.
"""

import pytest
from turb_kub.api.errors import Unreachable

from tests.simulation.world import World
from tests.unit.objects import wire_node, wire_pod

WATCHED = {
    "nodes",
    "namespaces",
    "pods",
    "persistentvolumes",
    "persistentvolumeclaims",
    "storageclasses",
    "csinodes",
    "volumeattachments",
    "csidrivers",
    "csistoragecapacities",
}
MINUTE, HOURS = 60.0, 6
#: Before the first self-check can be.
QUIET = 7 * MINUTE


@pytest.fixture
def world(monkeypatch):
    """Pods that are placed, others that fit nowhere, and all of that told."""
    made = World(monkeypatch)
    for name in ("n1", "n2"):
        made.server.put("nodes", wire_node(name, memory="1000Mi"))
    for number in range(10):
        made.server.put("pods", wire_pod(f"p{number}", memory="100Mi"))
        made.server.put("pods", wire_pod(f"w{number}", memory="9000Mi"))
    made.start()
    made.run()
    assert lists(made) == dict.fromkeys(WATCHED, 1)
    assert made.server.requests["PATCH", "pods/status"] == 10
    assert made.server.requests["POST", "events"] == 20
    made.forget_counts()
    yield made
    made.end()


def lists(world):
    return {resource: count for (verb, resource), count in world.server.requests.items() if verb == "GET"}


def end_watches(world, *kinds, broken=False):
    """End watches in order, as a server does every few minutes, or as a connection that is lost."""

    async def end():
        if broken:
            raise Unreachable("connection lost")

    for kind in kinds:
        stream = world.server.streams[kind]
        stream.end = end
        stream.more.set()


def test_at_first_there_is_nothing_at_all_to_ask(world):
    world.run(QUIET)
    assert not world.server.requests


@pytest.mark.parametrize("broken", [False, True], ids=["in order", "by a loss"])
def test_watches_that_end_are_taken_up_without_a_list(world, broken):
    for _ in range(6):
        end_watches(world, *WATCHED, broken=broken)
        world.run(MINUTE)
    assert world.server.requests == {("WATCH", kind): 6 for kind in WATCHED}


@pytest.mark.parametrize("kind", ["nodes", "pods"])
def test_a_watch_that_is_too_old_costs_one_list_of_that_resource_alone(world, kind):
    # Something newer than what the watch has told, which is gone from the server's history.
    world.server.held.add(kind)
    world.server.put("nodes", wire_node("n3", memory="10Mi"))
    world.server.put("pods", wire_pod("other", node="n1", memory="1Mi", scheduler="default-scheduler"))
    world.server.compact(kind)
    world.server.held.clear()
    end_watches(world, kind)
    world.run(MINUTE)
    assert lists(world) == {kind: 1}
    assert world.server.requests["WATCH", kind] == 2  # the one that was refused, and the one from the list on


def test_in_hours_only_nodes_and_pods_are_listed_every_ten_minutes_or_so_and_nothing_is_written(world):
    for _ in range(HOURS * 12):
        end_watches(world, *WATCHED)
        world.run(5 * MINUTE)
    found = lists(world)
    assert set(found) == {"nodes", "pods"}
    assert abs(found["nodes"] - found["pods"]) <= 1  # one check may be under way
    # Six an hour, give or take a fifth.
    assert HOURS * 5 <= found["pods"] <= HOURS * 7.5
    assert {verb for verb, _ in world.server.requests} == {"GET", "WATCH"}
