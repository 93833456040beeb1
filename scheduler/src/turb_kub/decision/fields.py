"""Every field of a PodSpec, and what it means for placement: the table by which turb-kub fails closed.

A field that could bind a pod to some nodes and that no filter here honours keeps the pod Pending, with its name in
the condition; so does a field that this table does not know. A test compares the table with the API server's OpenAPI.
"""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import msgspec

from turb_kub.objects.pod import Pod

#: The name under which this table refuses pods.
FIELDS = "PodSpecFields"
#: Says nothing about which node may take the pod.
IRRELEVANT = "irrelevant"
#: Of the fields that keep a pod from being placed so many are named, with so many characters each.
MOST_NAMED = 10
LONGEST_PATH = 100

Check = Callable[[Any], bool]


class Honoured(str):
    """Honoured by the filter or module of this name."""


class Unsupported:
    """Could constrain placement and is not honoured, where `constrains` holds of its value."""

    def __init__(self, constrains: Check = bool) -> None:
        self.constrains = constrains


Table = Mapping[str, "str | Unsupported | Table"]

_RESOURCES: Table = {
    "requests": Honoured("requests"),
    "limits": IRRELEVANT,
    "claims": Unsupported(),
}
_PORT: Table = {
    "name": IRRELEVANT,
    "containerPort": IRRELEVANT,
    "protocol": Honoured("NodePorts"),
    "hostIP": Honoured("NodePorts"),
    "hostPort": Honoured("NodePorts"),
}
_CONTAINER: Table = {
    "ports": _PORT,
    "resources": _RESOURCES,
    "restartPolicy": Honoured("requests"),
    **dict.fromkeys(
        (
            "name image command args workingDir envFrom env resizePolicy restartPolicyRules volumeMounts volumeDevices "
            "livenessProbe readinessProbe startupProbe lifecycle terminationMessagePath terminationMessagePolicy "
            "imagePullPolicy securityContext stdin stdinOnce tty"
        ).split(),
        IRRELEVANT,
    ),
}
_VOLUME: Table = {
    "persistentVolumeClaim": Honoured("VolumeBinding"),
    "ephemeral": Honoured("VolumeBinding"),
    # Disks that one node at a time may mount (kube-scheduler's VolumeRestrictions).
    "gcePersistentDisk": Unsupported(),
    "awsElasticBlockStore": Unsupported(),
    "iscsi": Unsupported(),
    "rbd": Unsupported(),
    **dict.fromkeys(
        (
            "name hostPath emptyDir gitRepo secret nfs glusterfs flexVolume cinder cephfs flocker downwardAPI fc "
            "azureFile configMap vsphereVolume quobyte azureDisk photonPersistentDisk projected portworxVolume scaleIO "
            "storageos csi image"
        ).split(),
        IRRELEVANT,
    ),
}
_NODE_AFFINITY = Honoured("NodeAffinity")
_PREFERENCES = Honoured("preferences")
_INTER_POD = Honoured("InterPodAffinity")
_SPREAD = Honoured("PodTopologySpread")


def _each(names: str, meaning: "str | Unsupported | Table") -> Table:
    return dict.fromkeys(names.split(), meaning)


def _selector(meaning: str) -> Table:
    return {"matchLabels": meaning, "matchExpressions": _each("key operator values", meaning)}


_POD_TERM: Table = {
    **_each("topologyKey namespaces matchLabelKeys mismatchLabelKeys", _INTER_POD),
    **_each("labelSelector namespaceSelector", _selector(_INTER_POD)),
}
_POD_AFFINITY: Table = {
    "requiredDuringSchedulingIgnoredDuringExecution": _POD_TERM,
    "preferredDuringSchedulingIgnoredDuringExecution": {
        "weight": _PREFERENCES,
        "podAffinityTerm": _POD_TERM,
    },
}
_NODE_TERM: Table = _each("matchExpressions matchFields", _each("key operator values", _NODE_AFFINITY))

