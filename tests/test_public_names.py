"""The public surface: which names there are, that each explains itself, and what errors derive
from.
"""

from __future__ import annotations

import ast
import copy
import importlib
import inspect
import pickle
from pathlib import Path
from typing import Any

import httpx
import httpx2
import pytest

import forbear
import forbear.httpx
import forbear.httpx2
from forbear import Reason, record_of

# DESIGN section 2, as far as it is due now.
NAMES = {
    "RetryPolicy", "Exponential", "Fixed", "Backoff", "IdempotencyKeys", "RetryBudget", "RetryStrategy", "RetryToken",
    "StandardStrategy", "Failure", "FailureKind", "Phase", "Fault", "Hint", "read_hint", "Reason", "CallRecord",
    "AttemptRecord", "record_of", "override", "deadline", "ForbearError", "CircuitOpenError", "DeadlineExceeded",
    "RetryRefused", "AwsStandard", "CircuitBreaker", "Origins", "TokenBucket",
}  # fmt: skip
ADAPTER = {"RetryTransport", "AsyncRetryTransport", "wrap", "unwrap", "classify"}
# Each adapter module has its own two exceptions beside DESIGN's list.
ADAPTER_ERRORS = {"CircuitOpenError", "DeadlineExceeded"}
MODULES: dict[str, set[str]] = {
    "forbear": NAMES,
    "forbear.httpx": ADAPTER | ADAPTER_ERRORS,
    "forbear.httpx2": ADAPTER | ADAPTER_ERRORS,
    "forbear.asgi": {"RetryContextMiddleware"},
    "forbear.wsgi": {"RetryContextMiddleware"},
    "forbear.idempotency": {"serialize", "parse", "generate"},
    "forbear.redis": {"RedisBudget"},
    "forbear.requests": {"RetryAdapter", "mount", "classify"} | ADAPTER_ERRORS,
    "forbear.urllib3": {"RetryPoolManager", "RetryProxyManager", "Retry", "classify"}
    | ADAPTER_ERRORS,
    "forbear.telemetry.assets": {"read", "write"},
    "forbear.telemetry.otel": {
        "Metrics",
        "Spans",
        "async_request_hook",
        "request_hook",
        "response_hook",
    },
    "forbear.telemetry.prometheus": {"Metrics"},
    "forbear.pytest_plugin": {"forbear_clock", "forbear_events", "forbear_fast", "forbear_server"},
    "forbear.testing": {
        "FakeClock",
        "FaultServer",
        "ScriptedAdapter",
        "ScriptedTransport",
        "assert_schedule",
        "disabled",
        "fast",
        "record",
    },
}


def public() -> list[Any]:
    return [
        pytest.param(module, name, id=f"{module}.{name}")
        for module, names in MODULES.items()
        for name in sorted(names)
    ]


# --- names ------------------------------------------------------------------------------------


@pytest.mark.parametrize("module", sorted(MODULES))
def test_all_is_what_was_promised(module: str) -> None:
    found = importlib.import_module(module).__all__
    assert list(found) == sorted(found)
    assert set(found) == MODULES[module]


@pytest.mark.parametrize(("module", "name"), public())
def test_every_name_resolves(module: str, name: str) -> None:
    assert getattr(importlib.import_module(module), name) is not None


def front_door() -> ast.Module:
    return ast.parse(Path(forbear.__file__).read_text(encoding="utf-8"))


def test_type_checkers_see_what_runs() -> None:
    """The imports under TYPE_CHECKING, the table of places and ``__all__`` are one list."""
    (block,) = [
        node
        for node in front_door().body
        if isinstance(node, ast.If)
        and isinstance(node.test, ast.Name)
        and node.test.id == "TYPE_CHECKING"
    ]
    seen: dict[str, str] = {}
    for node in block.body:
        assert isinstance(node, ast.ImportFrom)
        for alias in node.names:
            assert alias.asname == alias.name  # "as" makes it a re-export
            seen[alias.name] = str(node.module)
    assert seen == forbear._PLACES
    assert sorted(seen) == forbear.__all__


@pytest.mark.parametrize("name", sorted(NAMES))
def test_a_name_is_the_object_of_the_place_it_comes_from(name: str) -> None:
    place = importlib.import_module(f"forbear.{forbear._PLACES[name]}")
    assert getattr(forbear, name) is getattr(place, name)
    assert name in place.__all__


