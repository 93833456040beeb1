"""What all tests share: whether they run at full length."""

import pytest


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
