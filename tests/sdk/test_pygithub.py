"""PyGithub against the faulting server: how many requests arrive, with its own retry and with
forbear in its place.

It takes a ``urllib3.Retry`` and nothing else, so there is one loop and nothing multiplies.
"""

import github
import pytest
import requests

import forbear
from forbear import RetryPolicy
from forbear.testing import record
from forbear.urllib3 import Retry

USER = "/users/octocat"
FOUND = "200;header=Content-Type:application/json;body=1"


@pytest.fixture
def call(server, monkeypatch):
    """A function that asks for a user (or makes an issue) and returns what comes back."""

    def ask(*, method="GET", **settings):
        client = github.Github(
            base_url=server.url,
            auth=github.Auth.Token("nobody's"),
            seconds_between_requests=None,
            seconds_between_writes=None,
            **settings,
        )
        try:
            if method == "GET":
                return client.requester.requestJsonAndCheck("GET", USER)
            return client.requester.requestJsonAndCheck(method, USER, input={"title": "T"})
        except Exception as error:
            return error
        finally:
            client.close()

    return ask


@pytest.mark.parametrize(
    ("settings", "attempts", "kind"),
    [
        # GithubRetry is a urllib3 Retry, whose total is 10; its raise_on_status makes an exception
        # of requests.
        pytest.param({}, 1 + 10, requests.exceptions.RetryError, id="alone"),
        pytest.param({"retry": 0}, 1, github.GithubException, id="off"),
    ],
)
def test_attempts_without_forbear(call, server, settings, attempts, kind):
    """503 for ever: 11 requests by default, one with retry=0."""
    server.script(USER, 503)
    assert type(call(**settings)) is kind
    assert len(server.requests()) == attempts


def test_attempts(call, server, quick, clock):
    """retry=Retry(policy): 5 requests with waits between them, then PyGithub's own exception for
    the status.
    """
    server.script(USER, 503)
    with record() as events:
        error = call(retry=Retry(RetryPolicy(), **quick))
    assert len(server.requests()) == 5
    assert clock.sleeps == pytest.approx([0.025, 0.75, 1.5, 3.0])
    assert type(error) is github.GithubException
    assert error.status == 503
    # GithubException has neither response nor cause, so only a listener can tell.
    assert forbear.record_of(error) is None
    events.assert_retried(4, reasons=["503"] * 4)


@pytest.mark.parametrize(
    ("settings", "attempts"),
    [pytest.param({}, 1 + 10, id="alone"), pytest.param({"retry": Retry()}, 1, id="forbear")],
)
def test_attempts_of_a_write(call, server, settings, attempts):
    """POST: PyGithub's own retry repeats it ten times; a Retry of forbear sends it once."""
    server.script(USER, "503;executes=1")
    call(method="POST", **settings)
    assert len(server.requests()) == server.executed() == attempts


def test_githubs_403_is_obeyed_if_asked(call, server, quick, clock):
    """for_vendors("github"): a 403 that names a time is a throttle; one that does not is final."""
    policy = RetryPolicy().for_vendors("github")
    server.script(USER, "403;retry-after=7", FOUND)
    call(retry=Retry(policy, **quick))
    assert len(server.requests()) == 2
    assert clock.sleeps == [pytest.approx(7 + 0.5 * 0.25 * 7)]
    server.script(USER, 403, FOUND)
    assert isinstance(call(retry=Retry(policy, **quick)), github.GithubException)
    assert len(server.requests()) == 3
