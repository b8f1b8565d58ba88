"""Four float64 numbers as one value, and numbers at addresses: LLVM's vectors and pointers, made known to numba.

Loops over components are too short for a compiler to vectorise. With this type kernels use explicit SIMD vectors:
`v + w`, `v * w` and `v / w` act on four components at once and stay in registers. On machines without 256-bit vectors
LLVM splits them.
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from functools import wraps
from typing import Any

import numpy as np
from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

from plmix_dist.kernels.compiled.jit import kernel_part

LANES = 4
_LLVM_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_LLVM_INTEGERS = ir.VectorType(ir.IntType(64), LANES)
# Of a float64: bits of the mantissa, and what is added to the exponent to make it positive.
_MANTISSA_BITS = 52
_BIAS = 1023
_TWO_52 = 2.0**52
_BITS_OF_2_52 = (_BIAS + 52) << _MANTISSA_BITS


class _Float64x4(types.Type):
    """The numba type of four float64 numbers."""

    def __init__(self) -> None:
        super().__init__(name="float64x4")


_float64x4 = _Float64x4()


@register_model(_Float64x4)
class _Float64x4Model(models.PrimitiveModel):
    """Held as an LLVM vector."""

    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, _LLVM_VECTOR)


def _instruction(returns: Any, *takes: Any) -> Callable[[Callable[..., Any]], Any]:
    """Make a function that writes LLVM code, given a builder and arguments, one that compiled code can call."""

    def made(write: Callable[..., Any]) -> Any:
        @wraps(write)  # numba takes the names of the arguments from there, the first left out
        def typed(typing_context: Any, *arguments: Any) -> Any:
            del typing_context, arguments

            def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
                del sig
                written = write(builder, *args)
                return context.get_dummy_value() if returns is types.void else written

            return returns(*takes), generate

        return intrinsic(typed)

    return made


@_instruction(_float64x4, types.float64)
def splat4(builder: Any, number: Any) -> Any:
    """One number four times."""
    undefined = ir.Constant(_LLVM_VECTOR, ir.Undefined)
    first = builder.insert_element(undefined, number, ir.Constant(ir.IntType(32), 0))
    lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
    return builder.shuffle_vector(first, undefined, lanes)


@_instruction(_float64x4, _float64x4, _float64x4, _float64x4)
def where_greater4(builder: Any, left: Any, right: Any, value: Any) -> Any:
    """`value` in the lanes where `left > right`, 0 in the others."""
    mask = builder.fcmp_ordered(">", left, right)
    return builder.select(mask, value, ir.Constant(_LLVM_VECTOR, [0.0] * LANES))


@_instruction(_float64x4, _float64x4, _float64x4, _float64x4, _float64x4)
def _choose_greater4(builder: Any, left: Any, right: Any, value: Any, other: Any) -> Any:
    """`value` in the lanes where `left > right`, `other` in the others."""
    return builder.select(builder.fcmp_ordered(">", left, right), value, other)


@_instruction(types.float64, _float64x4)
def highest_lane4(builder: Any, vector: Any) -> Any:
    """The largest of four numbers."""

    def larger(left: Any, right: Any) -> Any:
        return builder.select(builder.fcmp_ordered(">", left, right), left, right)

    return _fold_lanes(builder, vector, larger)


@_instruction(types.float64, _float64x4)
def sum_lanes4(builder: Any, vector: Any) -> Any:
    """The sum of four numbers, as (first + third) + (second + fourth)."""
    return _fold_lanes(builder, vector, builder.fadd)


@_instruction(_float64x4, _float64x4)
def exponent4(builder: Any, vector: Any) -> Any:
    """The e of m * 2**e with 1 <= m < 2, for positive normal numbers."""
    biased = builder.lshr(builder.bitcast(vector, _LLVM_INTEGERS), _integers(_MANTISSA_BITS))
    # An integer below 2**52 put in the place of the mantissa of 2**52 is that integer plus 2**52.
    shifted = builder.bitcast(builder.or_(biased, _integers(_BITS_OF_2_52)), _LLVM_VECTOR)
    return builder.fsub(shifted, _numbers(_TWO_52 + _BIAS))


@_instruction(_float64x4, _float64x4)
def mantissa4(builder: Any, vector: Any) -> Any:
    """The m of m * 2**e with 1 <= m < 2, for positive normal numbers."""
    bits = builder.bitcast(vector, _LLVM_INTEGERS)
    mantissa = builder.and_(bits, _integers((1 << _MANTISSA_BITS) - 1))
    return builder.bitcast(builder.or_(mantissa, _integers(_BIAS << _MANTISSA_BITS)), _LLVM_VECTOR)


@_instruction(_float64x4, _float64x4)
def power_of_two4(builder: Any, exponent: Any) -> Any:
    """2**exponent for whole numbers of at most 1023; 0 where that is below the normal numbers."""
    least = _numbers(-_BIAS)
    held = builder.select(builder.fcmp_ordered(">", exponent, least), exponent, least)
    shifted = builder.bitcast(builder.fadd(held, _numbers(_TWO_52 + _BIAS)), _LLVM_INTEGERS)
    return builder.bitcast(builder.shl(shifted, _integers(_MANTISSA_BITS)), _LLVM_VECTOR)


def _fold_lanes(builder: Any, vector: Any, combine: Any) -> Any:
    """Four lanes made one by an operation on two."""
    for distance in (2, 1):
        lanes = [lane ^ distance for lane in range(LANES)]
        moved = builder.shuffle_vector(vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes))
        vector = combine(vector, moved)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _numbers(value: float) -> Any:
    return ir.Constant(_LLVM_VECTOR, [float(value)] * LANES)


def _integers(value: int) -> Any:
    return ir.Constant(_LLVM_INTEGERS, [value] * LANES)


def _define_operator(python_operator: Any, instruction: str) -> None:
    """Let an operator act on two vectors, by one LLVM instruction."""

    @infer_global(python_operator)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            del kws
            if len(args) == 2 and all(isinstance(arg, _Float64x4) for arg in args):
                return signature(_float64x4, *args)
            return None

    @lower_builtin(python_operator, _Float64x4, _Float64x4)
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return getattr(builder, instruction)(*args)


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")
_define_operator(operator.truediv, "fdiv")


# Natural logarithms of four numbers at once.

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
    scaled = _choose_greater4(least, x, x * splat4(2.0**54), x)
    exponent = exponent4(scaled) - _choose_greater4(least, x, splat4(54.0), zero)
    whole = log4_of_scaled(mantissa4(scaled), exponent)
    infinity = splat4(np.inf)
    finite = _choose_greater4(infinity, x, whole, x)
    at_most_zero = _choose_greater4(zero, x, splat4(np.nan), zero - one / (x * x))
    return _choose_greater4(x, zero, finite, at_most_zero)


@kernel_part
def log4_of_scaled(mantissa: Any, exponent: Any) -> Any:
    """Logarithms of mantissa * 2**exponent, with mantissas from 1 to below 2 and whole exponents."""
    one, half, two, high = splat4(1.0), splat4(0.5), splat4(2.0), splat4(_SQRT2)
    exponent = exponent + _choose_greater4(mantissa, high, one, splat4(0.0))
    mantissa = _choose_greater4(mantissa, high, mantissa * half, mantissa)
    f = mantissa - one
    s = f / (two + f)
    z = s * s
    w = z * z
    even = w * (splat4(_L2) + w * (splat4(_L4) + w * splat4(_L6)))
    odd = z * (splat4(_L1) + w * (splat4(_L3) + w * (splat4(_L5) + w * splat4(_L7))))
    half_square = half * f * f
    small = s * (half_square + (even + odd)) + exponent * splat4(_LOG2_LOW)
    return exponent * splat4(_LOG2_HIGH) - ((half_square - small) - f)


# Numbers at addresses: how compiled code reads and writes arrays.
#
# Compiled code takes addresses instead of arrays. To numba an array is seven values and an owner. Passing it on means
# counting its owners, which costs as much as a short row, and compiling seven values for every part. An address is one
# number. Nothing is checked: the Python function that calls a kernel makes all arrays, and holds them until the kernel
# is done.

_DOUBLE, _INDEX, _POINTER = ir.DoubleType(), ir.IntType(32), ir.IntType(64)


@intrinsic
def unpack(typing_context: Any, structure: Any, fields: Any) -> Any:
    """The NamedTuple of a class from the fields that `pointers` gave for it: an address for each array."""
    del typing_context
    of_class = structure.instance_class
    n_fields = len(of_class._fields)

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return builder.load(builder.bitcast(args[1], ir.ArrayType(_POINTER, n_fields).as_pointer()))

    return types.NamedUniTuple(types.intp, n_fields, of_class)(structure, fields), generate


@_instruction(types.float64, types.intp, types.intp)
def load(builder: Any, address: Any, place: Any) -> Any:
    """The float64 at a place of an array of these."""
    return builder.load(_pointer(builder, address, place, _DOUBLE))


@_instruction(types.void, types.intp, types.intp, types.float64)
def store(builder: Any, address: Any, place: Any, value: Any) -> None:
    """Put a number at a place of an array of float64."""
    builder.store(value, _pointer(builder, address, place, _DOUBLE))


@_instruction(_float64x4, types.intp, types.intp)
def load4(builder: Any, address: Any, place: Any) -> Any:
    """The four float64 from a place of an array on."""
    value = builder.load(_pointer(builder, address, place, _DOUBLE, _LLVM_VECTOR))
    value.align = 8
    return value


@_instruction(types.void, types.intp, types.intp, _float64x4)
def store4(builder: Any, address: Any, place: Any, value: Any) -> None:
    """Put four numbers into an array of float64 from a place on."""
    stored = builder.store(value, _pointer(builder, address, place, _DOUBLE, _LLVM_VECTOR))
    stored.align = 8


def _define_load_unsigned(bits: int) -> Any:
    @_instruction(types.intp, types.intp, types.intp)
    def load_unsigned(builder: Any, address: Any, place: Any) -> Any:
        value = builder.load(_pointer(builder, address, place, ir.IntType(bits)))
        return value if bits == 64 else builder.zext(value, ir.IntType(64))

    return load_unsigned


# The number at a place of an array of uint8, uint16, uint32 or, for what is not negative, int64.
load_uint8, load_uint16, load_uint32, load_uint63 = map(_define_load_unsigned, (8, 16, 32, 64))


@_instruction(types.intp, types.intp, types.intp)
def load_index(builder: Any, address: Any, place: Any) -> Any:
    """The number at a place of an array of int32, to be used as an index."""
    return builder.sext(builder.load(_pointer(builder, address, place, _INDEX)), ir.IntType(64))


@_instruction(types.void, types.intp, types.intp, types.intp)
def store_index(builder: Any, address: Any, place: Any, value: Any) -> None:
    """Put a number at a place of an array of int32."""
    builder.store(builder.trunc(value, _INDEX), _pointer(builder, address, place, _INDEX))


def _pointer(builder: Any, address: Any, place: Any, element: Any, loaded: Any = None) -> Any:
    """A pointer to a place of an array of elements; to what is loaded from there, if that is several."""
    first = builder.inttoptr(address, element.as_pointer())
    found = builder.gep(first, [place])
    return builder.bitcast(found, loaded.as_pointer()) if loaded else found
