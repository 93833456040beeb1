"""What turb-kub grew out of, as a baseline: the algorithm of a tutorial's scheduler.

At every event of a pod that waits it lists all nodes and the pods of the namespace `default`, sums up what these ask
for, and binds to the node with the least requested memory; one pod after the other, without events, and a bind that
fails is not tried again. It has no more filters than that a node is Ready.

    python -m bench.demo --kubeconfig FILE --lease-name NAME
"""

import argparse

import uvloop
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials
from turb_kub.api.lists import read_page
from turb_kub.api.pods import bind
from turb_kub.objects.node import decode_node
from turb_kub.objects.pod import decode_pod
from turb_kub.objects.wire import Decoder, WatchEvent
from turb_kub.settings import Settings

from bench.ceiling import given_up

PODS = "/api/v1/namespaces/default/pods"
_events = Decoder(WatchEvent)


async def _work(options: argparse.Namespace) -> None:
    settings = Settings()
    async with Client(await load_credentials(options.kubeconfig, None)) as client:
        print("ready", flush=True)
        await given_up(client, settings.lease_namespace, options.lease_name)
        # Without a resourceVersion a watch begins with all that there is.
        async for line in client.lines(PODS, resource="", query={"watch": "1"}, read_timeout=3600.0):
            event = _events.decode(line)
            if event.type != "ADDED":
                continue
            pod = decode_pod(event.object)
            if pod.node_name or pod.scheduler_name != settings.scheduler_name:
                continue
            nodes = await read_page(client, "/api/v1/nodes", resource="", query={})
            pods = await read_page(client, PODS, resource="", query={})
            load = {node.name: 0 for node in map(decode_node, nodes.items or []) if node.ready == "True"}
            for other in map(decode_pod, pods.items or []):
                if other.node_name in load:
                    load[other.node_name] += other.memory
            await bind(client, pod, min(load, key=lambda name: load[name]), settings.bind_timeout_seconds)


def main() -> None:
    """Run until ended."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--kubeconfig", required=True)
    parser.add_argument("--lease-name", required=True)
    uvloop.run(_work(parser.parse_args()))


if __name__ == "__main__":
    main()
