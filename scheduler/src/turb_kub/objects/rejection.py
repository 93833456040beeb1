"""What a kubelet says of a pod that it turned away although the pod was bound to its node.

Such a pod is Failed for good and keeps its nodeName. Source: pkg/kubelet (`rejectPod`: the message's beginning, and
the reasons that kubelet's own metric of rejections names). Kubelets older than 1.20 write another message; the reasons
that nothing but admission gives tell them.
"""

import msgspec

from turb_kub.objects.wire import PodStatus

_MESSAGE = "Pod was rejected"
_SHORT_OF = "OutOf"
EXTENDED_RESOURCE = "OutOfExtendedResources"
OTHER = "Other"

#: Reasons that only admission gives, whatever the message says.
_OF_ADMISSION = frozenset(
    {
        "AppArmor",
        "InitContainerRestartPolicyForbidden",
        "InvalidNodeInfo",
        "NodeAffinity",
        "NodeName",
        "NodePorts",
        "OutOfcpu",
        "OutOfephemeral-storage",
        "OutOfmemory",
        "OutOfpods",
        "PodLevelResourcesNotSupported",
        "PodOSNotSupported",
        "PodOSSelectorNodeLabelDoesNotMatch",
        "SMTAlignmentError",
        "SupplementalGroupsPolicyNotSupported",
        "SysctlForbidden",
        "TaintToleration",
        "TopologyAffinityError",
        "UnexpectedAdmissionError",
    }
)
#: Reasons that a pod may have for other ends as well, so that there the message decides.
_OF_ADMISSION_AND_OTHERS = frozenset({"Evicted", "NodeShutdown", "VolumeAttachmentLimitExceeded"})


class Rejection(msgspec.Struct, frozen=True, gc=False):
    """Why a kubelet turned a pod away, in its own words."""

    reason: str
    message: str

    @property
    def label(self) -> str:
        """The reason as one of some twenty values, for a metric: extended resources have any name there is."""
        if self.reason in _OF_ADMISSION or self.reason in _OF_ADMISSION_AND_OTHERS:
            return self.reason
        return EXTENDED_RESOURCE if self.reason.startswith(_SHORT_OF) else OTHER


def rejection_of(status: PodStatus) -> Rejection | None:
    """Return why the kubelet turned a pod away; None where the pod did not fail, or failed otherwise."""
    if status.phase != "Failed":
        return None
    reason, message = status.reason or "", status.message or ""
    if not (message.startswith(_MESSAGE) or reason in _OF_ADMISSION or _is_shortage(reason)):
        return None
    return Rejection(reason, message)


def _is_shortage(reason: str) -> bool:
    return reason.startswith(_SHORT_OF) and len(reason) > len(_SHORT_OF)
