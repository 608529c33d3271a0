"""Names: what other libraries call a field is answered with the code to write here."""

import re
from typing import Any

import httpx_retries
import pytest
import urllib3

from forbear import Exponential, RetryPolicy, override
from forbear.core.migration import unknown

OPTIONS = ("gate", "budget", "retry_if", "on_event")  # some of a transport

# What was written, and the policy that the message writes in its place.
WRITTEN: list[tuple[dict[str, Any], RetryPolicy]] = [
    *(({name: 3}, RetryPolicy(max_attempts=4))
        for name in ("total", "retries", "max_retries", "num_retries")),
    *(({name: 3}, RetryPolicy(max_attempts=3)) for name in ("attempts", "tries", "max_tries")),
    ({"status_forcelist": [502, 503]}, RetryPolicy(statuses={502, 503})),
    *(({name: ["GET"]}, RetryPolicy(methods={"GET"}))
        for name in ("allowed_methods", "method_whitelist")),
    *(({name: 0.2}, RetryPolicy(backoff=Exponential(base=0.2)))
        for name in ("backoff_factor", "wait_initial", "start_timeout", "delay", "multiplier")),
    *(({name: 9}, RetryPolicy(backoff=Exponential(cap=9)))
        for name in ("backoff_max", "max_backoff_wait", "wait_max", "max_value", "max_timeout")),
    ({"wait_exp_base": 3}, RetryPolicy(backoff=Exponential(factor=3))),
    *(({name: 30}, RetryPolicy(total_timeout=30)) for name in ("timeout", "max_time")),
    ({"retry_after_max": 5}, RetryPolicy(max_retry_after=5)),
    *(({name: value}, RetryPolicy(hints=hints)) for name, value, hints in (
        ("respect_retry_after_header", False, "ignore"), ("respect_retry_after", False, "ignore"),
        ("respect_retry_after_header", True, "obey"), ("hint", "ignore", "ignore"))),
    *(({name: False}, RetryPolicy(max_attempts=1)) for name in ("retry", "retries")),
    ({"raise_on_status": True}, RetryPolicy(on_exhausted="raise")),
    ({"reraise": False}, RetryPolicy(on_exhausted="return")),
    ({"total": 2, "backoff_factor": 0.1, "backoff_max": 4, "status_forcelist": {503}},
        RetryPolicy(max_attempts=3, backoff=Exponential(base=0.1, cap=4), statuses={503})),
    ({"max_attemps": 5}, RetryPolicy(max_attempts=5)),
    ({"total_timout": 5}, RetryPolicy(total_timeout=5)),
]  # fmt: skip


@pytest.mark.parametrize(("given", "policy"), WRITTEN, ids=lambda row: ", ".join(row) if isinstance(row, dict) else "")  # fmt: skip
def test_the_code_to_write_makes_the_policy(given: dict[str, Any], policy: RetryPolicy) -> None:
    """Wherever fields are taken; and a transport is told to take it as policy=."""
    for take in (RetryPolicy, RetryPolicy().replace, override):
        with pytest.raises(TypeError) as caught:
            take(**given)
        code = code_of(str(caught.value))
        assert eval(f"RetryPolicy({code})") == policy
    code = code_of(unknown("RetryTransport", given, OPTIONS))
    assert code.startswith("policy=")
    assert eval(code.removeprefix("policy=")) == policy


def code_of(message: str) -> str:
    found = re.search(r": write (.+?)( \(|$)", message)
    assert found, message
    return found[1]


# What cannot be written down, and what the message says instead.
TOLD = {
    "stop": "stop_after_attempt(n) is max_attempts=n, stop_after_delay(s) is total_timeout=s",
    "retry_on": "failures=…", "on": "statuses={503}", "exceptions": "FailureKind",
    "jitter": "Exponential(jitter=…)", "backoff_jitter": "share of the wait",
    "wait": "Exponential(base=0.5, cap=30.0)", "wait_jitter": "no seconds",
    "on_backoff": "write on_event=…, an option of wrap", "before_sleep": "on_event takes a list of functions",
    "giveup": "write retry_if=…, an option of wrap", "redirect": "redirects are followed by the client",
    "connect": "failures=…", "status": "statuses=…",
    # Being off by one in silence would be worse than an error.
    **{name: f"max_attempts = {name} + 1" for name in ("total", "retries", "max_retries", "num_retries")},
}  # fmt: skip


@pytest.mark.parametrize("name", TOLD)
def test_what_has_no_value_here_is_explained(name: str) -> None:
    with pytest.raises(TypeError) as caught:
        RetryPolicy(**{name: object()})  # type: ignore[arg-type]
    text = str(caught.value)
    assert f"no field {name!r}" in text
    assert TOLD[name] in text
    assert "its fields are" not in text


def test_a_retry_of_another_library_is_answered_with_its_translation() -> None:
    ours = (urllib3.Retry(3), "from_urllib3"), (httpx_retries.Retry(3), "from_httpx_retries")
    for retry, name in ours:
        maker = f"{name}(Retry(…))"
        with pytest.raises(TypeError, match=re.escape(f"write RetryPolicy.{maker}")):
            RetryPolicy(retry=retry)  # type: ignore[call-arg]
        for name in ("retry", "max_retries", "retries"):
            text = unknown("RetryTransport", {name: retry}, OPTIONS)
            assert text.endswith(f"write policy=RetryPolicy.{maker}")


def test_a_misspelt_option_of_a_transport_is_told_apart_from_a_field() -> None:
    text = unknown("RetryTransport", {"buget": None, "max_attempt": 2, "wood": 1}, OPTIONS)
    assert "write policy=RetryPolicy(max_attempts=2), budget=None" in text
    assert text.endswith("its options are policy, gate, budget, retry_if, on_event")
