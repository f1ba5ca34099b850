/* SPDX-License-Identifier: MIT */
/* test_shrink.c: a planted bug (a calloc of 1,000 to 1,999 bytes writes into the block of slot 5)
 * is found in random programs, and what remains of the program is the two calls it takes. It asks
 * about the shrinker, not about the library.
 * ctest: once */
#include "shrink.h"

int main(void)
{
    static struct program program = {.origin = "the test"};
    uint64_t seed = 1;
    option_plant = true;
    do {
        REQUIRE(seed < 200);
        uint64_t state = seed++;
        program.size = 4000;
        for (size_t i = 0; i < program.size; i++) {
            program.bytes[i] = (uint8_t)(random_next(&state) >> 56);
        }
    } while (!program_fails(&program, true));
    size_t operations_count = program_shrink(&program);
    printf("model: seed %llu, %zu operations in %u bytes:\n", (unsigned long long)seed - 1,
           operations_count, program.size);
    option_trace = true;
    program_fails(&program, false);
    REQUIRE_SIZE(operations_count, ==, 2);
    option_plant = false;
    REQUIRE(!program_fails(&program, true));
    return 0;
}
