"""The short form of the fuzzing: some mutants of every reader. `python test/campaigns/fuzz.py` is the long one."""

from __future__ import annotations

from pathlib import Path

import fuzz
import numpy as np
import pytest
from fuzz_mutation import damaged, damaged_inside
from fuzz_targets import TARGETS


def test_damaged_files_are_refused_or_change_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    for name in ("rosbags", "laspy"):
        pytest.importorskip(name, reason=f"{name} is not installed: not every reader is there")
    arguments = fuzz.parsed(["--mutants", "400", "--seconds", "900", "--seed", "7"])
    problems = fuzz.campaign(arguments)
    assert "400 mutants" in capsys.readouterr().out
    assert not problems, "\n".join(fuzz.summarised(problems))


def test_the_campaign_sees_what_is_wrong(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A reader that lets everything through, one that crashes, one that takes memory: each is found."""

    def careless(path: Path) -> bytes:
        return path.read_bytes()

    def crashing(path: Path) -> str:
        if path.read_bytes() != good:
            raise AttributeError("a mistake")
        return ""

    def greedy(path: Path) -> str:
        return "" if path.read_bytes() == good or np.ones(80_000_000).all() else "never"

    (tmp_path / "made").mkdir()
    good = next(t for t in TARGETS if t.name == "points npy").make(tmp_path / "made").read_bytes()
    for number, (read, expected) in enumerate(
        (
            (careless, "silently different"),
            (crashing, "uncaught AttributeError: a mistake"),
            (greedy, "took 6"),
        )
    ):
        target = fuzz.Target(
            "one", next(t for t in TARGETS if t.name == "points npy").make, read, checked=True
        )
        monkeypatch.setattr(fuzz, "TARGETS", (target,))
        folder = tmp_path / str(number)
        folder.mkdir()
        problem = fuzz.Bench(folder, 0, "").problem(3)
        assert problem is not None
        assert problem["what"].startswith(expected)


def test_mutants_are_the_same_in_every_run(tmp_path: Path) -> None:
    found = []
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
        bench = fuzz.Bench(tmp_path / name, 5, "points npy")
        found.append([bench.mutant(number)[1].read_bytes() for number in range(20)])
    assert found[0] == found[1]
    assert len(set(found[0])) == 20


def test_checksums_are_made_right(tmp_path: Path) -> None:
    """Inside an archive other numbers pass its checks; the same damage to the bytes does not."""
    from gpgmap_ros.storage.archive import read_archive, write_archive

    path = tmp_path / "m.npz"
    write_archive(path, "map", {"stamp": 1}, {"a": np.arange(200.0)})
    good = path.read_bytes()
    passed = {damaged: 0, damaged_inside: 0}
    for change in passed:
        for seed in range(200):
            path.write_bytes(change(good, np.random.default_rng(seed)))
            try:
                values, arrays = read_archive(path, "map")
            except Exception:  # refused; with which error is for the campaign to judge
                continue
            if values != {"stamp": 1} or not np.array_equal(arrays.get("a", 0), np.arange(200.0)):
                passed[change] += 1
    assert passed[damaged] == 0
    assert passed[damaged_inside] > 20
