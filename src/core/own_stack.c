/* SPDX-License-Identifier: MIT */
/* own_stack.c: see own_stack.h. */
#include "core/own_stack.h"

#include "base/arch.h"
#include "base/atomics.h"
#include "os/os.h"

/* Bytes of a stack; a page that nothing touches costs addresses only. A handler of the program may
 * run on it, too. Half: twice what a heap map needs, which is the deepest. */
#define OWN_STACK_SIZE ((size_t)128 << 10)

/* Free stacks; NULL: none here. Who takes one owns it, so each has one owner or lies here. Free
 * stacks that stay mapped. Half: more than two threads that sample at once map and unmap one each
 * time. Twice: some more memory once many have done so. */
static void *shared_own_stacks[4];

ARCH_CALL_ON("hak__call_on");
HAK_HIDDEN void hak__call_on(void *top, void (*function)(void *argument), void *argument);

static void *own_stack_take(void)
{
    void *stack = NULL;
    for (uint32_t i = 0; i < HAK_COUNT_OF(shared_own_stacks) && stack == NULL; i++) {
        /* acquire: pairs with the release in own_stack_put: its last user is done with it */
        stack = atomic_load_relaxed(&shared_own_stacks[i]) != NULL
                    ? atomic_exchange_acquire(&shared_own_stacks[i], NULL)
                    : NULL;
    }
    if (stack == NULL && hak__os_map(OWN_STACK_SIZE, hak__os_page_size(), &stack) != 0) {
        return NULL;
    }
    return stack;
}

static void own_stack_put(void *stack)
{
    for (uint32_t i = 0; i < HAK_COUNT_OF(shared_own_stacks); i++) {
        void *none = NULL;
        /* release: pairs with the acquire in own_stack_take */
        if (atomic_cas_weak_release(&shared_own_stacks[i], &none, stack)) {
            return;
        }
    }
    hak__os_discard(stack, OWN_STACK_SIZE);
}

bool hak__own_stack_call(void (*function)(void *argument), void *argument)
{
    char *stack = own_stack_take();
    if (stack == NULL) {
        return false;
    }
    hak__call_on(stack + OWN_STACK_SIZE, function, argument);
    own_stack_put(stack);
    return true;
}

void hak__own_stack_try(void (*function)(void *argument), void *argument)
{
    if (!hak__own_stack_call(function, argument)) {
        function(argument);
    }
}
