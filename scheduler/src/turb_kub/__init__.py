"""turb-kub: a Kubernetes scheduler that gives each node an honest memory budget.

Data flows one way through the packages below, and each imports only from those left of it:

    objects → cluster → decision → queue → api → settings → loop → cli
"""

from importlib.metadata import PackageNotFoundError, version

try:
    __version__ = version("turb-kub")
except PackageNotFoundError:  # run from a source tree that was never installed
    __version__ = "0+unknown"
