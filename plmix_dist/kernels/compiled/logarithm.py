"""Natural logarithms of four numbers at once.

The method and its coefficients are those of FreeBSD's msun (e_log.c, by Sun Microsystems, freely granted): with
x = 2**e * (1 + f) and 1 + f between sqrt(1/2) and sqrt(2), log(1 + f) is a series in s = f / (2 + f) whose error is
below one unit in the last place.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from plmix_dist.kernels.compiled.jit import kernel_part
from plmix_dist.kernels.compiled.simd import (
    choose_greater4,
    exponent4,
    mantissa4,
    splat4,
)

# log(2) in two parts: the first has so few digits that its product with any exponent is exact.
_LOG2_HIGH = 6.93147180369123816490e-01
_LOG2_LOW = 1.90821492927058770002e-10
_L1 = 6.666666666666735130e-01
_L2 = 3.999999999940941908e-01
_L3 = 2.857142874366239149e-01
_L4 = 2.222219843214978396e-01
_L5 = 1.818357216161805012e-01
_L6 = 1.531383769920937332e-01
_L7 = 1.479819860511658591e-01
_SMALLEST_NORMAL = 2.2250738585072014e-308
_SQRT2 = 1.4142135623730951


@kernel_part
def log4(x: Any) -> Any:
    """Logarithms of any four numbers, within one unit in the last place of math.log; NaN for negative ones and NaN."""
    one, zero = splat4(1.0), splat4(0.0)
    # Numbers too small to be normal are brought up by 2**54 first.
    least = splat4(_SMALLEST_NORMAL)
    scaled = choose_greater4(least, x, x * splat4(2.0**54), x)
    exponent = exponent4(scaled) - choose_greater4(least, x, splat4(54.0), zero)
    whole = log4_of_scaled(mantissa4(scaled), exponent)
    infinity = splat4(np.inf)
    finite = choose_greater4(infinity, x, whole, x)
    at_most_zero = choose_greater4(zero, x, splat4(np.nan), zero - one / (x * x))
    return choose_greater4(x, zero, finite, at_most_zero)


@kernel_part
def log4_of_scaled(mantissa: Any, exponent: Any) -> Any:
    """Logarithms of mantissa * 2**exponent, with mantissas from 1 to below 2 and whole exponents."""
    one, half, two, high = splat4(1.0), splat4(0.5), splat4(2.0), splat4(_SQRT2)
    exponent = exponent + choose_greater4(mantissa, high, one, splat4(0.0))
    mantissa = choose_greater4(mantissa, high, mantissa * half, mantissa)
    f = mantissa - one
    s = f / (two + f)
    z = s * s
    w = z * z
    even = w * (splat4(_L2) + w * (splat4(_L4) + w * splat4(_L6)))
    odd = z * (splat4(_L1) + w * (splat4(_L3) + w * (splat4(_L5) + w * splat4(_L7))))
    half_square = half * f * f
    small = s * (half_square + (even + odd)) + exponent * splat4(_LOG2_LOW)
    return exponent * splat4(_LOG2_HIGH) - ((half_square - small) - f)
