"""Policies from the environment: each field's form, and messages that say what to write."""

import sys

import pytest

from forbear import Exponential, Fixed, RetryPolicy
from forbear.core.environment import FORMS
from forbear.core.policy import FIELDS

PREFIX = "MYAPP_RETRY_"
PLAIN = RetryPolicy()


@pytest.fixture
def from_env(monkeypatch):
    """The policy of these variables, written without the prefix."""

    def read(**variables):
        for name, text in variables.items():
            monkeypatch.setenv(PREFIX + name, text)
        return RetryPolicy.from_env(PREFIX)

    return read


READ = [  # variable, its text, what it changes of the default
    ("PRESET", "high-availability", RetryPolicy.high_availability()),
    ("PRESET", "DISABLED", RetryPolicy.disabled()), ("MAX_ATTEMPTS", " 3 ", {"max_attempts": 3}),
    ("BACKOFF", "1.5", {"backoff": Fixed(1.5)}),
    ("BACKOFF", "base=0.2, cap=20", {"backoff": Exponential(base=0.2, cap=20.0)}),
    ("BACKOFF", "jitter=none,factor=3", {"backoff": Exponential(jitter="none", factor=3.0)}),
    ("BACKOFF", "jitter=0.2,fast_first=0", {"backoff": Exponential(jitter=0.2, fast_first=0.0)}),
    ("PATIENCE", "2.5", {"patience": 2.5}), ("PATIENCE", "none", {"patience": None}),
    ("THROTTLE_BACKOFF", "base=5", {"throttle_backoff": Exponential(base=5.0)}),
    ("THROTTLE_BACKOFF", "None", {}), ("STATUSES", "429, 503", {"statuses": {429, 503}}),
    ("STATUSES", "none", {"statuses": ()}), ("HINTED_STATUSES", "403", {"hinted_statuses": {403}}),
    ("UNEXECUTED_STATUSES", "429", {"unexecuted_statuses": {429}}),
    ("VENDORS", "GitHub,google", PLAIN.for_vendors("github", "google")),
    ("CONFLICT_WITH_KEY", "False", {"conflict_with_key": False}), ("CONFLICT_WITH_KEY", "1", {}),
    ("FAILURES", "refused,READ_TIMEOUT", {"failures": {"refused", "read-timeout"}}),
    ("FAILURES", "none", {"failures": ()}), ("METHODS", "get,PUT", {"methods": {"GET", "PUT"}}),
    ("ATTEMPT_TIMEOUT", "5", {"attempt_timeout": 5.0}),
    ("TOTAL_TIMEOUT", "30", {"total_timeout": 30.0}),
    ("MAX_RETRY_AFTER", "120", {"max_retry_after": 120.0}), ("HINTS", "Ignore", {"hints": "ignore"}),
    ("HINT_SPREAD", "0.1", {"hint_spread": 0.1}), ("ON_EXHAUSTED", "raise", {"on_exhausted": "raise"}),
]  # fmt: skip


@pytest.mark.parametrize(("name", "text", "expected"), READ)
def test_each_field_is_read(from_env, name, text, expected):
    policy = expected if isinstance(expected, RetryPolicy) else PLAIN.replace(**expected)
    assert from_env(**{name: text}) == policy


def test_every_field_can_be_written():
    assert set(FORMS) == {"preset", *FIELDS} == {name.lower() for name, *_ in READ}


def test_fields_change_a_preset(from_env):
    """And vendors add to the statuses that are given, whichever variable comes first."""
    policy = from_env(VENDORS="anthropic", STATUSES="503", PRESET="batch", PATIENCE="60")
    expected = RetryPolicy.batch().replace(patience=60.0, statuses={503})
    assert policy == expected.for_vendors("anthropic")


@pytest.mark.parametrize(("name", "text", "says"), [
    ("MAX_ATTEMPTS", "three", "cannot be 'three': write a whole number, such as 5 ("),
    ("MAX_ATTEMPTS", "0", "(max_attempts must be at least 1, got 0; use max_attempts=1 to send"),
    ("MAX_ATTEMPTS", "", "cannot be '': write a whole number"),
    ("PATIENCE", "nan", "write seconds, such as 2.5, or none"),
    ("MAX_RETRY_AFTER", "none", "write seconds, such as 2.5 ("),
    ("BACKOFF", "fast", "write seconds for a fixed delay, such as 1.5, or base=0.5,cap=30,"),
    ("BACKOFF", "bse=1", "(Exponential has no argument 'bse': write base=1.0)"),
    ("BACKOFF", "base=1,30", "write seconds for a fixed delay"),
    ("BACKOFF", "jitter=wild", "jitter must be one of full, equal, decorrelated, none"),
    ("STATUSES", "", "write statuses with commas between, such as 429,503, or none"),
    ("STATUSES", "5xx", "write statuses with commas between"),
    ("STATUSES", "200", "(statuses must hold whole numbers from 400 to 599, got 200)"),
    ("METHODS", "GET,", "write methods with commas between"),
    ("FAILURES", "refusd", "write kinds with commas between, of connect-timeout, dns, "),
    ("FAILURES", "certificate", "write kinds with commas between"),
    ("VENDORS", "gitlab", "vendor must be one of anthropic, azure, bedrock, cloudflare, github"),
    ("CONFLICT_WITH_KEY", "maybe", "write true or false"), ("HINTS", "never", "write obey or ignore"),
    ("PRESET", "fast", "write one of latency_sensitive, high_availability, batch, gateway"),
    *((name, "3", f"is no field of a policy: write {PREFIX}MAX_ATTEMPTS")
        for name in ("MAX_ATTEMPT", "max_attempts")),
    ("RETRIES", "3", f"write {PREFIX}MAX_ATTEMPTS (max_attempts = retries + 1: the first attempt"),
    ("STATUS_FORCELIST", "503", f"write {PREFIX}STATUSES"),
    ("TOKEN", "hunter2", f"is no field of a policy: write {PREFIX} and one of PRESET, MAX_ATT"),
])  # fmt: skip
def test_a_variable_that_cannot_be_read_is_named_with_what_to_write(from_env, name, text, says):
    if sys.platform == "win32" and not name.isupper():
        pytest.skip("Windows has all names in capitals")
    with pytest.raises(ValueError, match=PREFIX) as caught:
        from_env(**{name: text})
    message = str(caught.value)
    assert message.startswith(f"{PREFIX}{name} ")
    assert says in message
    assert "hunter2" not in message
