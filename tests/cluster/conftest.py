"""The bare control plane as a fixture, one for all tests of this folder."""

from collections.abc import AsyncIterator, Iterator

import pytest
from turb_kub.api.client import Client
from turb_kub.api.credentials import load_credentials

from tests.ansible.conftest import WITH_SCHEDULER, find_programs
from tests.api.conftest import Admin
from tests.cluster.control_plane import ControlPlane, control_plane


@pytest.fixture(scope="session")
def bare(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ControlPlane]:
    """A control plane of etcd and kube-apiserver alone."""
    with control_plane(tmp_path_factory.mktemp("bare"), find_programs(**WITH_SCHEDULER)) as running:
        yield running


@pytest.fixture
async def admin(bare: ControlPlane) -> AsyncIterator[Admin]:
    """The administrator of the bare API server. Whatever pods and nodes the test made are gone after it."""
    async with Client(await load_credentials(str(bare.kubeconfig), None)) as client:
        found = Admin(client)
        yield found
        await found.call("DELETE", "/api/v1/namespaces/default/pods", gracePeriodSeconds="0")
        await found.call("DELETE", "/api/v1/nodes")
