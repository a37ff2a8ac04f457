#!/bin/sh
# Writes the software bill of materials (CycloneDX, JSON) of .venv: tools/sbom.sh FILE. Needs the network for the tool.
set -eu
file=$1
cd "$(dirname "$0")/.."
python=.venv/bin/python
[ -x "$python" ] || { echo "tools/sbom.sh: no .venv yet: run 'make setup' first" >&2; exit 2; }
tool=$(mktemp -d)
trap 'rm -rf "$tool" "$file.part"' EXIT
# used once: no pip of its own, and nothing compiled ahead
"$python" -P -m venv --without-pip "$tool"
"$python" -P -m pip --python "$tool/bin/python" install --quiet --no-compile --require-hashes \
    --requirement requirements/sbom.lock.txt
mkdir -p "$(dirname "$file")"
"$tool/bin/cyclonedx-py" environment --output-reproducible --output-format JSON \
    --output-file "$file.part" "$python" 2>"$tool/log" || { cat "$tool/log" >&2; exit 1; }
counted=$("$tool/bin/python" -P tools/finish_sbom.py "$file.part")
mv "$file.part" "$file"
echo "$file: $counted"
