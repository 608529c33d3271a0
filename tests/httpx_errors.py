"""Errors of the httpx family as the libraries raise them, made by hand."""

import importlib
from itertools import pairwise

import h2.events


def class_named(name, family):
    """The class of this name; those of httpx and httpcore in the family's own module."""
    module, _, cls = name.rpartition(".")
    if family == "httpx2":
        module = {"httpx": "httpx2", "httpcore": "httpcore2"}.get(module, module)
    return getattr(importlib.import_module(module), cls)


def chained(family, *links):
    """Exceptions from outermost to innermost, each the cause of the one before."""
    made = [
        link if isinstance(link, BaseException) else class_named(link, family)("") for link in links
    ]
    for outer, inner in pairwise(made):
        outer.__cause__ = inner
    return made[0]


def exception_of(outcome, family):
    """The exception of a case: httpx's from httpcore's, which holds the one that it came from."""
    text = outcome.get("message", "")
    made = [class_named(outcome["exception"], family)(text)]
    for depth, name in enumerate(outcome.get("wraps", ())):
        inner = class_named(name, family)(text)
        made[-1].__cause__ = inner
        if depth:
            made[-1].args = (inner,)
        made.append(inner)
    if "h2" in outcome:
        made[-1].args = (h2_event(outcome["h2"]),)
    return made[0]


def h2_event(spec):
    """An event of h2 with these attributes."""
    cls = getattr(h2.events, spec["event"])
    event = cls(stream_id=1) if spec["event"] == "StreamReset" else cls()
    for name, value in spec.items():
        if name != "event":
            assert hasattr(event, name)
            setattr(event, name, value)
    return event
