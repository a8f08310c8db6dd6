"""The broker: what a client's request meets, and the node that wires everything together."""
