#!/usr/bin/env bash
# Build the CPU engine: SGLang 0.5.23 on a plain CPU, in its own virtual environment $FARM_HOME/envs/engine-cpu.
#
#   FARM_HOME     where the farm keeps its things (default ~/.farm)
#   FARM_PYTHON   the Python to use (default: the first of python3.11, python3.12, python3.13 that runs)
#
# A finished build is recognised by the stamps in it, so running this again costs nothing; a build that was cut short has
# none and is made again. A change of the reference kernels alone installs them alone.
set -euo pipefail

here=$(cd "$(dirname "${BASH_SOURCE[0]}")" && pwd)
# shellcheck source=infra/farm-home.sh
. "$here/../farm-home.sh"
env_dir="$FARM_HOME/envs/engine-cpu"
packages_stamp="$env_dir/.farm-packages"
kernels_stamp="$env_dir/.farm-reference-kernels"
uv_version=0.13.9
torch_index="https://download.pytorch.org/whl/cpu"

main() {
  mkdir -p "$(dirname "$env_dir")"
  exec 9>"$env_dir.lock"
  flock 9 # two builds at once would spoil each other

  local packages kernels
  packages=$({ cat "$here/requirements.txt"; declare -f install_packages; } | sha256sum)
  kernels=$(cd "$here/reference-kernels" && find . -type f -name '*.p[yt]*' ! -name '*.pyc' -print0 | sort -z |
    xargs -0 sha256sum pyproject.toml | sha256sum)
  if [[ $(read_stamp "$packages_stamp") == "$packages" && $(read_stamp "$kernels_stamp") == "$kernels" ]]; then
    echo "CPU engine: $env_dir is up to date"
    return
  fi
  if [[ $(read_stamp "$packages_stamp") != "$packages" ]]; then
    install_packages
    echo "$packages" >"$packages_stamp"
  fi
  if [[ $(read_stamp "$kernels_stamp") != "$kernels" ]]; then
    install_kernels
    echo "$kernels" >"$kernels_stamp"
  fi
  echo "CPU engine: SGLang $(version_of sglang), torch $(version_of torch), $("$env_dir/bin/python" -V) in $env_dir"
  echo "built in ${SECONDS} s"
}

read_stamp() {
  if [[ -x $env_dir/bin/python && -f $1 ]]; then cat "$1"; fi
}

install_packages() {
  local python
  python=$(find_python)
  echo "building $env_dir with $("$python" -V) ..."
  rm -rf "$env_dir"
  "$python" -m venv "$env_dir"

  # Everywhere but on PyTorch's own index, "torch" may mean a CUDA build of several gigabytes.
  if index_answers; then
    pip install --no-deps --index-url "$torch_index" "$(pin torch)" "$(pin torchvision)"
  else
    echo "$torch_index does not answer: taking torch from the configured package index"
    pip install "$(pin torch)"
    pip install --no-deps "$(pin torchvision)"
  fi
  # Nothing is left to resolve. SGLang's own list of dependencies is ignored on purpose: it asks for CUDA. uv takes half
  # of pip's time here, but only pip sees a torch that is configured as lying on this machine's disk.
  pip install "uv==$uv_version"
  grep -vE '^torch(vision)?==' "$here/requirements.txt" |
    VIRTUAL_ENV=$env_dir "$env_dir/bin/uv" pip install --quiet --compile-bytecode --no-deps -r -
}

install_kernels() {
  # Built from a copy: building in place would leave files in the repository.
  local copy
  copy=$(mktemp -d)
  cp -R "$here/reference-kernels/." "$copy"
  pip install --no-deps --no-build-isolation --force-reinstall "$copy"
  rm -rf "$copy"
}

find_python() {
  local candidate
  for candidate in ${FARM_PYTHON:-python3.11 python3.12 python3.13}; do
    # A name on the PATH may be a shim that stands for nothing, and Debian ships venv apart: only running it tells.
    if "$candidate" -c 'import sys, ensurepip; sys.exit(not (3, 11) <= sys.version_info < (3, 14))' 2>/dev/null; then
      echo "$candidate"
      return
    fi
  done
  echo "no Python 3.11 to 3.13 with venv was found: install one (Debian: python3-venv) or name one with FARM_PYTHON" >&2
  return 1
}

index_answers() {
  "$env_dir/bin/python" - "$torch_index/torch/" <<'PYTHON' 2>/dev/null
import sys, urllib.request
urllib.request.urlopen(urllib.request.Request(sys.argv[1], method="HEAD"), timeout=5)
PYTHON
}

pip() {
  "$env_dir/bin/python" -m pip --quiet --disable-pip-version-check --no-input "$@"
}

pin() {
  grep -E "^$1==" "$here/requirements.txt"
}

version_of() {
  local info
  for info in "$env_dir"/lib/python3*/site-packages/"$1"-[0-9]*.dist-info; do
    info=${info##*/"$1"-}
    echo "${info%.dist-info}"
  done
}

main
# The farm's own plug-in changes with the farm, not with the engine: it has a stamp of its own.
bash "$here/../install-plugin.sh" "$env_dir/bin/python"
