"""Fuzzing of every reader: damaged files must be refused with a message, never crash, hang, grow or change a map.

python test/campaigns/fuzz.py                            50,000 mutants, ten minutes at most
python test/campaigns/fuzz.py --mutants 500 --only laz   some of one kind
python test/campaigns/fuzz.py --reproduce 1234 --keep .  one mutant again: its file, and what happened

Mutant k of a seed is the same in every run. Each is read in a worker process: that may die (a crash of native code),
take too long or too much memory, and is started again with the next mutant. Errors allowed are ValueError and OSError
(this package's own are ValueErrors or named below) with a message. Exit code 1 if anything else was found.
"""

from __future__ import annotations

import argparse
import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
import traceback
import warnings
from pathlib import Path
from typing import Any

import numpy as np

HERE = Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))
sys.path.insert(0, str(HERE.parent))
sys.path.insert(0, str(HERE.parent.parent))

from fuzz_mutation import damaged, damaged_inside  # noqa: E402
from fuzz_targets import TARGETS, Target, Unsound  # noqa: E402

from gpgmap_ros.closure import DatabaseError  # noqa: E402

ALLOWED = (ValueError, OSError, DatabaseError)
MOST_SECONDS, MOST_GROWTH = 10.0, 500 << 20
"""Of a processor, for one mutant; bytes of memory that it may take."""
MOST_SILENT_SECONDS = 3.0 * MOST_SECONDS
"""Of a processor without a word from a worker that reads a mutant, after which it counts as hanging."""
SILENCE = 300.0
"""The same by the clock, for one that waits; also while good files are made, which may compile first."""
SAFETY_BYTES = 4 << 30


class Bench:
    """Good files of all targets, and mutants of them.

    folder: for files; only: part of the names of targets, all if empty
    """

    def __init__(self, folder: Path, seed: int, only: str) -> None:
        self.folder, self.seed = folder, seed
        self.targets = [target for target in TARGETS if only in target.name]
        weights = np.array([target.weight for target in self.targets])
        self._share = weights / weights.sum()
        self._good: dict[str, Path] = {}
        self._answer: dict[str, Any] = {}

    def good(self, target: Target) -> Path:
        if target.name not in self._good:
            home = self.folder / "good" / target.name.replace(" ", "_")
            home.mkdir(parents=True)
            self._good[target.name] = target.make(home)
            self._answer[target.name] = target.read(self._good[target.name])
        return self._good[target.name]

    def mutant(self, number: int) -> tuple[Target, Path, bool]:
        """The target, the damaged file or folder, and whether its checksums were made right."""
        rng = np.random.default_rng([self.seed, number])
        target = self.targets[int(rng.choice(len(self.targets), p=self._share))]
        good = self.good(target)
        path = self.folder / "mutant" / good.name
        shutil.rmtree(path.parent, ignore_errors=True)
        path.parent.mkdir()
        file = path
        if good.is_dir():
            shutil.copytree(good, path)
            files = sorted(item for item in path.rglob("*") if item.is_file())
            file = files[int(rng.integers(len(files)))]
        else:
            shutil.copy(good, path)
        data, inside = file.read_bytes(), target.inside and rng.random() < 0.5
        file.write_bytes(damaged_inside(data, rng) if inside else damaged(data, rng))
        return target, path, inside

    def problem(self, number: int) -> dict[str, Any] | None:
        """What is wrong with how a mutant is read; None if nothing is."""
        target, path, inside = self.mutant(number)
        reset_peak()
        before, start = resident("VmRSS"), time.process_time()
        what = ""
        try:
            answer = target.read(path)
            if target.checked and not inside and not target.same(answer, self._answer[target.name]):
                what = "silently different: what was read is not what was written"
        except Unsound as error:
            what = f"accepted, although: {error}"
        except ALLOWED as error:
            if not str(error).strip():
                what = f"{type(error).__name__} without a message"
        except BaseException as error:
            where = traceback.extract_tb(error.__traceback__)[-1]
            what = f"uncaught {type(error).__name__}: {str(error)[:200]} ({Path(where.filename).name}:{where.lineno})"
        seconds, growth = time.process_time() - start, resident("VmHWM") - before
        if seconds > MOST_SECONDS:
            what = what or f"took {seconds:.0f} s of a processor"
        if growth > MOST_GROWTH:
            what = what or f"took {growth >> 20} MB"
        return {"mutant": number, "target": target.name, "inside": inside, "what": what} if what else None


