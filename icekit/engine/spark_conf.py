"""Translate a PyIceberg catalog profile into Spark settings.

PyIceberg's own configuration is the only profile; nothing is configured twice. Keys that
mean the same are translated, keys that mean nothing to Spark are ignored, and every other key is
rejected by name: a setting without effect would be worse.
"""

import os
from collections.abc import Mapping
from dataclasses import field
from urllib.parse import unquote, urlsplit

from icekit.common import frozen
from icekit.common.errors import ProfileError, SparkUnavailable, name_suggestion
from icekit.common.saving import spark_version

#: Marks a catalog of the session as one that icekit has configured.
ADDED = "icekit.added"
#: Spark's version, for example ``4.1``; empty without PySpark.
SPARK = ".".join(spark_version().split(".")[:2])
#: The versions of Spark that icekit runs on: Scala's version there, and the newest Iceberg that
# has a runtime for it.
RUNTIMES = {"3.5": ("2.12", "1.12.0"), "4.0": ("2.13", "1.11.0"), "4.1": ("2.13", "1.12.0")}
#: The newest Spark that Iceberg has a runtime for.
NEWEST_SPARK = max(RUNTIMES)
SCALA, _NEWEST_ICEBERG = RUNTIMES.get(SPARK, RUNTIMES[NEWEST_SPARK])
#: The Iceberg of icekit's own session: the newest, or what ``ICEKIT_ICEBERG`` names, for a lake
# whose engines have an older one.
ICEBERG = os.environ.get("ICEKIT_ICEBERG") or _NEWEST_ICEBERG


SPARK_RUNTIME = f"org.apache.iceberg:iceberg-spark-runtime-{SPARK}_{SCALA}:{ICEBERG}"
SQLITE_JDBC = "org.xerial:sqlite-jdbc:3.50.3.0"
AWS_BUNDLE = f"org.apache.iceberg:iceberg-aws-bundle:{ICEBERG}"
GCP_BUNDLE = f"org.apache.iceberg:iceberg-gcp-bundle:{ICEBERG}"
AZURE_BUNDLE = f"org.apache.iceberg:iceberg-azure-bundle:{ICEBERG}"


JDBC_DRIVERS = {
    "sqlite": SQLITE_JDBC,
    "postgresql": "org.postgresql:postgresql:42.7.8",
    "mysql": "com.mysql:mysql-connector-j:9.4.0",
}


# Keys that Iceberg's Java side spells as pyiceberg does, and those that it names otherwise.
_SAME = frozenset(
    "warehouse uri credential token oauth2-server-uri scope audience resource prefix "
    "rest.sigv4-enabled rest.signing-name rest.signing-region rest-metrics-reporting-enabled "
    "snapshot-loading-mode s3.endpoint s3.access-key-id s3.secret-access-key s3.session-token "
    "client.region glue.id glue.endpoint glue.skip-archive glue.skip-name-validation "
    "gcs.project-id gcs.oauth2.token gcs.oauth2.token-expires-at gcs.service.host "
    "adls.connection-string".split()
)
_RENAMED = {
    "s3.region": "client.region",
    "glue.region": "client.region",
    "s3.role-arn": "client.assume-role.arn",
    "client.role-arn": "client.assume-role.arn",
    "s3.role-session-name": "client.assume-role.session-name",
    "client.session-name": "client.assume-role.session-name",
    "s3.proxy-uri": "http-client.proxy-endpoint",
    "adls.account-name": "adls.auth.shared-key.account.name",
    "adls.account-key": "adls.auth.shared-key.account.key",
    "client.access-key-id": "s3.access-key-id",
    "client.secret-access-key": "s3.secret-access-key",
    "client.session-token": "s3.session-token",
}


# These configure pyiceberg's own clients; "type" and "uri" are translated together.
_PYTHON_ONLY = frozenset(
    "py-io-impl type uri init_catalog_tables echo pool_pre_ping s3.resolve-region "
    "s3.connect-timeout s3.request-timeout".split()
)
_BY_HOST = "s3.force-virtual-addressing"
_KNOWN = {*_SAME, *_RENAMED, *_PYTHON_ONLY, _BY_HOST}


def has_runtime(version: str) -> bool:
    """Whether Iceberg has a runtime for this version of Spark."""
    return ".".join(version.split(".")[:2]) in RUNTIMES


def require_runtime(version: str, installation_noun: str, remedy: str) -> None:
    """Refuse a Spark that Iceberg has no runtime for; raises
    :class:`~icekit.common.errors.SparkUnavailable`.
    """
    if not has_runtime(version):
        raise SparkUnavailable(
            f"This {installation_noun} has Spark {version}, for which Iceberg has no runtime: the "
            f"newest that works is Spark {NEWEST_SPARK}. {remedy} look, plan and report work "
            "without Spark."
        )


@frozen
class SparkCatalogConf:
    """What Spark needs for one catalog.

    ``settings`` are ``spark.sql.catalog.<name>`` and what is under it; ``packages`` the
    Maven coordinates for ``spark.jars.packages``.
    """

    settings: Mapping[str, str] = field(repr=False)
    packages: tuple[str, ...]


