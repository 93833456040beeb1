"""The settings and how each is understood from text."""

import re
from collections.abc import Callable
from typing import Any

import msgspec

from turb_kub.objects.node import parse_mebibytes
from turb_kub.objects.quantity import QuantityError

#: Seconds: an hour, beyond which no time-out is one.
LONGEST_TIME = 3600
#: As in client-go: what the retry period is multiplied by at the least before it is held against the renew deadline.
RETRY_JITTER = 1.2
_DNS_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]*[a-z0-9])?")


class SettingsError(ValueError):
    """A setting that is not understood. The text names it, says what is wrong and what would do."""


def _mebibytes(text: str) -> int | None:
    if not text:
        return None
    try:
        return parse_mebibytes(text)
    except QuantityError as error:
        raise SettingsError(str(error)) from error


def _namespaces(text: str) -> frozenset[str] | None:
    names = frozenset(name.strip() for name in text.split(",") if name.strip())
    for name in names:
        _name(name)
    return names or None


def _name(text: str) -> str:
    if not _DNS_NAME.fullmatch(text) or len(text) > 253:
        raise SettingsError(f"{text!r} is not a name (lower case letters, digits, '-' and '.', for example turb-kub)")
    return text


def _optional_name(text: str) -> str | None:
    return _name(text) if text else None


def _whole(least: int, most: int) -> Callable[[str], int]:
    def parse(text: str) -> int:
        if not (text.isascii() and text.isdecimal() and len(text) < 12 and least <= int(text) <= most):
            raise SettingsError(f"{text!r} is not a whole number from {least} to {most}")
        return int(text)

    return parse


