/* SPDX-License-Identifier: MIT */
/* site.c: the functions of hakmem/site.h. */
#include "hakmem/site.h"

#include "base/atomics.h"
#include "heap/heap.h"
#include "observe/placement.h"
#include "observe/samples.h"

#include <errno.h>

/* Copies the name, cut to the size and with '?' for each byte that some view would have to quote.
 * Fills the rest with zeroes. */
static void site_clean(char clean[SITE_NAME_SIZE], const char *name)
{
    size_t length = 0;
    for (; length < SITE_NAME_SIZE - 1 && name[length] != '\0'; length++) {
        char c = name[length];
        clean[length] = c < ' ' || c > '~' || c == '"' || c == '\\' ? '?' : c;
    }
    for (; length < SITE_NAME_SIZE; length++) {
        clean[length] = '\0';
    }
}

uintptr_t hak_site_register(const char *name)
{
    char clean[SITE_NAME_SIZE];
    uintptr_t id = 0;
    int saved = errno;
    if (name == NULL || *name == '\0') {
        return 0;
    }
    site_clean(clean, name);
    /* Not patiently: a constructor in dlopen holds a lock of the loader, for which fork may wait.
     */
    if (hak__samples_enter(false)) { /* else the caller tries again */
        id = hak__start() ? hak__site_named(clean) : 0;
        if (id != 0) {
            hak__placement_begin(clean, id);
        }
        hak__samples_leave();
    }
    errno = saved;
    return id;
}

uintptr_t hak_site_enter(uintptr_t site)
{
    uintptr_t before = hak__site_current;
    hak__site_current = site;
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__placement_on))) {
        hak__placement_enter(site);
    }
    return before;
}

void hak_site_leave(uintptr_t before)
{
    hak__site_current = before;
    if (HAK_UNLIKELY(atomic_load_relaxed(&hak__placement_on))) {
        hak__placement_leave(before);
    }
}
