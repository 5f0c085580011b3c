"""The live writer: appends, upserts and deletes, one commit after another, and a log of what it
committed.
"""

from __future__ import annotations

import json
import random
import sys
from collections.abc import Callable, Mapping
from pathlib import Path

import icekit
from icekit.common.sql import identifier
from icekit.engine.errors import failure_kind
from rigs.lab.deletes import UpsertStream
from rigs.soak.table import desk, rows_sql, upserts

_TRIES = 50


def main(namespace: str, name: str, partitions: int, seed: int, least: int, log: Path) -> None:
    """Commit at least ``least`` times, and until ``<log>.stop`` is there; the log has a line a
    commit.
    """
    chance = random.Random(seed)
    lake = icekit.connect()
    at = desk(lake, name, namespace)
    stop = log.with_suffix(".stop")
    rows = {
        int(r[0]): str(r[1])
        for r in lake.spark.sql(f"SELECT id, value FROM {at.sql_name}").collect()
    }
    stream = UpsertStream(at, ("id", "part"), prefix="live-")
    print("ready", flush=True)
    sys.stdin.readline()
    done = again = 0
    with log.open("w") as told:
        while done < least or not stop.exists():
            changed, write = _next(chance, rows, partitions, done)
            for _ in range(_TRIES):
                try:
                    if isinstance(write, str):
                        at.sql(write)
                    else:
                        stream.commit(upserts(write, partitions, f"v{done}"))
                        at.refresh()
                    break
                except Exception as error:
                    # The compaction has replaced the files that it deletes from: as any writer, it
                    # tries again.
                    if failure_kind(error) not in {"conflict", "refused"}:
                        raise
                    again += 1
            else:
                raise AssertionError(f"the writer met {_TRIES} conflicts in a row")
            done += 1
            for key, value in changed.items():
                if value is None:
                    rows.pop(key, None)
                else:
                    rows[key] = value
            told.write(json.dumps(changed) + "\n")
            told.flush()
    print(
        f"ended after {done} commits and {again} conflicts of its own, {identifier(name)}",
        flush=True,
    )


def _next(
    chance: random.Random, rows: Mapping[int, str], partitions: int, number: int
) -> tuple[dict[int, str | None], str | list[int]]:
    """What one commit changes by key (None: deleted), and the SQL or the upserted keys that do
    it.
    """
    keys = sorted(rows)
    kinds: list[Callable[[], tuple[dict[int, str | None], str | list[int]]]] = [
        lambda: _append(keys[-1] + 1, 4 * partitions, partitions),
        lambda: _upsert(sorted({*chance.sample(keys, 3 * partitions), keys[-1] + 1}), number),
        lambda: _delete(chance.sample(keys, 2 * partitions)),
    ]
    # In turn, so that a short soak has all of them.
    return kinds[number % len(kinds)]()


def _append(first: int, count: int, partitions: int) -> tuple[dict[int, str | None], str]:
    return {
        key: f"value {key}" for key in range(first, first + count)
    }, "INSERT INTO {t} " + rows_sql(first, count, partitions)


def _upsert(keys: list[int], number: int) -> tuple[dict[int, str | None], list[int]]:
    return {key: f"v{number} {key}" for key in keys}, keys


def _delete(keys: list[int]) -> tuple[dict[int, str | None], str]:
    return dict.fromkeys(keys), f"DELETE FROM {{t}} WHERE id IN ({', '.join(map(str, keys))})"


def expected(before: Mapping[int, str], log: Path) -> dict[int, str]:
    """The rows by key and value, as the writer's log says they must be."""
    rows = dict(before)
    for line in log.read_text().splitlines():
        for key, value in json.loads(line).items():
            if value is None:
                rows.pop(int(key), None)
            else:
                rows[int(key)] = value
    return rows


if __name__ == "__main__":
    main(
        sys.argv[1],
        sys.argv[2],
        int(sys.argv[3]),
        int(sys.argv[4]),
        int(sys.argv[5]),
        Path(sys.argv[6]),
    )
