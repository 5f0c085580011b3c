"""What some versions of Spark or Iceberg lack; the support matrix shows the reasons of the marks."""

from __future__ import annotations

import pytest

from icekit.catalog.session import ICEBERG, SPARK
from icekit.engine.compat import variant_type

#: Whether this is Iceberg 1.12 or newer.
IS_1_12 = tuple(map(int, ICEBERG.split(".")[:2])) >= (1, 12)

dangling_on_branches = pytest.mark.skipif(not IS_1_12, reason=f"Iceberg {ICEBERG} drops no dangling deletes of a branch")
variants = pytest.mark.skipif(variant_type() is None, reason=f"Spark {SPARK} has no variants")
