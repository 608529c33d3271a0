"""Names: the code to write where a name is of another library, or misspelt.

Loaded when a name or a value is refused. The names are those of urllib3 2.8.0 (``Retry``), requests
2.34, httpx-retries 0.6.0, tenacity 9.2.1, stamina 26.1.0, backoff 2.2.1 and aiohttp-retry 2.9.1,
and their meaning was read there.
"""

from __future__ import annotations

from difflib import get_close_matches
from inspect import Parameter, signature

from ..core.checks import shown
from ..core.policy import RetryPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping
    from typing import Any

# Names of others, the field (or part of ``backoff``, or option) in their place, and the rule.
ROWS = (
    ("total retries max_retries num_retries", "max_attempts",
        "max_attempts = {} + 1: the first attempt counts"),
    ("attempts max_tries tries", "max_attempts", ""),
    ("stop", "max_attempts",
        "stop_after_attempt(n) is max_attempts=n, stop_after_delay(s) is total_timeout=s"),
    ("status_forcelist status_codes", "statuses", ""),
    ("allowed_methods method_whitelist", "methods", ""),
    ("retry_on retry_on_exceptions retryable_exceptions exceptions exception on retry", "failures",
        "failures holds members of FailureKind; for statuses write statuses={{503}}, for responses"
        " the option retry_if=…"),
    ("connect read other", "failures", "failures without a kind never retries it"),
    ("status", "statuses", "an empty set retries none"),
    ("backoff_factor wait_initial start_timeout delay", "backoff.base", ""),
    ("backoff_max max_backoff_wait wait_max max_value max_delay max_timeout", "backoff.cap", ""),
    ("wait_exp_base factor", "backoff.factor", ""),
    ("jitter backoff_jitter wait_jitter", "backoff.jitter",
        'jitter is a share of the wait, such as 0.2 for ±20 %, or "full"; no seconds'),
    ("wait wait_gen", "backoff", "such as Exponential(base=0.5, cap=30.0) or Fixed(1.0)"),
    ("max_time", "total_timeout", ""),
    ("timeout", "total_timeout",
        "total_timeout bounds the call, attempt_timeout each phase of an attempt"),
    ("retry_after_max", "max_retry_after", ""),
    ("respect_retry_after_header", "hints", ""),
    ("raise_on_status raise_for_status raise_on_giveup reraise", "on_exhausted", ""),
    ("on_backoff on_giveup on_success before_sleep after logger", "on_event",
        "on_event takes a list of functions"),
    ("giveup validate_response evaluate_response_callback", "retry_if",
        "retry_if takes a function of the response that returns True to retry"),
    ("before", "before_attempt", "before_attempt is called before each retry"),
    ("transport", "inner", ""),
    ("retry_options", "policy", ""),
    ("redirect raise_on_redirect remove_headers_on_redirect", "",
        "redirects are followed by the client"),
)  # fmt: skip
PEERS = {name: (place, rule) for names, place, rule in ROWS for name in names.split()}
COUNTS_RETRIES = frozenset(ROWS[0][0].split())
CHOICES = {"hints": ("'ignore'", "'obey'"), "on_exhausted": ("'return'", "'raise'")}
# Values that mean something else here, or cannot be written down.
NOT_AS_GIVEN = {
    "status", "failures", "backoff", "backoff.jitter", "on_event", "retry_if", "before_attempt",
}  # fmt: skip


def unknown(owner: str, given: Mapping[str, object], known: Iterable[str]) -> str:
    """Return what is wrong with the names that ``owner`` does not know, and the code to write."""
    known = list(known)
    takes_fields = owner == "RetryPolicy"
    kind = "field" if takes_fields else "option"
    lost = [name for name in given if name not in known]
    policy = Parts()
    options: list[str] = []
    rules: list[str] = []
    left: list[str] = []
    for name in lost:
        value, place, rule = given[name], name, ""
        if name in PEERS:
            place, rule = PEERS[name]
        elif name not in RetryPolicy.FIELDS:
            near = get_close_matches(name, {*known, *RetryPolicy.FIELDS}, n=1, cutoff=0.7)
            place = near[0] if near else ""
        translation = translated(value)
        if translation:
            options.append(translation if takes_fields else f"policy={translation}")
        elif place.partition(".")[0] in RetryPolicy.FIELDS:
            policy.add(place, written(name, place, value))
        elif place:
            of = " of the transport" if takes_fields else ""
            options.append(f"{place}={written(name, place, value)}{of}")
        elif not rule:
            left.append(name)
        if rule and not translation:
            rules.append(rule.format(name))
    fields = policy.code()
    if fields:
        options.insert(0, fields if takes_fields else f"policy=RetryPolicy({fields})")
    text = f"{owner} has no {kind} {', '.join(map(repr, lost))}"
    if options:
        text += f": write {', '.join(options)}"
    if rules:
        text += f" ({'; '.join(dict.fromkeys(rules))})"
    if left:
        first = "" if takes_fields else "policy, "
        text += f"; its {kind}s are {first}{', '.join(known)}"
    return text


class Parts:
    """Code of the fields of one policy; those of its backoff may come one by one."""

    def __init__(self) -> None:
        self.fields: dict[str, str] = {}
        self.backoff: dict[str, str] = {}

    def add(self, place: str, code: str) -> None:
        field, _, part = place.partition(".")
        if part:
            self.backoff[part] = code
            code = f"Exponential({arguments(self.backoff)})"
        self.fields[field] = code

    def code(self) -> str:
        return arguments(self.fields)


def arguments(named: Mapping[str, str]) -> str:
    return ", ".join(f"{name}={code}" for name, code in named.items())


def written(name: str, place: str, value: Any) -> str:
    """The value as code, … where it has to be thought about."""
    if place in CHOICES:
        return CHOICES[place][bool(value)]
    if name == place:
        return shown(value)
    if name in PEERS and not NOT_AS_GIVEN.isdisjoint({name, place}):
        return "…"
    if name in COUNTS_RETRIES:
        is_count = isinstance(value, int) and not isinstance(value, bool)
        return str(value + 1) if is_count else "…"
    is_plain = isinstance(value, (int, float, str, list, tuple, set, frozenset))
    return shown(value) if is_plain or name not in PEERS else "…"


def translated(value: object) -> str:
    """The call that makes a policy of another library's Retry; empty if it is none."""
    if isinstance(value, type) or not callable(getattr(value, "increment", None)):
        return ""
    library = "urllib3" if hasattr(value, "get_backoff_time") else "httpx_retries"
    return f"RetryPolicy.from_{library}({type(value).__name__}(…))"


def policy_of(value: object) -> str:
    """The policy to write in place of what was given for one."""
    if isinstance(value, type) and issubclass(value, RetryPolicy):
        return "RetryPolicy()"
    return translated(value) or "RetryPolicy(max_attempts=…)"


def code_of_class(cls: type) -> str:
    """The code that makes an object of a class that was given in its place."""
    try:
        parameters = signature(cls).parameters.values()
    except ValueError:  # of a class that Python does not describe
        return f"{cls.__name__}(…)"
    needed = (
        one.default is Parameter.empty
        for one in parameters
        if one.kind not in (Parameter.VAR_POSITIONAL, Parameter.VAR_KEYWORD)
    )
    return f"{cls.__name__}({'…' if any(needed) else ''})"
