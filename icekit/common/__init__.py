"""Words, units, errors, SQL, secrets, views and options, which all wings use."""

from dataclasses import dataclass, field
from typing import TypeVar, dataclass_transform

T = TypeVar("T")


@dataclass_transform(frozen_default=True, field_specifiers=(field,))
def frozen(record_class: type[T]) -> type[T]:
    """A dataclass with slots whose values are set once, as most classes of icekit are."""
    return dataclass(frozen=True, slots=True)(record_class)
