"""assert_schedule(): the waits of a policy, held against what was meant."""

import pytest

from forbear import Exponential, Fixed, RetryPolicy
from forbear.testing import assert_schedule

# For base 0.5, factor 2, cap 3 the full waits are 0.5, 1, 2, 3. Full jitter is [0, d], equal [d/2,
# d], 0.2 is [0.8 d, 1.2 d] and never above the cap. Decorrelated: [0.5, 3 × the wait before], the
# first as after a wait of 0.5: 1.5, then 4.5, cut to 3.
SCHEDULES = {
    "none": [(0.5, 0.5), (1, 1), (2, 2), (3, 3)],
    "full": [(0, 0.5), (0, 1), (0, 2), (0, 3)],
    "equal": [(0.25, 0.5), (0.5, 1), (1, 2), (1.5, 3)],
    0.2: [(0.4, 0.6), (0.8, 1.2), (1.6, 2.4), (2.4, 3.0)],
    "decorrelated": [(0.5, 1.5), (0.5, 3), (0.5, 3), (0.5, 3)],
}


def a_policy(jitter="full", attempts=5):
    return RetryPolicy(max_attempts=attempts, backoff=Exponential(base=0.5, cap=3.0, jitter=jitter))


@pytest.mark.parametrize("jitter", SCHEDULES)
def test_the_exact_bounds_hold_and_those_a_hundredth_narrower_do_not(jitter):
    policy, waits = a_policy(jitter), SCHEDULES[jitter]
    assert_schedule(policy, waits)
    assert_schedule(policy, [(0, 3)] * 4)
    for retry, (least, longest) in enumerate(waits):
        narrower = [(least, longest - 0.01), (least + 0.01, longest)]
        if least == longest:
            narrower = [(least - 1, least - 0.01), (longest + 0.01, longest + 1)]
        for pair in narrower:
            with pytest.raises(AssertionError, match=f"retry {retry + 1}: waits .*, expected"):
                assert_schedule(policy, [*waits[:retry], pair, *waits[retry + 1 :]])


def test_the_message_shows_the_whole_schedule():
    with pytest.raises(AssertionError) as caught:
        assert_schedule(a_policy(attempts=4), [(0, 0.5), (0, 0.75)])
    assert str(caught.value) == (
        "the schedule of Exponential(cap=3.0) with max_attempts=4 is another one:\n"
        "  retry 1: waits 0 to 0.5 s\n"
        "  retry 2: waits 0 to 1 s, expected 0 to 0.75 s\n"
        "  retry 3: waits 0 to 2 s, not expected"
    )


def test_retries_that_are_not_made_are_told():
    with pytest.raises(AssertionError, match="retry 2: is not made, expected 3 s"):
        assert_schedule(RetryPolicy(max_attempts=2, backoff=Fixed(3.0)), [(3, 3), (3, 3)])
    assert_schedule(RetryPolicy.disabled(), [])
