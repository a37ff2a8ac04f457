"""Make or mend the environments: pinned packages, ROS 2 Jazzy, the interface packages that pip lacks, and this project.

    setup_environment.py [run | dev | docs | robot]

run: what the demo and the node need. dev: tests and checks on top. docs: the documentation site on top of that.
robot: a second environment, .venv-robot, with the versions that a robot has (Ubuntu 24.04 and its rosdep keys) and
none of the packages that it lacks.

Run through `make setup` (or any target that needs it). Standard library only. Every interpreter is started with -P:
modules that lie in the working directory are not imported. Every step is recorded when it is
complete, with a digest of what it was made from; a step whose record is missing or stale is done again, and one that
was interrupted half-way makes the environment anew. Everything stays inside the project folder.
"""

from __future__ import annotations

import argparse
import fcntl
import hashlib
import json
import os
import platform
import re
import shutil
import subprocess
import sys
import sysconfig
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))
from gpgmap_ros.progress import ProgressBar  # noqa: E402

sys.path.remove(str(ROOT))

CACHE = ROOT / ".cache"
LOG = CACHE / "setup.log"
REQUIREMENTS = ROOT / "requirements"
INTERFACES = ("tf2_msgs", "grid_map_msgs", "livox_ros_driver2")

GLIBC = (2, 28)  # what the wheels are built for (manylinux_2_28)

# Imported at every start: what would be missing if files went away behind our back.
PROBE = "import numpy, scipy, numba, yaml, rclpy, tf2_msgs.msg, grid_map_msgs.msg, gp_core, gpgmap_ros"

PIP_FAILURES = (
    (r"No space left on device", "the disk is full", "free some room, then run the same command again"),
    (
        r"Temporary failure in name resolution|Failed to establish a new connection|Name or service not known"
        r"|Network is unreachable|ConnectTimeout|Connection refused|ReadTimeout|ProxyError|Max retries exceeded",
        "the package index cannot be reached",
        "check the network (behind a proxy: set https_proxy, or index-url in pip's configuration), then run the"
        " same command again: what was downloaded is kept",
    ),
    (
        r"THESE PACKAGES DO NOT MATCH THE HASHES",
        "a package differs from its hash in the lock file",
        "if you use a mirror, check it; otherwise do not install it, and report this",
    ),
    (
        r"No matching distribution found",
        "the package index lacks a pinned version",
        "check that the index offers Linux x86_64 wheels for this Python",
    ),
)


class SetupError(Exception):
    """Something is missing: what, and what to do."""

    def __init__(self, problem: str, remedy: str) -> None:
        super().__init__(f"setup: {problem}\n  {remedy}")


@dataclass(frozen=True)
class Environment:
    """A virtual environment and the record of what is complete in it."""

    folder: Path

    @property
    def python(self) -> Path:
        return self.folder / "bin" / "python"

    @property
    def state(self) -> Path:
        return self.folder / "setup-state.json"


@dataclass(frozen=True)
class Step:
    """One stage of the set-up.

    name: shown to the user and recorded.
    inputs: files that it is made from; when one changes, it is done again.
    run: does it.
    clean: whether an interruption leaves something that can't be trusted.
    """

    name: str
    inputs: tuple[Path, ...]
    run: Callable[[Environment], None]
    clean: bool = False


@dataclass(frozen=True)
class Profile:
    """What an environment is for.

    folder: name of the environment below the project.
    steps: how it is made, in order.
    disk_gb: what that takes: the measured environment, and as much again for downloads and unpacking.
    pythons: versions of Python that it can be made with.
    """

    folder: str
    steps: tuple[Step, ...]
    disk_gb: float
    pythons: tuple[tuple[int, int], ...] = ((3, 11), (3, 12))

    @property
    def environment(self) -> Environment:
        return Environment(ROOT / self.folder)


# ---------------------------------------------------------------- what the machine must have


