"""Reads who we are to the API server: a kubeconfig's context, or the ServiceAccount of the pod we run in.

The `kubernetes` package does the reading, all of kubectl's ways to authenticate among it. It brings models of the whole
API, some 30 MB of memory, which a scheduler that runs for months should not hold for that: it has this module run as a
process of its own (`read_in_child`), which is over once it has answered. Whoever lives only for a moment reads at once.
"""

import asyncio
import logging
import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import msgspec

from turb_kub.api.errors import CredentialsError

#: Seconds for reading in a child. A credential plugin may have to ask a server of its own.
PATIENCE = 60.0


class Identity(msgspec.Struct, frozen=True):
    """What it takes to talk to one API server.

    Attributes:
        server: URL, without a slash at its end.
        token: as in the Authorization header, "Bearer …"; "" for none.
        token_file: where the token stands, which is replaced from time to time; "" where it stands in no file.
        ca, certificate, key: PEM; "" for none.
        verify: whether the server's certificate is checked.
        server_name: what it is for; "" where that is the server's host.
    """

    server: str
    token: str = ""
    token_file: str = ""
    ca: str = ""
    certificate: str = ""
    key: str = ""
    verify: bool = True
    server_name: str = ""


class _Told(msgspec.Struct):
    """What the child process says."""

    identity: Identity | None = None
    error: str = ""


async def read(kubeconfig: str | None, context: str | None) -> Identity:
    """Read a kubeconfig, or without one the identity of the pod we run in. Raises `CredentialsError`."""
    # Here, since whoever has it read in a child must not load them.
    from kubernetes.aio.client import Configuration
    from kubernetes.aio.config import incluster_config, load_incluster_config, load_kube_config

    configuration: Any = Configuration()
    complaints: list[str] = []
    try:
        if kubeconfig is None:
            load_incluster_config(configuration)  # type: ignore[no-untyped-call]
        else:
            with _collecting(complaints):
                await load_kube_config(kubeconfig, context, configuration, persist_config=False)  # type: ignore[no-untyped-call]
        if configuration.proxy:
            # Not named: it may hold a password.
            raise ValueError(
                "turb-kub connects through no proxy (proxy-url): name a kubeconfig whose server is reached directly"
            )
        identity = Identity(
            server=str(configuration.host).rstrip("/"),
            token=checked_token(await configuration.get_api_key_with_prefix("BearerToken") or ""),
            token_file=incluster_config.SERVICE_TOKEN_FILENAME
            if kubeconfig is None
            else _token_file(kubeconfig, context),
            ca=_text(configuration.ssl_ca_cert) or getattr(configuration, "ca_cert_data", None) or "",
            certificate=_text(configuration.cert_file),
            key=_text(configuration.key_file),
            verify=bool(configuration.verify_ssl),
            server_name=configuration.tls_server_name or "",
        )
        if complaints and not (identity.token or identity.certificate):
            # A credential plugin that failed: the package goes on with no credentials at all.
            raise ValueError(complaints[0])
        return identity
    except CredentialsError:
        raise
    except Exception as error:
        # The package takes what people wrote as it stands: there is no list of what it can raise.
        raise CredentialsError(_explain(kubeconfig, context, error)) from error


async def read_in_child(kubeconfig: str | None, context: str | None) -> Identity:
    """Do the same in a process of its own. Raises `CredentialsError`."""
    # -P: what lies in the current folder is not to be taken for a package.
    command = [sys.executable, "-P", "-m", "turb_kub.api.identity", kubeconfig or "", context or ""]
    try:
        child = await asyncio.create_subprocess_exec(
            *command, stdin=asyncio.subprocess.DEVNULL, stdout=asyncio.subprocess.PIPE, start_new_session=True
        )
        try:
            async with asyncio.timeout(PATIENCE):
                said, _ = await child.communicate()
        finally:
            if child.returncode is None:
                # With the plugin that it may be waiting for.
                with suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGKILL)
                await child.wait()
        # What else was printed is a credential plugin's affair.
        return _identity_of(said.strip().rpartition(b"\n")[2])
    except TimeoutError:
        raise CredentialsError(f"reading the kubeconfig took longer than {PATIENCE:.0f} s") from None
    except (OSError, msgspec.MsgspecError) as error:
        raise CredentialsError(f"the process that reads the kubeconfig failed: {error}") from error


def _identity_of(line: bytes) -> Identity:
    told = msgspec.json.decode(line, type=_Told)
    if told.identity is None:
        raise CredentialsError(told.error)
    return told.identity


def checked_token(text: str) -> str:
    """Return a token as a header may hold it. Raises `CredentialsError`."""
    # A file that was written by hand ends with a line break, which no header may hold.
    token = text.strip()
    if not token.isprintable() or not token.isascii():
        raise CredentialsError("the token holds characters that no token has; write it again")
    return token


def _text(path: str | None) -> str:
    return Path(path).read_text(encoding="utf-8") if path else ""


def _token_file(kubeconfig: str, context: str | None) -> str:
    """Return the path of the tokenFile that the context's user has; "" where there is none."""
    import yaml

    try:
        config = yaml.safe_load(Path(kubeconfig).read_text(encoding="utf-8"))
        name = context or config["current-context"]
        users = {entry["name"]: entry["user"] for entry in config["users"]}
        contexts = {entry["name"]: entry["context"] for entry in config["contexts"]}
        file = users[contexts[name]["user"]]["tokenFile"]
    except (KeyError, TypeError):
        return ""
    return str(Path(kubeconfig).parent / file)


@contextmanager
def _collecting(complaints: list[str]) -> Iterator[None]:
    """Collect the errors that the package logs where it should raise them."""
    log = logging.getLogger("kubernetes.aio.config.kube_config")

    class Collector(logging.Handler):
        def emit(self, record: logging.LogRecord) -> None:
            complaints.append(record.getMessage())

    collector, propagated = Collector(logging.ERROR), log.propagate
    log.addHandler(collector)
    log.propagate = False
    try:
        yield
    finally:
        log.removeHandler(collector)
        log.propagate = propagated


def _explain(kubeconfig: str | None, context: str | None, error: Exception) -> str:
    detail = " ".join(str(error).split())
    if kubeconfig is None:
        return f"the in-cluster identity could not be read: {detail}"
    where = f"kubeconfig {kubeconfig}" + (f", context {context}" if context else "")
    return f"{where} could not be used: {detail}"


def main() -> None:
    """Print the identity, or why there is none, as one line of JSON."""
    kubeconfig, context = (argument or None for argument in sys.argv[1:3])
    try:
        told = _Told(asyncio.run(read(kubeconfig, context)))
    except CredentialsError as error:
        told = _Told(error=str(error))
    print("\n" + msgspec.json.encode(told).decode())


if __name__ == "__main__":
    main()
