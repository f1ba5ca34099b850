/* SPDX-License-Identifier: MIT */
/* test_site_scope.cc: hak::site_scope: nesting, exceptions, and what new and malloc allocate in it.
 */
#include "override.h"

#include <memory>
#include <new>
#include <stdexcept>
#include <string>
#include <thread>
#include <vector>

/* The program that runs under LD_PRELOAD is not linked with hakmem. */
#pragma weak hak_site_register
#pragma weak hak_site_enter
#pragma weak hak_site_leave
#pragma weak hak_alloc_at
#pragma weak hak_profile_start
#pragma weak hak_report
#pragma weak hak_free
#include <hakmem/profile.h>
#include <hakmem/site.h>

namespace
{

std::unique_ptr<char[]> taken(new char[4 << 20]);
size_t taken_length;

void take(void *, const char *piece, size_t size)
{
    CHECK(taken_length + size < 4 << 20);
    memcpy(&taken[taken_length], piece, size);
    taken_length += size;
    taken[taken_length] = '\0';
}

/* The number of the site in the JSON report; 0 if the site is not in it. */
unsigned long long figure(const char *name, const char *key)
{
    taken_length = 0;
    hak_report(HAK_REPORT_JSON, take, nullptr);
    char field[100];
    snprintf(field, sizeof field, "\"name\": \"%s\"", name);
    const char *record = strstr(taken.get(), field);
    if (record == nullptr) {
        return 0;
    }
    snprintf(field, sizeof field, "\"%s\": ", key);
    const char *number = strstr(record, field);
    CHECK(number != nullptr && number < strchr(record, '}'));
    return strtoull(number + strlen(field), nullptr, 10);
}

uintptr_t current()
{
    uintptr_t site = hak_site_enter(0);
    hak_site_leave(site);
    return site;
}

void throw_inside()
{
    const hak::site_scope scope("inner");
    CHECK_EQUAL(current(), hak_site_register("inner"));
    throw std::runtime_error("out");
}

void test_scopes()
{
    CHECK_EQUAL(current(), 0);
    {
        const hak::site_scope outer(HAK_SITE("outer"));
        CHECK_EQUAL(current(), hak_site_register("outer"));
        {
            HAK_SITE_SCOPE("macro");
            CHECK_EQUAL(current(), hak_site_register("macro"));
        }
        CHECK_EQUAL(current(), hak_site_register("outer"));
        try {
            throw_inside();
            FAIL("no exception");
        } catch (const std::runtime_error &) {
        }
        CHECK_EQUAL(current(), hak_site_register("outer"));
        std::thread([] { CHECK_EQUAL(current(), 0); }).join();
    }
    CHECK_EQUAL(current(), 0);
}

/* Each instance of a template and each call of a lambda has its own kept id, of the same name. */
template <int>
uintptr_t of_template()
{
    return HAK_SITE("template");
}

void test_ids()
{
    CHECK_EQUAL(of_template<1>(), of_template<2>());
    auto lambda = [] { return HAK_SITE("lambda"); };
    CHECK(lambda() != of_template<1>());
    CHECK_EQUAL(lambda(), hak_site_register("lambda"));
}

struct alignas(64) aligned {
    char bytes[192];
};

void test_sums()
{
    hak_profile_start(1); /* every block */
    const uintptr_t probe = hak_site_register("probe");
    while (figure("probe", "samples") == 0) { /* this thread has not noticed it */
        for (int i = 0; i < 1000; i++) {
            hak_free(hak_alloc_at(100, probe));
        }
    }
    {
        std::vector<int> numbers;
        std::unique_ptr<aligned> line;
        std::string text;
        void *block = nullptr, *named = nullptr;
        {
            HAK_SITE_SCOPE("sums");
            numbers.reserve(1000);
            line = std::make_unique<aligned>();
            text.assign(500, 'x');
            block = malloc(opaque_size(300));
            named = HAK_MALLOC_AT("sums.named", 700);
        }
        CHECK_EQUAL(figure("sums", "live_bytes"), 1000 * sizeof(int) + 192 + 501 + 300);
        CHECK_EQUAL(figure("sums", "live_count"), 4);
        CHECK_EQUAL(figure("sums.named", "live_bytes"), 700);
        free(block);
        free(named);
    }
    CHECK_EQUAL(figure("sums", "live_bytes"), 0);
    CHECK_EQUAL(figure("sums", "freed_count"), 4);
}

} // namespace

int main()
{
    prove_served();
    test_scopes();
    test_ids();
    test_sums();
    return 0;
}
