"""`gpgmap`: the command line. One file per command; `main` finds and runs them."""

from gpgmap_ros.cli.main import main

__all__ = ["main"]
