#!/bin/sh
# Finds a Python that can make the environment and hands over to setup_environment.py.
# -I, -P: modules that lie in the working directory are not imported (Python before 3.11 knows only -I).
# Kept in sh, because the point is to say something helpful when there is no usable Python.
set -u
here=$(cd "$(dirname "$0")" && pwd)

usable() { # a working interpreter of a supported version?
    "$1" -I -c 'import sys; sys.exit(sys.version_info[:2] not in ((3, 11), (3, 12)))' >/dev/null 2>&1
}

tried=${PYTHON:-python3.12 python3.11 python3 python}
if [ -n "${PYTHON:-}" ]; then
    set -- "$PYTHON" -- "$@" # the path may have spaces in it
else
    set -- python3.12 python3.11 python3 python -- "$@"
fi
while [ "$1" != -- ]; do
    candidate=$1
    shift
    if command -v "$candidate" >/dev/null 2>&1 && usable "$candidate"; then
        # -B: a clone that was only asked what is missing stays clean
        while [ "$1" != -- ]; do shift; done
        shift
        exec "$candidate" -B -P "$here/setup_environment.py" "$@"
    fi
done

found=$("${PYTHON:-python3}" -I -c 'import platform; print("Python", platform.python_version())' 2>/dev/null) || found="no Python"
cat >&2 <<EOF
setup: Python 3.11 or 3.12 is needed, found $found (tried: $tried).
  Debian 12:    sudo apt install python3 python3-venv python3-dev
  Ubuntu 24.04: sudo apt install python3 python3-venv python3-dev
  elsewhere:    name one with  make PYTHON=/path/to/python3.12 ...
EOF
exit 2
