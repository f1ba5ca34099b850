/* SPDX-License-Identifier: MIT */
/* test_own_new.cc: a program that replaces only operator new(size_t) and operator delete(void *),
 * as the standard allows: all other forms must end up in these two, whoever provides them. This
 * one's blocks start 16 bytes into malloc's, so a form that goes to malloc or free directly shows.
 */
#include "override.h"

#include <new>

#ifndef __cpp_sized_deallocation
/* clang declares them only when told to use them itself. */
void operator delete(void *pointer, size_t size) noexcept;
void operator delete[](void *pointer, size_t size) noexcept;
void operator delete(void *pointer, size_t size, std::align_val_t alignment) noexcept;
void operator delete[](void *pointer, size_t size, std::align_val_t alignment) noexcept;
#endif

namespace
{

const size_t header_size = 16;
const uint64_t magic = 0x6f776e206e657721;
size_t news_count;
size_t deletes_count;

} // namespace

void *operator new(size_t size)
{
    auto *block = static_cast<unsigned char *>(malloc(size + header_size));
    if (block == nullptr) {
        throw std::bad_alloc();
    }
    memcpy(block, &magic, sizeof magic);
    news_count++;
    return block + header_size;
}

#if !defined(__clang__)
#pragma GCC diagnostic ignored "-Wsized-deallocation" /* not to define it is the point */
#endif
void operator delete(void *pointer) noexcept
{
    if (pointer != nullptr) {
        unsigned char *block = static_cast<unsigned char *>(pointer) - header_size;
        CHECK(memcmp(block, &magic, sizeof magic) == 0);
        memset(block, 0, sizeof magic);
        deletes_count++;
        free(block);
    }
}

namespace
{

/* Calls that must be one call each of the two operators above. */
template <typename Call>
void check_one_of_each(const char *what, Call call)
{
    size_t news_before = news_count;
    size_t deletes_before = deletes_count;
    call();
    if (news_count != news_before + 1 || deletes_count != deletes_before + 1) {
        dprintf(2, "%s: %zu times the program's new, %zu times its delete\n", what,
                news_count - news_before, deletes_count - deletes_before);
    }
    CHECK_EQUAL(news_count, news_before + 1);
    CHECK_EQUAL(deletes_count, deletes_before + 1);
}

} // namespace

int main()
{
    prove_served();
    const size_t size = opaque_size(100);
    check_one_of_each("new, delete", [=] { ::operator delete(::operator new(size)); });
    check_one_of_each("new, sized delete", [=] { ::operator delete(::operator new(size), size); });
    check_one_of_each("new[], delete[]", [=] { ::operator delete[](::operator new[](size)); });
    check_one_of_each("new[], sized delete[]",
                      [=] { ::operator delete[](::operator new[](size), size); });
    check_one_of_each("nothrow new, delete",
                      [=] { ::operator delete(::operator new(size, std::nothrow), std::nothrow); });
    check_one_of_each("nothrow new[], delete[]", [=] {
        ::operator delete[](::operator new[](size, std::nothrow), std::nothrow);
    });
    return 0;
}
