"""What some versions of Spark or Iceberg lack; the support matrix shows the reasons of the
marks.
"""

import pytest

from icekit.engine.compat import is_at_least, variant_type
from icekit.engine.spark_conf import ICEBERG, SPARK

dangling_of_dropped_columns = pytest.mark.skipif(
    not is_at_least(ICEBERG, 12),
    reason=f"Iceberg {ICEBERG} fails at dangling deletes of partitions whose column was dropped",
)
variants = pytest.mark.skipif(variant_type() is None, reason=f"Spark {SPARK} has no variants")
