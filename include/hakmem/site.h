/* SPDX-License-Identifier: MIT */
/* site.h: names for the places of a program that allocate.
 *
 * While hakmem takes samples (hakmem/profile.h), it keeps sums for each site: bytes and counts in
 * use and so far, sizes, lifetimes, and how many blocks other threads freed. Without a name, the
 * site of a block is the address that called the allocator. With a name, the summary, the reports,
 * the profile and the heap map show the name. docs/observability/profile.md explains the figures.
 *
 *   C     void *node = HAK_MALLOC_AT("parser.nodes", size);
 *         HAK_SITE_SCOPE("parser");        until the end of the block, this thread's allocations
 *   C++   hak::site_scope scope(HAK_SITE("parser"));                                the same
 *
 * A name costs nothing while no samples are taken: a scope writes one thread-local word at its
 * begin and at its end. malloc and free do not look at it.
 *
 * While hakmem learns (HAKMEM_LEARN), objects that are allocated in the scope of a long-lived site
 * get slabs of their own (docs/learning.md). HAK_MALLOC_AT and hak_alloc_at enter no scope, so
 * their objects lie among all others.
 *
 * All functions are thread-safe, and keep errno. None is async-signal-safe. */
#ifndef HAKMEM_SITE_H
#define HAKMEM_SITE_H

#include "hakmem/hakmem.h"

#if defined(__cplusplus)
extern "C" {
#endif

/* Bytes of a name; the rest is cut. Bytes that are not printable ASCII, quotes and backslashes
 * become '?'. */
#define HAK_SITE_NAME_MAX 63

/* Returns the id of the site of that name, which is not 0. The same name gives the same id. The
 * name is copied. There is room for 1,024 names; all further ones share one id, the site "other".
 * 0, which means no site: `name` is NULL or empty, there is no memory, the caller is a signal
 * handler that interrupted the allocator, or a fork of another thread takes long. Takes a lock and
 * a look into a table, so keep the id. */
HAK_API uintptr_t hak_site_register(const char *name) HAK_NOEXCEPT;

/* From now on `site` is the site of this thread's allocations, until the next call. Returns the
 * site before, for hak_site_leave. 0: none, so their callers' addresses are. Any other number is a
 * site, too: views show one without a name as "site 0x1234". */
HAK_API uintptr_t hak_site_enter(uintptr_t site) HAK_NOEXCEPT;
/* Goes back to the site that hak_site_enter returned. */
HAK_API void hak_site_leave(uintptr_t before) HAK_NOEXCEPT;

/* The id in `*kept`; registers the name if it is 0. For HAK_SITE. Threads may do so at once: all
 * of them store the same id. */
#if defined(__GNUC__)
static inline uintptr_t hak_site_keep(uintptr_t *kept, const char *name) HAK_NOEXCEPT
{
    uintptr_t site = __atomic_load_n(kept, __ATOMIC_RELAXED);
    if (site == 0) {
        site = hak_site_register(name);
        __atomic_store_n(kept, site, __ATOMIC_RELAXED);
    }
    return site;
}

/* The id of the site `name`, which must be the same at each call. Registers it at the first one. */
#define HAK_SITE(name)                                                                             \
    (__extension__({                                                                               \
        static uintptr_t hak_site_kept_;                                                           \
        hak_site_keep(&hak_site_kept_, (name));                                                    \
    }))
#endif

/* hak_malloc(size) at the site `name`. */
#define HAK_MALLOC_AT(name, size) hak_alloc_at((size), HAK_SITE(name))

#if defined(__cplusplus)
}

namespace hak
{

/* While it lives, `site` is the site of its thread's allocations. Scopes nest. It must end in the
 * thread that made it, and the innermost one first: a variable of a block does so. */
class site_scope
{
  public:
    explicit site_scope(uintptr_t site) noexcept : before_(hak_site_enter(site))
    {
    }
    /* Looks the name up each time; HAK_SITE does so once. */
    explicit site_scope(const char *name) noexcept : site_scope(hak_site_register(name))
    {
    }
    ~site_scope()
    {
        hak_site_leave(before_);
    }
    site_scope(const site_scope &) = delete;
    site_scope &operator=(const site_scope &) = delete;

  private:
    uintptr_t before_;
};

} // namespace hak
#endif

/* Declares a variable: until the end of the block, `name` is the site of this thread's
 * allocations. */
#define HAK_SITE_JOIN_(a, b) a##b
#define HAK_SITE_VARIABLE_(line) HAK_SITE_JOIN_(hak_site_scope_, line)
#if defined(__cplusplus)
#define HAK_SITE_SCOPE(name) const ::hak::site_scope HAK_SITE_VARIABLE_(__LINE__)(HAK_SITE(name))
#elif defined(__GNUC__)
static inline void hak_site_end_scope_(const uintptr_t *before)
{
    hak_site_leave(*before);
}
#define HAK_SITE_SCOPE(name)                                                                       \
    const uintptr_t HAK_SITE_VARIABLE_(__LINE__)                                                   \
        __attribute__((cleanup(hak_site_end_scope_), unused)) = hak_site_enter(HAK_SITE(name))
#endif

#endif
