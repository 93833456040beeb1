"""Scripts for the hostile API server: what the double does to a running scheduler, by name.

A script is an asynchronous generator. Before its first `yield` the scheduler has not started; after it, it runs. A
script leaves the server in its right mind: what is wrong in the end must be wrong with the scheduler.
"""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import msgspec

from tests.api.double import KINDS, ApiDouble, answers, cuts_off, hangs, passes, redirects, says, streams
from tests.api.running import Token, until
from tests.unit.objects import wire_node, wire_pod

EVERY_CALL = (("POST", "pods/binding"), ("POST", "events"), ("PATCH", "pods/status"), ("GET", "pods/one"))
MEBIBYTE = 2**20


class Stage(msgspec.Struct):
    """What a script may touch."""

    double: ApiDouble
    token: Token
    #: Seconds by which the scheduler's clock is ahead.
    clock_ahead: float = 0.0


Script = Callable[[Stage], AsyncIterator[None]]


class Act(msgspec.Struct, frozen=True):
    """A script, and the times that it needs shorter than all scripts do: constants by dotted name, and settings."""

    script: Script
    waits: dict[str, float]
    settings: dict[str, Any]


ACTS: dict[str, Act] = {}


def act(**waits: float) -> Callable[[Script], Script]:
    """Put a script into the table. Keywords: constants with "__" for dots, below `turb_kub`; without, settings."""

    def add(script: Script) -> Script:
        constants = {name.replace("__", "."): value for name, value in waits.items() if "__" in name}
        settings = {name: value for name, value in waits.items() if "__" not in name}
        ACTS[script.__name__] = Act(script, constants, settings)
        return script

    return add


def line(kind_of_event: str, item: Any) -> bytes:
    return json.dumps({"type": kind_of_event, "object": item}).encode() + b"\n"


async def pods(double: ApiDouble, prefix: str, count: int = 3, **how: Any) -> None:
    for number in range(count):
        double.put("pods", wire_pod(f"{prefix}{number}", memory="1Mi", **how))


async def placed(double: ApiDouble, prefix: str, count: int = 3) -> None:
    await until(lambda: all(double.node_of(f"{prefix}{number}") for number in range(count)))


async def bound(double: ApiDouble, name: str) -> None:
    await until(lambda: double.node_of(name))


async def watched(double: ApiDouble, *kinds: str) -> None:
    await until(lambda: all(double.watchers(kind) for kind in kinds))


# Watches


@act()
async def watches_are_closed_after_each_event(stage: Stage) -> AsyncIterator[None]:
    yield
    for number in range(10):
        await watched(stage.double, *KINDS)
        stage.double.put("nodes", wire_node(f"n{number}"))
        stage.double.put("pods", wire_pod(f"p{number}"))
        for kind in KINDS:
            stage.double.close_watches(kind)


@act()
async def watches_are_closed_as_soon_as_they_are_opened(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[streams()] * 30)
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act()
async def watches_are_cut_in_the_middle_of_a_line(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[streams(b'{"type":"ADDED","object":{"metadata"', end="cut")] * 10)
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act(api__reflector__READ_TIMEOUT=0.1)
async def watches_stall_and_are_half_open(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[streams(end="stall")] * 3, *[hangs()] * 3)
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act(api__reflector__READ_TIMEOUT=0.1)
async def a_watch_stalls_in_the_middle_of_a_line(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[streams(b'{"type":"MODIF', end="stall")] * 3)
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act()
async def watches_answer_410_as_a_status(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[answers(410, "Expired"), answers(410, "Gone")] * 5)
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act()
async def watches_answer_410_as_an_event(stage: Stage) -> AsyncIterator[None]:
    gone = [{"kind": "Status", "code": 410, "reason": reason, "message": "too old"} for reason in ("Expired", "Gone")]
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[streams(line("ERROR", one), end="stall") for one in gone] * 5)
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act()
async def a_watch_that_only_ends_in_errors_is_passed_over_with_a_list(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, "pods")
    error = {"kind": "Status", "code": 500, "reason": "InternalError", "message": "cannot decode what is stored"}
    lists = stage.double.requests["GET", "pods"]
    # The place in the history at which every watch from before it breaks down.
    stage.double.fault("WATCH", "pods", *[streams(line("ERROR", error))] * 3)
    stage.double.close_watches("pods")
    stage.double.replace_unseen("pods", wire_pod("unseen"))
    await until(lambda: stage.double.requests["GET", "pods"] > lists)


