"""Some hundred short seeds of what there is. More: python -m headrace.testing.sim --scenario … --seeds N"""

from __future__ import annotations

import pytest

from headrace.testing.sim.run import run_seed
from headrace.testing.sim.simulation import Scenario
from tests.sim.coordinators import coordinators
from tests.sim.echo import echo
from tests.sim.ledger import ledger
from tests.sim.node import node

SEEDS_A_TEST = 25
SEEDS: list[tuple[Scenario, int]] = [(echo, 100), (ledger, 100), (node, 100), (coordinators, 75)]


@pytest.mark.parametrize(
    ("scenario", "first"), [(scenario, first) for scenario, count in SEEDS for first in range(0, count, SEEDS_A_TEST)]
)
def test_seeds(scenario: Scenario, first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run = run_seed(scenario, seed)
        assert run.is_ok, f"seed {seed} of {scenario.__name__}: {run.failure}"
