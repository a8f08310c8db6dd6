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


@pytest.mark.parametrize("first", range(0, 100, SEEDS_A_TEST))
@pytest.mark.parametrize("scenario", [echo, ledger, node, coordinators])
def test_seeds(scenario: Scenario, first: int) -> None:
    for seed in range(first, first + SEEDS_A_TEST):
        run = run_seed(scenario, seed)
        assert run.is_ok, f"seed {seed} of {scenario.__name__}: {run.failure}"
