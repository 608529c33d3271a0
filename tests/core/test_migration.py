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
    *(({name: 3}, RetryPolicy(max_attempts=4)) for name in ("total", "retries", "max_retries")),
    ({"status_forcelist": [502, 503]}, RetryPolicy(statuses={502, 503})),
    ({"allowed_methods": ["GET"]}, RetryPolicy(methods={"GET"})),
    ({"timeout": 30}, RetryPolicy(total_timeout=30)),
    *(({name: False}, RetryPolicy(max_attempts=1)) for name in ("retry", "retries")),
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
    "stop": "write max_attempts=…", "retry_on": "write failures=…", "wait": "backoff=Exponential(base=…)",
    "backoff_jitter": "backoff=Exponential(jitter=…)", "respect_retry_after": "write hints=…",
    "reraise": "write on_exhausted=…", "before_sleep": "write on_event=…, an option of wrap, mount",
    # Being off by one in silence would be worse than an error.
    **{name: f"max_attempts = {name} + 1" for name in ("total", "retries", "max_retries")},
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
    assert "write policy=RetryPolicy(max_attempts=2), budget=None;" in text
    assert text.endswith("its options are policy, gate, budget, retry_if, on_event")
