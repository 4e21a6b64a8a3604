"""Weighted fusion of a set: x [B S D] -> y [B Q D]. POOLS names every mechanism."""

from typing import Any

from regard.core import Catalog, OptionError, Pool, check_calls
from regard.pools.attention_query_gate import AttentionQueryGate
from regard.pools.context_query import ContextQuery
from regard.pools.cross import Cross
from regard.pools.gate import Gate
from regard.pools.max import Max
from regard.pools.mean import Mean
from regard.pools.target_query import TargetQuery

POOLS: Catalog[type[Pool]] = Catalog(
    "pool", (ContextQuery, TargetQuery, Gate, AttentionQueryGate, Cross, Mean, Max)
)

__all__ = ["POOLS", "Pool", "build_pool", "resolve_pool"]


def build_pool(pool: str | type[Pool], dim: int, **options: Any) -> Pool:
    """Returns a pool of this name or class. Raises UnknownNameError (pool or option) and OptionError (one is missing)."""
    return resolve_pool(pool)(dim, **options)


def resolve_pool(pool: str | type[Pool]) -> type[Pool]:
    """Returns the class of this name, or the class itself. Raises UnknownNameError, OptionError."""
    if isinstance(pool, type):
        if not issubclass(pool, Pool):
            raise OptionError(
                f"{pool.__name__} is not a pool: subclass regard.core.pool.Pool, or pass a name"
            )
        return pool
    return POOLS[pool]


check_calls(globals(), __all__)
