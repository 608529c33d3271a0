"""kubernetes against the faulting server: it takes urllib3's ``retries``, so nothing multiplies."""

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
def call(server, without_waiting):
    """A function that lists (or makes) namespaces and returns what comes back."""
    without_waiting(urllib3.util.retry)

    def ask(retries=None, *, method="GET"):
        conf = kubernetes.Configuration(host=server.url)
        conf.retries = retries
        with kubernetes.ApiClient(conf) as api:
            core = kubernetes.CoreV1Api(api)
            send, *given = {
                "GET": (core.list_namespace,),
                "DELETE": (core.delete_namespace, "n"),
                "POST": (core.create_namespace, kubernetes.V1Namespace()),
            }[method]
            with pytest.raises(ServiceException) as caught:
                send(*given, _preload_content=False)
            return caught.value

    return ask


@pytest.mark.parametrize(("step", "attempts"), [("503", 1), ("503;retry-after=1", 1 + 3)])
def test_attempts_without_forbear(call, server, step, attempts):
    """urllib3's default is Retry(3); it retries 413, 429 and 503, and only with Retry-After."""
    server.script(NAMESPACES, step)
    call()
    assert len(server.requests()) == attempts


def test_attempts(call, server, quick):
    """conf.retries = Retry(policy): 5 requests, then the SDK's own exception for the status."""
    server.script(NAMESPACES, "503;retry-after=1")
    with record() as events:
        error = call(Retry(RetryPolicy(), **quick))
    assert len(server.requests()) == 5
    # ApiException has neither response nor cause, so only a listener can tell.
    assert forbear.record_of(error) is None
    events.assert_retried(4, reasons=["503"] * 4)


@pytest.mark.parametrize(("method", "path"), [("POST", ""), ("DELETE", "/n")])
def test_a_write_is_sent_once(call, server, quick, method, path):
    """A Retry sees neither body nor headers: a POST never again, a DELETE if bodies are replayable."""
    server.script(NAMESPACES + path, "503;executes=1")
    call(Retry(RetryPolicy(), **quick), method=method)
    assert server.executed() == 1
    call(Retry(RetryPolicy(), bodies_replayable=True, **quick), method=method)
    assert len(server.requests()) == 1 + (1 if method == "POST" else 5)
