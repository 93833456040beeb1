"""The module service_account_token, with a stand-in for kubectl."""

import base64
import json
import time
from pathlib import Path
from typing import Any

import pytest

from tests.ansible.conftest import load_module, run_module

UID = "7a5cbbf0-6d6b-4a3b-8f7f-2c9d4f0a1b2c"
DAY = 24 * 3600


def token(issued: float, expires: float, uid: str = UID, **more: Any) -> str:
    """A token with these claims; nobody here looks at its signature."""
    payload = {"iat": issued, "exp": expires, "kubernetes.io": {"serviceaccount": {"uid": uid}}} | more

    def part(content: dict[str, Any]) -> str:
        return base64.urlsafe_b64encode(json.dumps(content).encode()).rstrip(b"=").decode()

    return f"{part({'alg': 'RS256'})}.{part(payload)}.c2lnbmF0dXJl"


@pytest.mark.parametrize(
    ("age", "life", "uid", "reason"),
    [
        (0, DAY, UID, ""),
        (DAY / 2 - 1, DAY, UID, ""),
        (DAY / 2, DAY, UID, "half of its life is over"),
        (2 * DAY, DAY, UID, "half of its life is over"),
        # The API server may grant less or more than was asked for; what it granted counts.
        (400, 600, UID, "half of its life is over"),
        (0, DAY, "another", "it belongs to a ServiceAccount that is gone"),
    ],
)
def test_a_token_is_renewed_when_less_than_half_of_its_life_is_left(
    age: float, life: float, uid: str, reason: str
) -> None:
    now = 1_800_000_000.0
    given = token(now - age, now - age + life, uid)
    assert load_module("service_account_token").why_renew(given, UID, now) == reason


@pytest.mark.parametrize("text", ["", "abc", "a.b.c", "a.bm8ganNvbg.c", "a.W10.c", "a.e30.c"])
def test_what_is_no_token_is_replaced(text: str) -> None:
    assert load_module("service_account_token").why_renew(text, UID, 0) == "what is there is no ServiceAccount's token"


@pytest.fixture
def arguments(tmp_path: Path) -> dict[str, str]:
    """Arguments for the module, with a kubectl that notes how it was called and answers with a new token."""
    fresh = token(time.time(), time.time() + DAY)
    kubectl = tmp_path / "kubectl"
    kubectl.write_text(f'#!/bin/sh\necho "$@" >>{tmp_path}/calls\necho {fresh}\n')
    kubectl.chmod(0o755)
    return {
        "path": str(tmp_path / "token"),
        "name": "turb-kub",
        "namespace": "kube-system",
        "uid": UID,
        "kubectl": str(kubectl),
        "kubeconfig": "/of/the/admin",
        "context": "demo",
    }


def test_the_token_is_written_for_the_user_alone_and_never_shown(arguments: dict[str, str], tmp_path: Path) -> None:
    result = run_module("service_account_token", arguments, tmp_path)
    assert (result["changed"], result["reason"]) == (True, "there was none")
    file = tmp_path / "token"
    assert file.stat().st_mode & 0o777 == 0o600
    assert file.read_text().count(".") == 2
    assert file.read_text().strip() not in json.dumps(result)
    assert (tmp_path / "calls").read_text().split() == [
        "create", "token", "turb-kub", "--namespace=kube-system", "--duration=24h", "--kubeconfig=/of/the/admin",
        "--context=demo",
    ]  # fmt: skip
    assert not run_module("service_account_token", arguments, tmp_path)["changed"]
    assert len((tmp_path / "calls").read_text().splitlines()) == 1


def test_check_mode_tells_and_does_nothing(arguments: dict[str, str], tmp_path: Path) -> None:
    assert run_module("service_account_token", {**arguments, "_ansible_check_mode": True}, tmp_path)["changed"]
    assert not (tmp_path / "token").exists()
    assert not (tmp_path / "calls").exists()


def test_a_token_that_others_can_read_is_replaced(arguments: dict[str, str], tmp_path: Path) -> None:
    run_module("service_account_token", arguments, tmp_path)
    (tmp_path / "token").chmod(0o644)
    assert run_module("service_account_token", arguments, tmp_path)["reason"] == "others could read it"
    assert (tmp_path / "token").stat().st_mode & 0o777 == 0o600


def test_a_refusal_says_for_which_account_and_why(arguments: dict[str, str], tmp_path: Path) -> None:
    Path(arguments["kubectl"]).write_text(
        "#!/bin/sh\necho 'error: may not specify a duration less than 10m' >&2\nexit 1\n"
    )
    failed = run_module("service_account_token", {**arguments, "duration": "1m"}, tmp_path)
    assert failed["msg"] == (
        "No token for ServiceAccount kube-system/turb-kub with a life of 1m: error: may not specify a duration less"
        " than 10m"
    )
    assert not (tmp_path / "token").exists()
