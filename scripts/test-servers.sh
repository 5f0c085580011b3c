#!/bin/sh
# Run icekit against real servers on this machine: Iceberg's REST catalog over S3 (versitygw), and PostgreSQL. Run by scripts/run.sh.
#
# Fetches the servers into build/servers: jars from Maven Central, versitygw with Go. What cannot be had is skipped, and pytest says why.
set -eu
folder=build/servers
jars=$folder/jars
mkdir -p "$jars"

iceberg=1.11.0  # the newest whose test jars are published
jetty=12.1.5
central=https://repo1.maven.org/maven2
jar() {
    [ -s "$jars/${1##*/}" ] && return
    curl --silent --show-error --fail --location --retry 3 --output "$jars/${1##*/}.part" "$central/$1" && mv "$jars/${1##*/}.part" "$jars/${1##*/}"
}
for module in api core common bundled-guava aws aws-bundle; do
    jar "org/apache/iceberg/iceberg-$module/$iceberg/iceberg-$module-$iceberg.jar"
done
jar "org/apache/iceberg/iceberg-core/$iceberg/iceberg-core-$iceberg-tests.jar"
for module in server session util http io security; do
    jar "org/eclipse/jetty/jetty-$module/$jetty/jetty-$module-$jetty.jar"
done
jar "org/eclipse/jetty/ee10/jetty-ee10-servlet/$jetty/jetty-ee10-servlet-$jetty.jar"
jar "org/eclipse/jetty/ee/jetty-ee-webapp/$jetty/jetty-ee-webapp-$jetty.jar"
jar jakarta/servlet/jakarta.servlet-api/6.0.0/jakarta.servlet-api-6.0.0.jar
jar com/github/ben-manes/caffeine/caffeine/2.9.3/caffeine-2.9.3.jar
jar org/apache/httpcomponents/client5/httpclient5/5.5/httpclient5-5.5.jar
jar org/apache/httpcomponents/core5/httpcore5/5.3.4/httpcore5-5.3.4.jar
jar dev/failsafe/failsafe/3.3.2/failsafe-3.3.2.jar
jar org/xerial/sqlite-jdbc/3.53.1.0/sqlite-jdbc-3.53.1.0.jar

if [ ! -x "$folder/versitygw" ] && command -v go >/dev/null 2>&1; then
    GOBIN=$PWD/$folder go install github.com/versity/versitygw/cmd/versitygw@v1.8.0 || echo "icekit: versitygw cannot be had; the tests over S3 are skipped" >&2
fi
# The JVM of a process has the drivers of its first catalog.
for catalog in 'rest_on_s3 or faults or far_storage' postgres; do
    python -m pytest -m servers tests/servers -k "$catalog"
done