def _percent(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 <= value <= 100:
        raise SettingsError(f"{text!r} is not a number from 0 to 100")
    return value


def _choice(*choices: str) -> Callable[[str], str]:
    def parse(text: str) -> str:
        if text not in choices:
            raise SettingsError(f"{text!r} is none of {', '.join(choices)}")
        return text

    return parse


def boolean(text: str) -> bool:
    """Return what "true" or "false" says. Raises `SettingsError`."""
    if text.lower() not in {"true", "false"}:
        raise SettingsError(f"{text!r} is neither true nor false")
    return text.lower() == "true"


def _seconds(text: str) -> float:
    try:
        value = float(text)
    except ValueError:
        value = -1.0
    if not 0 < value <= LONGEST_TIME:
        raise SettingsError(f"{text!r} is not a number of seconds above 0, at most {LONGEST_TIME}")
    return value


class Settings(msgspec.Struct, frozen=True):
    """The settings as values. Memory in bytes, time in seconds."""

    node_mem_limit_mb: int | None = None
    scheduler_name: str = "turb-kub"
    default_request_mb: int | None = None
    accounting_namespaces: frozenset[str] | None = None
    policy: str = "least-requested-memory"
    tie_percent: float = 1.0
    unknown_fields: str = "fail"
    shared_node_guard: str = "auto"
    binds_in_flight: int = 32
    bind_timeout_seconds: float = 4.0
    leader_elect: bool = False
    lease_namespace: str = "kube-system"
    lease_name: str | None = None
    lease_duration_seconds: int = 15
    renew_deadline_seconds: float = 10.0
    retry_period_seconds: float = 2.0
    http_host: str = "127.0.0.1"
    http_port: int = 10270
    log_level: str = "info"
    log_format: str = "text"


class Setting(msgspec.Struct, frozen=True):
    """One row of the table."""

    name: str
    field: str
    default: str
    help: str
    parse: Callable[[str], Any]

    @property
    def flag(self) -> str:
        return "--" + self.field.replace("_", "-")


TABLE: tuple[Setting, ...] = (
    Setting(
        "NODE_MEM_LIMIT_MB",
        "node_mem_limit_mb",
        "",
        "memory ceiling of every node in MiB; unset: the node's allocatable memory alone",
        _mebibytes,
    ),
    Setting(
        "TURB_KUB_SCHEDULER_NAME",
        "scheduler_name",
        "turb-kub",
        "the spec.schedulerName of the pods to place",
        _name,
    ),
    Setting(
        "TURB_KUB_DEFAULT_REQUEST_MB",
        "default_request_mb",
        "",
        "what a pod without a memory request counts under the ceiling, in MiB; unset: nothing",
        _mebibytes,
    ),
    Setting(
        "TURB_KUB_ACCOUNTING_NAMESPACES",
        "accounting_namespaces",
        "",
        "namespaces, separated by commas, whose pods count towards load and ceiling; unset: all",
        _namespaces,
    ),
    Setting(
        "TURB_KUB_POLICY",
        "policy",
        "least-requested-memory",
        "how feasible nodes are ranked; a name registered under turb_kub.policies",
        str,
    ),
    Setting(
        "TURB_KUB_TIE_PERCENT",
        "tie_percent",
        "1",
        "loads that differ by no more than this percentage of the ceiling are tied",
        _percent,
    ),
    Setting(
        "TURB_KUB_UNKNOWN_FIELDS",
        "unknown_fields",
        "fail",
        "a pod with a spec field that this version does not know: fail (it stays Pending) or warn (it is placed)",
        _choice("fail", "warn"),
    ),
    Setting(
        "TURB_KUB_SHARED_NODE_GUARD",
        "shared_node_guard",
        "auto",
        "a node's pods are read fresh right before a bind: always, never, or auto (where it holds another scheduler's)",
        _choice("auto", "always", "never"),
    ),
    Setting(
        "TURB_KUB_BINDS_IN_FLIGHT",
        "binds_in_flight",
        "32",
        "how many bindings may be under way at once",
        _whole(1, 1000),
    ),
    Setting(
        "TURB_KUB_BIND_TIMEOUT_SECONDS",
        "bind_timeout_seconds",
        "4",
        "after how many seconds without an answer a binding counts as lost",
        _seconds,
    ),
    Setting(
        "TURB_KUB_LEADER_ELECT",
        "leader_elect",
        "false",
        "true: place pods only while holding the lease, so that of several replicas one does; false: always",
        boolean,
    ),
    Setting(
        "TURB_KUB_LEASE_NAMESPACE",
        "lease_namespace",
        "kube-system",
        "the namespace of the lease",
        _name,
    ),
    Setting(
        "TURB_KUB_LEASE_NAME",
        "lease_name",
        "",
        "the name of the lease; unset: the scheduler's name",
        _optional_name,
    ),
    Setting(
        "TURB_KUB_LEASE_DURATION_SECONDS",
        "lease_duration_seconds",
        "15",
        "after how many seconds without a renewal another replica takes the lease",
        _whole(1, LONGEST_TIME),
    ),
    Setting(
        "TURB_KUB_RENEW_DEADLINE_SECONDS",
        "renew_deadline_seconds",
        "10",
        "how many seconds after its last renewal the holder of the lease stops binding and ends",
        _seconds,
    ),
    Setting(
        "TURB_KUB_RETRY_PERIOD_SECONDS",
        "retry_period_seconds",
        "2",
        "how many seconds lie between two renewals, and between two tries to take the lease",
        _seconds,
    ),
    Setting(
        "TURB_KUB_HTTP_HOST",
        "http_host",
        "127.0.0.1",
        "address on which /livez, /readyz and /metrics are served",
        str,
    ),
    Setting("TURB_KUB_HTTP_PORT", "http_port", "10270", "port of the same; 0: any free one", _whole(0, 65535)),
    Setting(
        "TURB_KUB_LOG_LEVEL",
        "log_level",
        "info",
        "debug, info, warning or error",
        _choice("debug", "info", "warning", "error"),
    ),
    Setting("TURB_KUB_LOG_FORMAT", "log_format", "text", "text or json", _choice("text", "json")),
)


def check_together(settings: Settings) -> None:
    """Check what no setting shows by itself. Raises `SettingsError`.

    The times of the lease are checked where there is one: for what they must keep to see `turb_kub.loop.election`.
    """
    if not settings.leader_elect:
        return
    lease, renew = settings.lease_duration_seconds, settings.renew_deadline_seconds
    retry, bind = settings.retry_period_seconds, settings.bind_timeout_seconds
    if renew >= lease:
        raise SettingsError(
            f"TURB_KUB_RENEW_DEADLINE_SECONDS is {renew:g}, but has to be less than "
            f"TURB_KUB_LEASE_DURATION_SECONDS, {lease}"
        )
    if retry * RETRY_JITTER >= renew:
        raise SettingsError(
            f"TURB_KUB_RETRY_PERIOD_SECONDS is {retry:g}, but {RETRY_JITTER:g} times as much has to be less than "
            f"TURB_KUB_RENEW_DEADLINE_SECONDS, {renew:g}"
        )
    if bind >= lease - renew:
        raise SettingsError(
            f"TURB_KUB_BIND_TIMEOUT_SECONDS is {bind:g}, but has to be less than the {lease - renew:g} s from "
            f"TURB_KUB_RENEW_DEADLINE_SECONDS to TURB_KUB_LEASE_DURATION_SECONDS, so that no binding comes late"
        )
