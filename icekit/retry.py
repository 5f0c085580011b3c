"""Try a write again while others are in its way, each wait longer than the last and partly random."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

from tenacity import Retrying, retry_if_exception, stop_after_delay, wait_random_exponential

T = TypeVar("T")


def patiently(
    work: Callable[[], T], is_in_the_way: Callable[[BaseException], bool], *, seconds: float, first_wait: float, longest_wait: float
) -> T:
    """Do work, again for so many seconds while it raises what is only in the way; raises what it last raised."""
    retrying = Retrying(
        retry=retry_if_exception(is_in_the_way),
        stop=stop_after_delay(seconds),
        wait=wait_random_exponential(multiplier=first_wait, max=longest_wait),
        reraise=True,
    )
    return retrying(work)