def check_platform() -> None:
    system, machine = platform.system(), platform.machine()
    if (system, machine) != ("Linux", "x86_64"):
        raise SetupError(
            f"ROS 2 wheels exist for Linux on x86_64 only, this is {system} on {machine}",
            "on another CPU or system, install ROS 2 Jazzy itself and build with colcon (README, 'On a robot')",
        )
    name, version = platform.libc_ver()
    if name != "glibc" or tuple(int(part) for part in version.split(".")[:2]) < GLIBC:
        raise SetupError(
            f"glibc {GLIBC[0]}.{GLIBC[1]} or newer is needed, this system has {name or 'another libc'} {version}",
            "use Debian 12, Ubuntu 22.04 or newer",
        )


def check_venv_module() -> None:
    probe = subprocess.run(
        [sys.executable, "-P", "-c", "import venv, ensurepip"], capture_output=True, text=True, check=False
    )
    if probe.returncode:
        major, minor = sys.version_info[:2]
        raise SetupError(
            f"this Python ({sys.executable}) cannot make virtual environments: {probe.stderr.strip().splitlines()[-1]}",
            f"sudo apt install python3-venv   (or python{major}.{minor}-venv)",
        )


def check_compiler() -> None:
    missing = [name for name in ("gcc", "g++") if not shutil.which(name)]
    if missing:
        raise SetupError(
            f"no C/C++ compiler: {' and '.join(missing)} not found (needed to build {', '.join(INTERFACES)})",
            "sudo apt install gcc g++",
        )
    header = Path(sysconfig.get_paths()["include"]) / "Python.h"
    if not header.exists():
        major, minor = sys.version_info[:2]
        raise SetupError(
            f"the headers of Python are missing: no {header}",
            f"sudo apt install python3-dev   (or python{major}.{minor}-dev)",
        )


def check_python(profile: Profile) -> None:
    if sys.version_info[:2] not in profile.pythons:
        wanted = " or ".join(f"{major}.{minor}" for major, minor in profile.pythons)
        raise SetupError(
            f"{profile.folder} is made with Python {wanted}, this is {platform.python_version()} ({sys.executable})",
            f"install it (Ubuntu 24.04: sudo apt install python3.12-venv python3.12-dev) or name one with"
            f"  make PYTHON=/path/to/python{wanted.split()[-1]} ...",
        )


def check_disk(profile: Profile) -> None:
    free = shutil.disk_usage(ROOT).free / 1e9
    if free < profile.disk_gb:
        raise SetupError(
            f"the set-up needs {profile.disk_gb} GB in {ROOT}, only {free:.1f} GB are free",
            "free some room or move the project to a larger disk",
        )


def check_machine(profile: Profile) -> None:
    check_platform()
    check_python(profile)
    check_venv_module()
    check_compiler()
    check_disk(profile)


# ---------------------------------------------------------------- the steps


def make_venv(environment: Environment) -> None:
    if environment.folder.exists():
        shutil.rmtree(environment.folder)
    run([sys.executable, "-P", "-m", "venv", str(environment.folder)], "Python environment", total=1)
    install(environment, "build.lock.txt", "installer")


def install_packages(environment: Environment) -> None:
    install(environment, "run.lock.txt", "Python packages")


def install_tools(environment: Environment) -> None:
    install(environment, "dev.lock.txt", "test and check tools")


def install_site_tools(environment: Environment) -> None:
    install(environment, "docs.lock.txt", "documentation tools")


def install_robot_packages(environment: Environment) -> None:
    install(environment, "robot.lock.txt", "a robot's versions")


def install_ros(environment: Environment) -> None:
    # --no-deps: the wheels name dependencies that the index lacks; the list is complete by itself
    install(environment, "ros.lock.txt", "ROS 2 Jazzy", "--no-deps")


def build_interfaces(environment: Environment) -> None:
    sources = [str(ROOT / "interfaces" / name) for name in INTERFACES]
    run([str(environment.python), "-P", str(ROOT / "tools" / "build_interfaces.py"), *sources], "ROS interfaces",
        total=len(sources), pattern=r"^\w+: \d+ interfaces")  # fmt: skip


def install_project(environment: Environment) -> None:
    run([str(environment.python), "-P", "-m", "pip", "install", "--no-deps", "--no-build-isolation", "--editable",
         str(ROOT)], "gpgmap_ros", total=1)  # fmt: skip


