"""Slow, literal references for approximate inference: dense inverses, loops, Monte Carlo."""

import numpy as np
from scipy.integrate import quad
from scipy.optimize import minimize
from scipy.special import expit, log_expit, log_ndtr, ndtr

LOG_LINK = {"logit": log_expit, "probit": log_ndtr}
LINK = {"logit": expit, "probit": ndtr}


def toy_problem(n, *, amplitude=4.0, length=1.0, seed=0):
    """Kernel matrix and labels of n points on a line."""
    rng = np.random.default_rng(seed)
    x = np.sort(rng.uniform(-3, 3, size=n))
    y = np.where(np.sin(2 * x) + 0.4 * rng.normal(size=n) > 0, 1.0, -1.0)
    y[0], y[-1] = 1.0, -1.0
    K = amplitude * np.exp(-0.5 * (x[:, None] - x[None, :]) ** 2 / length**2)
    return K + 1e-8 * np.eye(n), y


def exact_evidence(K, y, link, nodes=121, reach=7.0):
    """∫ Π p(y_i | f_i) N(f; 0, K) df on a grid of whitened values: for two or three points."""
    t = np.linspace(-reach, reach, nodes)
    grid = np.stack(np.meshgrid(*[t] * len(y), indexing="ij"), axis=-1).reshape(-1, len(y))
    f = grid @ np.linalg.cholesky(K).T
    log_p = LOG_LINK[link](y * f).sum(axis=1) - 0.5 * (grid**2).sum(axis=1)
    return float(np.log(np.exp(log_p).sum() * ((t[1] - t[0]) / np.sqrt(2 * np.pi)) ** len(y)))


def laplace_reference(K, y, link):
    """Mode by a general optimiser on f, evidence by dense determinants."""
    K_inverse = np.linalg.inv(K)
    n = len(y)

    def negative(f):
        gradient_z = {
            "logit": lambda z: expit(-z),
            "probit": lambda z: np.exp(-0.5 * z**2 - 0.5 * np.log(2 * np.pi) - log_ndtr(z)),
        }[link](y * f)
        return -LOG_LINK[link](y * f).sum() + 0.5 * f @ K_inverse @ f, -y * gradient_z + K_inverse @ f

    f = minimize(negative, np.zeros(n), jac=True, method="BFGS", options={"gtol": 1e-9}).x
    step = 1e-4
    z = y * f
    second = (LOG_LINK[link](z + step) - 2 * LOG_LINK[link](z) + LOG_LINK[link](z - step)) / step**2
    W = np.diag(-second)
    covariance = np.linalg.inv(K_inverse + W)
    log_evidence = -negative(f)[0] - 0.5 * np.linalg.slogdet(np.eye(n) + K @ W)[1]
    return f, covariance, log_evidence


def ep_reference(K, y, link, sweeps=60):
    """Expectation propagation one site at a time, with dense inverses and adaptive quadrature."""
    n = len(y)
    K_inverse = np.linalg.inv(K)
    nu, tau = np.zeros(n), np.zeros(n)

    def tilted(i, mean, variance):
        std = np.sqrt(variance)

        def moment(power):
            def integrand(f):
                return f**power * LINK[link](y[i] * f) * np.exp(-0.5 * ((f - mean) / std) ** 2)

            total = sum(
                quad(integrand, a, b, epsabs=1e-14, epsrel=1e-12)[0]
                for a, b in [(mean - 10 * std, mean), (mean, mean + 10 * std)]
            )
            return total / (std * np.sqrt(2 * np.pi))

        z, first, second = moment(0), moment(1), moment(2)
        return z, first / z, second / z - (first / z) ** 2

    for _ in range(sweeps):
        before = nu.copy(), tau.copy()
        for i in range(n):
            Sigma = np.linalg.inv(K_inverse + np.diag(tau))
            mu = Sigma @ nu
            cavity_tau = 1 / Sigma[i, i] - tau[i]
            cavity_nu = mu[i] / Sigma[i, i] - nu[i]
            _, mean, variance = tilted(i, cavity_nu / cavity_tau, 1 / cavity_tau)
            tau[i] = 1 / variance - cavity_tau
            nu[i] = mean / variance - cavity_nu
        if max(np.abs(nu - before[0]).max(), np.abs(tau - before[1]).max()) < 1e-10:
            break
    Sigma = np.linalg.inv(K_inverse + np.diag(tau))
    mu = Sigma @ nu
    # log ∫ N(f; 0, K) Π Z_i N(f_i; ν/τ, 1/τ), Rasmussen & Williams 3.65 as printed
    site_mean, site_variance = nu / tau, 1 / tau
    cavity_variance = 1 / (1 / np.diag(Sigma) - tau)
    cavity_mean = cavity_variance * (mu / np.diag(Sigma) - nu)
    total = K + np.diag(site_variance)
    log_evidence = -0.5 * np.linalg.slogdet(total)[1] - 0.5 * site_mean @ np.linalg.solve(total, site_mean)
    for i in range(n):
        log_evidence += np.log(tilted(i, cavity_mean[i], cavity_variance[i])[0])
        log_evidence += 0.5 * np.log(cavity_variance[i] + site_variance[i])
        log_evidence += (cavity_mean[i] - site_mean[i]) ** 2 / (2 * (cavity_variance[i] + site_variance[i]))
    return mu, Sigma, log_evidence


def variational_reference(K, y, link):
    """The bound maximised over a mean and a dense Cholesky factor, by a general optimiser."""
    n = len(y)
    K_inverse = np.linalg.inv(K)
    log_det_K = np.linalg.slogdet(K)[1]
    t, weights = np.polynomial.hermite_e.hermegauss(100)
    weights = weights / weights.sum()
    lower = np.tril_indices(n)

    def unpack(x):
        L = np.zeros((n, n))
        L[lower] = x[n:]
        return x[:n], L

    def negative(x):
        m, L = unpack(x)
        V = L @ L.T
        std = np.sqrt(np.diag(V))
        log_p = LOG_LINK[link](y[:, None] * (m[:, None] + std[:, None] * t)) @ weights
        log_det = 2 * np.log(np.abs(np.diag(L))).sum()
        divergence = 0.5 * (np.trace(K_inverse @ V) + m @ K_inverse @ m - n + log_det_K - log_det)
        return divergence - log_p.sum()

    start = np.concatenate([np.zeros(n), np.linalg.cholesky(K)[lower]])
    x = minimize(negative, start, method="BFGS", options={"gtol": 1e-6, "maxiter": 2000}).x
    m, L = unpack(x)
    return m, L @ L.T, -negative(x)


def elliptical_slice_samples(K, y, link, n_samples, *, burn_in=500, seed=0):
    """Draws from p(f | y), exact in the limit (Murray, Adams & MacKay 2010)."""
    rng = np.random.default_rng(seed)
    L = np.linalg.cholesky(K)
    f = np.zeros(len(y))
    log_p = LOG_LINK[link](y * f).sum()
    draws = []
    for step in range(n_samples + burn_in):
        ellipse = L @ rng.standard_normal(len(y))
        threshold = log_p + np.log(rng.uniform())
        angle = rng.uniform(0, 2 * np.pi)
        low, high = angle - 2 * np.pi, angle
        while True:
            trial = f * np.cos(angle) + ellipse * np.sin(angle)
            trial_log_p = LOG_LINK[link](y * trial).sum()
            if trial_log_p > threshold:
                break
            low, high = (angle, high) if angle < 0 else (low, angle)
            angle = rng.uniform(low, high)
        f, log_p = trial, trial_log_p
        if step >= burn_in:
            draws.append(f)
    return np.array(draws)
