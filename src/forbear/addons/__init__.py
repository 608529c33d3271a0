"""Add-ons: one file a feature, loaded by the option that asks for it and known to nothing below.

``Limit`` is the base class of those of your own, which the option ``addons=`` takes.
"""

from ..core.call import Call as Call  # what the methods get, to be named in their signatures
from ..core.call import Limit, Plan

__all__ = ["Limit", "Plan"]