def compile_loops(environment: Environment) -> None:
    """Numba keeps what it compiles beside the sources: done here, the first start does not wait for it."""
    run([str(environment.python), "-P", "-m", "gpgmap_ros.cli", "compile"], "inner loops, compiled", total=1)


def compiled_sources() -> tuple[Path, ...]:
    """The files with compiled loops, and what decides how they are compiled."""
    files = sorted([*(ROOT / "gp_core").rglob("*.py"), *(ROOT / "gpgmap_ros").rglob("*.py")])
    return tuple(path for path in files if "compiled" in path.read_text())


def install(environment: Environment, lock: str, label: str, *options: str) -> None:
    path = REQUIREMENTS / lock
    count = len(re.findall(r"^\S+==", path.read_text(), re.MULTILINE))
    command = [str(environment.python), "-P", "-m", "pip", "install", "--require-hashes", "--no-build-isolation",
               "--progress-bar", "off", *options, "--requirement", str(path)]  # fmt: skip
    # Unpacking comes after the last download and says nothing: a tenth of the bar is kept for it.
    run(command, label, total=count * 1.1, pattern=r"^(Collecting|Requirement already satisfied)")


def run(command: list[str], label: str, total: float, pattern: str = "$^") -> None:
    """Run a command with its output in the log; lines that match the pattern move the progress bar."""
    environment = dict(os.environ, PIP_CACHE_DIR=str(CACHE / "pip"), TMPDIR=str(CACHE / "tmp"))
    environment.update(PIP_DISABLE_PIP_VERSION_CHECK="1", PIP_NO_INPUT="1", PYTHONUNBUFFERED="1")
    environment.pop("PYTHONPATH", None)
    (CACHE / "tmp").mkdir(parents=True, exist_ok=True)
    lines: list[str] = []
    with LOG.open("a") as log, ProgressBar(label, total) as bar:
        log.write(f"\n$ {' '.join(command)}\n")
        process = subprocess.Popen(
            command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True, env=environment, cwd=ROOT
        )
        assert process.stdout
        try:
            for line in process.stdout:
                log.write(line)
                lines.append(line)
                if re.match(pattern, line):
                    words = line.split()
                    bar.advance(1, words[1].split("==")[0].rstrip(":") if len(words) > 1 else "")
            code = process.wait()
        except BaseException:
            process.terminate()
            process.wait()
            raise
        if code:
            raise explain_failure(label, "".join(lines))


def explain_failure(label: str, output: str) -> SetupError:
    for pattern, problem, remedy in PIP_FAILURES:
        if re.search(pattern, output):
            return SetupError(f"{label}: {problem}", f"{remedy}\n  log: {LOG.relative_to(ROOT)}")
    tail = "\n  | ".join(line for line in output.strip().splitlines()[-6:])
    return SetupError(f"{label} failed:\n  | {tail}", f"the whole output is in {LOG.relative_to(ROOT)}")


VENV_STEP = Step("venv", (REQUIREMENTS / "build.lock.txt",), make_venv, clean=True)
ROS_STEP = Step("ros", (REQUIREMENTS / "ros.lock.txt",), install_ros, clean=True)
PROJECT_STEPS = (
    Step(
        "interfaces",
        (ROOT / "tools" / "build_interfaces.py", *sorted((ROOT / "interfaces").rglob("*.[ms][sr][gv]"))),
        build_interfaces,
    ),
    Step(
        "project", tuple(ROOT / name for name in ("setup.py", "setup.cfg", "pyproject.toml")), install_project
    ),
    Step("loops", compiled_sources(), compile_loops),
)
RUN_STEPS = (
    VENV_STEP,
    Step("packages", (REQUIREMENTS / "run.lock.txt",), install_packages, clean=True),
    ROS_STEP,
    *PROJECT_STEPS,
)
DEV_STEPS = (*RUN_STEPS, Step("tools", (REQUIREMENTS / "dev.lock.txt",), install_tools, clean=True))
DOCS_STEPS = (*DEV_STEPS, Step("docs", (REQUIREMENTS / "docs.lock.txt",), install_site_tools, clean=True))
# After ROS: its list names a newer PyYAML than a robot has.
ROBOT_STEPS = (
    VENV_STEP,
    ROS_STEP,
    Step("packages", (REQUIREMENTS / "robot.lock.txt",), install_robot_packages, clean=True),
    *PROJECT_STEPS,
)
PROFILES = {
    "run": Profile(".venv", RUN_STEPS, disk_gb=2.4),
    "dev": Profile(".venv", DEV_STEPS, disk_gb=3.8),
    "docs": Profile(".venv", DOCS_STEPS, disk_gb=3.8),
    "robot": Profile(".venv-robot", ROBOT_STEPS, disk_gb=1.6, pythons=((3, 12),)),
}


