"""An object store that is far away: manifests are read several at once."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator

import pytest

import icekit
from icekit.api import Lake
from icekit.health.facts.head import MOST_MANIFESTS as RECENT_MANIFESTS
from icekit.iceberg.manifests import MOST_MANIFESTS as MANIFESTS_OF_BOUNDS
from rigs.bench.tables import MANIFEST_BYTES, files_of
from rigs.servers.conftest import connected
from rigs.servers.proxy import Proxy
from tests.deletes.tables import Table

pytestmark = [pytest.mark.spark, pytest.mark.servers]

MANIFESTS = 1_000


@pytest.fixture(scope="module")
def near(rest_on_s3: dict[str, str], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Lake]:
    """The catalog without a proxy."""
    with connected("near", rest_on_s3, tmp_path_factory) as lake:
        lake.spark.sql("CREATE NAMESPACE IF NOT EXISTS near.far_storage")
        yield lake


@pytest.fixture(scope="module")
def store(rest_on_s3: dict[str, str]) -> Iterator[Proxy]:
    """Before the object store."""
    with Proxy(rest_on_s3["S3__ENDPOINT"]).serving() as found:
        yield found


def test_a_thousand_manifests_are_read_in_far_fewer_waits(
    near: Lake,
    store: Proxy,
    rest_on_s3: dict[str, str],
    monkeypatch: pytest.MonkeyPatch,
    record_property: Callable[[str, object], None],
) -> None:
    table = Table(near, "far_storage", "many").create(
        "event_time timestamp_ntz, id bigint", by="days(event_time)"
    )
    files = files_of(near.spark, loaded := table.files.table(), 50)
    append = loaded.newFastAppend()
    for n in range(MANIFESTS):
        append = append.appendManifest(
            files.manifest(f"{loaded.location()}/metadata/one-{n}.avro", n, n + 1, MANIFEST_BYTES)
        )
    append.commit()
    for key, value in (rest_on_s3 | {"S3__ENDPOINT": store.address}).items():
        monkeypatch.setenv(f"PYICEBERG_CATALOG__FAR__{key}", value)
    far = icekit.connect("far")
    store.latency = 0.03

    started = time.monotonic()
    facts = far.observe(table.name, collector="local")
    record_property("seconds", time.monotonic() - started)

    assert facts.manifests.data_count == facts.data.file_count == MANIFESTS
    assert (
        len([request for request in store.requests if "/one-" in request])
        <= 2 * (MANIFESTS + RECENT_MANIFESTS + MANIFESTS_OF_BOUNDS) + 6
    )
    assert store.most_at_once >= 8