@pytest.mark.parametrize(("one", "other"), [(forbear.httpx, forbear.httpx2)])
def test_both_libraries_have_the_same_names_and_no_class_in_common(one: Any, other: Any) -> None:
    assert one.__all__ == other.__all__
    for name in one.__all__:
        assert getattr(one, name) is not getattr(other, name)
    for name in ("RetryTransport", "AsyncRetryTransport"):
        ours, theirs = getattr(one, name), getattr(other, name)
        assert inspect.signature(ours) == inspect.signature(theirs)
        assert not issubclass(ours, theirs.__bases__[1])


def test_importing_two_adapters_in_one_process_keeps_them_apart() -> None:
    assert forbear.httpx.LIBRARY.module is httpx
    assert forbear.httpx2.LIBRARY.module is httpx2


# --- docstrings -------------------------------------------------------------------------------


@pytest.mark.parametrize(("module", "name"), public())
def test_every_public_object_explains_itself(module: str, name: str) -> None:
    found = getattr(importlib.import_module(module), name)
    text = found.__doc__
    assert text, name
    assert text.strip()[0].isupper() or text.strip()[0] in "`*"
    first = text.strip().split("\n\n")[0]
    assert first.rstrip().endswith((".", ":")), first
    assert not text.startswith(f"{name}("), (
        "the generated docstring of a dataclass explains nothing"
    )


def own_methods() -> list[Any]:
    found = {}
    for module, names in MODULES.items():
        for name in sorted(names):
            value = getattr(importlib.import_module(module), name)
            if inspect.isclass(value):
                for method, member in vars(value).items():
                    if not method.startswith("_") and (
                        inspect.isfunction(member) or isinstance(member, staticmethod)
                    ):
                        found[f"{module}.{name}.{method}"] = member
    return [pytest.param(member, id=name) for name, member in found.items()]


# What is said once at the Protocol or the base class is not said again; a record's fields are in
# its docstring.
SAID_ELSEWHERE = {
    "acquire_initial_token", "refresh_token", "record_success", "release",  # RetryStrategy
    "begin", "admit", "observe",  # AttemptWatcher
    "delay",  # Backoff
    "monotonic", "time", "sleep", "asleep",  # Clock
    "handle_request", "handle_async_request", "close", "aclose",  # httpx.BaseTransport
}  # fmt: skip


@pytest.mark.parametrize("method", own_methods())
def test_every_public_method_explains_itself(method: Any) -> None:
    assert method.__name__ in SAID_ELSEWHERE or inspect.getdoc(method)


@pytest.mark.parametrize(
    ("module", "name"),
    [
        case
        for case in public()
        if inspect.isclass(getattr(importlib.import_module(case.values[0]), case.values[1]))
    ],
)
def test_options_are_described(module: str, name: str) -> None:
    """Every parameter of a public class is named in its docstring."""
    found = getattr(importlib.import_module(module), name)
    if issubclass(found, (Exception, str)) or found in (
        forbear.httpx.AsyncRetryTransport,
        forbear.httpx2.AsyncRetryTransport,
        forbear.urllib3.RetryProxyManager,
    ):
        return  # of errors in ForbearError's; the others refer to the class that has them
    parameters = [
        parameter.name
        for parameter in inspect.signature(found.__init__).parameters.values()
        if parameter.name != "self"
        and parameter.kind not in (inspect.Parameter.VAR_POSITIONAL, inspect.Parameter.VAR_KEYWORD)
    ]
    text = f"{found.__doc__}{found.__init__.__doc__}"
    missing = [parameter for parameter in parameters if parameter not in text]
    missing = [name for name in missing if not inspect.getdoc(getattr(found, name, None))]
    assert missing == []


# --- errors -----------------------------------------------------------------------------------


def notes_of(error: BaseException) -> list[str]:
    return getattr(error, "__notes__", [])


ERRORS: list[Any] = [
    pytest.param(forbear.ForbearError, (Exception,), id="ForbearError"),
    pytest.param(forbear.CircuitOpenError, (forbear.ForbearError,), id="CircuitOpenError"),
    pytest.param(forbear.DeadlineExceeded, (forbear.ForbearError,), id="DeadlineExceeded"),
    pytest.param(
        forbear.httpx.CircuitOpenError,
        (forbear.CircuitOpenError, httpx.TransportError),
        id="httpx CircuitOpenError",
    ),
    pytest.param(
        forbear.httpx.DeadlineExceeded,
        (forbear.DeadlineExceeded, httpx.TimeoutException),
        id="httpx DeadlineExceeded",
    ),
    pytest.param(
        forbear.httpx2.CircuitOpenError,
        (forbear.CircuitOpenError, httpx2.TransportError),
        id="httpx2 CircuitOpenError",
    ),
    pytest.param(
        forbear.httpx2.DeadlineExceeded,
        (forbear.DeadlineExceeded, httpx2.TimeoutException),
        id="httpx2 DeadlineExceeded",
    ),
]


