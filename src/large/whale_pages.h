/* whale_pages.h: small or huge pages for a whale, by what became of earlier ones.
 *
 * Huge pages save most of the faults' time (a fifth to a third is left), but a sparse table of 1
 * GiB is 160 MiB of small pages and 2.4 GiB of huge ones (docs/decisions/0010). Whether a program
 * touches what it asks for is seen in the whales it has: of each kind, zeroed ones (calloc) and
 * others, the last two that were mapped with small pages are watched, and the older one (or the
 * only one) is looked at when the next is mapped (2 MiB in its middle), or when it is freed, if
 * that is before. Huge pages are all resident: one that grows or has been freed is looked into, are
 * there only zeroes in most places?
 *
 * Even then only sizes to twice the largest one seen filled, and whales together to twice the sum
 * of what was, and a share of the superslabs, earn them: a program that stops filling what it asks
 * for needs about twice its memory, not as much as it asks for. One seen sparse ends all evidence.
 *
 * Functions take the WHALES lock themselves, unless said otherwise, and make system calls without
 * it. Any thread.
 */
#ifndef HAK_LARGE_WHALE_PAGES_H
#define HAK_LARGE_WHALE_PAGES_H

#include "large/whale.h"

/* Are huge pages worth asking for, for a whale of `size` bytes that is not among the live ones? */
HAK_HIDDEN bool hak__whale_earns_huge(size_t size, bool zeroed);
/* A new whale has small pages. */
HAK_HIDDEN void hak__whale_watch(struct whale whale, bool zeroed);
/* It was moved or resized. Under the lock. */
HAK_HIDDEN void hak__whale_watch_moved(uintptr_t from, struct whale to);
/* Of one that has been freed. Under the lock. */
HAK_HIDDEN bool hak__whale_is_worth_a_look(struct whale whale);
/* A whale that is not among the live ones, but still mapped, and its caller's alone: how much of it
 * is in use? `ends`: it has been freed, else it is to grow. */
HAK_HIDDEN void hak__whale_look(struct whale whale, bool ends);

#endif
