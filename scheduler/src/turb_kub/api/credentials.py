"""Keeps what we authenticate with at the API server good.

Tokens change under way: one that stands in a file (in a cluster always) is read again every minute and whenever the
server answers 401; any other is renewed after a 401.
"""

import asyncio
import logging
import os
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from urllib.parse import urlsplit

from turb_kub.api.errors import CredentialsError
from turb_kub.api.identity import Identity, checked_token, read

log = logging.getLogger(__name__)

REREAD_AFTER = 60.0
_IN_CLUSTER = "KUBERNETES_SERVICE_HOST"
Reader = Callable[[str | None, str | None], Awaitable[Identity]]


class Credentials:
    """Server address, TLS and token. Made by `load_credentials`.

    Attributes:
        ssl_context: None where the server does not speak TLS.
        server_name: what the server's certificate is for; "" where that is its host.
    """

    def __init__(self, identity: Identity, again: Callable[[], Awaitable[Identity]]) -> None:
        self._identity = identity
        self._again = again
        self._token = identity.token
        self._read_at = time.monotonic()
        self._reading: asyncio.Task[None] | None = None
        _check_url(identity.server)
        self.ssl_context = _ssl_context(identity)
        self.server_name = identity.server_name

    @property
    def server(self) -> str:
        """URL of the API server, without a slash at its end."""
        return self._identity.server

    async def refresh(self) -> None:
        """Read again what may have been rotated. Where that fails, the credentials at hand stay in use.

        All who ask meanwhile wait for the same reading, which goes on when one of them waits no longer: a token that
        ends is noticed by many requests at once, and each reading may be a process of its own.
        """
        if self._reading is None or self._reading.done():
            self._reading = asyncio.create_task(self._read_again())
        await asyncio.shield(self._reading)

    async def _read_again(self) -> None:
        self._read_at = time.monotonic()
        try:
            if self._identity.token_file:
                text = await asyncio.to_thread(Path(self._identity.token_file).read_text, "utf-8")
                token = checked_token(text)
                if not token:
                    raise CredentialsError(f"{self._identity.token_file} is empty")
                self._token = f"Bearer {token}"
            else:
                self._token = (await self._again()).token
        except (CredentialsError, OSError, ValueError) as error:
            # A file may be in the middle of being replaced; if the old token is dead, the next 401 says so.
            log.warning("credentials could not be read again: %s", error)

    async def authorization(self) -> str:
        """Return the header Authorization, from a token not older than a minute; "" where there is no token."""
        if self._identity.token_file and time.monotonic() - self._read_at > REREAD_AFTER:
            await self.refresh()
        return self._token


async def load_credentials(kubeconfig: str | None, context: str | None, reader: Reader = read) -> Credentials:
    """Read credentials: from the kubeconfig given, else from KUBECONFIG, else in-cluster.

    The user's default kubeconfig is not taken unasked: a scheduler must never run against a cluster by accident.

    Args:
        reader: `read` or `read_in_child` of `turb_kub.api.identity`.

    Raises:
        CredentialsError: with one sentence that says what to do.
    """
    path = _kubeconfig_path(kubeconfig)
    return Credentials(await reader(path, context), lambda: reader(path, context))


def _kubeconfig_path(kubeconfig: str | None) -> str | None:
    path = kubeconfig or os.environ.get("KUBECONFIG") or None
    if path is None and _IN_CLUSTER not in os.environ:
        raise CredentialsError("not running in a cluster: name a kubeconfig file with --kubeconfig or KUBECONFIG")
    if path is not None and not Path(path).is_file():
        raise CredentialsError(f"kubeconfig {path} does not exist: name another with --kubeconfig")
    return path


def _check_url(server: str) -> None:
    try:
        parts = urlsplit(server)
        # Asked for, since a number that no port has shows only then.
        usable = parts.scheme in {"http", "https"} and bool(parts.hostname) and parts.port != 0
    except ValueError:
        usable = False
    if not usable:
        raise CredentialsError(f"the server {server!r} of the kubeconfig is not a URL like https://host:6443")


def _ssl_context(identity: Identity) -> ssl.SSLContext | None:
    if urlsplit(identity.server).scheme != "https":
        return None
    try:
        context = ssl.create_default_context(cadata=identity.ca or None)
        # Kubernetes' own certificates often lack what strict verification (Python 3.13) asks for.
        context.verify_flags &= ~ssl.VERIFY_X509_STRICT
        if identity.certificate:
            _load_certificate(context, identity)
    except (OSError, ValueError) as error:
        raise CredentialsError(f"the certificates of the kubeconfig could not be read: {error}") from error
    if not identity.verify:
        context.check_hostname = False
        context.verify_mode = ssl.CERT_NONE
    return context


def _load_certificate(context: ssl.SSLContext, identity: Identity) -> None:
    # OpenSSL takes it from a file only; this one is readable by us alone, and gone at once.
    with tempfile.NamedTemporaryFile("w", encoding="utf-8", suffix=".pem") as file:
        file.write(f"{identity.certificate}\n{identity.key}\n")
        file.flush()
        # With a password at hand OpenSSL does not ask the terminal for that of an encrypted key.
        context.load_cert_chain(file.name, password="")
