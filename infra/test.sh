#!/usr/bin/env bash
# Sets up both environments and runs the tests. Use: bash infra/test.sh [pytest arguments]
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
cd "$repository"

bash infra/setup.sh
bash infra/cpu-engine/build.sh
exec "$FARM_HOME/envs/farm/bin/python" -m pytest "$@"
