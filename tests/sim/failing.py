"""A scenario that fails for some seeds, for tests of campaigns."""

from headrace.testing.sim.simulation import Simulation, Violation


async def failing(simulation: Simulation) -> None:
    if simulation.seed % 10 == 3:
        simulation.event("something happens")
        raise Violation(f"seed {simulation.seed} is unlucky")
