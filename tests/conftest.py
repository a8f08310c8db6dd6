"""How the whole suite runs: the same examples every time, few of them; more at random by a command.

HYPOTHESIS_PROFILE=campaign pytest tests/protocol   # many examples, others each time
"""

from __future__ import annotations

import os
import signal

from hypothesis import HealthCheck, settings

# A suite that runs in the background may have it ignored, and so would have what tests start and interrupt.
signal.signal(signal.SIGINT, signal.default_int_handler)

# No deadline: the machines that run this are slow and noisy. No health check on time, for the same reason.
settings.register_profile(
    "ci",
    derandomize=True,
    database=None,
    deadline=None,
    max_examples=20,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large],
)
settings.register_profile(
    "campaign", parent=settings.get_profile("ci"), derandomize=False, max_examples=2_000, print_blob=True
)
settings.load_profile(os.environ.get("HYPOTHESIS_PROFILE", "ci"))
