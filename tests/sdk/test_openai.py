"""openai against the faulting server: how many requests arrive, without forbear and with it."""

import openai
import openai._base_client

from . import stainless
from .stainless import *  # noqa: F403


class Sdk(stainless.Sdk):
    package, httpx2_since = openai, 3
    listing, creating = "/models", "/chat/completions"
    message = {"model": "m", "messages": []}

    def classes(self):
        library = "Httpx2" if self.is_httpx2 else "Httpx"
        if self.flavour.is_async:
            return openai.AsyncOpenAI, getattr(openai, f"DefaultAsync{library}Client")
        return openai.OpenAI, getattr(openai, f"Default{library}Client")

    def messages(self, client):
        return client.chat.completions
