#!/usr/bin/env bash
# Shows that the MLflow server for several people works, with real services: sets it up with a PostgreSQL cluster and an
# S3 store of its own on free ports, runs the quick start with it as tracking server, reads everything back through
# MLflow's client, moves an SQLite store's sweeps over, and removes the services again. Debian or Ubuntu, as root.
#
#   bash infra/mlflow/check.sh [arguments of jobs/sweep.py]        default: the quick start, with real engines
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/../.." && pwd)
cd "$repository"
home=${FARM_HOME:-$HOME/.farm}
python=$home/envs/farm/bin/python
work=$(mktemp -d /tmp/farm-mlflow.XXXXXX)
version=
server=

# shellcheck disable=SC2329  # it is called by the trap
finish() {
    if [ -n "$server" ]; then kill "$server" 2>/dev/null && wait "$server" || true; fi
    if [ -n "$version" ]; then pg_dropcluster --stop "$version" farmcheck || true; fi
    rm -rf "$work"
}
trap finish EXIT
trap 'exit 143' TERM INT

free_ports() {
    "$python" - "$1" <<'PYTHON'
import socket, sys

count = int(sys.argv[1])
while True:  # as many ports in a row, each with the one that is 10,000 higher, where SeaweedFS puts its gRPC
    with socket.socket() as first:
        first.bind(("127.0.0.1", 0))
        start = first.getsockname()[1] % 20000 + 20000
    held = [socket.socket() for _ in range(2 * count)]
    try:
        for place, one in enumerate(held):
            one.bind(("127.0.0.1", start + place % count + 10000 * (place // count)))
        print(start)
        break
    except OSError:
        continue
    finally:
        for one in held:
            one.close()
PYTHON
}

FARM_POSTGRES_PORT=$(free_ports 1)
FARM_S3_PORT=$(free_ports 4)
FARM_MLFLOW_PORT=$(free_ports 1)
export FARM_POSTGRES_PORT FARM_S3_PORT FARM_MLFLOW_PORT
if ! command -v pg_lsclusters >/dev/null; then
    DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql >/dev/null
fi
found=$(find /usr/lib/postgresql -mindepth 1 -maxdepth 1 -printf '%f\n' | sort -V | tail -1)
pg_createcluster "$found" farmcheck --port "$FARM_POSTGRES_PORT" --start >/dev/null
version=$found

export FARM_HOME=$work/home
mkdir -p "$FARM_HOME/envs"
for name in farm engine-cpu; do ln -s "$home/envs/$name" "$FARM_HOME/envs/$name"; done
for turn in first second; do
    echo "== set-up, $turn time"
    bash infra/mlflow/setup.sh
    (cd "$FARM_HOME/mlflow-server" && sha256sum secrets.env auth.ini && stat -c '%a %n' secrets.env auth.ini) >"$work/$turn"
done
cmp "$work/first" "$work/second"
if grep -v '  ' "$work/second" | grep -v '^600 '; then
    echo "error: a file with secrets can be read by others" >&2
    exit 1
fi

echo "== the server"
bash infra/mlflow/serve.sh >"$work/server.log" 2>&1 &
server=$!
export MLFLOW_TRACKING_URI=http://127.0.0.1:$FARM_MLFLOW_PORT
echo "waiting until it answers, for up to 120 s"
deadline=$((SECONDS + 120))
until "$python" -c 'import sys, urllib.request; urllib.request.urlopen(sys.argv[1] + "/health", timeout=2)' \
    "$MLFLOW_TRACKING_URI" 2>/dev/null; do
    if ! kill -0 "$server" 2>/dev/null || [ "$SECONDS" -ge "$deadline" ]; then
        echo "error: the server ended, or did not answer within 120 s; the last lines of its log:" >&2
        tail -n 30 "$work/server.log" >&2
        exit 1
    fi
    sleep 1
done
# shellcheck source=/dev/null
. "$FARM_HOME/mlflow-server/secrets.env"
# The sweep runs as a user like everyone's, not as the admin.
MLFLOW_TRACKING_USERNAME=someone
MLFLOW_TRACKING_PASSWORD=$("$python" -c 'import secrets; print(secrets.token_hex(16))')
export MLFLOW_TRACKING_USERNAME MLFLOW_TRACKING_PASSWORD
printf 'user = "admin:%s"\n' "$MLFLOW_AUTH_ADMIN_PASSWORD" |
    curl --silent --show-error --fail --config - "$MLFLOW_TRACKING_URI/api/2.0/mlflow/users/create" \
        --json "{\"username\": \"someone\", \"password\": \"$MLFLOW_TRACKING_PASSWORD\"}" >/dev/null
for one in "$MLFLOW_AUTH_ADMIN_PASSWORD" "$FARM_POSTGRES_PASSWORD" "$AWS_SECRET_ACCESS_KEY"; do
    # The pattern goes through a file, for else this search would find itself.
    if cat /proc/[0-9]*/cmdline 2>/dev/null | grep --text --quiet --fixed-strings --file <(echo "$one"); then
        echo "error: a secret is on a command line" >&2
        exit 1
    fi
done

echo "== a sweep into it"
if [ $# = 0 ]; then set -- quickstart; fi
export MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR=false
RAY_ADDRESS=local RAY_USAGE_STATS_ENABLED=0 "$python" jobs/sweep.py "$@" >"$work/sweep.log" 2>&1 ||
    { tail -n 30 "$work/sweep.log" "$work/server.log" >&2; exit 1; }
grep -E 'cells answered|MLflow' "$work/sweep.log" | tail -n 2
folder=$(dirname "$FARM_HOME"/results/*/sweep.json)
"$python" infra/mlflow/check.py "$folder"

echo "== what PostgreSQL and the S3 store hold"
count() {
    PGPASSWORD=$FARM_POSTGRES_PASSWORD psql --no-psqlrc -h 127.0.0.1 -p "$FARM_POSTGRES_PORT" -U farm_mlflow -At -c "$2" "$1"
}
echo "runs in PostgreSQL: $(count farm_mlflow 'SELECT count(*) FROM runs'), metrics:" \
    "$(count farm_mlflow 'SELECT count(*) FROM metrics'), users: $(count farm_mlflow_auth 'SELECT count(*) FROM users')"
AWS_ACCESS_KEY_ID=$AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY=$AWS_SECRET_ACCESS_KEY AWS_DEFAULT_REGION=us-east-1 \
    "$FARM_HOME/envs/mlflow-server/bin/python" - "http://127.0.0.1:$FARM_S3_PORT" "$FARM_S3_BUCKET" <<'PYTHON'
import sys

import boto3
from botocore import UNSIGNED
from botocore.config import Config
from botocore.exceptions import ClientError

endpoint, bucket = sys.argv[1:]
pages = boto3.client("s3", endpoint_url=endpoint).get_paginator("list_objects_v2").paginate(Bucket=bucket)
objects = [entry for page in pages for entry in page.get("Contents", [])]
print(f"objects in the S3 store: {len(objects)}, {sum(entry['Size'] for entry in objects):,} bytes")
try:
    boto3.client("s3", endpoint_url=endpoint, config=Config(signature_version=UNSIGNED)).list_objects_v2(Bucket=bucket)
except ClientError as error:
    print(f"without a key the store answers: {error.response['Error']['Code']}")
else:
    sys.exit("error: the S3 store answers without a key")
sys.exit(None if objects else "error: the S3 store is empty")
PYTHON

echo "== moving to it from SQLite: every sweep of a results folder, by one command, twice"
before=$(count farm_mlflow 'SELECT count(*) FROM runs')
"$python" -m farm.tracking sync --all --results "$FARM_HOME/results" --tracking-uri "sqlite:///$work/mlflow.db" 2>&1 |
    grep ' runs in '
mv "$folder" "$folder.moved"
"$python" - "$folder.moved" <<'PYTHON'
# Another sweep's results: the same records under an id of their own, which the server has not seen.
import json, pathlib, sys

import pandas as pd

folder = pathlib.Path(sys.argv[1])
sweep = json.loads((folder / "sweep.json").read_text())
sweep["sweep_id"] = folder.name
(folder / "sweep.json").write_text(json.dumps(sweep))
records = pd.read_parquet(folder / "requests.parquet").assign(sweep_id=folder.name)
records.to_parquet(folder / "requests.parquet")
PYTHON
for _ in 1 2; do
    "$python" -m farm.tracking sync --all 2>&1 | grep ' runs in '
done
after=$(count farm_mlflow 'SELECT count(*) FROM runs')
echo "runs before $before, after $after"
[ "$after" = "$((2 * before))" ]
"$python" infra/mlflow/check.py "$folder.moved" | grep -E '^(runs|records|answers)'
echo "== all as it should be"
