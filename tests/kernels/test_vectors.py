"""Vectors of four numbers, their logarithms, and numbers at addresses: against plain Python."""

from __future__ import annotations

import math
from decimal import Decimal, localcontext
from typing import Any

import numba
import numpy as np
import pytest

from plmix_dist.kernels.compiled.vectors import (
    _choose_greater4,
    exponent4,
    highest_lane4,
    load,
    load4,
    load_index,
    load_uint8,
    load_uint16,
    load_uint32,
    load_uint63,
    log4,
    log4_of_scaled,
    mantissa4,
    power_of_two4,
    splat4,
    store,
    store4,
    store_index,
    sum_lanes4,
    where_greater4,
)
from plmix_dist.kernels.prepared import address, aligned_zeros

SMALLEST = 5e-324
SMALLEST_NORMAL = 2.2250738585072014e-308
LARGEST = 1.7976931348623157e308


@numba.njit
def _each(size: int, numbers: int, logs: int, exponents: int, mantissas: int) -> None:
    for place in range(0, size, 4):
        four = load4(numbers, place)
        store4(logs, place, log4(four))
        store4(exponents, place, exponent4(four))
        store4(mantissas, place, mantissa4(four))


def each(numbers: list[float]) -> tuple[list[float], list[float], list[float]]:
    """Logarithm, exponent and mantissa of each number."""
    padded = np.array(numbers + [1.0] * (-len(numbers) % 4))
    results = np.empty((3, len(padded)))
    _each(len(padded), *map(address, (padded, *results)))
    logs, exponents, mantissas = results[:, : len(numbers)].tolist()
    return logs, exponents, mantissas


def numbers_of_every_size() -> list[float]:
    rng = np.random.default_rng(0)
    exponents = np.concatenate([rng.uniform(-1074, 1024, 1000), rng.uniform(-2, 2, 500)])
    near_one = 1.0 + rng.choice([-1, 1], 500) * 10.0 ** rng.uniform(-16, -1, 500)
    edges = [SMALLEST, 3 * SMALLEST, SMALLEST_NORMAL, np.nextafter(SMALLEST_NORMAL, 0), LARGEST, 1.0, 0.5, 2.0]
    root = math.sqrt(2.0)
    edges += [root, np.nextafter(root, 0), np.nextafter(root, 2), np.nextafter(1.0, 0), np.nextafter(1.0, 2)]
    return [float(number) for number in (*np.exp2(exponents), *near_one, *edges) if number > 0]


def test_log4__within_one_unit_in_the_last_place() -> None:
    numbers = numbers_of_every_size()
    with localcontext(prec=50):
        for number, found in zip(numbers, each(numbers)[0], strict=True):
            exact = Decimal(number).ln()
            unit = math.ulp(float(exact))
            assert abs(Decimal(found) - exact) <= Decimal(unit), number


def test_log4__limits() -> None:
    logs, _, _ = each([0.0, math.inf, math.nan, -1.0, -math.inf, -SMALLEST])
    assert logs[:2] == [-math.inf, math.inf]
    assert all(map(math.isnan, logs[2:]))


@numba.njit
def _scaled(size: int, mantissas: int, exponents: int, logs: int, powers: int) -> None:
    for place in range(0, size, 4):
        exponent = load4(exponents, place)
        found = log4_of_scaled(load4(mantissas, place), exponent)
        store4(logs, place, found)
        store4(powers, place, power_of_two4(exponent))


def test_log4_of_scaled__any_exponent() -> None:
    rng = np.random.default_rng(1)
    mantissas = np.append(rng.uniform(1, 2, 998), [1.0, np.nextafter(2.0, 1)])
    exponents = np.round(-(10.0 ** rng.uniform(-1, 6, 1000)))
    logs, powers = np.empty((2, 1000))
    _scaled(1000, *map(address, (mantissas, exponents, logs, powers)))
    with localcontext(prec=50):
        for mantissa, exponent, found in zip(mantissas, exponents, logs, strict=True):
            exact = Decimal(mantissa).ln() + Decimal(int(exponent)) * Decimal(2).ln()
            # Next to 1 digits are lost that the log of a probability does not need.
            assert abs(Decimal(found) - exact) <= Decimal(max(math.ulp(float(exact)), 2e-16))


def test_power_of_two4__down_to_zero() -> None:
    exponents = np.array([0.0, -1.0, 1023.0, -1021.0, -1022.0, -1023.0, -1e18, -math.inf])
    logs, powers = np.empty((2, 8))
    ones = np.ones(8)
    _scaled(8, *map(address, (ones, exponents, logs, powers)))
    assert powers.tolist() == [1.0, 0.5, 2.0**1023, 2.0**-1021, 2.0**-1022, 0.0, 0.0, 0.0]


def test_exponent4_and_mantissa4__are_those_of_frexp() -> None:
    numbers = [number for number in numbers_of_every_size() if number >= SMALLEST_NORMAL]
    _, exponents, mantissas = each(numbers)
    for number, exponent, mantissa in zip(numbers, exponents, mantissas, strict=True):
        half, one_more = math.frexp(number)
        assert (mantissa, exponent) == (2 * half, one_more - 1)


@numba.njit
def _lanes(numbers: int, results: int) -> Any:
    four, other = load4(numbers, 0), load4(numbers, 4)
    store4(results, 0, where_greater4(four, other, splat4(7.0)))
    store4(results, 4, _choose_greater4(four, other, four, other))
    return highest_lane4(four), sum_lanes4(four)


@pytest.mark.parametrize("highest", range(4))
def test_lanes__compared_and_folded(highest: int) -> None:
    numbers = np.array([1.0, 2.0, 3.0, 4.0, 2.5, 2.5, 2.5, -math.inf])
    numbers[:4] = np.roll(numbers[:4], highest)
    results = np.empty(8)
    assert _lanes(address(numbers), address(results)) == (4.0, 10.0)
    assert results[:4].tolist() == np.where(numbers[:4] > numbers[4:], 7.0, 0.0).tolist()
    assert results[4:].tolist() == np.maximum(numbers[:4], numbers[4:]).tolist()


@numba.njit
def _reads(bytes_: int, shorts: int, words: int, longs: int, indices: int, numbers: int) -> Any:
    store_index(indices, 1, -5)
    store(numbers, 2, 1.5)
    return (
        load_uint8(bytes_, 1),
        load_uint16(shorts, 1),
        load_uint32(words, 1),
        load_uint63(longs, 1),
        load_index(indices, 1),
        load(numbers, 2),
    )


def test_addresses__every_type() -> None:
    columns = (
        np.array([1, 255], np.uint8),
        np.array([1, 65_535], np.uint16),
        np.array([1, 2**32 - 1], np.uint32),
        np.array([1, 2**63 - 1], np.int64),
        np.zeros(3, np.int32),
        np.zeros(4),
    )
    assert _reads(*map(address, columns)) == (255, 65_535, 2**32 - 1, 2**63 - 1, -5, 1.5)
    assert columns[4].tolist() == [0, -5, 0]
    assert columns[5].tolist() == [0.0, 0.0, 1.5, 0.0]


@pytest.mark.parametrize("shape", [(1,), (3, 5), (7, 2, 4), (0,)])
def test_aligned_zeros__begin_with_a_cache_line(shape: tuple[int, ...]) -> None:
    kept = [aligned_zeros(*shape) for _ in range(20)]
    for zeros in kept:
        assert zeros.shape == shape
        assert zeros.flags.c_contiguous
        assert zeros.flags.writeable
        assert not zeros.any()
        assert zeros.size == 0 or zeros.ctypes.data % 64 == 0
