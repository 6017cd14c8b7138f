#!/usr/bin/env bash
# Sets up an MLflow server for several people from plain packages: PostgreSQL of the distribution for runs, SeaweedFS (or
# any S3 that you have) for artifacts, authentication on. Debian or Ubuntu, on one machine of the network, as the user that
# will run the server; it calls sudo to install PostgreSQL and to make databases in it.
#
#   bash infra/mlflow/setup.sh     installs, makes passwords and databases; again changes nothing
#   bash infra/mlflow/serve.sh     runs the server; or install farm-mlflow.service, which does
#
# Passwords are made here, once, and lie in $FARM_HOME/mlflow-server/secrets.env with mode 600. Settings, from the
# environment: FARM_POSTGRES_PORT (5432), and for an S3 of your own AWS_ACCESS_KEY_ID, AWS_SECRET_ACCESS_KEY,
# FARM_S3_ENDPOINT (its URL) and FARM_S3_BUCKET, all at the first run.
# One person alone needs none of this: the farm's own SQLite file does. To move its runs to a server, see README.md here.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
state=$FARM_HOME/mlflow-server
environment=$FARM_HOME/envs/mlflow-server
secrets=$state/secrets.env
port=${FARM_POSTGRES_PORT:-5432}

main() {
    bash "$here/../setup.sh" # for uv, and for Python's venv
    install_server
    install_postgres
    umask 077
    mkdir -p "$state"
    if [ ! -f "$secrets" ]; then make_secrets; fi
    # shellcheck source=/dev/null
    . "$secrets"
    make_databases
    write_auth_config
    echo "the MLflow server is set up in $state; run it with: bash infra/mlflow/serve.sh"
}

install_server() {
    local stamp
    stamp=$(sha256sum <"$here/requirements.lock")
    if [ "$(cat "$environment/.stamp" 2>/dev/null)" = "$stamp" ]; then return; fi
    echo "setting up the server's environment in $environment"
    rm -rf "$environment"
    "$FARM_HOME/envs/farm/bin/python" -m venv "$environment"
    VIRTUAL_ENV=$environment "$FARM_HOME/envs/farm/bin/uv" pip install -q --compile-bytecode --require-hashes \
        -r "$here/requirements.lock"
    echo "$stamp" >"$environment/.stamp"
}

install_postgres() {
    if ! command -v pg_lsclusters >/dev/null; then
        echo "installing PostgreSQL"
        as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends postgresql >/dev/null
    fi
    local version name at status
    while read -r version name at status _; do
        if [ "$at" = "$port" ] && [ "$status" = online ]; then return; fi
        if [ "$at" = "$port" ]; then as_root pg_ctlcluster "$version" "$name" start && return; fi
    done < <(pg_lsclusters --no-header)
    echo "error: no PostgreSQL cluster has port $port; make one, or set FARM_POSTGRES_PORT (see pg_lsclusters)" >&2
    exit 2
}

make_secrets() {
    cat >"$secrets.new" <<EOF
MLFLOW_AUTH_ADMIN_USERNAME=admin
MLFLOW_AUTH_ADMIN_PASSWORD=$(secret)
MLFLOW_FLASK_SERVER_SECRET_KEY=$(secret)
FARM_POSTGRES_PASSWORD=$(secret)
FARM_S3_ENDPOINT=${FARM_S3_ENDPOINT:-}
FARM_S3_BUCKET=${FARM_S3_BUCKET:-mlflow}
AWS_ACCESS_KEY_ID=${AWS_ACCESS_KEY_ID:-$(secret)}
AWS_SECRET_ACCESS_KEY=${AWS_SECRET_ACCESS_KEY:-$(secret)}
EOF
    mv "$secrets.new" "$secrets"
}

as_root() { if [ "$(id -u)" = 0 ]; then "$@"; else sudo "$@"; fi; }

secret() {
    od -An -N24 -tx1 /dev/urandom | tr -d ' \n'
}

# The role's password goes through standard input: a command line could be read by everyone on the machine.
make_databases() {
    psql_admin <<EOF
DO \$\$ BEGIN
    IF NOT EXISTS (SELECT FROM pg_roles WHERE rolname = 'farm_mlflow') THEN CREATE ROLE farm_mlflow LOGIN; END IF;
END \$\$;
ALTER ROLE farm_mlflow PASSWORD '$FARM_POSTGRES_PASSWORD';
SELECT format('CREATE DATABASE %I OWNER farm_mlflow', name) FROM unnest(ARRAY['farm_mlflow', 'farm_mlflow_auth']) name
WHERE NOT EXISTS (SELECT FROM pg_database WHERE datname = name) \gexec
REVOKE ALL ON DATABASE farm_mlflow, farm_mlflow_auth FROM PUBLIC;
EOF
}

psql_admin() {
    as_root runuser -u postgres -- psql --no-psqlrc --quiet --set ON_ERROR_STOP=1 --port "$port" --dbname postgres
}

# Everyone may log to every experiment, for two people's sweeps of one name share one; deleting is left to the owner of
# an experiment and to the admin.
write_auth_config() {
    cat >"$state/auth.ini.new" <<EOF
[mlflow]
default_permission = EDIT
database_uri = postgresql+psycopg2://farm_mlflow:$FARM_POSTGRES_PASSWORD@127.0.0.1:$port/farm_mlflow_auth
authorization_function = mlflow.server.auth:authenticate_request_basic_auth
EOF
    mv "$state/auth.ini.new" "$state/auth.ini"
}

main
