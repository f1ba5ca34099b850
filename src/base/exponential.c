/* SPDX-License-Identifier: MIT */
/* exponential.c: see exponential.h. */
#include "base/exponential.h"

#include <string.h>

static uint64_t exponential_bits(double value)
{
    uint64_t bits;
    memcpy(&bits, &value, sizeof bits);
    return bits;
}

static double exponential_of_bits(uint64_t bits)
{
    double value;
    memcpy(&value, &bits, sizeof value);
    return value;
}

/* The natural logarithm of a normal positive number: value = 2^exponent * mantissa, with a mantissa
 * from sqrt(1/2) to sqrt(2), and ln(mantissa) = 2 artanh((mantissa - 1) / (mantissa + 1)). */
static double exponential_ln(double value)
{
    uint64_t bits = exponential_bits(value);
    int exponent = (int)(bits >> 52) - 1023;
    double mantissa = exponential_of_bits((bits & (UINT64_MAX >> 12)) | (UINT64_C(1023) << 52));
    if (mantissa > 1.41421356237309504880) {
        mantissa /= 2;
        exponent++;
    }
    double z = (mantissa - 1) / (mantissa + 1), square = z * z, series = 0;
    for (int i = 11; i >= 1; i -= 2) {
        series = series * square + 1.0 / i;
    }
    return exponent * 0.693147180559945309417 + 2 * z * series;
}

int64_t hak__exponential_draw(uint64_t random, uint64_t period)
{
    double uniform = ((double)(random >> 11) + 0.5) / (double)(UINT64_C(1) << 53);
    return (int64_t)(-exponential_ln(uniform) * (double)period);
}

/* 1 - exp(-x) for x from 0 to 1, by the series of the exponential. */
static double exponential_rest(double x)
{
    double series = 0;
    for (int i = 14; i >= 1; i--) {
        series = x / i * (1 - series);
    }
    return series;
}

double hak__exponential_weight(uint64_t size, uint64_t period)
{
    double x = (double)(size == 0 ? 1 : size) / (double)period;
    double kept = 1; /* exp(-x), of the whole part of x */
    for (; x > 1 && kept > 1e-18; x -= 1) {
        kept *= 0.367879441171442321596; /* exp(-1) */
    }
    double rest = exponential_rest(x);
    if (kept == 1) { /* 1 - (1 - rest) would lose the digits of a small rest */
        return 1 / rest;
    }
    return kept <= 1e-18 ? 1 : 1 / (1 - kept * (1 - rest));
}
