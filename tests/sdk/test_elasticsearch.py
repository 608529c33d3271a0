"""elasticsearch against the faulting server: how many requests arrive, without forbear and with
it.
"""

import elastic_transport
import elasticsearch
import pytest

import forbear
import forbear.requests
from forbear import RetryPolicy

from .conftest import attempts_of

JSON = "header=Content-Type:application/json;body=1"
DOWN = f"503;{JSON}"


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
def test_attempts(call, server, clock, waits, plugged, settings, attempts):
    """Down for ever: attempts multiply unless max_retries=0; the exception is the SDK's own; only
    forbear waits.
    """
    server.script("/", "close")
    error = call(plugged=plugged, **settings)
    assert len(server.requests()) == attempts
    assert type(error) is elasticsearch.ConnectionError
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5 if plugged else 0)
    assert waits == []
    assert attempts_of(error) == (5 if plugged else None)


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
    server.script("/i/_search", DOWN)
    with forbear.override(methods={"GET", "POST"}):
        call(plugged=True, max_retries=0, what=lambda client: client.search(index="i"))
    assert [arrival.method for arrival in server.requests()] == ["POST"] * 5
