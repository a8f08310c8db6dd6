"""Verifying: every batch of every segment, and everything else in a log directory against them. Nothing is changed.

It works beside a running node and after any kind of stop. What a node's next start mends by itself after an unclean
stop is a note; what was durable and is not sound is damage (hazard 8), whatever it would take to find it otherwise.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from headrace.storage.inventory import Inventory
from headrace.storage.verify_files import Checkpoints, check_directory, check_metadata_snapshot
from headrace.storage.verify_partition import PartitionCheck
from headrace.storage.verify_report import Report


def verify(
    inventory: Inventory, *, deep: bool = False, advanced: Callable[[int], None] | None = None
) -> Iterator[Report]:
    """A report on each partition, and one on the directory itself at last, where all of it was to be verified.

    `deep` opens each batch and reads its records too. `advanced` hears of the bytes as they are read, in all
    `inventory.walk_bytes` unless files come or go.
    """
    disk = inventory.disk
    directory = Report("")
    checkpoints = Checkpoints(inventory, directory)
    for partition in inventory.partitions:
        yield PartitionCheck(disk, partition, checkpoints, deep, advanced).run()
    if inventory.is_whole:
        check_directory(inventory, directory)
        checkpoints.check_folders(inventory, directory)
    for name in inventory.files:
        if name.endswith(".checkpoint") and inventory.is_whole:
            check_metadata_snapshot(disk, name, directory, advanced)
    if inventory.is_whole or not directory.is_sound:
        yield directory
