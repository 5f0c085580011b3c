#!/bin/sh
# Execute the DAG that `icekit schedule recipe airflow` prints, in a real Airflow in an environment of its own.
# Not part of `make test`: installing Airflow takes minutes. Leaves everything under build/airflow.
set -eu
cd "$(dirname "$0")/.."
here=$(pwd)
home=$here/build/airflow
venv=$here/build/airflow-venv
lake=${ICEKIT_LAKE:-$here/build/lake}
python=$here/.venv/bin/python

if [ ! -x "$venv/bin/airflow" ]; then
    "$python" -m venv "$venv"
    "$venv/bin/pip" install --quiet "apache-airflow==3.3.*" "apache-airflow-providers-papermill==3.13.*"
fi
rm -rf "$home"
mkdir -p "$home/dags"
export ICEKIT_LAKE="$lake" PYTHONPATH="$here"
"$python" -m icekit lab healthy_partitioned healthy_unpartitioned

cat > "$home/policy.yaml" <<'POLICY'
name: airflow-test
output: reports
ledger: ledger.db
rules:
  - match: [lab.healthy_partitioned, lab.healthy_unpartitioned]
    compact: {}
POLICY
"$python" -m icekit schedule recipe airflow "$home/policy.yaml" --output "$home/dags"
"$python" -m ipykernel install --prefix "$venv" --name icekit > "$home/kernel.log" 2>&1

export AIRFLOW_HOME="$home" AIRFLOW__CORE__LOAD_EXAMPLES=False AIRFLOW__CORE__DAGS_FOLDER="$home/dags"
export PATH="$venv/bin:$PATH"
"$venv/bin/airflow" db migrate > "$home/db.log" 2>&1
"$venv/bin/airflow" dags reserialize > "$home/reserialize.log" 2>&1
"$venv/bin/airflow" dags list-import-errors
"$venv/bin/airflow" dags test icekit_airflow-test > "$home/run.log" 2>&1 || { tail -60 "$home/run.log"; exit 1; }

# What the tasks leave.
for left in reports/pass.json reports/rule-1/index.html reports/notebooks/lab_healthy_partitioned.ipynb \
    reports/notebooks/lab.healthy_partitioned.json reports/notebooks/lab_healthy_unpartitioned.ipynb; do
    [ -s "$home/$left" ] || { echo "Airflow's run left no $left:"; tail -60 "$home/run.log"; exit 1; }
done
echo "Airflow $("$venv/bin/airflow" version 2>/dev/null | tail -1) executed the DAG; its log is $home/run.log"
