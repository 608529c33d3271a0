"""Laws of the quota of tokens: over any calls nothing is made of nothing, and nothing is lost."""

from __future__ import annotations

import hypothesis.strategies as st
from hypothesis import settings
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from forbear import (
    AwsStandard,
    Failure,
    FailureKind,
    Hint,
    Phase,
    RetryRefused,
    RetryToken,
    TokenBucket,
)

COSTS = {
    "answer": (Failure(FailureKind.STATUS, Phase.ANSWERED, 500), 14),
    "throttle": (
        Failure(FailureKind.STATUS, Phase.ANSWERED, 503, Hint(0.0, None, "retry-after")),
        5,
    ),
    "timeout": (Failure(FailureKind.READ_TIMEOUT, Phase.SENT), 9),
}
CAPACITY = 60


class QuotaLaws(RuleBasedStateMachine):
    """Any order of calls that fail, retry, are cancelled, succeed, and end twice."""

    tokens: Bundle[RetryToken] = Bundle("tokens")

    def __init__(self) -> None:
        super().__init__()
        self.strategy = AwsStandard(
            max_attempts=4, bucket=TokenBucket(CAPACITY, timeout_cost=9), random=lambda: 0.0
        )
        self.left = CAPACITY  # by a count of its own
        self.last: dict[int, int] = {}  # what a call's last retry has cost
        self.unsent: set[int] = set()

    @rule(target=tokens)
    def begin(self) -> RetryToken:
        token = self.strategy.acquire_initial_token("http://a:80", 0.0)
        token.attempts = 1
        return token

    @rule(token=tokens, what=st.sampled_from(sorted(COSTS)))
    def fail(self, token: RetryToken, what: str) -> None:
        """An attempt fails; one that was bought is sent first."""
        failure, cost = COSTS[what]
        if id(token) in self.unsent:
            self.unsent.discard(id(token))
            token.attempts += 1
        try:
            self.strategy.refresh_token(token, failure, 0.0, latest=1e9)
        except RetryRefused:
            assert token.attempts >= 4 or self.left < cost
        else:
            assert token.attempts < 4
            self.left -= cost
            self.last[id(token)] = cost
            self.unsent.add(id(token))

    @rule(token=consumes(tokens), again=st.booleans())
    def succeed(self, token: RetryToken, again: bool) -> None:
        if id(token) in self.unsent:
            token.attempts += 1
        for _ in range(1 + again):
            self.strategy.record_success(token, 0.0)
        self.left = min(CAPACITY, self.left + self.last.get(id(token), 1))
        self.forget(token)

    @rule(token=consumes(tokens), again=st.booleans())
    def cancel(self, token: RetryToken, again: bool) -> None:
        for _ in range(1 + again):
            self.strategy.release(token, 0.0)
        if id(token) in self.unsent:
            self.left = min(CAPACITY, self.left + self.last[id(token)])
        self.forget(token)

    def forget(self, token: RetryToken) -> None:
        self.unsent.discard(id(token))
        self.last.pop(id(token), None)

    @invariant()
    def the_count_is_right_and_quiet_means_full(self) -> None:
        bucket = self.strategy.bucket
        assert bucket.tokens == self.left
        assert 0 <= bucket.tokens <= CAPACITY
        assert self.strategy.quiet is (self.left == CAPACITY)


TestQuotaLaws = QuotaLaws.TestCase
TestQuotaLaws.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
