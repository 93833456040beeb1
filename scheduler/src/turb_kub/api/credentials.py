"""Who we are to the API server: a kubeconfig's context, or the ServiceAccount of the pod we run in.

The `kubernetes` package does the reading. Tokens change under way: one that stands in a file (in a cluster always) is
read again every minute and whenever the server answers 401; any other is renewed after a 401.
"""

import logging
import os
import ssl
import time
from pathlib import Path
from typing import Any

import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import ConfigException, load_incluster_config, load_kube_config

from turb_kub.api.errors import CredentialsError

log = logging.getLogger(__name__)

REREAD_AFTER = 60.0
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"


class Credentials:
    """Server address, TLS and token. Made by `load_credentials`."""

    def __init__(self, kubeconfig: str | None, context: str | None) -> None:
        self._kubeconfig = kubeconfig
        self._context = context
        self._configuration: Any = None
        self._token = ""
        self._read_at = 0.0
        self._token_in_file = kubeconfig is None or _names_token_file(kubeconfig, context)
        self.ssl_context: ssl.SSLContext | None = None

    @property
    def server(self) -> str:
        """URL of the API server, without a slash at its end."""
        return str(self._configuration.host).rstrip("/")

    async def read(self) -> None:
        """Read kubeconfig or identity afresh. Raises `CredentialsError`."""
        configuration: Any = Configuration()
        try:
            if self._kubeconfig is None:
                load_incluster_config(configuration)  # type: ignore[no-untyped-call]
            else:
                await load_kube_config(  # type: ignore[no-untyped-call]
                    self._kubeconfig, self._context, configuration, persist_config=False
                )
        except (ConfigException, OSError, ValueError, TypeError, KeyError, yaml.YAMLError) as error:
            raise CredentialsError(_explain(self._kubeconfig, self._context, error)) from error
        token = await configuration.get_api_key_with_prefix("BearerToken")
        # A file that was written by hand ends with a line break, which no header may hold.
        token = token.strip() if token else ""
        if not token.isprintable() or not token.isascii():
            raise CredentialsError("the token holds characters that no token has; write it again")
        self._token = token
        self._configuration = configuration
        self._read_at = time.monotonic()
        if self.ssl_context is None:
            self.ssl_context = _ssl_context(configuration)

    async def refresh(self) -> None:
        """Read again what may have been rotated. Where that fails, the credentials at hand stay in use."""
        self._read_at = time.monotonic()
        try:
            await self.read()
        except CredentialsError as error:
            # A file may be in the middle of being replaced; if the old token is dead, the next 401 says so.
            log.warning("credentials could not be read again: %s", error)

    async def headers(self) -> dict[str, str]:
        """Return the headers that authenticate a request, from a token not older than a minute."""
        if self._token_in_file and time.monotonic() - self._read_at > REREAD_AFTER:
            await self.refresh()
        return {"Authorization": self._token} if self._token else {}


async def load_credentials(kubeconfig: str | None, context: str | None) -> Credentials:
    """Read credentials: from the kubeconfig given, else from KUBECONFIG, else in-cluster.

    The user's default kubeconfig is not taken unasked: a scheduler must never run against a cluster by accident.

    Raises:
        CredentialsError: with one sentence that says what to do.
    """
    path = _kubeconfig_path(kubeconfig)
    credentials = Credentials(path, context)
    await credentials.read()
    return credentials


def _kubeconfig_path(kubeconfig: str | None) -> str | None:
    path = kubeconfig or os.environ.get("KUBECONFIG") or None
    if path is None and _IN_CLUSTER not in os.environ:
        raise CredentialsError("not running in a cluster: name a kubeconfig file with --kubeconfig or KUBECONFIG")
    if path is not None and not Path(path).is_file():
        raise CredentialsError(f"kubeconfig {path} does not exist: name another with --kubeconfig")
    return path


def _ssl_context(configuration: Any) -> ssl.SSLContext | None:
    if not str(configuration.host).startswith("https"):
        return None
    try:
        context = ssl.create_default_context(
            cafile=configuration.ssl_ca_cert, cadata=getattr(configuration, "ca_cert_data", None)
        )
        # Kubernetes' own certificates often lack what strict verification (Python 3.13) asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, keyfile=configuration.key_file)
    except (OSError, ssl.SSLError) as error:
        raise CredentialsError(f"the certificates of the kubeconfig could not be read: {error}") from error
    if not configuration.verify_ssl:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _names_token_file(kubeconfig: str, context: str | None) -> bool:
    """Whether the context's user has a tokenFile. A file that cannot be read says no; `read` will say why."""
    try:
        config = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        name = context or config["current-context"]
        users = {entry["name"]: entry["user"] for entry in config["users"]}
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        return "tokenFile" in users[contexts[name]["user"]]
    except (OSError, yaml.YAMLError, KeyError, TypeError, ValueError):
        return False


def _explain(kubeconfig: str | None, context: str | None, error: Exception) -> str:
    if kubeconfig is None:
        return f"the in-cluster identity could not be read: {error}"
    where = f"kubeconfig {kubeconfig}" + (f", context {context}" if context else "")
    detail = " ".join(str(error).split())
    return f"{where} could not be used: {detail}"
