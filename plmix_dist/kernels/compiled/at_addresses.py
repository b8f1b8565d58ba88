"""Numbers at addresses: how compiled code reads and writes arrays.

Compiled code takes addresses instead of arrays. To numba an array is seven values and an owner. Passing it on means
counting its owners, which costs as much as a short row, and compiling seven values for every part. An address is one
number. Nothing is checked: the Python function that calls a kernel makes all arrays, and holds them until the kernel
is done.
"""

from __future__ import annotations

from typing import Any

from llvmlite import ir
from numba import types
from numba.extending import intrinsic

from plmix_dist.kernels.compiled.simd import LLVM_VECTOR, float64x4

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


@intrinsic
def load(typing_context: Any, address: Any, place: Any) -> Any:
    """The float64 at a place of an array of these."""
    del typing_context, address, place

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return builder.load(_pointer(builder, args, _DOUBLE))

    return types.float64(types.intp, types.intp), generate


@intrinsic
def store(typing_context: Any, address: Any, place: Any, value: Any) -> Any:
    """Put a number at a place of an array of float64."""
    del typing_context, address, place, value

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del sig
        builder.store(args[2], _pointer(builder, args, _DOUBLE))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.float64), generate


@intrinsic
def load4(typing_context: Any, address: Any, place: Any) -> Any:
    """The four float64 from a place of an array on."""
    del typing_context, address, place

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        value = builder.load(_pointer(builder, args, _DOUBLE, LLVM_VECTOR))
        value.align = 8
        return value

    return float64x4(types.intp, types.intp), generate


@intrinsic
def store4(typing_context: Any, address: Any, place: Any, value: Any) -> Any:
    """Put four numbers into an array of float64 from a place on."""
    del typing_context, address, place, value

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del sig
        stored = builder.store(args[2], _pointer(builder, args, _DOUBLE, LLVM_VECTOR))
        stored.align = 8
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, float64x4), generate


def _define_load_unsigned(bits: int) -> Any:
    @intrinsic
    def load_unsigned(typing_context: Any, address: Any, place: Any) -> Any:
        del typing_context, address, place

        def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
            del context, sig
            value = builder.load(_pointer(builder, args, ir.IntType(bits)))
            return value if bits == 64 else builder.zext(value, ir.IntType(64))

        return types.intp(types.intp, types.intp), generate

    return load_unsigned


# The number at a place of an array of uint8, uint16, uint32 or, for what is not negative, int64.
load_uint8, load_uint16, load_uint32, load_uint63 = map(_define_load_unsigned, (8, 16, 32, 64))


@intrinsic
def load_index(typing_context: Any, address: Any, place: Any) -> Any:
    """The number at a place of an array of int32, to be used as an index."""
    del typing_context, address, place

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del context, sig
        return builder.sext(builder.load(_pointer(builder, args, _INDEX)), ir.IntType(64))

    return types.intp(types.intp, types.intp), generate


@intrinsic
def store_index(typing_context: Any, address: Any, place: Any, value: Any) -> Any:
    """Put a number at a place of an array of int32."""
    del typing_context, address, place, value

    def generate(context: Any, builder: Any, sig: Any, args: Any) -> Any:
        del sig
        builder.store(builder.trunc(args[2], _INDEX), _pointer(builder, args, _INDEX))
        return context.get_dummy_value()

    return types.void(types.intp, types.intp, types.intp), generate


def _pointer(builder: Any, args: Any, element: Any, loaded: Any = None) -> Any:
    """A pointer to a place of an array of elements; to what is loaded from there, if that is several."""
    first = builder.inttoptr(args[0], element.as_pointer())
    found = builder.gep(first, [args[1]])
    return builder.bitcast(found, loaded.as_pointer()) if loaded else found
