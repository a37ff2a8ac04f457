"""--json prints the result and nothing else, whatever libraries print."""

from __future__ import annotations

import json
import subprocess
import sys

NOISY_COMMAND = """
import atexit, os, subprocess, sys
from gpgmap_ros.cli import config_command, main

atexit.register(os.write, 1, b"noise at the end\\n")
ends = config_command.run

def noisy(arguments):
    os.write(1, b"noise of a library\\n")
    subprocess.run([sys.executable, "-c", "print('noise of a child')"], check=True)
    return ends(arguments)

config_command.run = noisy
sys.argv = ["gpgmap", "config", "--json"]
sys.exit(main())
"""


def test_json_is_alone_on_standard_output() -> None:
    done = subprocess.run([sys.executable, "-c", NOISY_COMMAND], capture_output=True, text=True)
    assert isinstance(json.loads(done.stdout), dict | list), done.stderr
    for noise in ("noise of a library", "noise of a child", "noise at the end"):
        assert noise in done.stderr
