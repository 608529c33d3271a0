"""The public surface: its names, their docstrings, and the family of errors."""

import ast
import copy
import importlib
import inspect
import pickle
import re
from pathlib import Path

import httpx
import httpx2
import pytest

import forbear
from forbear import Reason, record_of

# At the door is what most programs may need; the rest is in ``forbear.strategies``.
NAMES = {
    "RetryPolicy", "Exponential", "Fixed", "IdempotencyKeys", "RetryBudget", "FailureKind",
    "read_hint", "Reason", "CallRecord", "AttemptRecord", "record_of", "override", "deadline",
    "ForbearError", "CircuitOpenError", "DeadlineExceeded", "EventStreams", "CircuitBreaker",
    "Options", "Origins", "RetryGate", "Hedge", "ConcurrencyLimit", "Pacing",
}  # fmt: skip
STRATEGIES = {
    "AwsStandard", "Backoff", "Failure", "Fault", "Hint", "Phase", "PolicyFields", "RetryRefused",
    "RetryStrategy", "RetryToken", "StandardStrategy", "TokenBucket",
}  # fmt: skip
EVENTS = {
    "AttemptDelayed", "AttemptFailed", "BudgetExhausted", "CallEnded", "CallOutcome",
    "CircuitTransition", "Event", "FailedOver", "GaveUp", "Hedged", "Released", "Resumption",
    "RetryAfterIgnored", "RetryScheduled", "SucceededAfterRetry",
}  # fmt: skip
ERRORS = {"CircuitOpenError", "DeadlineExceeded"}  # each adapter module has its own two
WRAPS = {"wrap", "unwrap", "is_wrapped", "classify"} | ERRORS
TRANSPORTS = {"RetryTransport", "AsyncRetryTransport"} | WRAPS
POOLS = {"RetryPoolManager", "RetryProxyManager", "Retry", "classify"} | ERRORS
OTEL = {"Metrics", "Spans", "async_request_hook", "request_hook", "response_hook"}
SCRIPTED = {"FakeClock", "FaultServer", "ScriptedAdapter", "ScriptedTransport", "assert_schedule"}
SCRIPTED |= {"disabled", "fast", "record", "answer", "Arrival", "RecordedEvents", "Step"}
MODULES = {
    "forbear": NAMES, "forbear.addons": {"Limit", "Plan"}, "forbear.events": EVENTS,
    "forbear.aiohttp": {"RetryMiddleware"} | WRAPS, "forbear.httpx": TRANSPORTS,
    "forbear.httpx2": TRANSPORTS, "forbear.asgi": {"RetryContextMiddleware"},
    "forbear.wsgi": {"RetryContextMiddleware"}, "forbear.redis": {"RedisBudget"},
    "forbear.idempotency": {"serialize", "parse", "generate"}, "forbear.strategies": STRATEGIES,
    "forbear.requests": {"RetryAdapter", "mount", "is_mounted", "classify"} | ERRORS,
    "forbear.urllib3": POOLS, "forbear.telemetry.assets": {"read", "write"},
    "forbear.telemetry.otel": OTEL, "forbear.telemetry.prometheus": {"Metrics"},
    "forbear.pytest_plugin": {"forbear_clock", "forbear_events", "forbear_fast", "forbear_server"},
    "forbear.testing": SCRIPTED,
}  # fmt: skip
PUBLIC = [
    (f"{module}.{name}", getattr(importlib.import_module(module), name))
    for module, names in MODULES.items()
    for name in sorted(names - {"Event"})  # a union
]
# Said once at the Protocol or the base class: RetryStrategy, Backoff, Clock, httpx.BaseTransport.
SAID_ELSEWHERE = {
    "acquire_initial_token", "refresh_token", "record_success", "release", "delay", "monotonic",
    "time", "sleep", "asleep", "sentence", "level", "handle_request", "handle_async_request", "close", "aclose",
}  # fmt: skip
FAMILY = {
    forbear.ForbearError: (Exception,),
    forbear.CircuitOpenError: (forbear.ForbearError,),
    forbear.DeadlineExceeded: (forbear.ForbearError,),
    forbear.httpx.CircuitOpenError: (forbear.CircuitOpenError, httpx.TransportError),
    forbear.httpx.DeadlineExceeded: (forbear.DeadlineExceeded, httpx.TimeoutException),
    forbear.httpx2.CircuitOpenError: (forbear.CircuitOpenError, httpx2.TransportError),
    forbear.httpx2.DeadlineExceeded: (forbear.DeadlineExceeded, httpx2.TimeoutException),
}


def test_all_is_what_was_promised():
    for module, names in MODULES.items():
        found = importlib.import_module(module).__all__
        assert list(found) == sorted(found)
        assert set(found) == names, module


def test_type_checkers_see_what_runs():
    """The imports under TYPE_CHECKING, the table of places and ``__all__`` are one list."""
    (block,) = [
        node
        for node in ast.parse(Path(forbear.__file__).read_text(encoding="utf-8")).body
        if isinstance(node, ast.If) and getattr(node.test, "id", "") == "TYPE_CHECKING"
    ]
    aliases = [(node.module, alias) for node in block.body for alias in node.names]
    # "as" makes it a re-export, as does a place in __all__.
    assert all(alias.name in (alias.asname, *forbear.__all__) for _, alias in aliases)
    assert {alias.name: module for module, alias in aliases if module} == forbear._PLACES
    modules = tuple(alias.name for module, alias in aliases if not module)
    assert modules == forbear._MODULES == tuple(sorted(modules))
    assert {f"forbear.{name}" for name in modules} <= set(MODULES)
    assert sorted(forbear._PLACES) == forbear.__all__
    for name, module in forbear._PLACES.items():
        assert getattr(forbear, name) is getattr(importlib.import_module(f"forbear.{module}"), name)


