"""Four float64 numbers as one value in compiled code: LLVM's vector type, made known to numba.

The loops over components are too short for a compiler to vectorise by itself. With this type a kernel says what it
means: `v + w`, `v * w` and `v / w` act on four components at once and stay in registers. On machines without 256-bit
vectors LLVM splits them.
"""

from __future__ import annotations

import operator
from typing import Any

from llvmlite import ir
from numba import types
from numba.core.typing.templates import AbstractTemplate, infer_global, signature
from numba.extending import intrinsic, lower_builtin, models, register_model

LANES = 4
_LLVM_VECTOR = ir.VectorType(ir.DoubleType(), LANES)


class Float64x4(types.Type):
    """The numba type of four float64 numbers."""

    def __init__(self) -> None:
        super().__init__(name="float64x4")


float64x4 = Float64x4()


@register_model(Float64x4)
class _Float64x4Model(models.PrimitiveModel):
    """Held as an LLVM vector."""

    def __init__(self, manager: Any, front_end_type: Any) -> None:
        super().__init__(manager, front_end_type, _LLVM_VECTOR)


@intrinsic
def load4(typing_context: Any, array: Any, start: Any) -> Any:
    """The four numbers of a flat array from `start` on."""
    del typing_context, start

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        value = builder.load(_pointer(context, builder, sig, args))
        value.align = 8
        return value

    return float64x4(array, types.intp), generate


@intrinsic
def store4(typing_context: Any, array: Any, start: Any, value: Any) -> Any:
    """Put four numbers into a flat array from `start` on."""
    del typing_context, start, value

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        stored = builder.store(args[2], _pointer(context, builder, sig, args))
        stored.align = 8
        return context.get_dummy_value()

    return types.void(array, types.intp, float64x4), generate


@intrinsic
def splat4(typing_context: Any, number: Any) -> Any:
    """One number four times."""
    del typing_context, number

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        undefined = ir.Constant(_LLVM_VECTOR, ir.Undefined)
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
        return builder.select(mask, args[2], ir.Constant(_LLVM_VECTOR, [0.0] * LANES))

    return float64x4(float64x4, float64x4, float64x4), generate


def _pointer(context: Any, builder: Any, sig: Any, args: Any) -> Any:
    """Where an array's numbers begin at an index, as a pointer to a vector."""
    array = context.make_array(sig.args[0])(context, builder, args[0])
    return builder.bitcast(builder.gep(array.data, [args[1]]), _LLVM_VECTOR.as_pointer())


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
