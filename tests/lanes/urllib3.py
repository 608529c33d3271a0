"""The lanes of requests and urllib3."""

import io
from types import SimpleNamespace

import requests
import urllib3

import forbear.requests
import forbear.urllib3
from forbear.requests import RetryAdapter
from forbear.testing import ScriptedAdapter
from forbear.urllib3 import RetryPoolManager

from .lane import Lane, as_text


class Urllib3FamilyLane(Lane):
    def is_idle(self, client):
        pools = self.manager(client).pools
        return all(pools[key].pool.qsize() == pools[key].pool.maxsize for key in pools.keys())  # noqa: SIM118

    def status(self, response):
        return response.status_code

    def reading_for(self, seconds):
        return {"timeout": urllib3.Timeout(connect=5, read=seconds)}

    async def collect(self, response, got):
        for piece in self.pieces_of(response):
            got += piece

    def watched(self, steps):
        return WatchedAdapter(steps)

    def header(self, request, name):
        return [
            as_text(value)
            for found, value in request.headers.items()
            if as_text(found).lower() == name.lower()
        ]

    def header_names(self, request):
        return [as_text(name).lower() for name in request.headers]


class RequestsLane(Urllib3FamilyLane):
    name = "requests"
    is_full = False
    words = {"urllib3-family", "requests", "sync", "status-errors", "stacks"}
    words |= {"plain-bodies"}
    library = requests
    forbear = forbear.requests
    transport_error = requests.RequestException
    timeout_error = requests.Timeout
    status_error = requests.HTTPError
    connect_error = requests.ConnectionError
    disconnect_error = requests.ConnectionError
    read_timeout = requests.ReadTimeout
    cut_error = requests.exceptions.ChunkedEncodingError
    wire_errors = {fault: {"ConnectionError"} for fault in ("reset", "close", "garbage")} | {
        "hang": {"ReadTimeout"}
    }

    def build(self, inner, options, **settings):
        return RequestsClient(self.transport(inner, **options), **settings)

    def transport(self, inner=None, **options):
        return RetryAdapter(inner=scripted(inner), **{"gate": None, **options})

    def pool_of(self, size):
        return {"pool_maxsize": size, "pool_block": True}

    def manager(self, client):
        return self.retrying(client).poolmanager

    def retrying(self, client):
        return client.session.get_adapter("http://")

    async def read(self, response):
        return response.content

    def pieces_of(self, response):
        return response.iter_content(1000)


class RequestsClient:
    """A session with the words of the suite."""

    def __init__(self, adapter, *, timeout=30, follow_redirects=False):
        self.session = requests.Session()
        self.session.trust_env = False
        self.session.mount("http://", adapter)
        self.session.mount("https://", adapter)
        self._named = {"timeout": timeout, "allow_redirects": follow_redirects}

    def request(self, method, url, *, content=None, headers=None, is_open=False, **named):
        named = {"data": content, "stream": is_open, **self._named, **named}
        return self.session.request(method, url, headers=as_mapping(headers), **named)

    def close(self):
        self.session.close()


class Urllib3Lane(Urllib3FamilyLane):
    name = "urllib3"
    words = {"urllib3-family", "urllib3", "sync", "blank-headers", "plain-bodies"}
    library = urllib3
    forbear = forbear.urllib3
    transport_error = urllib3.exceptions.HTTPError
    timeout_error = urllib3.exceptions.TimeoutError
    status_error = connect_error = disconnect_error = read_timeout = (
        urllib3.exceptions.MaxRetryError
    )
    cut_error = urllib3.exceptions.ProtocolError
    wire_errors = {fault: {"MaxRetryError"} for fault in ("reset", "close", "garbage", "hang")}

    def build(self, inner, options, *, follow_redirects=False, **settings):
        manager = RetryPoolManager(**{"timeout": 5, "gate": None, **settings, **options})
        if inner is not None:
            manager.pool_classes_by_scheme = {
                scheme: type(
                    "ScriptedPool",
                    (*retrying, ScriptedPool, pool),
                    {"script": scripted(inner), "retry_port": manager.port},
                )
                for scheme, kind in manager.pool_classes_by_scheme.items()
                for *retrying, pool in [kind.__bases__]
            }
        return Urllib3Client(manager, follow_redirects)

    async def read(self, response):
        return response.data

    def pieces_of(self, response):
        return response.stream(1000)

    async def close(self, thing):
        thing.clear() if isinstance(thing, urllib3.PoolManager) else thing.close()
        if isinstance(thing, Urllib3Response):
            thing.release_conn()  # with block=True a pool counts the closed ones too

    def pool_of(self, size):
        return {"settings": {"maxsize": size, "block": True}}

    def manager(self, client):
        return client.manager

    def retrying(self, client):
        return client.manager

    def status(self, response):
        return response.status


class Urllib3Client:
    """A pool manager with the words of the suite."""

    def __init__(self, manager, follow_redirects=False):
        self.manager = manager
        self._follows = follow_redirects

    def request(self, method, url, *, content=None, headers=None, is_open=False, **named):
        if content is not None:
            named["body"] = content
        response = self.manager.request(
            method, url, headers=as_mapping(headers), redirect=self._follows,
            preload_content=not is_open, **named,
        )  # fmt: skip
        return Urllib3Response(response)

    def close(self):
        self.manager.clear()


class Urllib3Response:
    """A response of urllib3 that also knows the other libraries' names for status and body."""

    def __init__(self, response):
        self.raw = response

    @property
    def status_code(self):
        return self.raw.status

    @property
    def content(self):
        return self.raw.data

    def __getattr__(self, name):
        return getattr(self.raw, name)


class ScriptedPool:
    """Answers by a script in the place where urllib3's own pool would send."""

    def urlopen(self, method, url, body=None, headers=None, **named):
        request = SimpleNamespace(
            method=method,
            url=f"{self.scheme}://{self.host}{url}",
            headers=headers,
            body=body,
            _cookies=None,
        )
        try:
            return self.script.send(request, stream=True).raw
        except requests.RequestException as error:
            inner = error.args[0]
            raised = getattr(inner, "reason", inner)
        return named["retries"].increment(method, url, error=raised, _pool=self)


class WatchedAdapter(ScriptedAdapter):
    """Answers by a script, and knows which of its answers are read to their end or closed."""

    def __init__(self, steps):
        super().__init__(steps)
        self._answers = []

    def send(self, *arguments, **named):
        response = super().send(*arguments, **named)
        response.raw._fp = WatchedFile(response.raw._fp.getvalue())
        self._answers.append(response.raw)
        return response

    @property
    def closings(self):
        return [int(raw.closed or raw._fp.is_over) for raw in self._answers]


class WatchedFile(io.BytesIO):
    is_over = False

    def read(self, size=-1):
        found = super().read(size)
        self.is_over = size is None or size < 0 or not found
        return found


def scripted(inner):
    return ScriptedAdapter(inner) if isinstance(inner, list) else inner


def as_mapping(headers):
    """The headers as requests and urllib3 take them; a dict stays the caller's own."""
    return headers if headers is None or isinstance(headers, dict) else dict(headers)
