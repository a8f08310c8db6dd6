"""How many are connected to a node: over all of its listeners, since Kafka's limits are those of a broker."""


class Crowd:
    """Connections, counted in all and by the address that they come from."""

    __slots__ = ("by_address", "count")

    def __init__(self) -> None:
        self.count = 0
        self.by_address: dict[str, int] = {}

    def join(self, address: str) -> int:
        """Returns how many from there it makes."""
        self.count += 1
        count = self.by_address[address] = self.by_address.get(address, 0) + 1
        return count

    def leave(self, address: str) -> None:
        self.count -= 1
        left = self.by_address[address] - 1
        if left:
            self.by_address[address] = left
        else:
            del self.by_address[address]
