"""Kernels: small immutable objects that combine by `+`, `*`, `**` and `exp`.

>>> from gp_core.kernels import RBF, White
>>> k = 2.0 * RBF(length_scale=0.5) + White(0.1)
>>> k
2.0 * RBF(length_scale=0.5) + White(variance=0.1)
>>> k.theta_names
('scale', 'length_scale', 'variance')
"""

from gp_core.kernels.base import Kernel
from gp_core.kernels.compact import Epanechnikov, Tricube, Wendland
from gp_core.kernels.compose import Exp, Power, Product, Scaled, Sum, exp
from gp_core.kernels.discrete import EditDistance, SetIntersection
from gp_core.kernels.dot_product import Affine, Constant, Linear, Polynomial, White
from gp_core.kernels.features import BasisFunctions
from gp_core.kernels.objects import FunctionKernel, ObjectKernel, Precomputed
from gp_core.kernels.periodic import Periodic
from gp_core.kernels.stationary import RBF, Exponential, Matern, RationalQuadratic, Stationary
from gp_core.kernels.structures import Graph, SubtreeKernel, WeisfeilerLehman
from gp_core.kernels.transform import Columns, Metric, full_metric
from gp_core.kernels.validity import Validity, is_valid_kernel

__all__ = [
    "RBF",
    "Affine",
    "BasisFunctions",
    "Columns",
    "Constant",
    "EditDistance",
    "Epanechnikov",
    "Exp",
    "Exponential",
    "FunctionKernel",
    "Graph",
    "Kernel",
    "Linear",
    "Matern",
    "Metric",
    "ObjectKernel",
    "Periodic",
    "Polynomial",
    "Power",
    "Precomputed",
    "Product",
    "RationalQuadratic",
    "Scaled",
    "SetIntersection",
    "Stationary",
    "SubtreeKernel",
    "Sum",
    "Tricube",
    "Validity",
    "WeisfeilerLehman",
    "Wendland",
    "White",
    "exp",
    "full_metric",
    "is_valid_kernel",
]
