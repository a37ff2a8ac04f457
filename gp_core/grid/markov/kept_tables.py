"""The tables of a rough kernel on disk: what a process computes from the kernel alone before its first map.

They are read wherever they are found. They are written where a caller asks for it (`GridGP.keep_tables`), as a robot
does at its first start: a plan takes tens of megabytes, and most other maps are of a kernel or a size that does not
come again. The files are those of `gp_core.kept_arrays`, beside the loops of this folder.
"""

from __future__ import annotations

import dataclasses
import hashlib
from pathlib import Path
from typing import Any

import numpy as np

from gp_core.compiled import folder_of
from gp_core.grid.markov.border_sums import add_to_border
from gp_core.grid.markov.fronts import Fronts, Job, Plan, PlanKey
from gp_core.grid.markov.prior import MarkovPrior
from gp_core.kept_arrays import describe_machine, describe_sources, keep_arrays, load_arrays
from gp_core.kernels import Kernel
from gp_core.parameters import Parametrised

_HERE = Path(__file__).parent
_SOURCES = (_HERE, _HERE.parent, _HERE.parent.parent, _HERE.parent.parent / "kernels")
"""Folders with whatever the tables are computed by."""


class KeptFronts(Fronts):
    """Fronts whose plans are read from disk where they have been kept."""

    def __init__(self, prior: MarkovPrior) -> None:
        super().__init__(prior)
        self._computed: set[PlanKey] = set()

    def keep(self) -> None:
        """Write the plans that were not found on disk."""
        for plan in self._computed & self._plans.keys():
            _keep(self._key(plan), _plan_arrays(self._plans[plan]))
        self._computed.clear()

    def __getstate__(self) -> dict[str, Any]:
        return {**super().__getstate__(), "_computed": set()}

    def _make_plan(self, key: PlanKey) -> Plan:
        arrays = _load(self._key(key))
        if arrays is not None:
            return _plan(arrays)
        self._computed.add(key)
        return super()._make_plan(key)

    def _key(self, plan: PlanKey) -> str | None:
        p = self.prior
        lags = hashlib.sha256(p.lags.tobytes()).hexdigest()
        return _key("plan", p.kernel, f"{plan} {_numbers(p.spacing)} {p.lags.shape} {lags}")


def load_prior(kernel: Kernel, tolerance: float, information: float) -> MarkovPrior | None:
    """What `keep_prior` has kept for the same arguments of `make_prior`, without a spacing."""
    arrays = _load(_prior_key(kernel, tolerance, information))
    if arrays is None:
        return None
    h_x, h_y, l_x, l_y, variance, unresolved = arrays["numbers"].tolist()
    return MarkovPrior(
        kernel=kernel,
        spacing=(h_x, h_y),
        correlation_length=(l_x, l_y),
        information=information,
        variance=variance,
        gradient_variance=arrays["gradient_variance"],
        lags=arrays["lags"],
        unresolved=unresolved,
        unresolved_gradient=arrays["unresolved_gradient"],
        left=arrays["left"],
    )


def keep_prior(prior: MarkovPrior, tolerance: float) -> None:
    """Write a prior whose spacing `make_prior` has chosen, unless it is there."""
    p, key = prior, _prior_key(prior.kernel, tolerance, prior.information)
    if _load(key) is not None:
        return
    arrays = {
        "numbers": np.array([*p.spacing, *p.correlation_length, p.variance, p.unresolved]),
        "gradient_variance": p.gradient_variance,
        "lags": p.lags,
        "unresolved_gradient": p.unresolved_gradient,
        "left": p.left,
    }
    _keep(key, arrays)


def _load(key: str | None) -> dict[str, Any] | None:
    folder = folder_of(add_to_border)
    return None if folder is None or key is None else load_arrays(folder, key)


def _keep(key: str | None, arrays: dict[str, Any]) -> None:
    folder = folder_of(add_to_border)
    if folder is not None and key is not None:
        keep_arrays(folder, key, arrays)


def _prior_key(kernel: Kernel, tolerance: float, information: float) -> str | None:
    return _key("prior", kernel, _numbers((tolerance, information)))


def _key(kind: str, kernel: Kernel, rest: str) -> str | None:
    """Everything that decides the tables; None for a kernel that is more than its numbers, such as a function."""
    sources, described = describe_sources(*_SOURCES), _describe(kernel)
    if sources is None or described is None:
        return None
    return "\n".join([kind, described, rest, sources, describe_machine()])


def _describe(part: Any) -> str | None:
    """A kernel of this package, or a value in it, to the last bit."""
    if isinstance(part, float | np.floating):
        return float(part).hex()
    if part is None or isinstance(part, bool | int | str):
        return repr(part)
    if isinstance(part, tuple):
        parts = [_describe(value) for value in part]
        return None if None in parts else f"({', '.join(map(str, parts))})"
    if isinstance(part, Parametrised) and type(part).__module__.startswith("gp_core.kernels."):
        names = [f.name for f in dataclasses.fields(part) if not f.name.endswith("_bounds")]
        values = _describe(tuple(getattr(part, name) for name in names))
        return None if values is None else f"{type(part).__qualname__}{values}"
    return None


def _numbers(values: tuple[float, ...]) -> str:
    return " ".join(float(value).hex() for value in values)


def _plan_arrays(plan: Plan) -> dict[str, Any]:
    """A plan as named arrays."""
    arrays = {f.name: getattr(plan, f.name) for f in dataclasses.fields(plan) if f.name != "jobs"}
    jobs = [(job.boxes.size, job.parent, job.depth, job.stack_up, job.stack_down) for job in plan.jobs]
    arrays["jobs"] = np.array(jobs, dtype=np.int64)
    arrays["boxes_of_jobs"] = np.concatenate([job.boxes for job in plan.jobs])
    return {name: np.asarray(value) for name, value in arrays.items()}


def _plan(arrays: dict[str, Any]) -> Plan:
    numbers, boxes = arrays.pop("jobs"), arrays.pop("boxes_of_jobs")
    own = np.split(boxes, np.cumsum(numbers[:-1, 0]))
    jobs = [
        Job(boxes, parent, depth, up, down)
        for boxes, (_, parent, depth, up, down) in zip(own, numbers.tolist(), strict=True)
    ]
    size, lengths = (tuple(arrays.pop(name).tolist()) for name in ("size", "lengths"))
    return Plan(size=size, lengths=lengths, jobs=jobs, **arrays)
