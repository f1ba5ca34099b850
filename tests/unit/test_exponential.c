/* SPDX-License-Identifier: MIT */
/* test_exponential.c: base/exponential: weights and distances of samples. */
#include "unit.h"

#include "base/exponential.h"

#include <math.h>

TEST(weights)
{
    for (uint64_t period = 1; period < UINT64_C(1) << 40; period = period * 3 + 1) {
        for (uint64_t size = 1; size < UINT64_C(1) << 44; size += size / 3 + 1) {
            double expected = 1 / -expm1(-(double)size / (double)period);
            double weight = hak__exponential_weight(size, period);
            assert_true(fabs(weight / expected - 1) < 1e-8);
            assert_true(weight >= 1);
        }
    }
    assert_true(hak__exponential_weight(0, 100) == hak__exponential_weight(1, 100));
}

/* The share of distances beyond t periods is exp(-t). The numbers are fixed, so this test cannot
 * fail by chance. */
TEST(distances)
{
    enum { DRAWS = 1000000, PERIOD = 524288 };
    uint64_t random = 88172645463325252u;
    double sum = 0;
    size_t beyond[4] = {0};
    for (size_t i = 0; i < DRAWS; i++) {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        int64_t distance = hak__exponential_draw(random * UINT64_C(0x2545f4914f6cdd1d), PERIOD);
        assert_true(distance >= 0);
        sum += (double)distance;
        for (size_t t = 0; t < COUNT_OF(beyond); t++) {
            beyond[t] += distance > (int64_t)(t + 1) * PERIOD;
        }
    }
    assert_true(fabs(sum / DRAWS / PERIOD - 1) < 0.003); /* three standard deviations */
    for (size_t t = 0; t < COUNT_OF(beyond); t++) {
        double share = exp(-(double)(t + 1));
        double deviation = sqrt(share * (1 - share) / DRAWS);
        assert_true(fabs((double)beyond[t] / DRAWS - share) < 4 * deviation);
    }
}

TEST(ends_of_the_range)
{
    assert_true(hak__exponential_draw(0, 1 << 20) < (INT64_C(40) << 20)); /* 2^-54: ln is 37.4 */
    assert_true(hak__exponential_draw(0, 1 << 20) > (INT64_C(37) << 20));
    assert_int_equal(hak__exponential_draw(UINT64_MAX, 1 << 20), 0);
    assert_true(hak__exponential_draw(0, UINT64_C(1) << 50) > 0);
}

TESTS(NULL)
