"""What some versions of Spark or Iceberg lack; the support matrix shows the reasons of the
marks.
"""

import pytest

from icekit.engine.column_types import Ability, Engine
from icekit.engine.compat import is_at_least
from icekit.engine.spark_conf import ICEBERG, SPARK

dangling_of_dropped_columns = pytest.mark.skipif(
    not is_at_least(ICEBERG, 12),
    reason=f"Iceberg {ICEBERG} fails at dangling deletes of partitions whose column was dropped",
)
#: What runs the tests.
ENGINE = Engine(SPARK, ICEBERG)
variants = pytest.mark.skipif(
    not ENGINE.can(Ability.READ, "variant"), reason=f"Spark {SPARK} has no variants"
)
