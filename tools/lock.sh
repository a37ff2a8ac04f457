#!/bin/sh
# Rewrites the lock files from requirements/*.in (run it after editing one of those; needs the network).
# One lock serves Python 3.11 and 3.12: markers say where versions differ.
set -eu
cd "$(dirname "$0")/../requirements"
python=../.venv/bin/python
[ -x "$python" ] || { echo "tools/lock.sh: no .venv yet: run 'make setup' first" >&2; exit 2; }
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
"$python" -m pip install --quiet --target "$tool" uv
compile() {
    PYTHONPATH="$tool" "$python" -m uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url \
        --python-version 3.11 "$@"
}
compile --universal build.in --output-file build.lock.txt
compile --universal run.in --output-file run.lock.txt
compile --universal dev.in --constraints run.lock.txt --output-file dev.lock.txt
compile --no-deps --no-annotate --python-platform x86_64-manylinux_2_28 ros.in --output-file ros.lock.txt
