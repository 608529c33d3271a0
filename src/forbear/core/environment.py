"""Environment: a policy from variables such as ``MYAPP_RETRY_MAX_ATTEMPTS=3``.

Loaded by ``RetryPolicy.from_env``, whose docstring describes the forms of the values. Nothing is
read until then, and nothing is read twice. No message shows the value of a variable that is no
field: under a prefix that is too short it may be a password.
"""

from __future__ import annotations

from difflib import get_close_matches
from os import environ

from .backoff import Exponential, Fixed
from .checks import shown
from .migration import place_of, rule_of
from .outcome import RETRYABLE_KINDS, FailureKind
from .policy import RetryPolicy

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from .backoff import Backoff

    Read = Callable[[str], Any]

NONE = "none"  # for None, and for an empty set
BOOLEANS = {"true": True, "1": True, "false": False, "0": False}
PRESETS = ("latency_sensitive", "high_availability", "batch", "gateway", "disabled")


def policy_from(prefix: str) -> RetryPolicy:
    """``RetryPolicy.from_env`` describes the result."""
    if not isinstance(prefix, str) or not prefix.endswith("_"):
        raise ValueError(f"prefix must end with _, such as 'MYAPP_RETRY_', got {shown(prefix)}")
    fields = {prefix + field.upper(): field for field in FORMS}
    given = {name: text.strip() for name, text in environ.items() if name.startswith(prefix)}
    if lost := sorted(given.keys() - fields.keys()):
        raise ValueError(unknown(prefix, lost[0]))
    texts = {fields[name]: text for name, text in given.items()}
    return changed(RetryPolicy(), texts, lambda field: prefix + field.upper())


def changed(
    policy: RetryPolicy, texts: Mapping[str, str], named: Callable[[str], str]
) -> RetryPolicy:
    """Return the policy with fields read from texts; ``named`` is where a field was written."""
    for field, (read, form) in FORMS.items():
        if field not in texts:
            continue
        try:
            value = read(texts[field])
            if field == "preset":
                policy = value
            elif field == "vendors":
                policy = policy.for_vendors(*value)
            else:
                policy = policy.replace(**{field: value})
        except (ValueError, TypeError) as error:
            wrong = f"{named(field)} cannot be {shown(texts[field])}"
            raise ValueError(f"{wrong}: write {form} ({error})") from None
    return policy


def unknown(prefix: str, name: str) -> str:
    """Return what is wrong with a variable that is no field, and which one to write."""
    word = name.removeprefix(prefix).lower()
    near = get_close_matches(place_of(word).partition(".")[0], FORMS, 1, 0.7)
    instead = near[0].upper() if near else f" and one of {', '.join(map(str.upper, FORMS))}"
    return f"{name} is no field of a policy: write {prefix}{instead}{rule_of(word)}"


def preset(text: str) -> RetryPolicy:
    name = text.lower().replace("-", "_")
    if name not in PRESETS:
        raise ValueError("there is no such preset")
    made: RetryPolicy = getattr(RetryPolicy, name)()
    return made


def schedule(text: str) -> Backoff:
    """``1.5`` is Fixed, ``base=0.2,cap=20,jitter=full`` is Exponential."""
    if "=" not in text:
        return Fixed(float(text))
    parts = [part.partition("=") for part in text.split(",")]
    named: dict[str, Any] = {name.strip(): number(value.strip()) for name, _, value in parts}
    return Exponential(**named)


def number(text: str) -> float | str:
    try:
        return float(text)
    except ValueError:
        return text  # a name of a jitter; else Exponential refuses it


def or_none(read: Read) -> Read:
    return lambda text: None if text.lower() == NONE else read(text)


def list_of(read: Read) -> Read:
    return lambda text: (
        () if text.lower() == NONE else [read(one.strip()) for one in text.split(",")]
    )


def kind(text: str) -> FailureKind:
    return FailureKind(text.lower().replace("_", "-"))


SECONDS = float, "seconds, such as 2.5"
MAYBE_SECONDS = or_none(float), "seconds, such as 2.5, or none"
SCHEDULE = "seconds for a fixed delay, such as 1.5, or base=0.5,cap=30,factor=2,jitter=full"
STATUSES = list_of(int), "statuses with commas between, such as 429,503, or none"
# How each field is read, and what to write. In the order in which they are applied: the preset
# first, and vendors after the statuses, to which they add theirs.
FORMS: dict[str, tuple[Read, str]] = {
    "preset": (preset, f"one of {', '.join(PRESETS)}"),
    "max_attempts": (int, "a whole number, such as 5"),
    "backoff": (schedule, SCHEDULE),
    "patience": MAYBE_SECONDS,
    "throttle_backoff": (or_none(schedule), f"{SCHEDULE}, or none"),
    "statuses": STATUSES,
    "hinted_statuses": STATUSES,
    "unexecuted_statuses": STATUSES,
    "vendors": (list_of(str.lower), "vendors with commas between, such as github,google, or none"),
    "conflict_with_key": (lambda text: BOOLEANS.get(text.lower(), text), "true or false"),
    "failures": (
        list_of(kind),
        f"kinds with commas between, of {', '.join(sorted(RETRYABLE_KINDS))}, or none",
    ),
    "methods": (list_of(str.upper), "methods with commas between, such as GET,PUT, or none"),
    "attempt_timeout": MAYBE_SECONDS,
    "total_timeout": MAYBE_SECONDS,
    "max_retry_after": SECONDS,
    "hints": (str.lower, "obey or ignore"),
    "hint_spread": (float, "a share, such as 0.25"),
    "on_exhausted": (str.lower, "return or raise"),
}