def test_both_libraries_have_the_same_names_and_no_class_in_common():
    for name in TRANSPORTS:
        ours, theirs = getattr(forbear.httpx, name), getattr(forbear.httpx2, name)
        assert ours is not theirs
        if name.endswith("RetryTransport"):
            assert inspect.signature(ours) == inspect.signature(theirs)
            assert not issubclass(ours, httpx2.BaseTransport | httpx2.AsyncBaseTransport)


def test_every_public_object_and_method_explains_itself():
    for name, found in PUBLIC:
        text = (found.__doc__ or "").strip()
        assert text[:1].isupper() or text[:1] in "`*", name
        assert text.split("\n\n")[0].rstrip().endswith((".", ":")), name
        assert not text.startswith(f"{name}("), "a dataclass's own docstring explains nothing"
        for method, member in vars(found).items() if inspect.isclass(found) else ():
            if inspect.isfunction(member) or isinstance(member, staticmethod):
                is_said = method in SAID_ELSEWHERE or inspect.getdoc(member)
                assert method.startswith("_") or is_said, (name, method)


def test_options_are_described():
    """Every parameter of a public class is named in its docstring, or has one of its own."""
    for name, found in PUBLIC:
        # Those of errors are described at ForbearError; these two refer to the class that has them.
        if not inspect.isclass(found) or issubclass(found, (Exception, str)):
            continue
        if name.rpartition(".")[2] in {"AsyncRetryTransport", "RetryProxyManager"}:
            continue
        text = f"{found.__doc__}{found.__init__.__doc__}"
        for parameter in list(inspect.signature(found.__init__).parameters.values())[1:]:
            if parameter.kind not in (parameter.VAR_POSITIONAL, parameter.VAR_KEYWORD):
                own = inspect.getdoc(getattr(found, parameter.name, None))
                assert parameter.name in text or own, (name, parameter.name)


def test_help_names_every_option_and_where_each_is_explained():
    """In one place: ``help(forbear.Options)``."""
    names = set(forbear.Options.__annotations__)
    prefetch = [forbear.httpx.RetryTransport, forbear.httpx2.RetryTransport]
    prefetch.append(forbear.aiohttp.RetryMiddleware)
    for cls in (*prefetch, forbear.requests.RetryAdapter, forbear.urllib3.RetryPoolManager):
        pattern = r"\*\*options: (.*?)\.\s+``help\(forbear.Options"
        (listed,) = re.findall(pattern, cls.__doc__, re.DOTALL)
        own = {"prefetch"} if cls in prefetch else set()
        assert set(re.split(r"[,;]\s+", listed)) == names | own
    explained = re.findall(r"^    (\w+): ", inspect.getdoc(forbear.Options), re.MULTILINE)
    assert sorted(explained) == sorted(names | {"prefetch", "hedge"})
    for library in (forbear.httpx, forbear.httpx2):
        assert "``hedge``" in library.AsyncRetryTransport.__doc__


def test_errors_derive_from_their_family_and_never_from_oserror():
    """``except httpx.TimeoutException`` catches ours; ``except OSError`` does not."""
    assert forbear.strategies.RetryRefused.__bases__ == (forbear.ForbearError,)
    for cls, bases in FAMILY.items():
        assert all(issubclass(cls, base) for base in (*bases, forbear.ForbearError))
        assert not issubclass(cls, (OSError, TimeoutError, ValueError, RuntimeError))


def test_errors_take_a_message_a_reason_and_a_time_and_survive_a_copy():
    """An exception raised in a worker process arrives as what it was."""
    for cls in FAMILY:
        assert cls("what happened", reason=Reason.CIRCUIT_OPEN).retry_after is None
        with pytest.raises(TypeError):
            cls("what happened", Reason.DEADLINE)
        error = cls("what happened", reason=Reason.CIRCUIT_OPEN, retry_after=2.5)
        error.add_note("forbear: the story")
        protocols = range(pickle.HIGHEST_PROTOCOL + 1)
        pickled = [pickle.loads(pickle.dumps(error, protocol)) for protocol in protocols]
        for twin in (error, copy.copy(error), *pickled):
            assert type(twin) is cls
            assert (str(twin), twin.args) == ("what happened", ("what happened",))
            assert (twin.reason, twin.retry_after) == (Reason.CIRCUIT_OPEN, 2.5)
            assert twin.__notes__ == ["forbear: the story"]


def test_a_refusal_sends_once_unless_it_says_otherwise_and_pickles():
    assert forbear.strategies.RetryRefused(Reason.BUDGET_EXHAUSTED).send is True
    error = forbear.strategies.RetryRefused(Reason.BUDGET_EXHAUSTED, send=False, retry_after=1.0)
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error) == "refused: budget-exhausted"
    assert (twin.reason, twin.send, twin.retry_after) == (Reason.BUDGET_EXHAUSTED, False, 1.0)


def test_an_error_that_a_transport_raised_pickles():
    """With the request that the client put on it, and with the story."""
    for module, adapter in ((httpx, forbear.httpx), (httpx2, forbear.httpx2)):
        inner = module.MockTransport(lambda request, module=module: module.Response(200))
        with module.Client(transport=adapter.RetryTransport(inner)) as client:
            with pytest.raises(adapter.DeadlineExceeded) as caught:
                client.get("http://a.example/", extensions={"forbear": {"total_timeout": 0}})
        twin = pickle.loads(pickle.dumps(caught.value))
        assert type(twin) is adapter.DeadlineExceeded
        assert twin.reason is Reason.DEADLINE
        assert twin.request.url == caught.value.request.url == "http://a.example/"
        assert record_of(twin) == record_of(caught.value)
