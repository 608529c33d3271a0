"""The reference shows the values of defaults, where the code has the names of constants.

Also what the options of a class are and their defaults, where a decorator makes its constructor.
"""

import importlib
import inspect
from enum import Enum
from typing import Any

import griffe

MAKERS = ("begins_anew", "frozen")  # of dataclasses, which griffe does not know


class Values(griffe.Extension):
    def on_class_members(self, *, cls: griffe.Class, **_: Any) -> None:
        if not any(str(one.value).startswith(MAKERS) for one in cls.decorators):
            return
        made: Any = getattr(importlib.import_module(cls.module.path), cls.name)
        parameters = [griffe.Parameter("self", kind=griffe.ParameterKind.positional_or_keyword)]
        for name, one in inspect.signature(made).parameters.items():
            parameters.append(
                griffe.Parameter(
                    name,
                    annotation=one.annotation,
                    kind=griffe.ParameterKind(one.kind.description),
                    default=None if one.default is one.empty else shown(one.default),
                )
            )
        given = griffe.Parameters(*parameters)
        cls.set_member("__init__", griffe.Function("__init__", parameters=given, returns="None"))

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
        return f"{{{', '.join(sorted(map(shown, value)))}}}" if value else "frozenset()"
    return f"{type(value).__name__}.{value.name}" if isinstance(value, Enum) else repr(value)
