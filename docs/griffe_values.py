"""The reference shows the values of defaults, where the code has the names of constants."""

import importlib
import inspect
from enum import Enum
from typing import Any

import griffe


class Values(griffe.Extension):
    def on_function(self, *, func: griffe.Function, **_: Any) -> None:
        named = [one for one in func.parameters if str(one.default or "").isupper()]
        if named:
            module = importlib.import_module(func.module.path)
            found: Any = module
            for part in func.path.removeprefix(f"{func.module.path}.").split("."):
                found = getattr(found, part)
            defaults = inspect.signature(found).parameters
            for one in named:
                one.default = shown(defaults[one.name].default)


def shown(value: Any) -> str:
    if isinstance(value, frozenset):
        return f"{{{', '.join(sorted(map(shown, value)))}}}"
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
