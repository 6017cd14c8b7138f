#!/usr/bin/env bash
# Makes the passwords of compose.yaml: infra/mlflow/.env, mode 600. What is there already is left as it is.
# Use: bash infra/mlflow/compose-secrets.sh
set -euo pipefail

file=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)/.env
if [ -e "$file" ]; then
    echo "$file is there already"
    exit 0
fi
secret() { od -An -N24 -tx1 /dev/urandom | tr -d ' \n'; }
umask 077
for name in FARM_POSTGRES_PASSWORD MLFLOW_AUTH_ADMIN_PASSWORD MLFLOW_FLASK_SERVER_SECRET_KEY AWS_ACCESS_KEY_ID AWS_SECRET_ACCESS_KEY; do
    echo "$name=$(secret)"
done >"$file"
echo "$file is new; the admin's password is in it"
