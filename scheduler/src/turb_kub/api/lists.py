"""Lists, page by page (kubernetes.io, "Kubernetes API Concepts: Retrieving large results sets in chunks")."""

from collections.abc import AsyncIterator, Mapping

from turb_kub.api.client import Client, Pool
from turb_kub.api.errors import Unreachable
from turb_kub.objects.malformed import MALFORMED
from turb_kub.objects.wire import Decoder, WireList

#: Objects of one page.
PAGE = 500
#: Seconds for one page.
LIST_TIMEOUT = 60.0

_lists = Decoder(WireList)


async def read_page(
    client: Client,
    path: str,
    *,
    resource: str,
    query: Mapping[str, str],
    timeout: float | None = None,
    pool: Pool = Pool.REQUESTS,
) -> WireList:
    """Return one page of a list. The keywords are those of `Client.request`, `timeout` by default `LIST_TIMEOUT`.

    Raises:
        ApiError: the server refused.
        Unreachable: no answer, or none that is a list.
    """
    timeout = LIST_TIMEOUT if timeout is None else timeout
    answer = await client.request("GET", path, resource=resource, query=query, timeout=timeout, pool=pool)
    try:
        page = _lists.decode(answer)
    except MALFORMED as error:
        raise Unreachable(f"the answer to a list is no list: {error}") from error
    if not is_version(page.metadata.resourceVersion):
        # Taken for an empty list it would wipe out all that is known.
        raise Unreachable("the answer to a list is no list: it has no resourceVersion")
    return page


async def pages(
    client: Client,
    path: str,
    *,
    resource: str,
    query: Mapping[str, str] | None = None,
    timeout: float | None = None,
    pool: Pool = Pool.REQUESTS,
) -> AsyncIterator[WireList]:
    """Yield the pages of a list, all of one resourceVersion. Raises as `read_page`; 410 where the list is too old."""
    asked = {**(query or {}), "limit": str(PAGE)}
    while True:
        page = await read_page(client, path, resource=resource, query=asked, timeout=timeout, pool=pool)
        yield page
        rest = page.metadata.continue_
        if not rest:
            return
        if rest == asked.get("continue"):
            raise Unreachable("the answer to a list is no list: its pages have no end")
        asked["continue"] = rest


def is_version(text: str) -> bool:
    """Whether a watch can go on from this resourceVersion: "0" and none would begin anywhere (API Concepts)."""
    return text not in {"", "0"}
