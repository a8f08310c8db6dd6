"""Some seeds of offsets in trouble, and defects that they find. More: --scenario tests.sim.offsets:offsets"""

from __future__ import annotations

from collections.abc import Callable

import pytest

from headrace.coordinator import hosted
from headrace.coordinator.hosted import HostedShard
from headrace.errors import Error
from headrace.testing.sim.run import run_seed
from tests.sim.offsets import offsets
from tests.sim.test_coordinators_planted import offsets_are_lost_at_the_load, told_before_it_is_committed

SEEDS_A_TEST = 15


@pytest.mark.parametrize("first", range(0, 45, SEEDS_A_TEST))
def test_seeds(first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run = run_seed(offsets, seed)
        assert run.is_ok, f"seed {seed} of offsets: {run.failure}"


def state_kept_after_a_failed_write(patch: pytest.MonkeyPatch) -> None:
    """Who waited is refused, and what the log does not have stays in memory (hazard 13)."""

    def fail(self: HostedShard, told: Error, why: Exception) -> None:
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
        (told_before_it_is_committed, range(30)),
        (offsets_are_lost_at_the_load, range(30)),
        (state_kept_after_a_failed_write, range(100, 200)),
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
