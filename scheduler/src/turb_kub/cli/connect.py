"""From the flags of a command to its settings, its policy and a client that is known to work."""

import argparse
import os

from turb_kub.api.client import IN_FLIGHT, REQUEST_TIMEOUT, Client, Observer
from turb_kub.api.credentials import Reader, load_credentials
from turb_kub.api.errors import ApiError, CredentialsError, Unreachable
from turb_kub.api.identity import read
from turb_kub.api.leases import read_lease
from turb_kub.cli.errors import CommandError
from turb_kub.cli.snapshot import Snapshot, take_snapshot
from turb_kub.cluster.accounting import Accounting
from turb_kub.decision.policy import Policy, PolicyError, load_policy
from turb_kub.objects.malformed import MALFORMED
from turb_kub.settings import Settings, SettingsError, load_settings

BAD_INPUT = 2


def settings_of(options: argparse.Namespace) -> Settings:
    """Return the settings in force. Raises `CommandError`."""
    try:
        return load_settings(vars(options), os.environ)
    except SettingsError as error:
        raise CommandError(str(error), BAD_INPUT) from error


def policy_of(settings: Settings) -> Policy:
    """Return the policy that the settings name. Raises `CommandError`."""
    try:
        return load_policy(settings.policy, settings.tie_percent)
    except PolicyError as error:
        raise CommandError(str(error), BAD_INPUT) from error


async def connect(
    options: argparse.Namespace,
    observer: Observer | None = None,
    *,
    in_flight: int = IN_FLIGHT,
    reader: Reader = read,
) -> Client:
    """Return a client of the cluster that the flags name. Raises `CommandError` where there is no usable identity."""
    try:
        credentials = await load_credentials(options.kubeconfig, options.context, reader)
        return Client(credentials, observer=observer, in_flight=in_flight)
    except CredentialsError as error:
        raise CommandError(str(error), BAD_INPUT) from error


async def probe(client: Client, *paths: tuple[str, str]) -> None:
    """Read one object of each path, so that a wrong address or a missing right is told at once, in one sentence.

    Raises:
        CommandError: the server cannot be reached, or refuses.
    """
    server = client.server
    for path, resource in paths:
        try:
            await client.request("GET", path, resource=resource, query={"limit": "1"})
        except Unreachable as error:
            raise CommandError(
                f"the API server {server} cannot be reached: {error}; is the cluster running?"
            ) from error
        except ApiError as error:
            raise CommandError(_refusal(error, server, resource)) from error


async def probe_lease(client: Client, settings: Settings) -> None:
    """Read the lease that is to elect one of several replicas, so that a missing right is told at once.

    Raises:
        CommandError: it may not be read. Any other trouble may pass, and is the election's.
    """
    name = settings.lease_name or settings.scheduler_name
    try:
        await read_lease(client, settings.lease_namespace, name, REQUEST_TIMEOUT)
    except Unreachable:
        return
    except ApiError as error:
        if error.status == 403:
            raise CommandError(
                f"this identity may not get the lease {settings.lease_namespace}/{name} (403): {error.message}; "
                f"grant it the Role turb-kub in namespace {settings.lease_namespace}, "
                "or set TURB_KUB_LEADER_ELECT to false"
            ) from error


async def read_cluster(options: argparse.Namespace, accounting: Accounting) -> Snapshot:
    """Read the cluster that the flags name. Raises `CommandError`."""
    async with await connect(options) as client:
        await probe(client, ("/api/v1/nodes", "nodes"), ("/api/v1/pods", "pods"), ("/api/v1/events", "events"))
        try:
            return await take_snapshot(client, accounting)
        except (ApiError, Unreachable, *MALFORMED) as error:
            raise CommandError(f"the cluster could not be read: {error}") from error


def _refusal(error: ApiError, server: str, resource: str) -> str:
    if error.status == 401:
        return f"the API server {server} does not know this identity (401): renew the token or choose another context"
    if error.status == 403:
        return f"this identity may not list {resource} (403): {error.message}; grant it the ClusterRole turb-kub"
    return f"the API server {server} refused to list {resource}: {error}"
