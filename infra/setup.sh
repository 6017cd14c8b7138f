#!/usr/bin/env bash
# Sets up the farm's own environment in $FARM_HOME/envs/farm (FARM_HOME: ~/.farm unless set) from the lock file.
# Use: bash infra/setup.sh        A second run takes under a second. FARM_PYTHON chooses the interpreter (3.11 to 3.13).
set -euo pipefail

repository=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
# shellcheck source=infra/farm-home.sh
. "$repository/infra/farm-home.sh"
environment=$FARM_HOME/envs/farm
uv_version=0.13.9

find_python() {
    local candidate
    for candidate in ${FARM_PYTHON:+"$FARM_PYTHON"} python3.11 python3.12 python3.13 python3; do
        if "$candidate" -c 'import sys; sys.exit(not (3, 11) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null; then
            command -v "$candidate"
            return
        fi
    done
    echo "error: no Python 3.11, 3.12 or 3.13 was found; install one (apt-get install python3), or set FARM_PYTHON" >&2
    exit 2
}

python=$(find_python)
stamp=$({ cat "$repository/infra/requirements.lock"; "$python" --version; echo "$uv_version"; } | sha256sum | cut -c1-16)
if [ "$(cat "$environment/.stamp" 2>/dev/null)" = "$stamp" ]; then
    exit 0
fi

if ! "$python" -c 'import ensurepip' 2>/dev/null; then
    # Debian and Ubuntu ship venv apart from Python.
    package=$("$python" -c 'import sys; print(f"python3.{sys.version_info[1]}-venv")')
    echo "installing $package, which this Python lacks"
    if [ "$(id -u)" = 0 ]; then apt-get install -y -q "$package"; else sudo apt-get install -y -q "$package"; fi
fi

started=$SECONDS
echo "setting up the farm's environment in $environment"
rm -f "$environment/.stamp"
"$python" -m venv --clear "$environment"
"$environment/bin/pip" install -q --disable-pip-version-check "uv==$uv_version"
VIRTUAL_ENV=$environment "$environment/bin/uv" pip install -q --compile-bytecode --require-hashes -r "$repository/infra/requirements.lock"
echo "$stamp" >"$environment/.stamp"
echo "the farm's environment is ready after $((SECONDS - started)) s"
