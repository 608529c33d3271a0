"""kubernetes against the faulting server: how many requests arrive, with urllib3's retry and with
forbear's.

Its configuration takes what urllib3 takes as ``retries``, so there is one loop and nothing
multiplies.
"""

import pytest
import urllib3
from kubernetes import client as kubernetes
from kubernetes.client.exceptions import ServiceException

import forbear
from forbear import RetryPolicy
from forbear.testing import record
from forbear.urllib3 import Retry

NAMESPACES = "/api/v1/namespaces"


@pytest.fixture
def waits(without_waiting):
    """What urllib3's own Retry would have waited."""
    return without_waiting(urllib3.util.retry)


@pytest.fixture
def call(server, waits):
    """A function that lists (or makes) namespaces and returns what comes back."""

    def ask(retries=None, *, method="GET", **settings):
        conf = kubernetes.Configuration()
        conf.host = server.url
        if retries is not None:
            conf.retries = retries
        for name, value in settings.items():
            setattr(conf, name, value)
        with kubernetes.ApiClient(conf) as api:
            core = kubernetes.CoreV1Api(api)
            send, *given = {
                "GET": (core.list_namespace,),
                "DELETE": (core.delete_namespace, "n"),
                "POST": (core.create_namespace, kubernetes.V1Namespace()),
            }[method]
            try:
                answer = send(*given, _preload_content=False)
                answer.read()
            except Exception as error:
                return error
            return answer

    return ask


@pytest.mark.parametrize(
    ("step", "retries", "attempts", "kind"),
    [
        # urllib3's default is Retry(3); it retries 413, 429 and 503, and only those that say
        # Retry-After.
        pytest.param("503", None, 1, ServiceException, id="alone"),
        pytest.param("503;retry-after=1", None, 1 + 3, ServiceException, id="alone-retry-after"),
        pytest.param("503;retry-after=1", False, 1, ServiceException, id="off"),
        pytest.param(
            "503",
            urllib3.Retry(3, status_forcelist={503}),
            1 + 3,
            urllib3.exceptions.MaxRetryError,
            id="status_forcelist",
        ),
    ],
)
def test_attempts_without_forbear(call, server, step, retries, attempts, kind):
    """503 for ever: urllib3 retries it with Retry-After, or when told to; then it makes another
    exception of it.
    """
    server.script(NAMESPACES, step)
    assert type(call(retries)) is kind
    assert len(server.requests()) == attempts


def test_attempts(call, server, quick):
    """conf.retries = Retry(policy): 5 requests, then the SDK's own exception for the status."""
    server.script(NAMESPACES, "503;retry-after=1")
    with record() as events:
        error = call(Retry(RetryPolicy(), **quick))
    assert len(server.requests()) == 5
    assert type(error) is ServiceException
    assert error.status == 503
    # ApiException has neither response nor cause, so only a listener can tell.
    assert forbear.record_of(error) is None
    events.assert_retried(4, reasons=["503"] * 4)


@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_a_write_is_sent_once(call, server, quick, method):
    """A Retry sees neither body nor headers: a POST never again, a DELETE only with
    bodies_replayable=True.
    """
    path = NAMESPACES if method == "POST" else f"{NAMESPACES}/n"
    server.script(path, "503;executes=1")
    assert type(call(Retry(RetryPolicy(), **quick), method=method)) is ServiceException
    assert server.executed() == 1
    call(Retry(RetryPolicy(), bodies_replayable=True, **quick), method=method)
    assert len(server.requests()) == 1 + (1 if method == "POST" else 5)
