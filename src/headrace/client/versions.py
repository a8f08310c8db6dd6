"""Which version of an API to speak with a broker: the highest that both sides know."""

from headrace.errors import Error, Refused
from headrace.protocol.apis import find_api
from headrace.protocol.message import Message
from headrace.protocol.messages import ApiVersionsResponse

__all__ = ["Served"]


class Served:
    """What one broker serves, by its own word (ApiVersions)."""

    __slots__ = ("_address", "_ranges", "features")

    def __init__(self, response: ApiVersionsResponse, address: str) -> None:
        self._ranges = {api.api_key: (api.min_version, api.max_version) for api in response.api_keys}
        self._address = address
        self.features = {feature.name: feature.max_version_level for feature in response.finalized_features}
        """What the cluster has agreed on: transaction.version and the like, with their levels."""

    def highest_of(self, api_key: int) -> int | None:
        """The highest version of an API that the broker has, whatever we know of it."""
        served = self._ranges.get(api_key)
        return None if served is None else served[1]

    def choose(self, request: type[Message], version_max: int | None = None) -> int:
        """The highest common version, not above `version_max`. Refused when there is none."""
        key = request.shape.key
        api = find_api(key) if key is not None else None
        assert api is not None, f"{request.shape.name} is not a request"
        served = self._ranges.get(api.key)
        if served is None:
            raise Refused(Error.UNSUPPORTED_VERSION, f"{self._address} does not serve {api.name}: ask another broker.")
        known = api.versions
        highest = min(served[1], known.last if version_max is None else min(known.last, version_max))
        if highest < max(served[0], known.first):
            raise Refused(
                Error.UNSUPPORTED_VERSION,
                f"{self._address} serves {api.name} {served[0]}-{served[1]} and this client speaks {known}: "
                "upgrade the older of the two.",
            )
        return highest
