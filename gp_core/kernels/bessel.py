"""The profile of the Matern kernel as a function of the squared scaled distance s, for any nu > 0.

With t = sqrt(2 nu s) and h_nu(t) = t^nu K_nu(t), the identity h_nu' = -t h_(nu-1) gives

    f   = c h_nu(t)                  c = 2^(1-nu) / Gamma(nu)
    f'  = -c nu h_(nu-1)(t)
    f'' =  c nu^2 h_(nu-2)(t)

(derivatives by s). h_mu(0) = 2^(mu-1) Gamma(mu) for mu > 0, and is singular otherwise.
"""

from __future__ import annotations

import numpy as np
from scipy.special import gammaln, kve

from gp_core.arrays import Array

LARGE_ORDER = 60.0
"""From here on K_nu is taken from its uniform expansion in 1/nu: relative error below 1e-9."""
_FAR = 1e9


def matern_profile(nu: float, s: Array, order: int = 0) -> tuple[Array, ...]:
    """f and its derivatives up to `order` (0, 1 or 2); 0 where a derivative is singular at s = 0."""
    if nu == np.inf:
        f = np.exp(-0.5 * s)
        return (f, -0.5 * f, 0.25 * f)[: order + 1]
    if nu in (0.5, 1.5, 2.5):
        return _closed_form(nu, s, order)
    log_c = (1.0 - nu) * np.log(2.0) - gammaln(nu)
    return tuple(
        (-1.0) ** i * np.exp(log_c + i * np.log(nu) + _log_h(nu - i, nu, s)) for i in range(order + 1)
    )


def _closed_form(nu: float, s: Array, order: int) -> tuple[Array, ...]:
    t = np.sqrt(2.0 * nu * s)
    e = np.exp(-t)
    first: tuple[Array, ...]
    if nu == 0.5:
        first = (e,) if order == 0 else (e, _ratio(-0.5 * e, t))
        return first if order < 2 else (*first, _ratio(0.25 * e * (1.0 + t), t * s))
    if nu == 1.5:
        first = ((1.0 + t) * e, -1.5 * e)[: order + 1]
        return first if order < 2 else (*first, _ratio(2.25 * e, t))
    first = ((1.0 + t + t * t / 3.0) * e, (-5.0 / 6.0) * (1.0 + t) * e)[: order + 1]
    return first if order < 2 else (*first, (25.0 / 12.0) * e)


def log_matern_profile(nu: float, s: Array) -> Array:
    """log f of the Matern kernel, without underflow."""
    if nu == 0.5:
        return -np.sqrt(s)
    if nu == 1.5:
        t = np.sqrt(3.0 * s)
        return np.log1p(t) - t
    if nu == 2.5:
        t = np.sqrt(5.0 * s)
        return np.log1p(t + t * t / 3.0) - t
    if nu == np.inf:
        return -0.5 * s
    log_c = float((1.0 - nu) * np.log(2.0) - gammaln(nu))
    return _log_h(nu, nu, s) + log_c


def _log_h(mu: float, nu: float, s: Array) -> Array:
    """log h_mu(t), t = sqrt(2 nu s); -inf (h = 0) at t = 0 where h is singular, that is for mu <= 0."""
    t = np.sqrt(2.0 * nu * s)
    at_zero = float((mu - 1.0) * np.log(2.0) + gammaln(mu)) if mu > 0.0 else -np.inf
    out: Array = np.full(t.shape, at_zero)
    away = t > 0.0
    x = t[away]
    if mu < LARGE_ORDER:
        log_k = np.log(kve(mu, np.minimum(x, _FAR)))
        far = 0.5 * np.log(np.pi / (2.0 * x))  # the leading term; kve gives up at 1e10
        value = mu * np.log(x) + np.where(x < _FAR, log_k, far) - x
    else:
        value = _log_h_large(mu, x)
    # For tiny t > 0, K_mu overflows: the limit 2^(|mu|-1) Gamma(|mu|) t^(mu-|mu|) holds to rounding there.
    order = max(abs(mu), np.finfo(float).tiny)
    limit = (order - 1.0) * np.log(2.0) + gammaln(order) + (mu - order) * np.log(x)
    out[away] = np.where(np.isfinite(value), value, limit)
    return out


def _log_h_large(nu: float, x: Array) -> Array:
    """log x^nu K_nu(x) by the expansion for large order, uniform in x (DLMF 10.41.4)."""
    z = x / nu
    root = np.sqrt(1.0 + z * z)
    p = 1.0 / root
    eta = root - np.log1p(root)  # without log z, which cancels against x^nu
    q = p * p
    u1 = p * (3.0 - 5.0 * q) / 24.0
    u2 = q * (81.0 + q * (-462.0 + 385.0 * q)) / 1152.0
    u3 = p * q * (30375.0 + q * (-369603.0 + q * (765765.0 - 425425.0 * q))) / 414720.0
    u4 = q * q * (4465125.0 + q * (-94121676.0 + q * (349922430.0 + q * (-446185740.0 + 185910725.0 * q))))
    series = -u1 / nu + u2 / nu**2 - u3 / nu**3 + u4 / (39813120.0 * nu**4)
    constant = nu * np.log(nu) + 0.5 * np.log(np.pi / (2.0 * nu))
    log_h: Array = constant - nu * eta - 0.5 * np.log(root) + np.log1p(series)
    return log_h


def _ratio(numerator: Array, denominator: Array) -> Array:
    return np.divide(numerator, denominator, out=np.zeros_like(denominator), where=denominator > 0.0)
