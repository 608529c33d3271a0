"""Presets: the numbers that the design gives, and the argument beside them."""

from forbear import Exponential, RetryPolicy

# attempts, base, cap, factor, jitter: DESIGN section 2; seconds of patience
PRESETS = {
    "latency_sensitive": (3, Exponential(0.010, 0.1, 2.0, "full"), 0.0),
    "high_availability": (6, Exponential(0.1, 30.0, 2.0, "full"), 20.0),
    "batch": (11, Exponential(0.1, 60.0, 2.0, "full"), 3600.0),
    "gateway": (6, Exponential(0.05, 30.0, 1.5, 0.2), 2.0),
}


def test_preset() -> None:
    """It sets attempts, schedule and patience and nothing else, and its docstring argues for it."""
    for name, (attempts, backoff, patience) in PRESETS.items():
        maker = getattr(RetryPolicy, name)
        assert maker() == RetryPolicy(max_attempts=attempts, backoff=backoff, patience=patience)
        assert len(maker.__doc__.strip().splitlines()) >= 3
