/* SPDX-License-Identifier: MIT */
/* fuzz_model.c: the differential model for fuzzers that speak libFuzzer's interface (libFuzzer,
 * AFL++, honggfuzz): see `./hakmem test --fuzz` and tests/README.md. */
#define SUPPORT_END abort()

#include "program.h"

int LLVMFuzzerInitialize(int *count, char ***arguments);
int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size);

int LLVMFuzzerInitialize(int *count, char ***arguments)
{
    (void)count;
    (void)arguments;
    program_init();
    return 0;
}

int LLVMFuzzerTestOneInput(const uint8_t *bytes, size_t size)
{
    if (size <= PROGRAM_BYTES_MAX) {
        program_run(bytes, size);
    }
    return 0;
}
