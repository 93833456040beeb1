"""The ceiling: a client that knows the answer before it is asked, and only sends it.

Waits until the lease of its name is given up, takes the pods that wait and gives each the next node in turn, with
turb-kub's own client and as many requests at once: what is left of the time is the API server's, and no scheduler with
this client can be faster. With `--events` it writes each pod's event too.

    python -m bench.ceiling --kubeconfig FILE --lease-name NAME [--events]
"""

import argparse
import asyncio
import itertools
from typing import Any

import uvloop
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.events import PodEvent, post_event, scheduled
from turb_kub.api.leases import read_lease
from turb_kub.api.lists import pages
from turb_kub.api.pods import Answer, bind
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import Pod, decode_pod
from turb_kub.settings import Settings

#: Seconds between two looks at the lease.
POLL = 0.2
TIMEOUT = 10.0


async def _read(client: Client, path: str, **query: str) -> list[Any]:
    return [item async for page in pages(client, path, resource="", query=query) for item in page.items or []]


async def given_up(client: Client, namespace: str, name: str) -> None:
    """Wait until nobody holds a lease."""
    while (lease := await read_lease(client, namespace, name, TIMEOUT)) is not None and lease.holder:  # noqa: ASYNC110 - it is another process's
        await asyncio.sleep(POLL)


async def _work(options: argparse.Namespace) -> None:
    settings = Settings()
    credentials = await load_credentials(options.kubeconfig, None)
    async with Client(credentials, in_flight=settings.binds_in_flight) as client:
        nodes = itertools.cycle([decode_node(item).name for item in await _read(client, "/api/v1/nodes")])
        print("ready", flush=True)
        await given_up(client, settings.lease_namespace, options.lease_name)
        waiting = iter(
            [decode_pod(item) for item in await _read(client, "/api/v1/pods", fieldSelector="spec.nodeName=")]
        )
        events: asyncio.Queue[PodEvent] = asyncio.Queue()

        async def bind_some() -> None:
            for pod in waiting:
                await _bind(client, pod, next(nodes), events if options.events else None, settings.bind_timeout_seconds)

        async def write_some() -> None:
            while True:
                event = await events.get()
                await post_event(client, event, controller="ceiling", instance="ceiling")
                events.task_done()

        writers = [asyncio.create_task(write_some()) for _ in range(8)]
        await asyncio.gather(*(bind_some() for _ in range(settings.binds_in_flight)))
        await events.join()
        for task in writers:
            task.cancel()
        # It is measured until it is ended.
        await asyncio.Event().wait()


async def _bind(client: Client, pod: Pod, node: str, events: "asyncio.Queue[PodEvent] | None", timeout: float) -> None:
    answer = await bind(client, pod, node, timeout)
    if answer.answer is not Answer.BOUND:
        raise SystemExit(f"{pod.key}: {answer.message}")
    if events is not None:
        events.put_nowait(scheduled(pod, node, ""))


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--lease-name", required=True)
    parser.add_argument("--events", action="store_true")
    uvloop.run(_work(parser.parse_args()))


if __name__ == "__main__":
    main()
