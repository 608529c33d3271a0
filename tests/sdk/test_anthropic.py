"""anthropic against the faulting server: how many requests arrive, without forbear and with it."""

import anthropic
import anthropic._base_client

from forbear import RetryPolicy

from . import stainless
from .stainless import *  # noqa: F403


class Sdk(stainless.Sdk):
    package, httpx2_since = anthropic, 1
    listing, creating = "/v1/models", "/v1/messages"
    message = {"model": "m", "max_tokens": 5, "messages": []}

    def classes(self):
        if self.flavour.is_async:
            return anthropic.AsyncAnthropic, anthropic.DefaultAsyncHttpxClient
        return anthropic.Anthropic, anthropic.DefaultHttpxClient

    def messages(self, client):
        return client.messages


def test_overload_is_retried_if_asked(sdk, server):
    """529 overloaded_error: final by default, 5 attempts with for_vendors("anthropic")."""
    server.script(sdk.listing, 529)
    sdk.list(sdk.client(True, max_retries=0))
    assert len(server.requests()) == 1
    options = {"policy": RetryPolicy().for_vendors("anthropic")}
    error = sdk.list(sdk.client(True, options, max_retries=0))
    assert len(server.requests()) == 1 + 5
    assert type(error).__name__ == "OverloadedError"
