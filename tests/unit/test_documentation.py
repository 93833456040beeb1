"""What the documentation says of the scheduler is what the scheduler does."""

import re
from pathlib import Path

import pytest
from turb_kub.cli.kubectl import COMMAND
from turb_kub.cli.main import main
from turb_kub.decision.decide import decide
from turb_kub.decision.filters import (
    NODE_FILTERS,
    inter_pod_affinity,
    kubelet_rejection,
    node_closed,
    node_ports,
    pod_topology_spread,
    shared_nodes,
)
from turb_kub.decision.filters.node_resources import OVER_LIMIT, TOO_MANY_PODS
from turb_kub.decision.policy import Policy
from turb_kub.settings.settings import TABLE

from tests.unit.objects import cluster_of, node, pod

TEXT = (Path(__file__).parents[2] / "docs/scheduler.md").read_text()


def test_every_setting_is_described_with_its_default():
    for setting in TABLE:
        row = next(line for line in TEXT.splitlines() if line.startswith("| `") and f"`{setting.name}`" in line)
        assert f"`{setting.default}`" in row or (not setting.default and "unset" in row), setting.name


def test_every_reason_is_described():
    for reason in (
        *(one.reason for one in NODE_FILTERS),
        node_closed.REASON,
        node_ports.REASON,
        OVER_LIMIT,
        TOO_MANY_PODS,
        pod_topology_spread.TOO_SKEWED,
        inter_pod_affinity.NOT_NEAR,
        inter_pod_affinity.NOT_APART,
        inter_pod_affinity.KEPT_AWAY,
        kubelet_rejection.REASON,
        shared_nodes.REASON,
    ):
        assert f"`{reason}`" in TEXT


def test_the_command_that_writes_a_file_is_the_same_everywhere(capsys):
    assert COMMAND in " ".join(TEXT.split())
    with pytest.raises(SystemExit):
        main(["explain", "--help"])
    assert COMMAND.replace(" ", "") in "".join(capsys.readouterr().out.split())


def test_the_policy_of_ones_own_works_as_shown():
    shown = re.search(r"    (from turb_kub.*?)\n    # pyproject", TEXT, re.DOTALL)
    assert shown is not None
    names: dict[str, type[Policy]] = {}
    exec("\n".join(line[4:] for line in ("    " + shown[1]).splitlines()), names)
    cluster = cluster_of(node("a", pods="3"), node("b", pods="9"))
    assert decide(cluster, pod("p"), names["MostFreePods"]()).node == "b"
