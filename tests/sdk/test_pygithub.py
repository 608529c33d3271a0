"""PyGithub against the faulting server: it takes a ``urllib3.Retry``, so nothing multiplies."""

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
def call(server):
    """A function that asks for a user (or makes an issue) and returns what comes back."""

    def ask(method="GET", **settings):
        token = github.Auth.Token("nobody's")
        pauses = {"seconds_between_requests": None, "seconds_between_writes": None}
        client = github.Github(base_url=server.url, auth=token, **pauses, **settings)
        body = {} if method == "GET" else {"input": {"title": "T"}}
        try:
            return client.requester.requestJsonAndCheck(method, USER, **body)
        except Exception as error:
            return error
        finally:
            client.close()

    return ask


def test_attempts(call, server, quick):
    """11 requests alone; with retry=Retry(policy) 5, then PyGithub's own exception for the status."""
    server.script(USER, 503)
    assert type(call()) is requests.exceptions.RetryError
    assert len(server.requests()) == 1 + 10
    with record() as events:
        error = call(retry=Retry(RetryPolicy(), **quick))
    assert len(server.requests()) == 11 + 5
    assert (type(error), error.status) == (github.GithubException, 503)
    # GithubException has neither response nor cause, so only a listener can tell.
    assert forbear.record_of(error) is None
    events.assert_retried(4, reasons=["503"] * 4)


def test_a_write_is_sent_once(call, server):
    """PyGithub's own retry sends it eleven times."""
    server.script(USER, "503;executes=1")
    call("POST", retry=Retry())
    assert len(server.requests()) == server.executed() == 1


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
