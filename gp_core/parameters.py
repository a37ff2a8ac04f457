"""Immutable objects with hyperparameters: the common ground of kernels, basis functions and means.

A subclass is a frozen dataclass. It lists its hyperparameters; each is a field, next to a field of bounds:

    length_scale: Values = 1.0
    length_scale_bounds: Bounds = POSITIVE
    parameters = (Parameter("length_scale"),)

`theta` gathers what may be learned: positive parameters by their logarithm, signed ones as they are,
parameters whose bounds are FIXED not at all. `with_theta` returns a new object.
"""

from __future__ import annotations

import dataclasses
from dataclasses import dataclass
from typing import Any, ClassVar, Final, Literal, Self

import numpy as np

from gp_core.arrays import Array, as_float, as_vector

Values = Any
"""A number, or nested sequences of numbers; stored as nested tuples."""
Bounds = Any
"""(low, high), a sequence of such pairs (one per entry), or "fixed"."""

FIXED: Final = "fixed"
POSITIVE: Final = (1e-5, 1e5)
SIGNED: Final = (-np.inf, np.inf)


@dataclass(frozen=True)
class Parameter:
    """One hyperparameter of a class.

    name: the field that holds it; its bounds are in the field `<name>_bounds`
    kind: "positive" enters theta by its logarithm, "signed" as it is
    zero: a positive parameter that may also be 0, which keeps it out of theta
    ndim: the largest number of axes the value may have
    """

    name: str
    kind: Literal["positive", "signed"] = "positive"
    zero: bool = False
    ndim: int = 0


@dataclass(frozen=True, repr=False)
class Parametrised:
    """theta in, theta out; printable, comparable, hashable, picklable, clonable."""

    parameters: ClassVar[tuple[Parameter, ...]] = ()
    __array_ufunc__: ClassVar[None] = None  # numpy scalars leave `2.0 * k` to the object

    def __post_init__(self) -> None:
        for parameter in self.parameters:
            value = _checked_value(getattr(self, parameter.name), parameter, type(self).__name__)
            self._set(parameter.name, _frozen(value))
            field = parameter.name + "_bounds"
            self._set(field, _checked_bounds(getattr(self, field), value, parameter, type(self).__name__))

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
        parts = [_encode(self._value(p), p) for p in self._free()]
        parts += [child.theta for child in self._children()]
        return np.concatenate(parts) if parts else np.zeros(0)

    @property
    def bounds(self) -> Array:
        """(P, 2) lower and upper bound of each entry of theta, in the space of theta."""
        parts = []
        for p in self._free():
            size = self._value(p).size
            pairs = np.broadcast_to(np.asarray(getattr(self, p.name + "_bounds"), dtype=float), (size, 2))
            parts.append(np.log(pairs) if p.kind == "positive" else pairs)
        parts += [child.bounds for child in self._children()]
        return np.concatenate(parts) if parts else np.zeros((0, 2))

    @property
    def theta_names(self) -> tuple[str, ...]:
        """One name per entry of theta. Where siblings share a name, all are prefixed: k0.scale, k1.scale."""
        own = [name for p in self._free() for name in _entry_names(self._prefix() + p.name, self._value(p))]
        groups = [own, *(list(child.theta_names) for child in self._children())]
        bases = [base for group in groups for base in {name.split("[")[0] for name in group}]
        if len(set(bases)) == len(bases):
            return tuple(name for group in groups for name in group)
        return tuple(own) + tuple(f"k{i}.{name}" for i, group in enumerate(groups[1:]) for name in group)

    @property
    def signed(self) -> tuple[bool, ...]:
        """Per entry of theta: whether it is the parameter itself rather than its logarithm."""
        own = [p.kind == "signed" for p in self._free() for _ in range(self._value(p).size)]
        return (*own, *(sign for child in self._children() for sign in child.signed))

    def with_theta(self, theta: Any) -> Self:
        """A new object with its free hyperparameters replaced by `theta` (P,)."""
        theta = as_vector(theta, "theta", self.n_theta)
        values: dict[str, Any] = {}
        at = 0
        for p in self._free():
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

    @property
    def n_theta(self) -> int:
        """P, the number of free hyperparameters."""
        return sum(self._value(p).size for p in self._free()) + sum(c.n_theta for c in self._children())

    def _free(self) -> list[Parameter]:
        free = []
        for p in self.parameters:
            is_zero = p.zero and not np.any(self._value(p))
            if getattr(self, p.name + "_bounds") != FIXED and not is_zero:
                free.append(p)
        return free

    def _is_free(self, name: str) -> bool:
        return any(p.name == name for p in self._free())

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
            shown.append(f"{field.name}={value!r}")
        return f"{type(self).__name__}({', '.join(shown)})"

    def __sklearn_clone__(self) -> Self:
        return self  # immutable, so it can be shared


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


def _checked_value(value: Any, parameter: Parameter, owner: str) -> Array:
    name = f"{owner}: {parameter.name}"
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


def _checked_bounds(bounds: Any, value: Array, parameter: Parameter, owner: str) -> Any:
    if isinstance(bounds, str) and bounds == FIXED:
        return FIXED
    name = f"{owner}: {parameter.name}_bounds"
    try:
        pairs = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise ValueError(f'{name} must be (low, high), one pair per entry, or "fixed"') from None
    if pairs.shape not in ((2,), (value.size, 2)):
        raise ValueError(
            f'{name} must be (low, high), one pair per entry, or "fixed"; got shape {pairs.shape}'
        )
    if np.isnan(pairs).any() or (pairs[..., 0] > pairs[..., 1]).any():
        raise ValueError(f"{name} must have low <= high, got {bounds!r}")
    if parameter.kind == "positive" and (pairs <= 0.0).any():
        raise ValueError(f"{name} must be > 0, got {bounds!r}")
    return _frozen(pairs)
