#!/bin/sh
# Rewrites the lock files from requirements/*.in (run it after editing one of those; needs the network).
# One lock serves Python 3.11 and 3.12: markers say where versions differ. The tool that does it is locked as well.
set -eu
cd "$(dirname "$0")/../requirements"
python=../.venv/bin/python
[ -x "$python" ] || { echo "tools/lock.sh: no .venv yet: run 'make setup' first" >&2; exit 2; }
tool=$(mktemp -d)
trap 'rm -rf "$tool"' EXIT
"$python" -P -m pip install --quiet --require-hashes --target "$tool" --requirement lock.lock.txt
compile() { # compile VERSION-OF-PYTHON ARGUMENTS...
    version=$1
    shift
    PYTHONPATH="$tool" "$python" -P -m uv pip compile --quiet --generate-hashes --no-header --no-emit-index-url \
        --python-version "$version" "$@"
}
compile 3.11 --universal build.in --output-file build.lock.txt
compile 3.11 --universal run.in --constraints build.lock.txt --output-file run.lock.txt
compile 3.11 --universal dev.in --constraints run.lock.txt --output-file dev.lock.txt
compile 3.11 --universal docs.in --constraints dev.lock.txt --output-file docs.lock.txt
compile 3.11 --universal sbom.in --output-file sbom.lock.txt
linux="--python-platform x86_64-manylinux_2_28"
# shellcheck disable=SC2086
{
    compile 3.11 $linux --no-deps --no-annotate ros.in --output-file ros.lock.txt
    compile 3.12 $linux robot.in --output-file robot.lock.txt
    compile 3.11 $linux lock.in --output-file lock.lock.txt
}