POD_SPEC: Table = {
    "affinity": {
        "nodeAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": _NODE_TERM},
            "preferredDuringSchedulingIgnoredDuringExecution": {
                "weight": _PREFERENCES,
                "preference": _NODE_TERM,
            },
        },
        "podAffinity": _POD_AFFINITY,
        "podAntiAffinity": _POD_AFFINITY,
    },
    "containers": _CONTAINER,
    "initContainers": _CONTAINER,
    "nodeName": Honoured("cluster"),
    "nodeSelector": Honoured("NodeAffinity"),
    "os": {"name": Unsupported(lambda name: name != "linux")},
    "overhead": Honoured("requests"),
    "priority": Honoured("queue"),
    "resourceClaims": Unsupported(),
    "resources": _RESOURCES,
    "schedulerName": Honoured("loop"),
    "schedulingGates": Honoured("queue"),
    # Pod groups: placing one member at a time could start a partial gang.
    "schedulingGroup": Unsupported(),
    "tolerations": Honoured("TaintToleration"),
    "topologySpreadConstraints": {
        "labelSelector": _selector(_SPREAD),
        **_each(
            "maxSkew topologyKey whenUnsatisfiable minDomains nodeAffinityPolicy nodeTaintsPolicy matchLabelKeys",
            _SPREAD,
        ),
    },
    "volumes": _VOLUME,
    "workloadRef": Unsupported(),
    **dict.fromkeys(
        (
            # The kubelet alone acts on these.
            "activeDeadlineSeconds automountServiceAccountToken dnsConfig dnsPolicy enableServiceLinks "
            "ephemeralContainers hostAliases hostIPC hostNetwork hostPID hostUsers hostname hostnameOverride "
            "imagePullSecrets readinessGates restartPolicy securityContext serviceAccount serviceAccountName "
            "setHostnameAsFQDN shareProcessNamespace subdomain terminationGracePeriodSeconds "
            # Preemption is not ours; admission turns the class into `priority`.
            "preemptionPolicy priorityClassName "
            # Admission merges its overhead, nodeSelector and tolerations into the pod.
            "runtimeClassName"
        ).split(),
        IRRELEVANT,
    ),
}


def unsupported_fields(spec: Mapping[str, Any]) -> tuple[list[str], list[str]]:
    """Return the fields set in a pod's raw spec that are not supported, and those that are not known, as paths."""
    if _passes(spec, POD_SPEC):
        return [], []
    unsupported: list[str] = []
    unknown: list[str] = []
    for path, known in _walk("spec", spec, POD_SPEC):
        (unsupported if known else unknown).append(path)
    return sorted(set(unsupported)), sorted(set(unknown))


def checked_fields(pod: Pod) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return `unsupported_fields` of a pod's spec. Remembered with the pod, whose raw spec is then let go."""
    if pod.fields is None:
        unsupported, unknown = unsupported_fields(msgspec.json.decode(pod.raw_spec)) if pod.raw_spec else ([], [])
        pod.fields = (_named(unsupported), _named(unknown))
        pod.raw_spec = None
    return pod.fields


def _named(paths: list[str]) -> tuple[str, ...]:
    """The first of the paths, none longer than a line: they go into conditions, however many and long they are."""
    return tuple(path if len(path) <= LONGEST_PATH else f"{path[:LONGEST_PATH]}..." for path in paths[:MOST_NAMED])


def field_refusal(pod: Pod, *, unknown_fail: bool) -> str | None:
    """Return why a pod's fields keep it from being placed; None where they do not.

    Args:
        unknown_fail: whether a field that is not in the table does.
    """
    unsupported, unknown = checked_fields(pod)
    if unsupported:
        return f"pod uses {', '.join(unsupported)}, which turb-kub does not support"
    if unknown and unknown_fail:
        return f"pod uses {', '.join(unknown)}, which this version of turb-kub does not know"
    return None


def _passes(value: Any, table: Table) -> bool:
    """Tell whether `_walk` yields nothing: nearly always so, and told in a fraction of the time without the paths."""
    if isinstance(value, list):
        return all(_passes(item, table) for item in value)
    if not isinstance(value, dict):
        return True
    for name, child in value.items():
        entry = table.get(name)
        if isinstance(entry, str) or child is None or child in ({}, [], ""):
            continue
        if entry is None or (entry.constrains(child) if isinstance(entry, Unsupported) else not _passes(child, entry)):
            return False
    return True


def _walk(path: str, value: Any, table: Table) -> Iterator[tuple[str, bool]]:
    """Yield paths that keep the pod from being placed, each with whether the table knows the field."""
    if isinstance(value, list):
        for item in value:
            yield from _walk(f"{path}[]", item, table)
        return
    if not isinstance(value, Mapping):
        return
    for name, child in value.items():
        if child is None or child in ({}, [], ""):
            continue
        here = f"{path}.{name}"
        entry = table.get(name)
        if entry is None:
            yield here, False
        elif isinstance(entry, Unsupported):
            if entry.constrains(child):
                yield here, True
        elif isinstance(entry, Mapping):
            yield from _walk(here, child, entry)
