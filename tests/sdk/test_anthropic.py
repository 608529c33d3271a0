"""anthropic against the faulting server: how many requests arrive, without forbear and with it.

From version 1 on anthropic takes a client of httpx2 and no other, before of httpx; the same
promises hold for both. Most of them are in stainless.py.
"""

import importlib

import anthropic
import anthropic._base_client
import pytest

from forbear import RetryPolicy

from . import stainless
from .stainless import *  # noqa: F403

IS_HTTPX2 = int(anthropic.__version__.partition(".")[0]) >= 1


class Sdk(stainless.Sdk):
    package = anthropic
    ours = importlib.import_module("forbear.httpx2" if IS_HTTPX2 else "forbear.httpx")
    listing, creating = "/v1/models", "/v1/messages"
    message = {"model": "m", "max_tokens": 5, "messages": []}

    def classes(self):
        if self.flavour.is_async:
            return anthropic.AsyncAnthropic, anthropic.DefaultAsyncHttpxClient
        return anthropic.Anthropic, anthropic.DefaultHttpxClient

    def messages(self, client):
        return client.messages


@pytest.fixture
def waits(without_waiting):
    """What anthropic's own loop would have waited."""
    return without_waiting(anthropic._base_client)


@pytest.fixture
def sdk(flavour, server, waits, ungated):
    return Sdk(flavour, server.url, ungated)


def test_overload_is_retried_if_asked(sdk, server):
    """529 overloaded_error: final by default, 5 attempts with for_vendors("anthropic")."""
    server.script(sdk.listing, 529)
    sdk.list(sdk.client(True, max_retries=0))
    assert len(server.requests()) == 1
    error = sdk.list(
        sdk.client(True, {"policy": RetryPolicy().for_vendors("anthropic")}, max_retries=0)
    )
    assert len(server.requests()) == 1 + 5
    assert type(error).__name__ == "OverloadedError"
