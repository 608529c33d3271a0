"""elasticsearch against the faulting server: how many requests arrive, without forbear and with it."""

import elastic_transport
import elasticsearch
import pytest

import forbear.requests

from .conftest import WAITS, attempts_of, plugged

DOWN = "503;header=Content-Type:application/json;body=1"


@pytest.fixture
def call(server, without_waiting, ungated):
    """A function that makes a call and returns what it raises."""
    waits = without_waiting(elastic_transport._transport)

    class Node(elastic_transport.RequestsHttpNode):
        def __init__(self, config):
            super().__init__(config)
            forbear.requests.mount(self.session, **ungated)

    def ask(what, *, is_plugged=True, **settings):
        node_class = Node if is_plugged else elastic_transport.RequestsHttpNode
        with elasticsearch.Elasticsearch(server.url, node_class=node_class, **settings) as client:
            with pytest.raises((elasticsearch.ApiError, elasticsearch.TransportError)) as caught:
                what(client)
        assert waits == []  # only forbear waits
        return caught.value

    return ask


# The SDK's documentation: max_retries=3; on connection errors, 429, 502, 503, 504.
@plugged(1 + 3, {}, off={"max_retries": 0})
def test_attempts(call, server, clock, is_plugged, settings, attempts):
    """Down for ever: the exception is the SDK's own."""
    server.script("/", "close")
    error = call(lambda client: client.info(), is_plugged=is_plugged, **settings)
    assert len(server.requests()) == attempts
    assert type(error) is elasticsearch.ConnectionError
    assert clock.sleeps == WAITS * (attempts // 5)
    assert attempts_of(error) == (5 if is_plugged else None)


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