@pytest.mark.parametrize(("cls", "bases"), ERRORS)
def test_errors_derive_from_their_family_and_never_from_oserror(
    cls: type[Exception], bases: tuple[type, ...]
) -> None:
    """``except httpx.TimeoutException`` catches ours; ``except OSError`` and ``except
    TimeoutError`` do not.
    """
    for base in bases:
        assert issubclass(cls, base)
    assert issubclass(cls, forbear.ForbearError)
    assert not issubclass(cls, (OSError, TimeoutError, ValueError, RuntimeError))


def test_a_refusal_is_none_of_a_librarys() -> None:
    assert forbear.RetryRefused.__bases__ == (forbear.ForbearError,)
    assert forbear.ForbearError.__bases__ == (Exception,)


@pytest.mark.parametrize(("cls", "bases"), ERRORS)
def test_errors_take_a_message_a_reason_and_a_time(cls: Any, bases: Any) -> None:
    error = cls("what happened", reason=Reason.DEADLINE, retry_after=2.5)
    assert str(error) == "what happened"
    assert (error.reason, error.retry_after) == (Reason.DEADLINE, 2.5)
    assert cls("what happened", reason=Reason.CIRCUIT_OPEN).retry_after is None
    with pytest.raises(TypeError):
        cls("what happened", Reason.DEADLINE)


@pytest.mark.parametrize(
    "twin_of",
    [
        copy.copy,
        *(
            lambda error, n=n: pickle.loads(pickle.dumps(error, n))
            for n in range(pickle.HIGHEST_PROTOCOL + 1)
        ),
    ],
    ids=["copy", *(f"pickle{n}" for n in range(pickle.HIGHEST_PROTOCOL + 1))],
)
@pytest.mark.parametrize(("cls", "bases"), ERRORS)
def test_errors_pickle(cls: Any, bases: Any, twin_of: Any) -> None:
    """An exception raised in a worker process arrives as what it was."""
    error = cls("what happened", reason=Reason.CIRCUIT_OPEN, retry_after=2.5)
    error.add_note("forbear: the story")
    twin = twin_of(error)
    assert type(twin) is cls
    assert (str(twin), twin.args) == ("what happened", ("what happened",))
    assert (twin.reason, twin.retry_after) == (Reason.CIRCUIT_OPEN, 2.5)
    assert notes_of(twin) == ["forbear: the story"]


def test_a_refusal_pickles() -> None:
    error = forbear.RetryRefused(Reason.BUDGET_EXHAUSTED, send=False, retry_after=1.0)
    twin = pickle.loads(pickle.dumps(error))
    assert str(twin) == str(error) == "refused: budget-exhausted"
    assert (twin.reason, twin.send, twin.retry_after) == (Reason.BUDGET_EXHAUSTED, False, 1.0)


def test_a_refusal_sends_once_unless_it_says_otherwise() -> None:
    assert forbear.RetryRefused(Reason.BUDGET_EXHAUSTED).send is True


@pytest.mark.parametrize(
    ("module", "adapter"),
    [
        pytest.param(httpx, forbear.httpx, id="httpx"),
        pytest.param(httpx2, forbear.httpx2, id="httpx2"),
    ],
)
def test_an_error_that_a_transport_raised_pickles(module: Any, adapter: Any) -> None:
    """With the request that the client put on it, and with the story."""
    transport = adapter.RetryTransport(module.MockTransport(lambda request: module.Response(200)))
    with module.Client(transport=transport) as client:
        with pytest.raises(adapter.DeadlineExceeded) as caught:
            client.get("http://a.example/", extensions={"forbear": {"total_timeout": 0}})
    error = caught.value
    assert error.request.url == "http://a.example/"
    twin = pickle.loads(pickle.dumps(error))
    assert type(twin) is adapter.DeadlineExceeded
    assert twin.reason is Reason.DEADLINE
    assert twin.request.url == "http://a.example/"
    assert record_of(twin) == record_of(error)


# --- enums ------------------------------------------------------------------------------------


def test_the_reasons_are_the_closed_label_set() -> None:
    """DESIGN section 4: the values are stable, metrics and logs are keyed by them."""
    assert {reason.value for reason in Reason} == {
        "server-said-no", "replayed-response", "permanent-error", "local-saturation", "unknown-error",
        "method-not-replayable", "key-expired", "body-consumed", "response-delivered", "nested-call",
        "attempts-exhausted", "retry-after-too-long", "deadline", "circuit-open", "budget-exhausted",
        "strategy-failed",
    }  # fmt: skip
    assert all(str(reason) == reason.value for reason in Reason)