def spark_conf(profile_name: str, properties: Mapping[str, str]) -> SparkCatalogConf:
    """Derive Spark's settings for the profile ``profile_name``.

    Keys starting with ``spark.`` are passed to Spark without that prefix:
    use them for settings without an equivalent in PyIceberg. Raises
    :class:`~icekit.common.errors.ProfileError` naming each key that cannot be translated.
    """
    catalog_type = catalog_type_of(profile_name, properties)
    translated_settings, packages = _catalog_settings(profile_name, catalog_type, properties)
    untranslatable_keys = []
    for key, property_value in properties.items():
        if key in _PYTHON_ONLY:
            continue
        if key.startswith("spark."):
            translated_settings[key.removeprefix("spark.")] = property_value
        elif key in _SAME or key in _RENAMED or key.startswith("header."):
            translated_settings[_RENAMED.get(key, key)] = property_value
        elif key == _BY_HOST:
            is_by_host = property_value.lower() in {"true", "1", "yes", "y"}
            translated_settings["s3.path-style-access"] = str(not is_by_host).lower()
        else:
            untranslatable_keys.append(key)
    if untranslatable_keys:
        nearest_hints = "".join(
            name_suggestion(key, _KNOWN, most_names=1) for key in untranslatable_keys
        )
        raise ProfileError(
            f"Profile {profile_name!r} has keys with no Spark equivalent: "
            f"{', '.join(sorted(untranslatable_keys))}{nearest_hints or '.'} Remove them, or give "
            "the Spark setting as spark.<key>."
        )
    if "client.assume-role.arn" in translated_settings:
        translated_settings["client.factory"] = "org.apache.iceberg.aws.AssumeRoleAwsClientFactory"
        translated_settings.setdefault(
            "client.assume-role.region", translated_settings.get("client.region", "us-east-1")
        )
    packages += _choose_file_io(translated_settings)
    setting_prefix = f"spark.sql.catalog.{profile_name}"
    catalog_settings = {setting_prefix: "org.apache.iceberg.spark.SparkCatalog"}
    catalog_settings.update(
        {
            f"{setting_prefix}.{key}": property_value
            for key, property_value in translated_settings.items()
        }
    )
    return SparkCatalogConf(catalog_settings, tuple(dict.fromkeys(packages)))


def catalog_type_of(profile_name: str, properties: Mapping[str, str]) -> str:
    """The profile's catalog type: as stated, or from its URI as pyiceberg infers it."""
    uri = properties.get("uri", "")
    inferred_type = {"http": "rest", "https": "rest", "thrift": "hive"}.get(uri.partition(":")[0])
    if inferred_type is None and uri.partition(":")[0].partition("+")[0] in JDBC_DRIVERS:
        inferred_type = "sql"
    catalog_type = properties.get("type", inferred_type)
    if catalog_type not in {"rest", "sql", "hive", "glue"}:
        type_text = (
            f"type {catalog_type!r}" if catalog_type else "neither a type nor a uri that implies it"
        )
        raise ProfileError(
            f"Profile {profile_name!r} has {type_text}; set type to rest, sql, hive or glue."
        )
    if catalog_type != "glue" and not uri:
        raise ProfileError(
            f"Profile {profile_name!r} is of type {catalog_type} and has no uri. Add one."
        )
    return catalog_type


def _catalog_settings(
    profile_name: str, catalog_type: str, properties: Mapping[str, str]
) -> tuple[dict[str, str], list[str]]:
    packages = [SPARK_RUNTIME]
    if catalog_type == "glue":
        return {"type": "glue"}, [*packages, AWS_BUNDLE]
    uri = properties["uri"]
    if catalog_type != "sql":
        return {"type": catalog_type, "uri": uri}, packages
    scheme = urlsplit(uri).scheme.partition("+")[0]
    if scheme not in JDBC_DRIVERS:
        raise ProfileError(
            f"Profile {profile_name!r} uses {scheme!r}, but icekit supports Spark's JDBC catalog "
            f"only with {', '.join(JDBC_DRIVERS)}."
        )
    jdbc_settings = {"type": "jdbc", "jdbc.schema-version": "V1"}
    if scheme == "sqlite":
        jdbc_settings["uri"] = (
            f"jdbc:sqlite:file:{uri.partition('://')[2].removeprefix('/')}?busy_timeout=30000"
        )
    else:
        uri_parts = urlsplit(uri)
        jdbc_settings["uri"] = (
            f"jdbc:{scheme}://{uri_parts.netloc.rpartition('@')[2]}{uri_parts.path}"
            + (f"?{uri_parts.query}" if uri_parts.query else "")
        )
        if uri_parts.username:
            jdbc_settings["jdbc.user"] = unquote(uri_parts.username)
        if uri_parts.password:
            jdbc_settings["jdbc.password"] = unquote(uri_parts.password)
    return jdbc_settings, [*packages, JDBC_DRIVERS[scheme]]


def _choose_file_io(catalog_settings: dict[str, str]) -> list[str]:
    """Choose the FileIO for the storage that the profile names; returns its packages."""
    warehouse = catalog_settings.get("warehouse", "")
    for key_prefix, location_schemes, io_class, maven_package in (
        ("s3.", ("s3:", "s3a:", "s3n:"), "aws.s3.S3FileIO", AWS_BUNDLE),
        ("gcs.", ("gs:",), "gcp.gcs.GCSFileIO", GCP_BUNDLE),
        ("adls.", ("abfs:", "abfss:", "wasb:", "wasbs:"), "azure.adlsv2.ADLSFileIO", AZURE_BUNDLE),
    ):
        if warehouse.startswith(location_schemes) or any(
            key.startswith(key_prefix) for key in catalog_settings
        ):
            catalog_settings.setdefault("io-impl", f"org.apache.iceberg.{io_class}")
            # pyiceberg addresses a custom S3 endpoint by path by default.
            if key_prefix == "s3." and "s3.endpoint" in catalog_settings:
                catalog_settings.setdefault("s3.path-style-access", "true")
                # Java's client does not start without a region; a custom endpoint rarely has one.
                if "AWS_REGION" not in os.environ:
                    catalog_settings.setdefault(
                        "client.region", os.environ.get("AWS_DEFAULT_REGION") or "us-east-1"
                    )
            return [maven_package]
    return []
