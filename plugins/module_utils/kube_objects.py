# Copyright: (c) 2026, turb-kub contributors
# SPDX-License-Identifier: Apache-2.0
# Apache License 2.0 (see LICENSE or https://www.apache.org/licenses/LICENSE-2.0)
"""Read objects of any kind from a cluster, as plain dictionaries.

The one place that uses the `openshift` client's DynamicClient, which asks the API server what kinds it has: modules of
this collection and `make status` read through it. It writes nothing to the cluster; what it learnt of the server's
kinds it keeps in a file in the folder for temporary files.
"""

from __future__ import annotations

import json
import tempfile
import typing as t
from pathlib import Path

#: How a module is told which cluster it is to read, for its argument_spec.
ARGUMENTS = {
    "kubeconfig": {"type": "path", "required": True},
    "context": {"type": "str", "required": True},
}
#: Seconds that one request may take.
REQUEST_TIMEOUT = 20


class KubeError(Exception):
    """The cluster can't be read. The text is one sentence for the user."""


def _reason(error: Exception) -> str:
    """What the API server, or whatever kept us from it, says; without what a client library adds."""
    body = getattr(error, "body", None)
    if body:
        try:
            return str(json.loads(body)["message"]).rstrip(".")
        except (ValueError, KeyError, TypeError):
            return str(body).strip()
    return str(getattr(error, "reason", None) or error).strip().splitlines()[0].rstrip(".")


class Objects:
    """The objects of one cluster. `kubeconfig` and `context` say which.

    Raises:
        KubeError: the kubeconfig can't be used or the cluster does not answer.
    """

    def __init__(self, kubeconfig: str, context: str, cache_dir: str | None = None) -> None:
        # Here, since they take most of a second: whoever imports this module need not want to read anything.
        try:
            from kubernetes import config
            from kubernetes.dynamic import exceptions
            from openshift.dynamic import DynamicClient  # type: ignore[import-untyped]
            from urllib3.exceptions import HTTPError
        except ImportError as error:
            raise KubeError(
                f"The Python package {error.name} is missing: use the environment that `make up` prepares."
            ) from error
        self._failures: tuple[type[Exception], ...] = (exceptions.DynamicApiError, HTTPError, OSError)
        self._unknown_kind: tuple[type[Exception], ...] = (
            exceptions.ResourceNotFoundError,
            exceptions.ResourceNotUniqueError,
        )
        self._not_found: type[Exception] = exceptions.NotFoundError
        self.where = f"cluster of context {context}"
        try:
            client = config.new_client_from_config(config_file=kubeconfig, context=context)
        except (config.ConfigException, OSError, ValueError) as error:
            raise KubeError(f"The kubeconfig {kubeconfig} can't be used: {_reason(error)}.") from error
        # A refused connection is tried again by whoever waits for something, not by the transport.
        client.configuration.retries = 0
        cache = str(Path(cache_dir or tempfile.gettempdir()) / "turb-kub-kinds.json")
        try:
            self._dynamic: t.Any = DynamicClient(client, cache_file=cache)
        except self._failures as error:
            raise KubeError(f"The {self.where} does not answer: {_reason(error)}.") from error

    def _kind(self, api_version: str, kind: str) -> t.Any:
        """The client's view of a kind, None where the server has no such kind."""
        try:
            return self._dynamic.resources.get(api_version=api_version, kind=kind)
        except self._unknown_kind:
            return None

    def serves(self, api_version: str, kind: str) -> bool:
        """Whether the API server has this kind in this version."""
        return self._kind(api_version, kind) is not None

    def read(
        self,
        api_version: str,
        kind: str,
        *,
        name: str | None = None,
        namespace: str | None = None,
        labels: str | None = None,
        fields: str | None = None,
    ) -> list[dict[str, t.Any]] | None:
        """The objects of a kind: of all namespaces or of one, and of those the ones that the selectors name.

        None where the server has no such kind, and an empty list where there is no such object.

        Raises:
            KubeError: the server does not answer or refuses.
        """
        try:
            resource = self._kind(api_version, kind)
            if resource is None:
                return None
            found = resource.get(
                name=name,
                namespace=namespace,
                label_selector=labels,
                field_selector=fields,
                _request_timeout=REQUEST_TIMEOUT,
            ).to_dict()
        except self._not_found:
            return []
        except self._failures as error:
            raise KubeError(f"{kind} can't be read from the {self.where}: {_reason(error)}.") from error
        if name is not None:
            return [found]
        # A list's items lack what the list says for all of them.
        return [{"apiVersion": api_version, "kind": kind} | item for item in found.get("items") or []]

    def create(self, api_version: str, kind: str, body: dict[str, t.Any]) -> dict[str, t.Any]:
        """Send a question that the server answers in the object itself, such as a review of rights; nothing is stored.

        Raises:
            KubeError: the server does not answer, refuses or has no such kind.
        """
        try:
            resource = self._kind(api_version, kind)
            if resource is None:
                raise KubeError(f"The {self.where} has no {kind} of {api_version}.")
            answer: dict[str, t.Any] = resource.create(
                body={"apiVersion": api_version, "kind": kind} | body, _request_timeout=REQUEST_TIMEOUT
            ).to_dict()
        except self._failures as error:
            raise KubeError(f"{kind} can't be asked of the {self.where}: {_reason(error)}.") from error
        return answer

    def log(self, namespace: str, pod: str, container: str, lines: int, previous: bool = False) -> list[str]:
        """The last lines of a container's log, with `previous` those of the run before this one; none without a log."""
        query = [("container", container), ("tailLines", str(lines))]
        if previous:
            query.append(("previous", "true"))
        try:
            answer = self._dynamic.request(
                "get",
                f"/api/v1/namespaces/{namespace}/pods/{pod}/log",
                query_params=query,
                header_params={"Accept": "*/*"},
                serialize=False,
                _request_timeout=REQUEST_TIMEOUT,
            )
            return bytes(answer.data).decode(errors="replace").splitlines()
        except self._failures:
            return []
