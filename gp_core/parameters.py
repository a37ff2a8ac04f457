"""Immutable objects with hyperparameters: the common ground of kernels, basis functions and means.

A subclass is a frozen dataclass. It lists its hyperparameters; each is a field, next to a field of bounds:

    length_scale: Values = 1.0
    length_scale_bounds: Bounds = POSITIVE
    parameters = (Parameter("length_scale"),)

`theta` gathers what may be learned: positive parameters by their logarithm, signed ones as they are,
parameters whose bounds are FIXED not at all. `with_theta` returns a new object.

Bounds are AUTO unless given: an estimator that knows its data sets them relative to the scale of the data
(`gp_core.scales`), elsewhere they are WIDE.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np

from gp_core.arrays import Array, as_float, as_vector
from gp_core.scales import DataScale, Range, positive_range, signed_range

Values = Any
"""A number, or nested sequences of numbers; stored as nested tuples."""
Bounds = Any
"""(low, high), a sequence of such pairs (one per entry), "auto" or "fixed"."""

FIXED: Final = "fixed"
AUTO: Final = "auto"
WIDE: Final = (1e-5, 1e5)
"""AUTO bounds of a positive parameter where no data are known."""
POSITIVE: Final = AUTO
SIGNED: Final = (-np.inf, np.inf)


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter of a class.

    name: the field that holds it; its bounds are in the field `<name>_bounds`
    kind: "positive" enters theta by its logarithm, "signed" as it is
    zero: a positive parameter that may also be 0, which keeps it out of theta
    ndim: the largest number of axes the value may have
    role: what its size follows: "length" (spread of the inputs), "area" (its square), "variance" (of the targets),
        "noise" (the same, usually a small part of it), or nothing
    """

    name: str
    kind: Literal["positive", "signed"] = "positive"
    zero: bool = False
    ndim: int = 0
    role: Literal["length", "area", "variance", "noise", ""] = ""


