"""How this package starts Python: never with modules of the working directory.

`python -m` looks for modules in the working directory first. There may be anything: a `scipy.py` beside a recording
would be executed by whoever maps it.
"""

from __future__ import annotations

import os
import sys

SAFE_PATH = sys.version_info >= (3, 11)  # it has -P
_RUN_MODULE = (
    "import sys; del sys.path[0]; import runpy; sys.argv[:] = sys.argv[1:];"
    " runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
)


def module_command(module: str, *arguments: str, safe_path: bool = SAFE_PATH) -> list[str]:
    """The command that runs a module with this interpreter, as `python -m` does, without the working directory.

    safe_path: whether the interpreter has the option -P
    """
    python = os.path.abspath(sys.executable)
    if safe_path:
        return [python, "-P", "-m", module, *arguments]
    return [python, "-c", _RUN_MODULE, module, *arguments]


def leave_working_directory() -> None:
    """Take the working directory off the path for modules if `python -m` is putting it there, unless we live in it."""
    here = os.path.dirname(os.path.dirname(os.path.realpath(__file__)))
    # while `python -m` looks for the module, its name stands for that
    if sys.argv[:1] == ["-m"] and sys.path[0] == os.getcwd() and os.path.realpath(sys.path[0]) != here:
        del sys.path[0]
