"""What can go wrong on the wire, by what the caller may conclude from it."""

from turb_kub.objects.malformed import Remains


class CredentialsError(Exception):
    """No usable kubeconfig or in-cluster identity. The text says what is wrong and what to do."""


class ApiError(Exception):
    """The API server answered, and refused.

    Attributes:
        status: HTTP status code.
        reason: the Status object's reason, "" where there is none.
        message: its message, or the start of the body.
        retry_after: seconds that the server asked to wait; 0 where it did not.
    """

    def __init__(self, status: int, reason: str, message: str, retry_after: float = 0.0) -> None:
        super().__init__(f"{status} {reason}: {message}" if reason else f"{status}: {message}")
        self.status = status
        self.reason = reason
        self.message = message
        self.retry_after = retry_after

    @property
    def ambiguous(self) -> bool:
        """Whether a write may have been carried out all the same."""
        return self.status >= 500

    @property
    def object_is_another(self) -> bool:
        """Whether a write with uid or resourceVersion was refused because the object is another one now, or is gone."""
        return self.status in {404, 409} or (self.status == 422 and "metadata.uid" in self.message)


class Unreachable(Exception):
    """No answer came: refused, timed out, cut off. A write may or may not have been carried out."""

    #: As of `ApiError`: nobody has asked for a pause, nor spoken of the object.
    retry_after = 0.0
    object_is_another = False


class MalformedPod(Exception):
    """The pod was read, and is not to be understood; `remains` is what can be."""

    def __init__(self, remains: Remains, error: Exception) -> None:
        super().__init__(str(error))
        self.remains = remains


class Expired(Exception):
    """The resourceVersion of a watch is too old (410 Gone); only a new list helps."""
