/* SPDX-License-Identifier: MIT */
/* test_site_scope.cc: hak::site_scope: nesting and exceptions. Sums of sites are in api/. */
#include "override.h"

#include <stdexcept>
#include <thread>

/* The program that runs under LD_PRELOAD is not linked with hakmem. */
#pragma weak hak_site_register
#pragma weak hak_site_enter
#pragma weak hak_site_leave
#include <hakmem/site.h>

namespace
{

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

} // namespace

int main()
{
    prove_served();
    test_scopes();
    test_ids();
    return 0;
}
