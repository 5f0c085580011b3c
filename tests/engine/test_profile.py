"""A pyiceberg profile becomes Spark's settings, or is refused by name."""

import pytest

from icekit.common.errors import ProfileError
from icekit.engine.spark_conf import AWS_BUNDLE, SQLITE_JDBC, spark_conf


def conf(**properties: str) -> dict[str, str]:
    translated = spark_conf(
        "prod",
        {key.replace("__", "-").replace("_", "."): value for key, value in properties.items()},
    )
    return {
        key.removeprefix("spark.sql.catalog.prod."): value
        for key, value in translated.settings.items()
    }


def test_a_rest_catalog_on_s3_carries_endpoint_keys_headers_and_credential_over() -> None:
    translated = spark_conf(
        "prod",
        {
            "uri": "https://catalog.example/api",
            "credential": "id:secret",
            "warehouse": "s3://bucket/wh",
            "s3.endpoint": "http://127.0.0.1:9000",
            "s3.access-key-id": "AK",
            "s3.secret-access-key": "SK",
            "s3.region": "eu-west-1",
            "header.X-Team": "lake",
            "rest.sigv4-enabled": "true",
        },
    )

    assert {k.removeprefix("spark.sql.catalog."): v for k, v in translated.settings.items()} == {
        "prod": "org.apache.iceberg.spark.SparkCatalog",
        "prod.type": "rest",
        "prod.uri": "https://catalog.example/api",
        "prod.credential": "id:secret",
        "prod.warehouse": "s3://bucket/wh",
        "prod.s3.endpoint": "http://127.0.0.1:9000",
        "prod.s3.access-key-id": "AK",
        "prod.s3.secret-access-key": "SK",
        "prod.client.region": "eu-west-1",
        "prod.header.X-Team": "lake",
        "prod.rest.sigv4-enabled": "true",
        "prod.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        "prod.s3.path-style-access": "true",
    }
    assert AWS_BUNDLE in translated.packages


def test_a_sql_catalog_becomes_jdbc_with_its_driver() -> None:
    translated = spark_conf(
        "prod", {"type": "sql", "uri": "sqlite:////data/catalog.db", "warehouse": "/data/wh"}
    )

    assert translated.settings["spark.sql.catalog.prod.uri"].startswith(
        "jdbc:sqlite:file:/data/catalog.db"
    )
    assert translated.settings["spark.sql.catalog.prod.jdbc.schema-version"] == "V1"
    assert SQLITE_JDBC in translated.packages


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (
            {"uri": "postgresql+psycopg2://me:p%40ss@db.example:5432/catalog"},
            {
                "uri": "jdbc:postgresql://db.example:5432/catalog",
                "jdbc.user": "me",
                "jdbc.password": "p@ss",
            },
        ),
        ({"uri": "thrift://metastore:9083"}, {"type": "hive"}),
        (
            {"type": "glue", "glue_region": "eu-west-1"},
            {"type": "glue", "client.region": "eu-west-1"},
        ),
        (
            {"uri": "http://c", "s3_force__virtual__addressing": "true"},
            {"s3.path-style-access": "false"},
        ),
        (
            {"uri": "http://c", "s3_role__arn": "arn:aws:iam::1:role/x", "s3_region": "eu-west-1"},
            {
                "client.factory": "org.apache.iceberg.aws.AssumeRoleAwsClientFactory",
                "client.assume-role.region": "eu-west-1",
            },
        ),
        ({"uri": "http://c", "spark_cache__enabled": "false"}, {"cache-enabled": "false"}),
    ],
    ids=["password out of the uri", "hive", "glue", "virtual addressing", "role", "Spark's own"],
)
def test_what_spark_says_in_another_way_is_translated(
    properties: dict[str, str], expected: dict[str, str]
) -> None:
    assert conf(**properties).items() >= expected.items()


def test_a_key_that_spark_has_no_equal_for_is_refused_by_name_with_the_nearest_known() -> None:
    with pytest.raises(ProfileError, match=r"s3\.endpont; did you mean s3\.endpoint"):
        conf(uri="http://c", s3_endpont="http://x")


@pytest.mark.parametrize(
    ("properties", "said"),
    [
        ({"warehouse": "x"}, "neither a type nor a uri"),
        ({"type": "rest"}, "has no uri"),
        ({"type": "nessie", "uri": "http://x"}, "type 'nessie'"),
        ({"type": "sql", "uri": "oracle://x"}, "'oracle'"),
    ],
)
def test_a_profile_that_names_no_usable_catalog_says_what_to_set(
    properties: dict[str, str], said: str
) -> None:
    with pytest.raises(ProfileError, match=said):
        spark_conf("prod", properties)
