"""A pyiceberg profile becomes Spark's settings, or is refused by name."""

import pytest

from icekit.catalog.spark_conf import AWS_BUNDLE, SQLITE_JDBC, spark_conf
from icekit.errors import ProfileError


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
    base = "spark.sql.catalog.prod"

    assert translated.settings == {
        base: "org.apache.iceberg.spark.SparkCatalog",
        f"{base}.type": "rest",
        f"{base}.uri": "https://catalog.example/api",
        f"{base}.credential": "id:secret",
        f"{base}.warehouse": "s3://bucket/wh",
        f"{base}.s3.endpoint": "http://127.0.0.1:9000",
        f"{base}.s3.access-key-id": "AK",
        f"{base}.s3.secret-access-key": "SK",
        f"{base}.client.region": "eu-west-1",
        f"{base}.header.X-Team": "lake",
        f"{base}.rest.sigv4-enabled": "true",
        f"{base}.io-impl": "org.apache.iceberg.aws.s3.S3FileIO",
        f"{base}.s3.path-style-access": "true",
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


def test_user_and_password_of_a_database_leave_its_uri() -> None:
    settings = conf(
        uri="postgresql+psycopg2://me:p%40ss@db.example:5432/catalog", warehouse="s3://b/w"
    )

    assert settings["uri"] == "jdbc:postgresql://db.example:5432/catalog"
    assert settings["jdbc.user"] == "me"
    assert settings["jdbc.password"] == "p@ss"


def test_hive_and_glue_are_told_by_type_or_uri() -> None:
    assert conf(uri="thrift://metastore:9083")["type"] == "hive"
    glue = conf(type="glue", glue_region="eu-west-1", warehouse="s3://b/w")
    assert glue["type"] == "glue"
    assert glue["client.region"] == "eu-west-1"


def test_virtual_addressing_is_path_style_the_other_way_round() -> None:
    virtual = conf(uri="http://c", s3_force__virtual__addressing="true")
    assert virtual["s3.path-style-access"] == "false"


def test_a_role_is_assumed_by_the_factory_that_iceberg_has_for_it() -> None:
    settings = conf(uri="http://c", s3_role__arn="arn:aws:iam::1:role/x", s3_region="eu-west-1")

    assert settings["client.factory"].endswith("AssumeRoleAwsClientFactory")
    assert settings["client.assume-role.region"] == "eu-west-1"


def test_a_key_that_spark_has_no_equal_for_is_refused_by_name_with_the_nearest_known() -> None:
    with pytest.raises(ProfileError, match=r"s3\.endpont; did you mean s3\.endpoint"):
        conf(uri="http://c", s3_endpont="http://x")


def test_a_spark_setting_is_handed_over_as_it_is() -> None:
    assert conf(uri="http://c", spark_cache__enabled="false")["cache-enabled"] == "false"


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
