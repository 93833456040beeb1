"""What all tests share: whether they run at full length, and that no test is judged by its time."""

import pytest
from hypothesis import HealthCheck, settings

# On a busy machine an example may take any time: that says nothing of the code.
settings.register_profile("turb-kub", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("turb-kub")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--soak",
        action="store_true",
        help="run the tests of generated cases (marker soak) at full length; without it at a tenth of it or less",
    )


@pytest.fixture(scope="session")
def soak(pytestconfig: pytest.Config) -> bool:
    """Whether this run is of full length. A test that asks has the marker `soak`."""
    return bool(pytestconfig.getoption("soak"))
