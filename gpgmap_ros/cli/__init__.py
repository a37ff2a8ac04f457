"""`gpgmap`: the command line. One file per command; `main` finds and runs them."""

from gpgmap_ros.interpreter import leave_working_directory

leave_working_directory()  # before anything of another package is imported

from gpgmap_ros.cli.main import main  # noqa: E402

__all__ = ["main"]
