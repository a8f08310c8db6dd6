"""What is remembered of the questions to coordinators, and what that costs."""

from __future__ import annotations

from headrace.errors import Error, Refused
from headrace.storage.verification import REMEMBERED_MAX, Verification, Verifications


def test_of_those_that_failed_and_may_be_tried_again_a_bounded_number_is_remembered() -> None:
    verifications = Verifications()
    for producer_id in range(5 * REMEMBERED_MAX):
        made = verifications.begin(producer_id, 0, 0)
        verifications.fail(producer_id, made, Refused(Error.NOT_ENOUGH_REPLICAS))
    assert len(verifications) <= REMEMBERED_MAX + 1


def test_very_many_that_wait_for_a_slow_coordinator_are_not_looked_at_each_time() -> None:
    looked_at = 0

    class Counted(Verification):
        __slots__ = ()

        @property
        def refused(self) -> Refused | None:  # type: ignore[override]
            nonlocal looked_at
            looked_at += 1
            return None

    verifications, count = Verifications(), 8 * REMEMBERED_MAX
    for producer_id in range(count):
        made = verifications.begin(producer_id, 0, 0)
        made.__class__ = Counted
    assert len(verifications) == count, "none of them is forgotten"
    assert looked_at <= 4 * count