@dataclass(frozen=True, repr=False)
class Parametrised:
    """theta in, theta out; printable, comparable, hashable, picklable, clonable."""

    parameters: ClassVar[tuple[Parameter, ...]] = ()
    part_of_estimator: ClassVar[bool] = False
    """Whether its parameters are those of an estimator, so that errors name them as the user wrote them."""
    __array_ufunc__: ClassVar[None] = None  # numpy scalars leave `2.0 * k` to the object

    def __post_init__(self) -> None:
        owner = "" if self.part_of_estimator else f"{type(self).__name__}: "
        for parameter in self.parameters:
            value = _check_value(getattr(self, parameter.name), parameter, owner)
            self._set(parameter.name, _frozen(value))
            field = parameter.name + "_bounds"
            self._set(field, _check_bounds(getattr(self, field), value, parameter, owner))

    def _set(self, name: str, value: Any) -> None:
        object.__setattr__(self, name, value)  # only while the object is being made

    def _children(self) -> tuple[Parametrised, ...]:
        """The parts that carry hyperparameters of their own, in the order of theta."""
        return ()

    def _with_children(self, children: tuple[Any, ...]) -> Self:
        if children:
            raise NotImplementedError
        return self

    # -- theta -----------------------------------------------------------------------------------------

    @property
    def theta(self) -> Array:
        """(P,) the free hyperparameters: logarithms of the positive ones, the signed ones as they are."""
        parts = [_encode(self._value(p), p) for p in self._free]
        parts += [child.theta for child in self._children()]
        return np.concatenate(parts) if parts else np.zeros(0)

    @property
    def bounds(self) -> Array:
        """(P, 2) lower and upper bound of each entry of theta, in the space of theta."""
        parts = []
        for p in self._free:
            pairs = self._own_bounds(p, self._value(p).size)
            if pairs is None:
                pairs = np.tile(np.log(WIDE) if p.kind == "positive" else SIGNED, (self._value(p).size, 1))
            parts.append(pairs)
        parts += [child.bounds for child in self._children()]
        return np.concatenate(parts) if parts else np.zeros((0, 2))

    def _own_bounds(self, parameter: Parameter, size: int) -> Array | None:
        """(size, 2) the bounds in the space of theta; None if they are AUTO."""
        declared = getattr(self, parameter.name + "_bounds")
        if declared == AUTO:
            return None
        pairs = np.broadcast_to(np.asarray(declared, dtype=float), (size, 2))
        return np.log(pairs) if parameter.kind == "positive" else pairs

    def ranges(self, data: DataScale) -> list[Range]:
        """One range per entry of theta: where it is searched for, given data of this scale."""
        rows: list[Range] = []
        for p in self._free:
            value = self._value(p).ravel()
            units = self._units(p, value, data)
            if p.kind == "positive":
                found = [positive_range(p.role, unit) for unit in units.tolist()]
            else:
                found = [signed_range(v, u) for v, u in zip(value.tolist(), units.tolist(), strict=True)]
            declared = self._own_bounds(p, value.size)
            if declared is not None:
                found = [_within(r, *pair) for r, pair in zip(found, declared.tolist(), strict=True)]
            rows += found
        for child, scale in zip(self._children(), self._child_scales(data), strict=True):
            rows += child.ranges(scale)
        return rows

    def _units(self, parameter: Parameter, value: Array, data: DataScale) -> Array:
        """The natural size of each entry of a parameter."""
        if parameter.kind == "signed":
            return np.maximum(np.abs(value), 1.0)
        return data.unit(parameter.role, value.size, value)

    def _child_scales(self, data: DataScale) -> list[DataScale]:
        """The data as each child sees them."""
        return [data] * len(self._children())

    def off_saddles(self, data: DataScale) -> Self:
        """The same with parameters moved whose gradient vanishes by symmetry, so that a search can begin."""
        children = self._children()
        if not children:
            return self
        moved = [c.off_saddles(s) for c, s in zip(children, self._child_scales(data), strict=True)]
        return self if tuple(moved) == children else self._with_children(tuple(moved))

    @property
    def theta_names(self) -> tuple[str, ...]:
        """One name per entry of theta. Where siblings share a name, all are prefixed: k0.scale, k1.scale."""
        own = [name for p in self._free for name in _entry_names(self._prefix() + p.name, self._value(p))]
        groups = [own, *(list(child.theta_names) for child in self._children())]
        bases = [base for group in groups for base in {name.split("[")[0] for name in group}]
        if len(set(bases)) == len(bases):
            return tuple(name for group in groups for name in group)
        return tuple(own) + tuple(f"k{i}.{name}" for i, group in enumerate(groups[1:]) for name in group)

    @property
    def signed(self) -> tuple[bool, ...]:
        """Per entry of theta: whether it is the parameter itself rather than its logarithm."""
        own = [p.kind == "signed" for p in self._free for _ in range(self._value(p).size)]
        return (*own, *(sign for child in self._children() for sign in child.signed))

    def with_theta(self, theta: Any) -> Self:
        """A new object with its free hyperparameters replaced by `theta` (P,)."""
        theta = as_vector(theta, "theta", self.n_theta)
        values: dict[str, Any] = {}
        at = 0
        for p in self._free:
            old = self._value(p)
            part = theta[at : at + old.size].reshape(old.shape)
            values[p.name] = np.exp(part) if p.kind == "positive" else part
            at += old.size
        new = dataclasses.replace(self, **values) if values else self
        children = []
        for child in self._children():
            children.append(child.with_theta(theta[at : at + child.n_theta]))
            at += child.n_theta
        return new._with_children(tuple(children)) if children else new

    def values(self) -> dict[str, Any]:
        """Every hyperparameter by name, free or fixed, as a number or nested tuples."""
        own = {self._prefix() + p.name: getattr(self, p.name) for p in self.parameters}
        groups = [child.values() for child in self._children()]
        names = [*own, *(name for group in groups for name in group)]
        if len(set(names)) == len(names):
            return own | {name: value for group in groups for name, value in group.items()}
        return own | {
            f"k{i}.{name}": value for i, group in enumerate(groups) for name, value in group.items()
        }

    # -- by name, as scikit-learn asks -------------------------------------------------------------------

    def get_params(self, deep: bool = True) -> dict[str, Any]:
        """Hyperparameters and their bounds by name, as in `values`, with "__" between a part and its parameter."""
        own = self._prefix().replace(".", "__")
        found = {}
        for p in self.parameters:
            found[own + p.name] = getattr(self, p.name)
            found[f"{own}{p.name}_bounds"] = getattr(self, p.name + "_bounds")
        groups = [child.get_params() for child in self._children()]
        names = [*found, *(name for group in groups for name in group)]
        clash = len(set(names)) < len(names)
        for i, group in enumerate(groups):
            found |= {f"k{i}__{name}" if clash else name: value for name, value in group.items()}
        return found

    def with_params(self, **params: Any) -> Self:
        """A new object with the named entries of `get_params` replaced."""
        known = self.get_params()
        for name in params:
            if name not in known:
                raise ValueError(
                    f"{self!r} has no parameter {name!r}; there are {', '.join(known) or 'none'}"
                )
        own = self._prefix().replace(".", "__")
        names = [own + p.name + suffix for p in self.parameters for suffix in ("", "_bounds")]
        mine = {name.removeprefix(own): params[name] for name in names if name in params}
        new = dataclasses.replace(self, **mine) if mine else self
        rest = {name: value for name, value in params.items() if name not in names}
        if not rest:
            return new
        children = []
        for i, child in enumerate(new._children()):
            inner = child.get_params()
            part = {n: rest[f"k{i}__{n}"] for n in inner if f"k{i}__{n}" in rest}
            part |= {n: rest[n] for n in inner if n in rest}
            children.append(child.with_params(**part) if part else child)
        return new._with_children(tuple(children))

    @cached_property
    def n_theta(self) -> int:
        """P, the number of free hyperparameters."""
        return sum(self._value(p).size for p in self._free) + sum(c.n_theta for c in self._children())

    @cached_property
    def _free(self) -> list[Parameter]:
        free = []
        for p in self.parameters:
            is_zero = p.zero and not np.any(self._value(p))
            if getattr(self, p.name + "_bounds") != FIXED and not is_zero:
                free.append(p)
        return free

    def _is_free(self, name: str) -> bool:
        return any(p.name == name for p in self._free)

    def _value(self, parameter: Parameter) -> Array:
        return np.asarray(getattr(self, parameter.name), dtype=np.float64)

    def _prefix(self) -> str:
        return ""

    # -- being a value ---------------------------------------------------------------------------------

    def __repr__(self) -> str:
        shown = []
        for field in dataclasses.fields(self):
            value = getattr(self, field.name)
            if field.name.endswith("_bounds") and value == field.default:
                continue
            shown.append(f"{field.name}={expression(value)}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_clone__(self) -> Self:
        return self  # immutable, so it can be shared


def expression(value: Any) -> str:
    """Python that evaluates to the value, also where it holds infinities."""
    if isinstance(value, float) and np.isinf(value):
        return f"float('{value}')"
    if isinstance(value, tuple):
        inner = ", ".join(expression(entry) for entry in value)
        return f"({inner},)" if len(value) == 1 else f"({inner})"
    return repr(value)


def _within(found: Range, least: float, most: float) -> Range:
    """A range moved into bounds that were given."""
    typical, low, high = (min(max(v, least), most) for v in found[:3])
    if low == high:  # the data suggest values beyond the bounds: draw from all that they allow
        low, high = least, most
    return Range(typical, low, high, least, most, found.is_length)


def _encode(value: Array, parameter: Parameter) -> Array:
    return np.log(value.ravel()) if parameter.kind == "positive" else value.ravel()


def _frozen(array: Array) -> Any:
    """Nested tuples, so that equality and hash are those of the numbers."""
    if array.ndim == 0:
        return float(array)
    return tuple(_frozen(row) for row in array)


def _entry_names(name: str, value: Array) -> list[str]:
    if value.ndim == 0:
        return [name]
    return [f"{name}[{','.join(map(str, index))}]" for index in np.ndindex(value.shape)]


def _check_value(value: Any, parameter: Parameter, owner: str) -> Array:
    name = f"{owner}{parameter.name}"
    array = as_float(value, name)
    if array.ndim > parameter.ndim:
        expected = "one number" if parameter.ndim == 0 else f"at most {parameter.ndim}-dimensional"
        raise ValueError(f"{name} must be {expected}, got shape {array.shape}")
    if array.size == 0:
        raise ValueError(f"{name} is empty")
    if parameter.kind == "positive":
        allowed = array >= 0.0 if parameter.zero and array.ndim == 0 else array > 0.0
        if not allowed.all():
            least = ">= 0" if parameter.zero else "> 0"
            raise ValueError(f"{name} must be {least}, got {value!r}")
    return array


def _check_bounds(bounds: Any, value: Array, parameter: Parameter, owner: str) -> Any:
    if isinstance(bounds, str) and bounds in (FIXED, AUTO):
        return bounds
    name = f"{owner}{parameter.name}_bounds"
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f'{name} must be (low, high), one pair per entry, "auto" or "fixed"') from None
    if pairs.shape not in ((2,), (value.size, 2)):
        raise ValueError(
            f'{name} must be (low, high), one pair per entry, "auto" or "fixed"; got shape {pairs.shape}'
        )
    if np.isnan(pairs).any() or (pairs[..., 0] > pairs[..., 1]).any():
        raise ValueError(f"{name} must have low <= high, got {bounds!r}")
    if parameter.kind == "positive" and (pairs <= 0.0).any():
        raise ValueError(f"{name} must be > 0, got {bounds!r}")
    return _frozen(pairs)