def scratch_folder() -> tempfile.TemporaryDirectory[str]:
    """In memory where the system has that: on a slow disk making a mutant takes longer than reading it."""
    memory = Path("/dev/shm")
    usable = memory.is_dir() and os.access(memory, os.W_OK)
    return tempfile.TemporaryDirectory(prefix="gpgmap_fuzz_", dir=memory if usable else None)


def reset_peak() -> None:
    """Let the system count the largest memory anew."""
    Path("/proc/self/clear_refs").write_text("5")


def resident(name: str) -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith(name):
            return int(line.split()[1]) * 1024
    return 0


def processor_seconds(pid: int) -> float:
    """That a process of this machine has taken; 0 once it has ended."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0.0
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


# -- a worker --------------------------------------------------------------------------------------------


def work(folder: Path, seed: int, only: str, numbers: range) -> None:
    """One line of JSON for every mutant: before it is read, and where something is wrong with it."""
    warnings.simplefilter("ignore")
    resource.setrlimit(resource.RLIMIT_DATA, (SAFETY_BYTES, resource.RLIM_INFINITY))
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    bench = Bench(folder, seed, only)
    for target in bench.targets:
        say({"preparing": target.name})
        bench.good(target)
    for number in numbers:
        say({"at": number})
        problem = bench.problem(number)
        if problem:
            say(problem)
    say({"done": True})


def say(item: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(item) + "\n")
    sys.stdout.flush()


# -- the campaign ----------------------------------------------------------------------------------------


class Worker:
    """A process that reads the mutants first, first + step, ... and is started again where one ends it."""

    def __init__(self, first: int, step: int, arguments: argparse.Namespace) -> None:
        self.next, self._step, self._arguments = first, step, arguments
        self.read = 0
        self.problems: list[dict[str, Any]] = []
        self.finished = False
        self._start()

    def _start(self) -> None:
        a = self._arguments
        self._folder = scratch_folder()
        self._log = open(Path(self._folder.name) / "stderr", "w+")  # noqa: SIM115 (closed with the process)
        numbers = [self.next, a.first + a.mutants, self._step]
        self._process = subprocess.Popen(
            [sys.executable, str(Path(__file__).resolve()), "--seed", str(a.seed), "--only", a.only,
             "--worker", self._folder.name, *map(str, numbers)],
            stdout=subprocess.PIPE, stderr=self._log,
        )  # fmt: skip
        assert self._process.stdout is not None
        os.set_blocking(self._process.stdout.fileno(), False)
        self._rest, self._heard, self._used, self._at = b"", time.monotonic(), 0.0, -1

    def poll(self) -> None:
        """Take in what the worker said; note it and go on where it died or is silent."""
        ended = self._process.poll()
        text = self._rest + self._said()
        *lines, self._rest = text.split(b"\n")
        for line in lines:
            self._take(json.loads(line))
        if self.finished:
            return
        if ended is not None:
            self._died(f"the process ended with code {ended}: {self._last_words()}")
        elif (waited := self._silent_for()) is not None:
            self._process.kill()
            self._process.wait()
            self._died(f"nothing came of it for {waited}")

    def _silent_for(self) -> str | None:
        """How long the worker has said nothing, where that is too long."""
        if time.monotonic() - self._heard > SILENCE:
            return f"{SILENCE:.0f} s"
        used = processor_seconds(self._process.pid) - self._used
        return f"{used:.0f} s of a processor" if self._at >= 0 and used > MOST_SILENT_SECONDS else None

    def _said(self) -> bytes:
        assert self._process.stdout is not None
        said = b""
        while True:
            try:
                part = os.read(self._process.stdout.fileno(), 1 << 16)
            except BlockingIOError:
                return said
            if not part:
                return said
            said += part

    def _take(self, item: dict[str, Any]) -> None:
        self._heard, self._used = time.monotonic(), processor_seconds(self._process.pid)
        if "at" in item:
            self._at, self.read = item["at"], self.read + 1
        elif "what" in item:
            self.problems.append(item)
        elif "done" in item:
            self.finished = True
            self.close()

    def _died(self, what: str) -> None:
        self.close()
        if self._at < 0:  # not by a mutant
            raise SystemExit(f"a worker could not start: {what}")
        self.problems.append({"mutant": self._at, "target": "?", "inside": False, "what": what})
        self.next = self._at + self._step
        if self.next < self._arguments.first + self._arguments.mutants:
            self._start()
        else:
            self.finished = True

    def _last_words(self) -> str:
        self._log.seek(0)
        lines = self._log.read().strip().splitlines()
        return lines[-1][:300] if lines else "(it said nothing)"

    def close(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        self._log.close()
        self._folder.cleanup()


def campaign(arguments: argparse.Namespace) -> list[dict[str, Any]]:
    """All mutants, or as many as the time allows; what was found."""
    start = time.monotonic()
    jobs = max(1, min(arguments.jobs, arguments.mutants))
    workers = [Worker(arguments.first + k, jobs, arguments) for k in range(jobs)]
    shown = start
    try:
        while not all(worker.finished for worker in workers):
            time.sleep(0.05)
            for worker in workers:
                if not worker.finished:
                    worker.poll()
            if time.monotonic() - shown > 30.0:
                shown = time.monotonic()
                print(f"  {sum(w.read for w in workers):,} mutants, {shown - start:.0f} s", flush=True)
            if time.monotonic() - start > arguments.seconds:
                break
    finally:
        for worker in workers:
            if not worker.finished:
                worker.close()
    problems = sorted((p for worker in workers for p in worker.problems), key=lambda p: p["mutant"])
    count, seconds = sum(worker.read for worker in workers), time.monotonic() - start
    print(f"seed {arguments.seed}: {count:,} mutants in {seconds:.0f} s, {len(problems)} problems")
    return problems


def summarised(problems: list[dict[str, Any]]) -> list[str]:
    """One line for each kind of problem, with how often and the first mutant that shows it."""
    kinds: dict[tuple[str, str], list[int]] = {}
    for problem in problems:
        what = problem["what"]
        key = (problem["target"], what.split("(")[-1] if "uncaught" in what else what[:60])
        kinds.setdefault(key, []).append(problem["mutant"])
    first = {problem["mutant"]: problem for problem in problems}
    return [
        f"  {target}: {len(found)} x, as mutant {found[0]}: {first[found[0]]['what']}"
        for (target, _), found in sorted(kinds.items())
    ]


def reproduce(arguments: argparse.Namespace) -> None:
    with scratch_folder() as name:
        bench = Bench(Path(name), arguments.seed, arguments.only)
        target, path, inside = bench.mutant(arguments.reproduce)
        print(f"{target.name}, {'checksums made right' if inside else 'damaged as it is'}")
        if arguments.keep:
            to = arguments.keep / f"mutant_{arguments.reproduce}_{path.name}"
            (shutil.copytree if path.is_dir() else shutil.copy)(path, to)
            print(f"kept as {to}")
        print(f"accepted: {target.read(path)}")


def parsed(argv: list[str] | None = None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--mutants", type=int, default=50_000)
    parser.add_argument("--first", type=int, default=0, help="number of the first mutant")
    parser.add_argument("--seconds", type=float, default=600.0, help="time after which it ends in any case")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--jobs", type=int, default=len(os.sched_getaffinity(0)), help="one for each core")
    parser.add_argument("--only", default="", help="targets whose name contains this")
    parser.add_argument("--reproduce", type=int, metavar="MUTANT", help="read one mutant, with the traceback")
    parser.add_argument("--keep", type=Path, metavar="FOLDER", help="with --reproduce: keep its file there")
    parser.add_argument("--worker", nargs=4, help=argparse.SUPPRESS)
    return parser.parse_args(argv)


def main() -> int:
    arguments = parsed()
    if arguments.worker:
        folder, *numbers = arguments.worker
        work(Path(folder), arguments.seed, arguments.only, range(*map(int, numbers)))
        return 0
    if arguments.reproduce is not None:
        reproduce(arguments)
        return 0
    problems = campaign(arguments)
    for line in summarised(problems):
        print(line)
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
