"""How this package starts Python: never with modules of the working directory.

`python -m` looks for modules in the working directory first. There may be anything: a `scipy.py` beside a recording
would be executed by whoever maps it.
"""

from __future__ import annotations

import os
import sys


def module_command(module: str, *arguments: str) -> list[str]:
    """The command that runs a module with this interpreter, as `python -m` does, without the working directory."""
    return [os.path.abspath(sys.executable), "-P", "-m", module, *arguments]


def leave_working_directory() -> None:
    """Take the working directory off the path for modules if `python -m` is putting it there, unless we live in it."""
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    # while `python -m` looks for the module, its name stands for that
    if sys.argv[:1] == ["-m"] and sys.path[0] == os.getcwd() and os.path.realpath(sys.path[0]) != here:
        del sys.path[0]
