"""allocate: which rank takes which example at which step?"""

from typing import TYPE_CHECKING, Any

from stages.allocate.stage import allocate, expected

if TYPE_CHECKING:
    from stages.allocate.sampler import AllocationSampler, weighted

__all__ = ["AllocationSampler", "allocate", "expected", "weighted"]


def __getattr__(name: str) -> Any:
    """The sampler, when it is asked for: it needs torch, which takes seconds to load."""
    if name in ("AllocationSampler", "weighted"):
        from stages.allocate import sampler

        return getattr(sampler, name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
