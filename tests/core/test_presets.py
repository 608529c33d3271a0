"""Presets: the numbers that the design gives, and the argument beside them."""

from forbear import Exponential, RetryPolicy

# attempts, base, cap, factor, jitter: DESIGN section 2; seconds of patience
PRESETS = {
    "latency_sensitive": (3, Exponential(base=0.010, cap=0.1, factor=2.0, jitter="full"), 0.0),
    "high_availability": (6, Exponential(base=0.1, cap=30.0, factor=2.0, jitter="full"), 20.0),
    "batch": (11, Exponential(base=0.1, cap=60.0, factor=2.0, jitter="full"), 3600.0),
    "gateway": (6, Exponential(base=0.05, cap=30.0, factor=1.5, jitter=0.2), 2.0),
}


def test_preset() -> None:
    """A preset sets attempts, schedule and patience; everything else is the default, and its docstring argues
    for it.
    """
    for name in sorted(PRESETS):
        attempts, backoff, patience = PRESETS[name]
        maker = getattr(RetryPolicy, name)
        expected = RetryPolicy(max_attempts=attempts, backoff=backoff, patience=patience)
        assert maker() == expected
        assert len(maker.__doc__.strip().splitlines()) >= 3
