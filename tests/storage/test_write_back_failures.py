"""Hazard 8 on a real file system: what a write-back loses, the next sync tells, whoever started the write-back.

The kernel tells each open file of such a failure once. Who asks for a write-back and waits for it hears of it then, and
the sync behind would say that all is well. Only a device that fails shows it: a file system in a file that has holes,
on one that is full by now. That takes root, and is left out without.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

TOOLS = ("unshare", "mount", "umount", "losetup", "mkfs.ext4")

SET_UP = """
set -e
cd "$1"
mkdir below mounted
mount -t tmpfs -o size=60m none below
truncate -s 40m below/image
device=$(losetup -f --show below/image)
trap 'umount mounted || true; losetup -d '"$device"'; umount below' EXIT
mkfs.ext4 -q -b 4096 -J size=4 -E nodiscard,lazy_itable_init=0,lazy_journal_init=0 "$device"
mount "$device" mounted
mkdir mounted/data
sync -f mounted
echo ready
dd if=/dev/zero of=below/fill bs=64k status=none 2> /dev/null || true
"$2" "$3" "$PWD/mounted/data"
"""


def main(root: str) -> None:
    """Prints what the sync says that follows a write-behind, without syncs beside it and with them."""
    import asyncio

    from headrace.storage.disk import SyncFailed
    from headrace.storage.local_disk import LocalDisk
    from headrace.storage.syncs import ThreadSyncs
    from headrace.storage.write_behind import ThreadWriteBehind

    async def check(name: str, *, is_synced_beside: bool) -> None:
        disk = LocalDisk(root)
        file = disk.open(name, create=True)
        told: list[BaseException | None] = []
        syncs = ThreadSyncs(asyncio.get_running_loop(), disk, lambda count, outcome, error: told.append(error))
        behind = ThreadWriteBehind(disk)
        behind.start(file, 0, 4096)
        await asyncio.sleep(0.1)
        if is_synced_beside:
            disk.sync_beats[0] += 2
        file.write(0, [os.urandom(512 << 10)])
        behind.start(file, 0, 512 << 10)
        await asyncio.sleep(0.5)  # until the device has failed
        behind.stop()
        assert syncs.start({file: None}, 0)
        while not told:
            await asyncio.sleep(0.01)
        syncs.stop()
        print(name, "failed" if isinstance(told[0], SyncFailed) else "durable", flush=True)

    asyncio.run(check("alone", is_synced_beside=False))
    asyncio.run(check("beside", is_synced_beside=True))


@pytest.mark.skipif(os.geteuid() != 0, reason="only root makes file systems")
@pytest.mark.skipif(not all(map(shutil.which, TOOLS)), reason="a tool that makes file systems is missing")
def test_hazard_8_what_a_write_behind_loses_the_next_sync_tells(tmp_path: Path) -> None:
    command = ["unshare", "-m", "bash", "-c", SET_UP, "bash", str(tmp_path), sys.executable, __file__]
    done = subprocess.run(command, capture_output=True, text=True, timeout=120, check=False)
    ready, _, said = done.stdout.partition("\n")
    if ready != "ready":
        pytest.skip(f"no file system can be made here: {done.stderr.strip()}")
    assert said == "alone failed\nbeside failed\n", done.stderr


if __name__ == "__main__":
    main(sys.argv[1])
