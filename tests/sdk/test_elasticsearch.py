"""elasticsearch against the faulting server: how many requests arrive, without forbear and with
it.
"""

import elastic_transport
import elasticsearch
import pytest

import forbear
import forbear.requests
from forbear import RetryPolicy
from forbear.testing import record

from .conftest import attempts_of

JSON = "header=Content-Type:application/json;body=1"
DOWN = f"503;{JSON}"
FOUND = f"200;{JSON};header=X-Elastic-Product:Elasticsearch"


@pytest.fixture
def waits(without_waiting):
    """What the SDK's own loop would have waited."""
    return without_waiting(elastic_transport._transport)


@pytest.fixture
def call(server, waits, ungated):
    """A function that asks for the cluster (or something else) and returns what comes back."""

    policy = RetryPolicy()

    class Node(elastic_transport.RequestsHttpNode):
        def __init__(self, config):
            super().__init__(config)
            forbear.requests.mount(self.session, policy, **ungated)

    def ask(*, plugged, what=lambda client: client.info(), **settings):
        node_class = Node if plugged else elastic_transport.RequestsHttpNode
        with elasticsearch.Elasticsearch(server.url, node_class=node_class, **settings) as client:
            try:
                return what(client)
            except Exception as error:
                return error

    return ask


# The SDK's documentation: max_retries=3; on connection errors, 429, 502, 503, 504. forbear sends 5
# times by default.
PLUGGED = [
    pytest.param(False, {}, 1 + 3, id="alone"),
    pytest.param(False, {"max_retries": 0}, 1, id="neither"),
    pytest.param(True, {}, (1 + 3) * 5, id="both"),
    pytest.param(True, {"max_retries": 0}, 5, id="off"),
]


@pytest.mark.parametrize(("plugged", "settings", "attempts"), PLUGGED)
@pytest.mark.parametrize(
    ("step", "kind"),
    [(DOWN, elasticsearch.ApiError), ("close", elasticsearch.ConnectionError)],
    ids=["503", "close"],
)
def test_attempts(call, server, clock, waits, plugged, settings, attempts, step, kind):
    """Down for ever: attempts multiply unless max_retries=0; the exception is the SDK's own; only
    forbear waits.
    """
    server.script("/", step)
    error = call(plugged=plugged, **settings)
    assert len(server.requests()) == attempts
    assert type(error) is kind
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5 if plugged else 0)
    assert waits == []
    # ApiError has neither the response nor a cause; ConnectionError comes from one.
    assert attempts_of(error) == (5 if plugged and step == "close" else None)


def test_the_cluster_answers_after_two_failures(call, server):
    """A status and a lost connection: the caller sees the third answer."""
    server.script("/", DOWN, "close", FOUND)
    with record() as events:
        answer = call(plugged=True, max_retries=0)
    assert answer.body == 0
    events.assert_retried(2, reasons=["503", "ConnectionError"])


def test_a_document_is_put_again_but_not_posted(call, server):
    """index() with an id is a PUT and is repeated; without one it is a POST, which makes another
    document each time.
    """
    server.script("/i/_doc/1", DOWN)
    call(
        plugged=True,
        max_retries=0,
        what=lambda client: client.index(index="i", id="1", document={}),
    )
    assert [arrival.method for arrival in server.requests("/i/_doc/1")] == ["PUT"] * 5
    server.script("/i/_doc", DOWN)
    call(plugged=True, max_retries=0, what=lambda client: client.index(index="i", document={}))
    assert [arrival.method for arrival in server.requests("/i/_doc")] == ["POST"]


def test_a_search_is_a_post_that_may_be_repeated(call, server):
    """search() only reads: forbear.override(methods=…) around it says so."""

    def search(client):
        with forbear.override(methods={"GET", "POST"}):
            return client.search(index="i", query={"match_all": {}})

    server.script("/i/_search", DOWN)
    call(
        plugged=True,
        max_retries=0,
        what=lambda client: client.search(index="i", query={"match_all": {}}),
    )
    assert len(server.requests()) == 1
    call(plugged=True, max_retries=0, what=search)
    assert [arrival.method for arrival in server.requests()] == ["POST"] * (1 + 5)
    assert len({arrival.sha256 for arrival in server.requests()}) == 1
