"""elasticsearch against the faulting server: how many requests arrive, without forbear and with it."""

import elastic_transport
import elasticsearch
import pytest

import forbear.requests

from .conftest import attempts_of

DOWN = "503;header=Content-Type:application/json;body=1"


@pytest.fixture
def waits(without_waiting):
    """What the SDK's own loop would have waited."""
    return without_waiting(elastic_transport._transport)


@pytest.fixture
def call(server, waits, ungated):
    """A function that makes a call and returns what it raises."""

    class Node(elastic_transport.RequestsHttpNode):
        def __init__(self, config):
            super().__init__(config)
            forbear.requests.mount(self.session, **ungated)

    def ask(what, *, plugged=True, **settings):
        node_class = Node if plugged else elastic_transport.RequestsHttpNode
        with elasticsearch.Elasticsearch(server.url, node_class=node_class, **settings) as client:
            with pytest.raises((elasticsearch.ApiError, elasticsearch.TransportError)) as caught:
                what(client)
        return caught.value

    return ask


# The SDK's documentation: max_retries=3; on connection errors, 429, 502, 503, 504.
@pytest.mark.parametrize(
    ("plugged", "settings", "attempts"),
    [
        pytest.param(False, {}, 1 + 3, id="alone"),
        pytest.param(True, {}, (1 + 3) * 5, id="both"),
        pytest.param(True, {"max_retries": 0}, 5, id="off"),
    ],
)
def test_attempts(call, server, clock, waits, plugged, settings, attempts):
    """Down for ever: attempts multiply unless max_retries=0; the exception is the SDK's own; only
    forbear waits.
    """
    server.script("/", "close")
    error = call(lambda client: client.info(), plugged=plugged, **settings)
    assert len(server.requests()) == attempts
    assert type(error) is elasticsearch.ConnectionError
    assert clock.sleeps == [0.025, 0.75, 1.5, 3.0] * (attempts // 5 if plugged else 0)
    assert waits == []
    assert attempts_of(error) == (5 if plugged else None)


def test_a_document_is_put_again_but_not_posted(call, server):
    """index() with an id is a PUT; without one it is a POST, which makes another document each time."""
    for path, named, methods in (("/1", {"id": "1"}, ["PUT"] * 5), ("", {}, ["POST"])):
        server.script(f"/i/_doc{path}", DOWN)
        index = {"index": "i", "document": {}, **named}
        call(lambda client, index=index: client.index(**index), max_retries=0)
        assert [arrival.method for arrival in server.requests(f"/i/_doc{path}")] == methods


def test_a_search_is_a_post_that_may_be_repeated(call, server):
    """search() only reads: forbear.override(methods=…) around it says so."""
    server.script("/i/_search", DOWN)
    with forbear.override(methods={"GET", "POST"}):
        call(lambda client: client.search(index="i"), max_retries=0)
    assert [arrival.method for arrival in server.requests()] == ["POST"] * 5
