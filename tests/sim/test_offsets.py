"""Some seeds of offsets in trouble, and defects that they find. More: --scenario tests.sim.offsets:offsets"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.coordinator import hosted
from headrace.coordinator.hosted import HostedShard
from headrace.coordinator.loading import Loading
from headrace.errors import Error
from headrace.replica.partition import Partition
from headrace.testing.sim.run import run_seed
from tests.sim.offsets import offsets

SEEDS_A_TEST = 15


@pytest.mark.parametrize("first", range(0, 45, SEEDS_A_TEST))
def test_seeds(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run = run_seed(offsets, seed)
        assert run.is_ok, f"seed {seed} of offsets: {run.failure}"


def told_before_the_commit(patch: pytest.MonkeyPatch) -> None:
    """A commit of offsets is answered when it is appended."""

    def wait_for(self: HostedShard, partition: Partition, offset: int) -> None:  # type: ignore[type-arg]
        self._committed = offset
        while self._waiting and self._waiting[0][0] <= offset:
            self._tell(self._waiting.popleft()[2])

    patch.setattr(HostedShard, "_wait_for", wait_for)


def offsets_lost_at_the_load(patch: pytest.MonkeyPatch) -> None:
    """The first chunks of the log are taken for all of it."""
    read = Loading._read

    def read_little(self: Loading) -> None:
        if self.records > 5:
            self._end(None)
        else:
            read(self)

    patch.setattr(Loading, "_read", read_little)


def state_kept_after_a_failed_write(patch: pytest.MonkeyPatch) -> None:
    """Who waited is refused, and what the log does not have stays in memory (hazard 13)."""

    def fail(self: HostedShard, told: Error, why: Exception) -> None:  # type: ignore[type-arg]
        waiting = list(self._waiting)
        self._forget()
        for _, _, outcome in waiting:
            hosted._refuse_all(outcome, told)
        if self._partition is not None:
            self._next_offset = self._partition.log_end_offset

    patch.setattr(HostedShard, "_fail", fail)


@pytest.mark.parametrize(
    ("plant", "seeds"),
    [
        (told_before_the_commit, range(30)),
        (offsets_lost_at_the_load, range(30)),
        (state_kept_after_a_failed_write, range(100)),
    ],
)
def test_a_planted_defect_is_found(
    plant: Callable[[pytest.MonkeyPatch], None], seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    plant(monkeypatch)
    runs = (run_seed(offsets, seed) for seed in seeds)
    failed = next((run for run in runs if not run.is_ok), None)
    assert failed is not None
    assert "problems, the first" in str(failed.failure)
