"""``Retry(…)`` as text: what is understood, that nothing is run, and that the defaults are the
libraries' own.
"""

import inspect

import httpx
import httpx_retries
import pytest
import urllib3

from forbear import RetryPolicy
from forbear.tools.cli import retries
from forbear.tools.cli.retries import httpx_retries_retry, urllib3_retry

NAMES = {
    "Retry": urllib3.Retry,
    "urllib3": urllib3,
    "HTTPStatus": __import__("http").HTTPStatus,
    "http": __import__("http"),
}


@pytest.mark.parametrize(
    "text",
    [
        "Retry()",
        "Retry(3)",
        "Retry(10, status_forcelist=[503])",
        "urllib3.Retry(total=5, connect=2, read=0, redirect=1, status=3, other=1)",
        "urllib3.util.Retry(None, backoff_factor=0.5, backoff_max=60, backoff_jitter=1.5)",
        "Retry(False)",
        "Retry(-1)",
        "Retry(3, status_forcelist=(500, 502), allowed_methods={'GET', 'POST'}, raise_on_status=False)",
        "Retry(3, allowed_methods=None, respect_retry_after_header=False)",
        "Retry(3, status_forcelist=None)",
        "Retry(3, status_forcelist=frozenset([500]) | {502}, allowed_methods=Retry.DEFAULT_ALLOWED_METHODS | {'POST'})",
        "Retry(3, status_forcelist=[HTTPStatus.BAD_GATEWAY, http.HTTPStatus.SERVICE_UNAVAILABLE])",
        "Retry(3, status_forcelist=Retry.RETRY_AFTER_STATUS_CODES, allowed_methods=False)",
        " Retry(3,\n    backoff_factor=1) ",
        "3",
        "0",
    ],
)
def test_a_retry_of_urllib3_is_what_python_makes_of_it(text):
    """The oracle is eval, which the command does not use."""
    real = eval(text.strip(), {**NAMES, "Retry": urllib3.Retry})
    assert RetryPolicy.from_urllib3(urllib3_retry(text)) == RetryPolicy.from_urllib3(real)


@pytest.mark.parametrize(
    "text",
    [
        "Retry()",
        "Retry(total=5, backoff_factor=0.5)",
        "httpx_retries.Retry(5, ['GET', 'post'], {500, 503})",
        "Retry(total=3, status_forcelist=[], allowed_methods=())",
        "Retry(3, allowed_methods=[HTTPMethod.GET, http.HTTPMethod.POST], status_forcelist=[http.HTTPStatus.GONE])",
        "Retry(3, allowed_methods=Retry.RETRYABLE_METHODS | {'POST'})",
        "Retry(3, status_forcelist=Retry.RETRYABLE_STATUS_CODES)",
        "Retry(3, retry_on_exceptions=[httpx.ConnectError, httpx.ReadTimeout])",
        "Retry(3, retry_on_exceptions=[])",
        "Retry(3, max_backoff_wait=10, backoff_jitter=0.3, total_timeout=5.0, elapsed_sleep=1.0, attempts_made=1)",
        "Retry(3, respect_retry_after_header=False)",
    ],
)
def test_a_retry_of_httpx_retries_is_what_python_makes_of_it(text):
    names = {
        "http": __import__("http"),
        "httpx": httpx,
        "httpx_retries": httpx_retries,
        "Retry": httpx_retries.Retry,
    }
    real = eval(text, {**names, "HTTPMethod": names["http"].HTTPMethod})
    assert RetryPolicy.from_httpx_retries(
        httpx_retries_retry(text)
    ) == RetryPolicy.from_httpx_retries(real)


def test_the_parameters_are_those_of_the_installed_versions():
    assert tuple(inspect.signature(urllib3.Retry).parameters) == retries.URLLIB3
    found = inspect.signature(httpx_retries.Retry).parameters
    assert {name: one.default for name, one in found.items()} == retries.HTTPX_RETRIES
    plain = httpx_retries.Retry()
    assert plain.allowed_methods == set(retries.METHODS)
    assert plain.status_forcelist == set(retries.STATUSES)
    assert {one.__name__ for one in plain.retryable_exceptions} == set(retries.EXCEPTIONS)


RUN = []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("Retry(__import__('os').getpid())", "would have to be run"),
        ("Retry(total=open('/etc/passwd'))", "would have to be run"),
        ("Retry([x for x in (1,)])", "would have to be run"),
        ("Retry(lambda: 1)", "would have to be run"),
        ("Retry(3 ** 9)", "would have to be run"),
        ("Retry(N)", "'N' would have to be looked up"),
        ("Retry(os.environ)", "'os.environ' would have to be looked up"),
        ("Retry(status_forcelist=[HTTPStatus.NO_SUCH])", "would have to be looked up"),
        ("Retry(**{'total': 3})", "Retry has no **"),
        ("Retry(method_whitelist=['GET'])", "Retry has no method_whitelist=; it takes total, "),
        ("Retry(3, total=4)", "total is given twice"),
        (f"Retry({', '.join('1' * 18)})", "Retry takes at most 17 arguments, got 18"),
        ("Timeout(3)", "takes 'Retry(…)', got a call of Timeout"),
        ("eval('1')", "takes 'Retry(…)', got a call of eval"),
        ("Retry(3", "cannot be read as Python"),
        ("", "cannot be read as Python"),
        ("import os", "cannot be read as Python"),
        ("Retry(\x00)", "cannot be read as Python"),
        ("(" * 5_000, "cannot be read as Python"),
        ("'Retry(3)'", "takes 'Retry(…)' or a number of retries"),
        ("None", "takes 'Retry(…)' or a number of retries"),
    ],
    ids=lambda text: text[:30],
)
def test_anything_else_is_refused_and_not_run(text, says):
    with pytest.raises(ValueError) as refused:
        urllib3_retry(text)
    assert says in str(refused.value)


@pytest.mark.parametrize(
    "text", ["3", "Retry(3).new(total=1)", "Retry(3, retry_on_exceptions=[ValueError])"]
)
def test_httpx_retries_takes_a_retry_only(text):
    with pytest.raises(ValueError, match="--from-httpx-retries"):
        httpx_retries_retry(text)
