"""The library is light to import and complete by name."""

import subprocess
import sys

import pytest

import gp_core


@pytest.mark.parametrize("module", ["gp_core", "gp_core.kernels", "gp_core.basis", "gp_core.linalg"])
def test_the_light_parts_do_not_import_scikit_learn(module):
    code = f"import sys, {module}; sys.exit('sklearn' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_regressors_are_there_by_name():
    from gp_core import regression

    for name in (
        "Ridge",
        "KernelRidge",
        "BayesianLinearRegression",
        "NadarayaWatson",
        "GaussianProcessRegressor",
    ):
        assert getattr(gp_core, name) is getattr(regression, name)
        assert name in dir(gp_core)


def test_an_unknown_name_is_an_attribute_error():
    with pytest.raises(AttributeError, match="no attribute 'GaussianProcess'"):
        _ = gp_core.GaussianProcess


def test_the_version_is_that_of_the_package():
    import gpgmap_ros

    assert gp_core.__version__ == gpgmap_ros.__version__
