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
# Ivy, which comes with PySpark, fetches them from where Spark's packages come from.
cat >"$folder/ivy.xml" <<END
<ivy-module version="2.0" xmlns:m="http://ant.apache.org/ivy/maven">
  <info organisation="icekit" module="servers"/>
  <dependencies defaultconf="default">
$(while read -r group modules version classifier; do
    for module in $(echo "$modules" | tr , ' '); do
        echo "    <dependency org=\"$group\" name=\"$module\" rev=\"$version\" transitive=\"false\">"
        [ -z "$classifier" ] || echo "      <artifact name=\"$module\" type=\"jar\"/><artifact name=\"$module\" type=\"jar\" m:classifier=\"$classifier\"/>"
        echo "    </dependency>"
    done
done <<JARS
org.apache.iceberg iceberg-api,iceberg-common,iceberg-bundled-guava,iceberg-aws,iceberg-aws-bundle $iceberg
org.apache.iceberg iceberg-core $iceberg tests
org.eclipse.jetty jetty-server,jetty-session,jetty-util,jetty-http,jetty-io,jetty-security $jetty
org.eclipse.jetty.ee10 jetty-ee10-servlet $jetty
org.eclipse.jetty.ee jetty-ee-webapp $jetty
jakarta.servlet jakarta.servlet-api 6.0.0
com.github.ben-manes.caffeine caffeine 2.9.3
org.apache.httpcomponents.client5 httpclient5 5.5
org.apache.httpcomponents.core5 httpcore5 5.3.4
dev.failsafe failsafe 3.3.2
org.xerial sqlite-jdbc 3.53.1.0
JARS
)
  </dependencies>
</ivy-module>
END
if [ -z "$(ls "$jars")" ]; then
    ivy=$(python -c 'import pathlib, pyspark; print(*pathlib.Path(pyspark.__file__).parent.glob("jars/ivy-*.jar"))')
    java -jar "$ivy" -error -ivy "$folder/ivy.xml" -retrieve "$jars/[artifact]-[revision](-[classifier]).[ext]"
fi

if [ ! -x "$folder/versitygw" ] && command -v go >/dev/null 2>&1; then
    GOBIN=$PWD/$folder go install github.com/versity/versitygw/cmd/versitygw@v1.8.0 || echo "icekit: versitygw cannot be had; the tests over S3 are skipped" >&2
fi
# The JVM of a process has the drivers of its first catalog.
for catalog in 'rest_on_s3 or faults or far_storage' postgres; do
    python -m pytest -m servers rigs/servers -k "$catalog"
done
