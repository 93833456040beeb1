"""Whatever the server does, the loop goes on, all agree in the end, and neither connections, logs nor memory grow.

The scripts are in `scripts.py`; what holds after each of them is here.
"""

import asyncio
import gc
import logging
import time
from collections import Counter
from collections.abc import Callable, Iterator

import pytest

from tests.api.double import KINDS, ApiDouble
from tests.api.memory import in_use
from tests.api.running import Token, running, until
from tests.api.scripts import ACTS, Act, Stage
from tests.api.truth import differences
from tests.unit.objects import wire_node, wire_pod

#: Every time that the scheduler waits for the server or before it tries again, in seconds.
WAITS = {
    "api.reflector.FIRST_WAIT": 0.005,
    "api.reflector.LONGEST_WAIT": 0.02,
    "api.client.LONGEST_RETRY_AFTER": 0.02,
    "loop.binder.FIRST_WAIT": 0.01,
    "loop.binder.LONGEST_WAIT": 0.05,
    "loop.reporter.WAIT": 0.01,
    "queue.queue.INITIAL_BACKOFF": 0.01,
    "queue.queue.LONGEST_BACKOFF": 0.05,
}
IN_FLIGHT = 8
#: The same text at most so often in one script, and so many texts in all.
MOST_OF_ONE_TEXT = 2
MOST_TEXTS = 210
OURS = ("turb_kub", "asyncio", "aiohttp.client")
MEBIBYTE = 2**20
#: Bytes by which the process may have grown at the end of any script, its scheduler running and its server empty.
MOST_GROWTH = 20 * MEBIBYTE


class Memory:
    """What the process used before all scripts."""

    def __init__(self) -> None:
        self._before = in_use()

    def grown(self) -> int:
        """Return by how many bytes it has grown since, over all scripts until now."""
        return in_use() - self._before


@pytest.fixture(scope="module")
def memory() -> Iterator[Memory]:
    """The memory once a script has filled what is filled but once (modules, caches)."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        asyncio.run(perform(ACTS["uids_are_swapped"], monkeypatch, lambda: None))
    gc.collect()
    # What is there now stays; no collection need look at it again.
    gc.freeze()
    yield Memory()
    gc.unfreeze()


async def perform(act: Act, monkeypatch: pytest.MonkeyPatch, then: Callable[[], None]) -> ApiDouble:
    """Play a script against the real loop, wait until scheduler and server agree, and see that nothing is left over.

    Args:
        then: called in the end, while the scheduler still runs, with a server that was emptied.
    """
    with monkeypatch.context() as patched:
        for name, seconds in (WAITS | act.waits).items():
            patched.setattr(f"turb_kub.{name}", seconds)
        async with ApiDouble().serve() as double:
            for name in ("node-1", "node-2"):
                double.put("nodes", wire_node(name))
            before = asyncio.all_tasks()
            stage = Stage(double, Token(double.url))
            script = aiter(act.script(stage))
            await anext(script)
            clock = lambda: time.monotonic() + stage.clock_ahead  # noqa: E731
            async with running(stage.token, clock=clock, binds_in_flight=IN_FLIGHT, **act.settings) as scheduler:
                with pytest.raises(StopAsyncIteration):
                    await anext(script)
                await _goes_on(double)
                await _agree(scheduler, double)
                await _forget_all(scheduler, double)
                then()
            await until(lambda: not double.connections)
            await until(lambda: asyncio.all_tasks() == before)
    return double


async def _goes_on(double: ApiDouble) -> None:
    """A new pod is placed on a new node: both watches are heard, and pods are decided and bound."""
    double.put("nodes", wire_node("probe"))
    double.put("pods", wire_pod("probe", spec={"nodeSelector": {"kubernetes.io/hostname": "probe"}}, memory="1Mi"))
    await until(lambda: double.node_of("probe") == "probe")


async def _forget_all(scheduler, double):
    """Empty the server, and wait until the scheduler has heard of it."""
    double.forget_all()
    await until(lambda: not (scheduler.cluster.node_count or scheduler.cluster.pod_count or len(scheduler.queue)))
    await _agree(scheduler, double)


async def _agree(scheduler, double):
    try:
        await until(lambda: not differences(scheduler, double))
    except AssertionError:
        raise AssertionError("\n".join(differences(scheduler, double)[:20])) from None


def told(caplog: pytest.LogCaptureFixture) -> Counter[str]:
    """Count the warnings and errors by text."""
    found = [one for one in caplog.records if one.levelno >= logging.WARNING and one.name.startswith(OURS)]
    assert not [one for one in found if one.exc_info]
    return Counter(one.getMessage() for one in found)


@pytest.mark.parametrize("name", ACTS)
async def test_after_every_script(name, memory, monkeypatch, caplog):
    grown: list[int] = []
    double = await perform(ACTS[name], monkeypatch, lambda: grown.append(memory.grown()))
    assert grown[0] <= MOST_GROWTH
    gc.collect()  # what was not awaited or not closed complains now
    assert double.most_watching <= len(KINDS)
    assert double.most_open <= IN_FLIGHT + 8
    texts = told(caplog)
    assert not [text for text, count in texts.items() if count > MOST_OF_ONE_TEXT or "bug here" in text]
    assert len(texts) <= MOST_TEXTS