# ---------------------------------------------------------------- what is done and what is left


def digest(step: Step) -> str:
    """What a step was made from: its inputs, the interpreter, and where the project is (scripts carry the path)."""
    parts = hashlib.sha256(f"{sys.version}|{sys.executable}|{ROOT}".encode())
    for path in step.inputs:
        parts.update(path.relative_to(ROOT).as_posix().encode() + b"\0" + path.read_bytes())
    return parts.hexdigest()


def read_state(environment: Environment) -> dict[str, str]:
    try:
        state = json.loads(environment.state.read_text())
    except (OSError, ValueError):
        return {}
    return state if isinstance(state, dict) else {}


def write_state(environment: Environment, state: dict[str, str]) -> None:
    if environment.folder.exists():
        staged = environment.state.with_suffix(".new")
        staged.write_text(json.dumps(state, indent=1))
        staged.replace(environment.state)


def probe(environment: Environment) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(environment.python), "-P", "-c", PROBE], capture_output=True, text=True, check=False
    )


def is_intact(environment: Environment) -> bool:
    return environment.python.exists() and not probe(environment).returncode


def pending_steps(profile: Profile, state: dict[str, str]) -> tuple[Step, ...]:
    """The steps to run: from the first that is not complete and current; all, if the environment can't be trusted."""
    steps, environment = profile.steps, profile.environment
    stale = [step for step in steps if state.get(step.name) != digest(step)]
    if not stale:
        return () if is_intact(environment) else steps
    # A later lock on top of an earlier one is what pip is good at; an interrupted install is not.
    clean = {step.name for each in PROFILES.values() for step in each.steps if step.clean}
    interrupted = any(state.get(name) == "started" for name in clean)
    return steps if interrupted or not environment.python.exists() else steps[steps.index(stale[0]) :]


@contextmanager
def exclusive() -> Iterator[None]:
    """One set-up at a time in this folder; a second one waits and then finds the work done."""
    CACHE.mkdir(exist_ok=True)
    with (CACHE / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            print("setup: another set-up is running in this folder, waiting for it", file=sys.stderr)
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield


def set_up(profile: Profile) -> None:
    environment = profile.environment
    state = read_state(environment)
    steps = pending_steps(profile, state)
    if not steps:
        return
    check_machine(profile)
    start = time.monotonic()
    if environment.folder.exists() and steps[0] is VENV_STEP:
        print(f"setup: {profile.folder} is incomplete or made elsewhere, making it anew", file=sys.stderr)
        state = {}
    for step in steps:
        write_state(environment, state | {step.name: "started"})
        step.run(environment)
        state[step.name] = digest(step)
        write_state(environment, state)
    if not is_intact(environment):
        raise SetupError("the environment does not work:\n  | " + probe(environment).stderr.strip().splitlines()[-1],
                         "please report this with .cache/setup.log")  # fmt: skip
    shutil.rmtree(CACHE / "tmp", ignore_errors=True)
    print(f"setup: {profile.folder} ready in {time.monotonic() - start:.0f} s", file=sys.stderr)


def main() -> int:
    parser = argparse.ArgumentParser(description="Make or mend an environment, inside this folder.")
    parser.add_argument(
        "profile", nargs="?", default="run", choices=PROFILES, help="what it is for (default: run)"
    )
    profile = PROFILES[parser.parse_args().profile]
    try:
        with exclusive():
            set_up(profile)
    except SetupError as error:
        print(error, file=sys.stderr)
        return 2
    except OSError as error:
        print(f"setup: {error}\n  the log is in {LOG}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("\nsetup: interrupted; the same command goes on from here", file=sys.stderr)
        return 130
    return 0


if __name__ == "__main__":
    sys.exit(main())
