"""A pod's effective resource requests.

The formula is Kubernetes' own (component-helpers `resource.PodRequests`; kubernetes.io, "Sidecar containers",
"Resize CPU and memory", "Pod-level resources"):

* the larger of the sum over containers and sidecars, and of each init container with the sidecars before it;
* pod-level requests replace cpu, memory and huge pages;
* overhead is added;
* of a pod that was resized in place, each amount is the largest of spec, status' allocated and status' actual; the
  spec drops out where the resize is infeasible.
"""

from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache

from turb_kub.objects.malformed import LONGEST_NAME
from turb_kub.objects.quantity import QuantityError, parse_quantity, to_units
from turb_kub.objects.wire import Container, ContainerStatus, PodSpec, PodStatus, Quantities

Amounts = dict[str, Fraction]
#: Whole amounts by resource, sorted by name: cpu in thousandths of a core, memory and storage in bytes, others units.
Requests = tuple[tuple[str, int], ...]
#: A resource list as it is written.
Stated = tuple[tuple[str, str | int | float], ...]


def whole_amounts(quantities: Mapping[str, Fraction]) -> Requests:
    """Return exact quantities as whole amounts, rounded up; resources of amount 0 drop out.

    Raises:
        QuantityError: an amount is negative, which would give room away.
    """
    for name, quantity in quantities.items():
        if quantity < 0:
            raise QuantityError(f"{name[:LONGEST_NAME]} is negative")
    return tuple(
        (name, amount) for name in sorted(quantities) if (amount := to_units(quantities[name], milli=name == "cpu"))
    )


def parse_quantities(quantities: Quantities | None) -> Amounts:
    """Parse a resource list. Raises `QuantityError` for one that is malformed."""
    return {name: parse_quantity(text) for name, text in (quantities or {}).items()}


def effective_requests(spec: PodSpec, status: PodStatus) -> Requests:
    """Return what a pod takes from its node. Raises `QuantityError` where a quantity is malformed."""
    if not (spec.initContainers or spec.resources or status.containerStatuses):
        # Most pods, each time one of them changes before it runs; and many of them ask for the same.
        return _of_containers(
            tuple(
                tuple(container.resources.requests.items())
                for container in spec.containers or ()
                if container.resources and container.resources.requests
            ),
            tuple((spec.overhead or {}).items()),
        )
    return _of_all(spec, status)


@lru_cache(maxsize=4096)
def _of_containers(containers: tuple[Stated, ...], overhead: Stated) -> Requests:
    total: Amounts = {}
    for stated in (*containers, overhead):
        _add(total, parse_quantities(dict(stated)))
    return whole_amounts(total)


def _of_all(spec: PodSpec, status: PodStatus) -> Requests:
    statuses = {
        container.name: container
        for container in (*(status.containerStatuses or ()), *(status.initContainerStatuses or ()))
    }
    infeasible = _resize_is_infeasible(status)
    total: Amounts = {}
    for container in spec.containers or ():
        _add(total, _of_container(container, statuses.get(container.name), infeasible=infeasible))
    sidecars: Amounts = {}
    peak: Amounts = {}
    for container in spec.initContainers or ():
        if container.restartPolicy == "Always":
            amounts = _of_container(container, statuses.get(container.name), infeasible=infeasible)
            _add(total, amounts)
            _add(sidecars, amounts)
            _raise_to(peak, sidecars)
        else:
            amounts = _of_container(container, None, infeasible=infeasible)
            _add(amounts, sidecars)
            _raise_to(peak, amounts)
    _raise_to(total, peak)
    total.update(_pod_level(spec, status, infeasible=infeasible))
    _add(total, parse_quantities(spec.overhead))
    return whole_amounts(total)


def _of_container(container: Container, status: ContainerStatus | None, *, infeasible: bool) -> Amounts:
    asked = parse_quantities(container.resources.requests if container.resources else None)
    if status is None or status.resources is None:
        return asked
    actual = parse_quantities(status.resources.requests)
    allocated = parse_quantities(status.allocatedResources)
    return _largest((actual, allocated) if infeasible else (asked, actual, allocated))


def _pod_level(spec: PodSpec, status: PodStatus, *, infeasible: bool) -> Amounts:
    asked = parse_quantities(spec.resources.requests if spec.resources else None)
    asked = {name: amount for name, amount in asked.items() if _may_be_pod_level(name)}
    if not asked or status.resources is None:
        return asked
    actual = parse_quantities(status.resources.requests)
    allocated = parse_quantities(status.allocatedResources)
    largest = _largest((actual, allocated) if infeasible else (asked, actual, allocated))
    return {name: largest.get(name, Fraction(0)) for name in asked}


def _may_be_pod_level(name: str) -> bool:
    return name in {"cpu", "memory"} or name.startswith("hugepages-")


def _resize_is_infeasible(status: PodStatus) -> bool:
    for condition in status.conditions or ():
        if condition.type == "PodResizePending":
            return condition.reason == "Infeasible"
    return False


def _add(total: Amounts, more: Mapping[str, Fraction]) -> None:
    for name, amount in more.items():
        total[name] = total.get(name, Fraction(0)) + amount


def _raise_to(total: Amounts, least: Mapping[str, Fraction]) -> None:
    for name, amount in least.items():
        if amount > total.get(name, Fraction(0)):
            total[name] = amount


def _largest(alternatives: Iterable[Amounts]) -> Amounts:
    result: Amounts = {}
    for amounts in alternatives:
        _raise_to(result, amounts)
    return result
