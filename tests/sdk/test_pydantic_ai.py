"""pydantic-ai against the faulting server: a streamed run begins again until its first event."""

import anyio
import httpx2
from openai import AsyncOpenAI
from pydantic_ai import Agent
from pydantic_ai.models.openai import OpenAIChatModel
from pydantic_ai.providers.openai import OpenAIProvider

from forbear import EventStreams, RetryPolicy
from forbear.httpx2 import wrap

from .stainless import OVERLOADED, events

POLICY = RetryPolicy(max_attempts=4, methods={"GET", "POST"}).for_vendors("openai")
DELTA = {"index": 0, "delta": {"role": "assistant", "content": "hello"}, "finish_reason": "stop"}
GOOD = {"id": "1", "object": "chat.completion.chunk", "created": 1, "model": "m"}


def test_a_run_begins_again_after_an_overloaded_first_event(server, ungated):
    good = events("", {**GOOD, "choices": [DELTA]})
    server.script("/chat/completions", events(*OVERLOADED["openai"]), good)

    async def run():
        http_client = wrap(httpx2.AsyncClient(), POLICY, event_streams=EventStreams(), **ungated)
        async with http_client:
            settings = {"base_url": server.url, "http_client": http_client, "max_retries": 0}
            sdk = AsyncOpenAI(api_key="k", **settings)
            agent = Agent(OpenAIChatModel("m", provider=OpenAIProvider(openai_client=sdk)))
            async with agent.run_stream("Hello") as streamed:
                return await streamed.get_output()

    assert anyio.run(run) == "hello"
    assert len(server.requests()) == 2