@act()
async def lines_that_are_no_events(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    depth = b"[" * 5000 + b"]" * 5000
    for number, bad in enumerate(
        [
            b"{broken\n",
            b"[]\n",
            b"null\n",
            b'{"type":7,"object":{}}\n',
            b'{"type":"ADDED"}\n',
            b'{"type":"ADDED","object":{"metadata":{"name":"x","uid":"x"},"spec":NaN}}\n',
            b'{"type":"ADDED","object":{"metadata":{"name":"x","uid":"x"},"spec":' + depth + b"}}\n",
            b"\xff\xfe\x00\n",
            b"<html>502 Bad Gateway</html>\n",
        ]
    ):
        for kind in KINDS:
            await watched(stage.double, kind)
            stage.double.say(kind, bad)
        stage.double.put("pods", wire_pod(f"p{number}"))
        await bound(stage.double, f"p{number}")


@act()
async def events_that_say_nothing_a_thousand_times(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    for number in range(1000):
        for kind in KINDS:
            stage.double.say(kind, line("ODD", {}))
            stage.double.say(kind, line(f"ODD{number}", {}))
            stage.double.say(kind, line("ADDED", {}))
            stage.double.say(kind, line("BOOKMARK", {}))
            stage.double.say(kind, line("BOOKMARK", {"metadata": {"resourceVersion": "0"}}))
            stage.double.say(kind, line("DELETED", {"metadata": None}))
    await pods(stage.double, "p")


@act()
async def events_are_told_again_and_late(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    await pods(stage.double, "p")
    await placed(stage.double, "p")
    stage.double.delete("pods", "p0")
    for kind in KINDS:
        told = [line(event, item) for _, event, item in stage.double.history[kind]]
        for again in (*told, *told):
            stage.double.say(kind, again)
    for kind in KINDS:
        stage.double.close_watches(kind)


@act()
async def events_of_different_objects_change_places(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    stage.double.muted |= set(KINDS)
    for number in range(6):
        stage.double.put("nodes", wire_node(f"n{number}"))
        stage.double.put("pods", wire_pod(f"q{number}", node=f"n{number}", memory="1Gi"))
    stage.double.delete("pods", "q5")
    history = stage.double.history
    # Each object's own events stay in order; a pod may come before its node.
    for kind in reversed(KINDS):
        for _, event, item in sorted(history[kind], key=lambda told: told[2]["metadata"]["name"], reverse=True):
            stage.double.say(kind, line(event, item))
    stage.double.muted.clear()


@act()
async def events_are_lost_until_the_watch_is_too_old(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    await pods(stage.double, "p")
    await placed(stage.double, "p")
    stage.double.muted |= set(KINDS)
    stage.double.delete("pods", "p0")
    stage.double.replace_unseen("pods", wire_pod("p1", uid="another", node="node-2", memory="3Gi"))
    stage.double.replace_unseen("pods", wire_pod("p3", node="node-1", memory="1Gi"))
    stage.double.replace_unseen("nodes", wire_node("node-2", memory="5Gi"))
    stage.double.put("nodes", wire_node("node-9"))
    stage.double.muted.clear()
    stage.double.compact()
    for kind in KINDS:
        stage.double.close_watches(kind)


@act(loop__self_check__CHECK_EVERY=0.05, loop__self_check__LOOK_EVERY=0.005)
async def events_are_lost_and_no_watch_ever_ends(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    double.put("pods", wire_pod("leaves", node="node-1", memory="15Gi"))
    double.put("pods", wire_pod("shrinks", node="node-2", memory="15Gi"))
    yield
    await watched(double, *KINDS)
    for where in ("node-1", "node-2", "node-9"):
        at_home = {"nodeSelector": {"kubernetes.io/hostname": where}}
        double.put("pods", wire_pod(f"for-{where}", spec=at_home, memory="4Gi"))
    await until(lambda: len(double.patches) == 3)
    watches = {kind: double.requests["WATCH", kind] for kind in KINDS}
    double.muted |= set(KINDS)
    double.delete("pods", "leaves")
    double.put("pods", wire_pod("shrinks", node="node-2", memory="1Gi"))
    double.put("pods", wire_pod("comes", node="node-1", memory="1Gi"))
    double.put("pods", wire_pod("new", memory="1Gi"))
    double.put("nodes", wire_node("node-2", memory="12Gi"))
    double.put("nodes", wire_node("node-9"))
    double.muted.clear()

    def all_found() -> bool:
        for kind in ("nodes", "pods"):
            double.bookmark(kind)
        return all(double.node_of(name) for name in ("for-node-1", "for-node-2", "for-node-9", "new"))

    await until(all_found)
    assert watches == {kind: double.requests["WATCH", kind] for kind in KINDS}


@act()
async def uids_are_swapped(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    for name, where in (("a", "node-1"), ("b", "node-2")):
        double.put("pods", wire_pod(name, uid=f"uid-{name}", node=where, memory="1Gi"))
    double.put("pods", wire_pod("w", uid="uid-w", memory="64Gi"))
    yield
    await watched(double, "pods")
    swapped: list[tuple[str, str, str | None]] = [
        ("a", "uid-b", "node-1"),
        ("b", "uid-a", "node-2"),
        ("w", "uid-x", None),
    ]
    for name, uid, home in swapped:
        # Made anew in a gap of the watch: one update, and no word of a deletion.
        double.replace_unseen("pods", wire_pod(name, uid=uid, node=home, memory="1Gi"))
        double.say("pods", line("MODIFIED", double.pod(name)))


@act()
async def watches_come_in_pieces_of_three_bytes(stage: Stage) -> AsyncIterator[None]:
    stage.double.piece = 3
    yield
    await pods(stage.double, "p")
    stage.double.put("nodes", wire_node("node-3"))
    await placed(stage.double, "p")
    stage.double.piece = 0


@act()
async def answers_are_compressed(stage: Stage) -> AsyncIterator[None]:
    stage.double.compresses = True
    yield
    await pods(stage.double, "p")
    stage.double.put("pods", wire_pod("wide", memory="640Gi"))
    await until(lambda: stage.double.patches)


@act()
async def watches_come_back_to_a_server_that_was_away(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    for kind in KINDS:
        stage.double.fault("WATCH", kind, *[cuts_off()] * 20, *[answers(503, "ServiceUnavailable")] * 2)
        stage.double.close_watches(kind)
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


# Lists


@act()
async def lists_fail_in_every_way(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault(
            "GET",
            kind,
            *[answers(code, "Trouble", f"try {code}") for code in (400, 403, 404, 500, 502, 503, 504) * 3],
            answers(429, "TooManyRequests", headers={"Retry-After": "1"}),
            answers(429, "TooManyRequests", headers={"Retry-After": "99999999999999999999999999"}),
            answers(429, "TooManyRequests", headers={"Retry-After": "inf"}),
            answers(503, "ServiceUnavailable", headers={"Retry-After": "Fri, 31 Dec 1999 23:59:59 GMT"}),
            cuts_off(),
            says(b"{broken"),
            says(b""),
            says(b"[" * 100_000),
            says(b'{"metadata":{}}'),
            says(b'{"metadata":{"resourceVersion":""},"items":[]}'),
            says(b'{"metadata":{"resourceVersion":"0"},"items":[]}'),
            says(b'{"kind":"Status","metadata":{},"status":"Failure"}'),
            says(b"<html>welcome to the proxy</html>"),
            says(b"\xff\xfe", 500),
            says(b"[" * 100_000, 500),
        )
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)


@act(api__lists__LIST_TIMEOUT=0.1)
async def lists_hang(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("GET", kind, hangs(), streams(b'{"metadata":', end="stall"), hangs())
    yield
    await pods(stage.double, "p")


@act(api__lists__PAGE=2)
async def lists_expire_between_two_pages(stage: Stage) -> AsyncIterator[None]:
    await pods(stage.double, "x", 7, node="node-1")
    for kind in KINDS:
        stage.double.fault("GET", kind, passes(), answers(410, "Expired"), answers(500, "InternalError"))
    yield
    await pods(stage.double, "p")


@act(api__lists__PAGE=2)
async def lists_have_pages_without_end(stage: Stage) -> AsyncIterator[None]:
    again = b'{"metadata":{"resourceVersion":"9","continue":"2"},"items":[]}'
    for kind in KINDS:
        stage.double.fault("GET", kind, *[says(again)] * 6)
    yield
    await pods(stage.double, "p")


@act()
async def nodes_are_known_long_after_pods(stage: Stage) -> AsyncIterator[None]:
    await pods(stage.double, "p")
    stage.double.fault("GET", "nodes", *[answers(503, "ServiceUnavailable")] * 30)
    yield
    assert not stage.double.faults_left
    await placed(stage.double, "p")


# Bindings


def bind_conflicts(stage: Stage) -> dict[str, Callable[[Any], Any]]:
    double = stage.double

    async def changed(_: Any) -> None:
        double.put("pods", double.pod("changed") | {"status": {"phase": "Pending", "message": "x"}})

    async def assigned(_: Any) -> None:
        double.put("pods", wire_pod("assigned", node="node-2", memory="1Gi"))

    async def leaving(_: Any) -> None:
        double.put("pods", wire_pod("leaving", deleting=True))

    async def gated(_: Any) -> None:
        double.put("pods", wire_pod("gated", spec={"schedulingGates": [{"name": "wait"}]}))

    async def renewed(_: Any) -> None:
        double.delete("pods", "renewed")
        double.put("pods", wire_pod("renewed", uid="second"))

    async def gone(_: Any) -> None:
        double.delete("pods", "gone")

    async def theirs(_: Any) -> None:
        double.put("pods", wire_pod("theirs", scheduler="another"))

    return {each.__name__: each for each in (changed, assigned, leaving, gated, renewed, gone, theirs)}


@act()
async def bindings_meet_every_conflict(stage: Stage) -> AsyncIterator[None]:
    yield
    for name, meanwhile in bind_conflicts(stage).items():
        stage.double.fault("POST", "pods/binding", meanwhile)
        stage.double.put("pods", wire_pod(name))
        await until(lambda: not stage.double.faults_left)


@act(bind_timeout_seconds=0.1)
async def bindings_fail_in_every_way(stage: Stage) -> AsyncIterator[None]:
    stage.double.fault(
        "POST",
        "pods/binding",
        *[answers(code, "Trouble", f"try {code}") for code in (400, 403, 404, 409, 422, 500, 502, 503, 504)],
        answers(429, "TooManyRequests", headers={"Retry-After": "99999999"}),
        says(b"<html>404</html>", 404),
        cuts_off(),
        hangs(),
        says(b"[" * 100_000, 500),
        *[passes(), answers(404, "NotFound")] * 5,
    )
    yield
    await pods(stage.double, "p", 20)
    await placed(stage.double, "p", 20)
    await until(lambda: not stage.double.faults_left)


@act()
async def answers_to_bindings_are_lost(stage: Stage) -> AsyncIterator[None]:
    stage.double.lose_bind_answers = 20
    yield
    await pods(stage.double, "p", 30)
    await placed(stage.double, "p", 30)


@act(loop__binder__CONFIRM_WITHIN=0.1, loop__scheduler__CONFIRM_EVERY=0.02)
async def bindings_that_the_server_only_claims_to_have_made(stage: Stage) -> AsyncIterator[None]:
    stage.double.fault("POST", "pods/binding", *[says(b"{}", 201)] * 5)
    yield
    await pods(stage.double, "p", 5)
    await placed(stage.double, "p", 5)


@act(loop__binder__CONFIRM_WITHIN=0.1, loop__scheduler__CONFIRM_EVERY=0.02)
async def the_watch_never_confirms_a_binding(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, "pods")
    await pods(stage.double, "p", 20)
    stage.double.muted.add("pods")
    await placed(stage.double, "p", 20)
    await until(lambda: stage.double.requests["GET", "pods/one"] >= 20)
    stage.double.muted.clear()
    stage.double.close_watches("pods")


@act(api__client__REQUEST_TIMEOUT=0.1)
async def reads_after_uncertain_bindings_fail_in_every_way(stage: Stage) -> AsyncIterator[None]:
    stage.double.fault("POST", "pods/binding", *[cuts_off()] * 3)
    stage.double.fault(
        "GET",
        "pods/one",
        *[answers(code, "Trouble") for code in (401, 403, 429, 500, 503)],
        says(b"<html>404</html>", 404),
        says(b"{}"),
        says(b"{broken"),
        says(b"[" * 100_000),
        says(b'{"metadata":{"name":"p0","uid":"uid-default-p0"},"spec":{"containers":7}}'),
        hangs(),
        cuts_off(),
    )
    yield
    await pods(stage.double, "p")
    await until(lambda: not stage.double.faults_left)
    for number in range(3):
        stage.double.put("pods", stage.double.pod(f"p{number}"))
    await placed(stage.double, "p")


# Reports


@act(api__client__REQUEST_TIMEOUT=0.1)
async def nothing_can_be_reported(stage: Stage) -> AsyncIterator[None]:
    for verb, resource in (("POST", "events"), ("PATCH", "pods/status")):
        stage.double.fault(
            verb,
            resource,
            *[answers(code, "Trouble") for code in (400, 401, 403, 404, 409, 422, 429, 500, 503) * 3],
            says(b"[" * 100_000),
            says(b'{"metadata":{"resourceVersion":"' + b"9" * 5000 + b'"}}'),
            says(b"{broken"),
            hangs(),
            cuts_off(),
        )
    yield
    for number in range(60):
        # Each asks for a node of its own that is not there.
        nowhere = {"nodeSelector": {"kubernetes.io/hostname": f"none-{number}"}}
        stage.double.put("pods", wire_pod(f"w{number}", spec=nowhere if number % 2 else {}, memory="1Mi"))
    await until(lambda: not stage.double.faults_left)


# Everything at once


@act()
async def the_token_is_rotated_under_way(stage: Stage) -> AsyncIterator[None]:
    double, token = stage.double, stage.token
    double.tokens = {"old"}
    yield
    for number in range(5):
        await watched(double, *KINDS)
        double.tokens, token.fresh = {f"new-{number}"}, f"new-{number}"
        for kind in KINDS:
            double.close_watches(kind)
        double.put("pods", wire_pod(f"p{number}"))
        double.put("pods", wire_pod(f"w{number}", memory="640Gi"))


@act()
async def the_new_token_is_late(stage: Stage) -> AsyncIterator[None]:
    double, token = stage.double, stage.token
    double.tokens = {"old"}
    yield
    await pods(double, "w", 5, spec={"nodeSelector": {"no": "where"}})
    double.tokens = {"new"}
    for kind in KINDS:
        double.close_watches(kind)
    await pods(double, "p", 5)
    asked = sum(double.requests.values())
    await until(lambda: sum(double.requests.values()) > asked + 100)
    token.fresh = "new"
    await placed(double, "p", 5)


@act()
async def every_call_is_throttled(stage: Stage) -> AsyncIterator[None]:
    throttled = answers(429, "TooManyRequests", headers={"Retry-After": "1"})
    for verb, resource in (*EVERY_CALL[:3], *(("WATCH", kind) for kind in KINDS), *(("GET", kind) for kind in KINDS)):
        stage.double.fault(verb, resource, *[throttled] * 10)
    yield
    await pods(stage.double, "p", 20)
    await pods(stage.double, "w", 20, spec={"nodeSelector": {"no": "where"}})
    await until(lambda: not stage.double.faults_left)


@act()
async def every_call_fails_at_times(stage: Stage) -> AsyncIterator[None]:
    odd = [answers(500, "InternalError"), passes(), answers(503, "ServiceUnavailable"), cuts_off(), passes(), passes()]
    for verb, resource in (*EVERY_CALL[:3], *(("WATCH", kind) for kind in KINDS)):
        stage.double.fault(verb, resource, *odd * 5)
    yield
    await pods(stage.double, "w", 20, spec={"nodeSelector": {"no": "where"}})
    for number in range(200):
        if not stage.double.faults_left:
            break
        stage.double.put("pods", wire_pod(f"p{number}"))
        await bound(stage.double, f"p{number}")
        for kind in KINDS:
            stage.double.close_watches(kind)
    assert not [left for left in ("pods/binding", "events") if stage.double.faults_left_for("POST", left)]
    stage.double.clear_faults()


@act()
async def the_clock_jumps(stage: Stage) -> AsyncIterator[None]:
    await pods(stage.double, "w", 3, spec={"nodeSelector": {"no": "where"}})
    yield
    for ahead in (1.0, 86_400.0, 1e9):
        stage.clock_ahead = ahead
        stage.double.fault("POST", "pods/binding", answers(500, "InternalError"))
        stage.double.put("pods", wire_pod(f"p{ahead}"))
        await bound(stage.double, f"p{ahead}")


@act()
async def redirects_that_lead_nowhere(stage: Stage) -> AsyncIterator[None]:
    for kind in KINDS:
        stage.double.fault("GET", kind, *[redirects()] * 25)
    yield
    await pods(stage.double, "p")


# Objects


@act()
async def five_thousand_pods_come_at_once(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    for number in range(60):
        double.put("nodes", wire_node(f"n{number}"))
    yield
    for number in range(5000):
        double.put("pods", wire_pod(f"p{number}", memory="1Mi"))
    # Looked at one after the other: to look at all of them again and again would take longer than to place them.
    for number in range(5000):
        await bound(double, f"p{number}")


@act()
async def five_thousand_pods_are_malformed(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    for number in range(2500):
        double.put("pods", wire_pod(f"w{number}", memory="lots"))
        double.put("pods", wire_pod(f"x{number}", node="node-1", memory="lots"))
    yield
    for _ in range(2):
        for number in range(100):
            double.put("pods", wire_pod(f"w{number}", memory="1Mi"))
            double.put("pods", wire_pod(f"w{number}", memory="lots"))
    for number in range(2500):
        double.delete("pods", f"x{number}")
    double.put("pods", wire_pod("w0", memory="1Mi"))


@act()
async def objects_of_ten_megabytes(stage: Stage) -> AsyncIterator[None]:
    double, huge = stage.double, "x" * (10 * MEBIBYTE)

    def with_note(item: Any) -> Any:
        item["metadata"]["annotations"] = {"note": huge}
        return item

    double.put("pods", with_note(wire_pod("placed", node="node-1", memory="1Gi")))
    yield
    await watched(double, *KINDS)
    double.put("nodes", with_note(wire_node("node-4")))
    double.put("pods", with_note(wire_pod("waits", memory="1Gi")))
    double.put("pods", wire_pod("phase", node="node-1", status={"phase": huge}))
    double.put("pods", wire_pod("label", spec={"nodeSelector": {"a": huge}}))
    double.put("pods", wire_pod("unknown", spec={f"f{number}": 1 for number in range(100_000)}))
    double.put("nodes", wire_node("node-5", memory=huge))
    named: dict[str, Any] = {f"example.com/{number}": "1" for number in range(20_000)}
    double.put("pods", wire_pod("names", node="node-2", **named))
    await bound(double, "waits")
    for name in ("waits", "phase", "label", "unknown", "names", "placed"):
        double.delete("pods", name)
    for name in ("node-4", "node-5"):
        double.delete("nodes", name)
    double.forget_history()


@act()
async def absurd_quantities(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    absurd: tuple[Any, ...] = (
        "9" * 100,
        "9" * 10_000,
        "1e999999999",
        "-1",
        "1e-999999999",
        "9E",
        "NaN",
        "Infinity",
        "0x10",
        "",
        "\uff11",
        1e300,
    )
    for number, amount in enumerate(absurd):
        double.put("nodes", wire_node(f"n{number}", memory=amount, cpu=amount))
        double.put("pods", wire_pod(f"w{number}", memory=amount, cpu=amount))
        double.put("pods", wire_pod(f"x{number}", node="node-2", memory=amount, cpu=amount))
    yield
    await pods(double, "p")
    await placed(double, "p")
    for number in range(3000):
        # Together more than 64 bits hold.
        double.put("pods", wire_pod(f"y{number}", node="node-1", memory="9E", cpu="9E"))


@act()
async def unknown_fields(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    double.put("pods", wire_pod("new", spec={"newField": {"a": [1, None, {"b": 2**70}]}}))
    double.put("pods", wire_pod("held", node="node-1", spec={"newField": 1}, status={"newField": []}) | {"extra": [0]})
    double.put("nodes", wire_node("node-3") | {"extra": {"deep": [{}]}, "kind": "Node"})
    yield
    await pods(double, "p")
    await until(lambda: double.patches)


@act()
async def objects_of_another_kind(stage: Stage) -> AsyncIterator[None]:
    yield
    await watched(stage.double, *KINDS)
    for event in ("ADDED", "MODIFIED", "DELETED"):
        stage.double.say("pods", line(event, wire_node("stranger")))
        stage.double.say("nodes", line(event, wire_pod("stranger", node="node-1", memory="1Gi")))
        strange: Any
        for strange in ([], None, 7, "x", {"metadata": 7}, {"metadata": {}}, {"metadata": {"uid": "u"}, "spec": []}):
            for kind in KINDS:
                stage.double.say(kind, line(event, strange))
    stage.double.say("nodes", line("DELETED", wire_node("node-2")))
    stage.double.say("nodes", line("ADDED", stage.double.objects["nodes"]["", "node-2"]))


@act()
async def a_list_names_one_pod_twice(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    double.put("pods", wire_pod("twin", uid="second", node="node-2", memory="1Gi"))
    twin = wire_pod("twin", uid="first", node="node-1", memory="1Gi", version=1)
    items = [twin, *double.objects["pods"].values(), double.pod("twin")]
    body = {"metadata": {"resourceVersion": str(double.version)}, "items": items}
    double.fault("GET", "pods", says(json.dumps(body).encode()))
    yield
    await pods(double, "p")


@act()
async def nodes_come_and_go_and_change_their_minds(stage: Stage) -> AsyncIterator[None]:
    double = stage.double
    await pods(double, "x", 5, node="node-7")
    yield
    for number in range(50):
        double.put(
            "nodes", wire_node("node-7", memory=f"{number}Mi", ready=("True", "False", "Unknown", None)[number % 4])
        )
        double.put("nodes", wire_node("node-8", memory="lots"))
        if number % 5 == 0:
            double.delete("nodes", "node-7")
            double.delete("nodes", "node-8")
    double.put("nodes", wire_node("node-7"))
    double.put("nodes", wire_node("node-8"))
    await pods(double, "p")
