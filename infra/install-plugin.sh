#!/usr/bin/env bash
# Install the farm's SGLang plug-in, and nothing else of the farm, into an engine's environment.
#
#   bash infra/install-plugin.sh "$FARM_HOME/envs/engine/bin/python"
#
# What is installed is recognised by a stamp beside the environment's Python, so running this again costs nothing.
set -euo pipefail

python=${1:?usage: install-plugin.sh PYTHON, the interpreter of the engine\'s environment}
root=$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)
stamp="$("$python" -c 'import sys; print(sys.prefix)')/.farm-plugin"

copy=$(mktemp -d)
trap 'rm -rf "$copy"' EXIT
mkdir "$copy/farm"
cp "$root/pyproject.toml" "$root/README.md" "$copy"
cp "$root/farm/__init__.py" "$copy/farm"
cp -R "$root/farm/sglang_plugin" "$copy/farm"
find "$copy" -name __pycache__ -prune -exec rm -rf {} +

content=$(cd "$copy" && find . -type f -print0 | sort -z | xargs -0 sha256sum | sha256sum)
if [[ -f $stamp && $(cat "$stamp") == "$content" ]]; then
  exit 0
fi
# Its dependencies are the farm's, which runs elsewhere: the plug-in needs only what the engine has.
"$python" -m pip --quiet --disable-pip-version-check --no-input install --no-deps --force-reinstall "$copy"
echo "$content" >"$stamp"
echo "SGLang plug-in installed for $python"
