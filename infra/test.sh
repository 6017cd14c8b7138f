#!/usr/bin/env bash
# Sets up both environments and runs the tests. Use: bash infra/test.sh [--quick] [pytest arguments]
#   --quick    only what starts no Ray, no engine and no server: a minute, without the CPU engine's environment
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=infra/farm-home.sh
. "$repository/infra/farm-home.sh"
cd "$repository"

bash infra/setup.sh
if [[ " $* " != *" --quick "* ]]; then
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
    bash infra/cpu-engine/build.sh
fi
# The suite waits more than it computes: two processes share it, file by file, in the order of tests/conftest.py. Tests
# judge their own engines only. Matrices are small: threads of their own would only get in each other's way.
export OPENBLAS_NUM_THREADS=1
exec "$FARM_HOME/envs/farm/bin/python" -m pytest -n 2 --dist loadfile --no-loadscope-reorder --durations 15 "$@"
