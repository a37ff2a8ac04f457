"""Loop closures on bare ground: find the place again, and know how well.

search        all yaws and shifts by FFT: where could it be?
refinement    Gauss-Newton on heights: where exactly?
verification  slopes, variances, uniqueness: is it true?
covariance    how well is it known?
registration  the four in order: `register(source, target)`
"""

from gpgmap_ros.closure.config import ClosureConfig
from gpgmap_ros.closure.registration import Registration, register

__all__ = ["ClosureConfig", "Registration", "register"]
