"""Reads tables by DuckDB, in a process of its own, as it may crash: each line on standard input is
a metadata file and the file that its rows go to; each line on standard output an error, or nothing.
"""

import importlib
import importlib.util
import json
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa


def main() -> None:
    """Answer until standard input ends."""
    duckdb: Any = importlib.import_module("duckdb")
    connection = duckdb.connect()
    for name in ("avro", "iceberg"):
        spec = importlib.util.find_spec(f"duckdb_extension_{name}")
        assert spec is not None
        assert spec.origin is not None
        (extension,) = Path(spec.origin).parent.rglob(f"{name}.duckdb_extension")
        connection.execute(f"LOAD '{extension}'")
    connection.execute("SET TimeZone = 'UTC'")
    for line in sys.stdin:
        metadata_file, answer = json.loads(line)
        path = metadata_file.replace("'", "''")
        error = ""
        try:
            table = connection.execute(f"SELECT * FROM iceberg_scan('{path}')").to_arrow_table()
            with pa.OSFile(answer, "wb") as sink, pa.ipc.new_file(sink, table.schema) as writer:
                writer.write_table(table)
        except Exception as failure:
            error = f"{type(failure).__name__}: {failure}"
        print(json.dumps(error), flush=True)


if __name__ == "__main__":
    main()
