"""What some versions of Spark or Iceberg lack; the support matrix shows the reasons of the marks."""

from __future__ import annotations

import pytest

from icekit.catalog.session import SPARK
from icekit.engine.compat import variant_type

variants = pytest.mark.skipif(variant_type() is None, reason=f"Spark {SPARK} has no variants")
