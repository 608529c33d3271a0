"""Strategies, and what a schedule, a budget or a strategy of your own is made of.

Few programs need a name of this module. A strategy takes the place of schedule, gate, budget,
breaker, cooldown and servers, with the option ``strategy=``::

    wrap(client, strategy=AwsStandard())

The types are those of what forbear passes to your own code, and of what your code returns.
"""

from .addons.aws import AwsStandard, TokenBucket
from .addons.standard import StandardStrategy
from .addons.strategy import RetryStrategy, RetryToken
from .core.backoff import Backoff
from .core.outcome import Failure, Fault, Hint, Phase
from .core.policy_fields import PolicyFields
from .errors import RetryRefused

__all__ = [
    "AwsStandard",
    "Backoff",
    "Failure",
    "Fault",
    "Hint",
    "Phase",
    "PolicyFields",
    "RetryRefused",
    "RetryStrategy",
    "RetryToken",
    "StandardStrategy",
    "TokenBucket",
]
