#!/usr/bin/env bash
# Sets up both environments and runs the tests. Use: bash infra/test.sh [pytest arguments]
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
export FARM_HOME=${FARM_HOME:-$HOME/.farm}
cd "$repository"

# What tests/infra runs as it is: the tool that copies weights, and systemd's check of its units.
missing=()
command -v rsync >/dev/null || missing+=(rsync)
command -v systemd-analyze >/dev/null || missing+=(systemd)
if [ ${#missing[@]} != 0 ]; then
    root=()
    if [ "$(id -u)" != 0 ]; then root=(sudo); fi
    "${root[@]}" apt-get update -q >/dev/null
    "${root[@]}" apt-get install -y -q --no-install-recommends "${missing[@]}" >/dev/null
fi
bash infra/setup.sh
bash infra/cpu-engine/build.sh
# The suite waits more than it computes: two processes share it, file by file. Tests judge their own engines only.
exec "$FARM_HOME/envs/farm/bin/python" -m pytest -n 2 --dist loadfile "$@"
