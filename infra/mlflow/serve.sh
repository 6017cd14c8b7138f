#!/usr/bin/env bash
# Runs the MLflow server that infra/mlflow/setup.sh set up, with its S3 store, in the foreground: Ctrl-C ends both.
#
#   bash infra/mlflow/serve.sh
#
# It listens on loopback. To let others in, say where and under which names it is called; put TLS in front of it, since
# passwords go over this connection:
#
#   FARM_MLFLOW_HOST=10.0.0.5 FARM_MLFLOW_ALLOWED_HOSTS=mlflow.lab:5000,10.0.0.5:5000 bash infra/mlflow/serve.sh
#
# Others: FARM_MLFLOW_PORT (5000), FARM_POSTGRES_PORT (5432), FARM_S3_PORT (8333; the three ports after it are taken too).
set -euo pipefail

export FARM_HOME=${FARM_HOME:-$HOME/.farm}
state=$FARM_HOME/mlflow-server
environment=$FARM_HOME/envs/mlflow-server
host=${FARM_MLFLOW_HOST:-127.0.0.1}
port=${FARM_MLFLOW_PORT:-5000}
s3_port=${FARM_S3_PORT:-8333}
store=

end_store() {
    if [ -n "$store" ]; then kill "$store" 2>/dev/null && wait "$store" || true; fi
}

start_store() {
    local config=$state/s3.json
    (umask 077 && cat >"$config" <<EOF
{"identities": [{"name": "mlflow", "actions": ["Admin", "Read", "List", "Tagging", "Write"],
 "credentials": [{"accessKey": "$AWS_ACCESS_KEY_ID", "secretKey": "$AWS_SECRET_ACCESS_KEY"}]}]}
EOF
    )
    mkdir -p "$state/s3"
    # The keys are in the file above; in the environment they would only be a second way in.
    env -u AWS_ACCESS_KEY_ID -u AWS_SECRET_ACCESS_KEY "$environment/bin/weed" -logdir="$state" server \
        -ip=127.0.0.1 -ip.bind=127.0.0.1 -dir="$state/s3" -master.telemetry=false -master.volumeSizeLimitMB=1024 \
        -volume.max=0 -s3 -s3.config="$config" -s3.port="$s3_port" -filer.port="$((s3_port + 1))" \
        -master.port="$((s3_port + 2))" -volume.port="$((s3_port + 3))" >"$state/s3.log" 2>&1 &
    store=$!
}

# The store may take a moment, and the bucket is made once.
wait_for_bucket() {
    "$environment/bin/python" - "$FARM_S3_BUCKET" <<'PYTHON'
import sys, time
import boto3, botocore.exceptions
from botocore.config import Config

s3 = boto3.client("s3", config=Config(retries={"max_attempts": 0}, connect_timeout=3, read_timeout=10))
for attempt in range(60):
    try:
        if sys.argv[1] not in [bucket["Name"] for bucket in s3.list_buckets()["Buckets"]]:
            s3.create_bucket(Bucket=sys.argv[1])
        sys.exit()
    except (botocore.exceptions.BotoCoreError, botocore.exceptions.ClientError) as error:
        reason = error
        time.sleep(1)
sys.exit(f"error: the S3 store does not answer: {reason}")
PYTHON
}

if [ ! -f "$state/secrets.env" ]; then
    echo "error: $state is not set up; run infra/mlflow/setup.sh first" >&2
    exit 2
fi
case $host in
    127.* | localhost) allowed=${FARM_MLFLOW_ALLOWED_HOSTS:-127.0.0.1:$port,localhost:$port} ;;
    *) allowed=${FARM_MLFLOW_ALLOWED_HOSTS:?name the hosts by which clients call this server, as in mlflow.lab:$port} ;;
esac
set -a
# shellcheck source=/dev/null
. "$state/secrets.env"
set +a
postgres=127.0.0.1:${FARM_POSTGRES_PORT:-5432}
endpoint=${FARM_S3_ENDPOINT:-http://127.0.0.1:$s3_port}
export MLFLOW_BACKEND_STORE_URI=postgresql+psycopg2://farm_mlflow:$FARM_POSTGRES_PASSWORD@$postgres/farm_mlflow
export MLFLOW_AUTH_CONFIG_PATH=$state/auth.ini MLFLOW_DISABLE_TELEMETRY=true
export MLFLOW_S3_ENDPOINT_URL=$endpoint AWS_ENDPOINT_URL=$endpoint AWS_DEFAULT_REGION=${AWS_DEFAULT_REGION:-us-east-1}

trap end_store EXIT
trap 'exit 143' TERM INT
if [ -z "$FARM_S3_ENDPOINT" ]; then start_store; fi
echo "waiting until the S3 store at $endpoint answers, for up to 60 attempts"
if ! wait_for_bucket; then
    if [ -n "$store" ]; then tail -n 20 "$state/s3.log" >&2; fi
    exit 1
fi
cd "$state"
# Secrets are in the environment and in files of mode 600: a command line could be read by everyone on the machine.
"$environment/bin/mlflow" server --app-name basic-auth --host "$host" --port "$port" --allowed-hosts "$allowed" \
    --artifacts-destination "s3://$FARM_S3_BUCKET" --workers "${FARM_MLFLOW_WORKERS:-2}" &
server=$!
trap 'kill "$server" 2>/dev/null; wait "$server" 2>/dev/null; exit 143' TERM INT
wait "$server"
