"""Use the profile ``hostile`` in a Spark of one's own, and write what Spark shows into
``said.json`` of the folder given.
"""

import json
import subprocess
import sys
import urllib.request
from pathlib import Path
from typing import Any

import icekit
from icekit.cli.main import main
from icekit.engine.spark_conf import SPARK_RUNTIME, SparkCatalogConf

folder = Path(sys.argv[1])
lake = icekit.connect("hostile")
assert lake._conf is not None
# Spark reads local files here, without the clients of the clouds.
lake._conf = SparkCatalogConf(lake._conf.settings, (SPARK_RUNTIME,))
spark: Any = lake.spark
assert spark.sql("SELECT count(DISTINCT id) FROM hostile.db.good").collect()[0][0] == 6

said = {
    f"SET{flag}": "\n".join(map(str, spark.sql(f"SET{flag}").collect())) for flag in ("", " -v")
}
api = f"{spark.sparkContext.uiWebUrl}/api/v1/applications/{spark.sparkContext.applicationId}"
pages = {
    "environment.json": f"{api}/environment",
    "sql.json": f"{api}/sql?details=true",
    "environment": f"{spark.sparkContext.uiWebUrl}/environment/",
}
pages |= {f"sql {i}": f"{spark.sparkContext.uiWebUrl}/SQL/execution/?id={i}" for i in range(2)}
for name, address in pages.items():
    with urllib.request.urlopen(address) as answer:
        said[name] = answer.read().decode()
said["ps"] = subprocess.run(
    ["ps", "axww", "-o", "args"], capture_output=True, text=True, check=True
).stdout
(folder / "said.json").write_text(json.dumps(said))

# What fails in Spark repeats what the server says.
asked = "--catalog hostile --debug"
assert main(f"look db.bad --collector spark {asked}".split()) != 0
done = (
    f"--execute --prove none --threshold fragmented_manifests=2 --ledger {folder}/ledger.db "
    f"--output {folder}/out"
)
assert main(f"maintain db.good {done} {asked}".split()) == 1
