"""Retries: reads ``Retry(…)`` of urllib3 or httpx-retries as it stands in source code. Floor: acts.

Nothing is evaluated and neither library is imported: the text is parsed, its literals are read, and
what comes out has the attributes that ``core/conversion.py`` looks at, with the library's own
defaults for the rest.
"""

from __future__ import annotations

import ast
from http import HTTPMethod, HTTPStatus
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

from ...policy_tools.conversion import DEFAULTS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ["httpx_retries_retry", "urllib3_retry"]

# The parameters in their order, urllib3 2.8.0 and httpx-retries 0.6.0.
URLLIB3 = (
    "total", "connect", "read", "redirect", "status", "other", "allowed_methods", "status_forcelist", "backoff_factor",
    "backoff_max", "raise_on_redirect", "raise_on_status", "history", "respect_retry_after_header",
    "remove_headers_on_redirect", "backoff_jitter", "retry_after_max",
)  # fmt: skip
HTTPX_RETRIES: dict[str, Any] = {
    "total": 10,
    "allowed_methods": None,
    "status_forcelist": None,
    "retry_on_exceptions": None,
    "backoff_factor": 0.0,
    "respect_retry_after_header": True,
    "max_backoff_wait": 120.0,
    "backoff_jitter": 1.0,
    "attempts_made": 0,
    "total_timeout": None,
    "elapsed_sleep": 0.0,
    "validate_response": None,
}
STATUSES = (429, 502, 503, 504)
METHODS = ("HEAD", "GET", "PUT", "DELETE", "OPTIONS", "TRACE")
EXCEPTIONS = ("TimeoutException", "NetworkError", "RemoteProtocolError")
CONSTANTS = {
    "Retry.DEFAULT_ALLOWED_METHODS": DEFAULTS["allowed_methods"],
    "Retry.RETRY_AFTER_STATUS_CODES": DEFAULTS["RETRY_AFTER_STATUS_CODES"],
    "Retry.RETRYABLE_METHODS": frozenset(METHODS),
    "Retry.RETRYABLE_STATUS_CODES": frozenset(STATUSES),
}
SETS = {"set": frozenset, "frozenset": frozenset, "list": tuple, "tuple": tuple}


def urllib3_retry(text: str) -> Any:
    """What ``RetryPolicy.from_urllib3`` takes: the settings of a ``Retry(…)``, or a number of
    retries.

    Raises:
        ValueError: It is neither, or holds something that is no literal.
    """
    expression = parsed(text, "--from-urllib3")
    if not isinstance(expression, ast.Call):
        number = literal(expression, "--from-urllib3")
        if not isinstance(number, int):
            raise ValueError(
                f"--from-urllib3 takes 'Retry(…)' or a number of retries, got {text!r}"
            )
        return number
    given = arguments(expression, URLLIB3, "--from-urllib3")
    settings = {"total": 10, **DEFAULTS, **given}
    if given.get("status_forcelist", 0) is None:
        settings["status_forcelist"] = frozenset()
    return SimpleNamespace(**settings)


def httpx_retries_retry(text: str) -> Any:
    """What ``RetryPolicy.from_httpx_retries`` takes.

    Raises:
        ValueError: It is no ``Retry(…)``, or holds something that is no literal.
    """
    option = "--from-httpx-retries"
    expression = parsed(text, option)
    if not isinstance(expression, ast.Call):
        raise ValueError(f"{option} takes 'Retry(…)', got {text!r}")
    settings = {**HTTPX_RETRIES, **arguments(expression, tuple(HTTPX_RETRIES), option)}
    exceptions = settings["retry_on_exceptions"]
    settings["allowed_methods"] = {
        str(one).upper() for one in settings["allowed_methods"] or METHODS
    }
    settings["status_forcelist"] = settings["status_forcelist"] or STATUSES
    settings["retryable_exceptions"] = (
        tuple(map(stand_in, EXCEPTIONS))
        if exceptions is None
        else tuple(one for one in exceptions if callable(one))
    )
    return SimpleNamespace(**settings)


def parsed(text: str, option: str) -> ast.expr:
    try:
        return ast.parse(text.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise ValueError(f"{option} cannot be read as Python: {text!r}") from None


def arguments(call: ast.Call, names: tuple[str, ...], option: str) -> dict[str, Any]:
    """What the call is given, by parameter."""
    called = ast.unparse(call.func)
    if called.rpartition(".")[2] != "Retry":
        raise ValueError(f"{option} takes 'Retry(…)', got a call of {called}")
    if len(call.args) > len(names):
        raise ValueError(f"Retry takes at most {len(names)} arguments, got {len(call.args)}")
    given = {name: literal(value, option) for name, value in zip(names, call.args, strict=False)}
    for keyword in call.keywords:
        if keyword.arg not in names:
            name = "**" if keyword.arg is None else f"{keyword.arg}="
            raise ValueError(f"{option}: Retry has no {name}; it takes {', '.join(names)}")
        if keyword.arg in given:
            raise ValueError(f"{option}: {keyword.arg} is given twice")
        given[keyword.arg] = literal(keyword.value, option)
    return given


def literal(node: ast.expr, option: str) -> Any:
    """The value of a literal, or of one of the names that stand in such calls.

    Raises:
        ValueError: It is something else, which would have to be run to be known.
    """
    match node:
        case ast.List(elts) | ast.Tuple(elts) | ast.Set(elts):
            return tuple(literal(one, option) for one in elts)
        case ast.Call(ast.Name(name), [inner], []) if name in SETS:
            return SETS[name](literal(inner, option))
        case ast.Call(ast.Name(name), [], []) if name in SETS:
            return ()
        case ast.BinOp(left, ast.BitOr(), right):
            return frozenset(literal(left, option)) | frozenset(literal(right, option))
        case ast.Attribute() | ast.Name():
            return named(ast.unparse(node), option)
    try:
        return ast.literal_eval(node)
    except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
        raise ValueError(
            f"{option} reads literals only, and {ast.unparse(node)!r} would have to be run"
        ) from None


def named(path: str, option: str) -> Any:
    owner, _, name = path.rpartition(".")
    place = owner.rpartition(".")[2]
    readers: dict[str, Callable[[], Any]] = {
        "HTTPStatus": lambda: int(HTTPStatus[name]),
        "HTTPMethod": lambda: str(HTTPMethod[name].value),
        "httpx": lambda: stand_in(name),
        "httpx2": lambda: stand_in(name),
        "Retry": lambda: CONSTANTS[f"Retry.{name}"],
    }
    try:
        return readers[place]()
    except KeyError:
        raise ValueError(
            f"{option} reads literals only, and {path!r} would have to be looked up"
        ) from None


def stand_in(name: str) -> type[Exception]:
    """An exception that is known by its name."""
    return type(name, (Exception,), {})
