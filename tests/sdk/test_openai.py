"""openai against the faulting server: how many requests arrive, without forbear and with it.

From version 3 on openai builds on httpx2, before on httpx; the same promises hold for both. Most
of them are in stainless.py.
"""

import importlib

import openai
import openai._base_client
import pytest

from . import stainless
from .stainless import *  # noqa: F403

IS_HTTPX2 = int(openai.__version__.partition(".")[0]) >= 3


class Sdk(stainless.Sdk):
    package = openai
    ours = importlib.import_module("forbear.httpx2" if IS_HTTPX2 else "forbear.httpx")
    listing, creating = "/models", "/chat/completions"
    message = {"model": "m", "messages": []}

    def classes(self):
        library = "Httpx2" if IS_HTTPX2 else "Httpx"
        if self.flavour.is_async:
            return openai.AsyncOpenAI, getattr(openai, f"DefaultAsync{library}Client")
        return openai.OpenAI, getattr(openai, f"Default{library}Client")

    def messages(self, client):
        return client.chat.completions


@pytest.fixture
def waits(without_waiting):
    """What openai's own loop would have waited."""
    return without_waiting(openai._base_client)


@pytest.fixture
def sdk(flavour, server, waits, ungated):
    return Sdk(flavour, server.url, ungated)
