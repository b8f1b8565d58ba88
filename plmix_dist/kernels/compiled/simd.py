"""Four float64 numbers as one value in compiled code: LLVM's vector type, made known to numba.

Loops over components are too short for a compiler to vectorise. With this type kernels use explicit SIMD vectors:
`v + w`, `v * w` and `v / w` act on four components at once and stay in registers. On machines without 256-bit vectors
LLVM splits them.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 4
LLVM_VECTOR = ir.VectorType(ir.DoubleType(), LANES)
_LLVM_INTEGERS = ir.VectorType(ir.IntType(64), LANES)
# Of a float64: bits of the mantissa, and what is added to the exponent to make it positive.
_MANTISSA_BITS = 52
_BIAS = 1023
_TWO_52 = 2.0**52
_BITS_OF_2_52 = (_BIAS + 52) << _MANTISSA_BITS


class Float64x4(types.Type):
    """The numba type of four float64 numbers."""

    def __init__(self) -> None:
        super().__init__(name="float64x4")


float64x4 = Float64x4()


@register_model(Float64x4)
class _Float64x4Model(models.PrimitiveModel):
    """Held as an LLVM vector."""

    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, LLVM_VECTOR)


@intrinsic
def splat4(typing_context: Any, number: Any) -> Any:
    """One number four times."""
    del typing_context, number

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        undefined = ir.Constant(LLVM_VECTOR, ir.Undefined)
        first = builder.insert_element(undefined, args[0], ir.Constant(ir.IntType(32), 0))
        lanes = ir.Constant(ir.VectorType(ir.IntType(32), LANES), [0] * LANES)
        return builder.shuffle_vector(first, undefined, lanes)

    return float64x4(types.float64), generate


@intrinsic
def where_greater4(typing_context: Any, left: Any, right: Any, value: Any) -> Any:
    """`value` in the lanes where `left > right`, 0 in the others."""
    del typing_context, left, right, value

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        mask = builder.fcmp_ordered(">", args[0], args[1])
        return builder.select(mask, args[2], ir.Constant(LLVM_VECTOR, [0.0] * LANES))

    return float64x4(float64x4, float64x4, float64x4), generate


@intrinsic
def choose_greater4(typing_context: Any, left: Any, right: Any, value: Any, other: Any) -> Any:
    """`value` in the lanes where `left > right`, `other` in the others."""
    del typing_context, left, right, value, other

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return builder.select(builder.fcmp_ordered(">", args[0], args[1]), args[2], args[3])

    return float64x4(float64x4, float64x4, float64x4, float64x4), generate


@intrinsic
def highest_lane4(typing_context: Any, vector: Any) -> Any:
    """The largest of four numbers."""
    del typing_context, vector

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig

        def larger(left: Any, right: Any) -> Any:
            return builder.select(builder.fcmp_ordered(">", left, right), left, right)

        return _fold_lanes(builder, args[0], larger)

    return types.float64(float64x4), generate


@intrinsic
def sum_lanes4(typing_context: Any, vector: Any) -> Any:
    """The sum of four numbers, as (first + third) + (second + fourth)."""
    del typing_context, vector

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return _fold_lanes(builder, args[0], builder.fadd)

    return types.float64(float64x4), generate


@intrinsic
def exponent4(typing_context: Any, vector: Any) -> Any:
    """The e of m * 2**e with 1 <= m < 2, for positive normal numbers."""
    del typing_context, vector

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        biased = builder.lshr(builder.bitcast(args[0], _LLVM_INTEGERS), _integers(_MANTISSA_BITS))
        # An integer below 2**52 put in the place of the mantissa of 2**52 is that integer plus 2**52.
        shifted = builder.bitcast(builder.or_(biased, _integers(_BITS_OF_2_52)), LLVM_VECTOR)
        return builder.fsub(shifted, _numbers(_TWO_52 + _BIAS))

    return float64x4(float64x4), generate


@intrinsic
def mantissa4(typing_context: Any, vector: Any) -> Any:
    """The m of m * 2**e with 1 <= m < 2, for positive normal numbers."""
    del typing_context, vector

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        bits = builder.bitcast(args[0], _LLVM_INTEGERS)
        mantissa = builder.and_(bits, _integers((1 << _MANTISSA_BITS) - 1))
        return builder.bitcast(builder.or_(mantissa, _integers(_BIAS << _MANTISSA_BITS)), LLVM_VECTOR)

    return float64x4(float64x4), generate


@intrinsic
def power_of_two4(typing_context: Any, exponent: Any) -> Any:
    """2**exponent for whole numbers of at most 1023; 0 where that is no normal number any more."""
    del typing_context, exponent

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        least = _numbers(-_BIAS)
        held = builder.select(builder.fcmp_ordered(">", args[0], least), args[0], least)
        shifted = builder.bitcast(builder.fadd(held, _numbers(_TWO_52 + _BIAS)), _LLVM_INTEGERS)
        return builder.bitcast(builder.shl(shifted, _integers(_MANTISSA_BITS)), LLVM_VECTOR)

    return float64x4(float64x4), generate


def _fold_lanes(builder: Any, vector: Any, combine: Any) -> Any:
    """Four lanes made one by an operation on two."""
    for distance in (2, 1):
        lanes = [lane ^ distance for lane in range(LANES)]
        moved = builder.shuffle_vector(
            vector, vector, ir.Constant(ir.VectorType(ir.IntType(32), LANES), lanes)
        )
        vector = combine(vector, moved)
    return builder.extract_element(vector, ir.Constant(ir.IntType(32), 0))


def _numbers(value: float) -> Any:
    return ir.Constant(LLVM_VECTOR, [float(value)] * LANES)


def _integers(value: int) -> Any:
    return ir.Constant(_LLVM_INTEGERS, [value] * LANES)


def _define_operator(python_operator: Any, instruction: str) -> None:
    """Let an operator act on two vectors, by one LLVM instruction."""

    @infer_global(python_operator)
    class _Typing(AbstractTemplate):
        def generic(self, args: Any, kws: Any) -> Any:
            del kws
            if len(args) == 2 and all(isinstance(arg, Float64x4) for arg in args):
                return signature(float64x4, *args)
            return None

    @lower_builtin(python_operator, Float64x4, Float64x4)
    def _lower(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return getattr(builder, instruction)(*args)


_define_operator(operator.add, "fadd")
_define_operator(operator.sub, "fsub")
_define_operator(operator.mul, "fmul")
_define_operator(operator.truediv, "fdiv")
