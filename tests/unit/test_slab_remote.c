/* SPDX-License-Identifier: MIT */
/* test_slab_remote.c: slab/slab_remote: the protocol of docs/design/remote_free.md, by one thread
 * in every order and by many at once.
 *
 * The two steps of a freer are one function; between A1 and A2 is the state in which its push on
 * the notify stack has not happened yet, so freer_step_a1 takes the push back and freer_step_a2
 * makes it.
 */
#include "../child.h"
#include "../threads/threads.h"
#include "unit.h"

#include "slab/slab_remote.h"

/* Carved one at a time. */
enum { SMALL_SLAB_OBJECTS = UNIT_SLAB_OBJECTS, OBJECTS_MAX = 64 };

static bool is_notified(const struct slab *slab)
{
    return (slab->shared_remote >> 31 & 1) != 0;
}

static uint32_t stack_count(const struct slab_set *set, const struct slab *slab)
{
    uint32_t count = 0, length = 0;
    for (uint32_t link = set->shared_notified; link != 0;
         link = window_slab_metadata(link - 1)->shared_link) {
        count += window_slab_metadata(link - 1) == slab;
        REQUIRE(length++ < 100); /* a circle */
    }
    return count;
}

struct freer {
    void *objects[OBJECTS_MAX];
    uint32_t count;
    bool owes_push; /* between A1 and A2 */
};

static void freer_step_a1(struct slab_set *set, struct freer *freer, struct slab *slab)
{
    uint32_t stack = set->shared_notified, pending = set->shared_pending;
    unit_return_remote(freer->objects, freer->count);
    freer->count = 0;
    freer->owes_push = set->shared_notified != stack;
    REQUIRE(!freer->owes_push || set->shared_notified == (uint32_t)slab_slice(slab) + 1);
    set->shared_notified = stack;
    set->shared_pending = pending;
}

static void freer_step_a2(struct slab_set *set, struct freer *freer, struct slab *slab)
{
    if (freer->owes_push) {
        slab->shared_link = set->shared_notified;
        set->shared_notified = (uint32_t)slab_slice(slab) + 1;
        set->shared_pending++;
        freer->owes_push = false;
    }
}

static struct object *refill_one(struct slab_set *set)
{
    struct object_list list = unit_slab_refill(set, unit_small_slab_class(), 1);
    REQUIRE_SIZE(list.count, ==, 1);
    return list.head;
}

/* Calls `run` with every order of `left[i]` steps of each actor i; how many there were. */
static size_t for_every_order(uint32_t left[3], unsigned char *order, uint32_t length,
                              void (*run)(const unsigned char *order))
{
    size_t count = 0;
    for (unsigned char actor = 0; actor < 3; actor++) {
        if (left[actor] != 0) {
            left[actor]--;
            order[length] = actor;
            count += for_every_order(left, order, length + 1, run);
            left[actor]++;
        }
    }
    if (left[0] + left[1] + left[2] == 0) {
        run(order);
        count = 1;
    }
    return count;
}

/* --- every order of freers and what an owner does under its lock --- */

enum { OWNER_DRAINS, OWNER_REFILLS, OWNER_REFILLS_ONE, OWNER_RETURNS, OWNER_KINDS };
enum { OWNER_STEPS = SUPPORT_SLOW ? 3 : 4, WHOLE_STEPS = OWNER_STEPS + 4 };

struct whole {
    struct slab_set *set;
    struct slab *slab; /* the one that the freers know */
    struct freer freers[2];
    struct freer owner;
};

/* Chosen by test_every_order_of_the_whole for whole_run. */
static unsigned char whole_program[OWNER_STEPS];
static uint32_t whole_carved;

static bool whole_is_alive(const struct whole *whole)
{
    return window_owner(slab_slice(whole->slab)) >> OWNER_CODE_BITS ==
           whole->set->key >> OWNER_CODE_BITS;
}

static void whole_check(const struct whole *whole)
{
    const struct slab *slab = whole->slab;
    bool busy = false;
    for (size_t i = 0; i < 2; i++) {
        busy = busy || whole->freers[i].count != 0 || whole->freers[i].owes_push;
    }
    for (uint32_t i = 0; i < whole->owner.count; i++) {
        busy = busy || unit_slab_of(whole->owner.objects[i]) == slab;
    }
    assert_true(!busy || whole_is_alive(whole));
    if (whole_is_alive(whole)) {
        bool has = slab->free_count != 0 || slab->carved_count < slab->capacity;
        assert_true(!has || slab->listed);
        assert_true(hak__slab_remote_count(slab) == 0 || slab->listed || is_notified(slab));
        assert_true(busy || slab->listed || is_notified(slab));
    }
    assert_true(stack_count(whole->set, slab) <= 1);
    hak__slab_set_check(whole->set);
}

static void whole_return_all(struct whole *whole)
{
    for (uint32_t i = 0; i < whole->owner.count; i++) {
        unit_return(&whole->owner.objects[i], 1);
    }
    whole->owner.count = 0;
}

static void whole_owner_step(struct whole *whole, unsigned char kind)
{
    if (kind == OWNER_DRAINS) {
        hak__slab_drain(whole->set);
    } else if (kind == OWNER_RETURNS) {
        whole_return_all(whole);
    } else {
        uint32_t most = kind == OWNER_REFILLS_ONE ? 1 : UINT32_MAX;
        struct object_list list = unit_slab_refill(whole->set, unit_small_slab_class(), most);
        unit_list_tail(list);
        REQUIRE(list.count >= 1 && list.count <= most);
        for (struct object *object = list.head; object != NULL; object = object->next) {
            whole->owner.objects[whole->owner.count++] = object;
        }
    }
}

static void whole_run(const unsigned char *order)
{
    struct whole whole = {.set = unit_set_create()};
    uint32_t done[3] = {0, 0, 0};
    for (uint32_t i = 0; i < whole_carved; i++) { /* two for each freer, the rest for the owner */
        struct freer *to = i < 4 ? &whole.freers[i % 2] : &whole.owner;
        to->objects[to->count++] = refill_one(whole.set);
    }
    whole.slab = unit_slab_of(whole.freers[0].objects[0]);
    for (uint32_t i = 0; i < WHOLE_STEPS; i++) {
        unsigned char actor = order[i];
        uint32_t step = done[actor]++;
        if (actor == 2) {
            whole_owner_step(&whole, whole_program[step]);
        } else if (step == 0) {
            freer_step_a1(whole.set, &whole.freers[actor], whole.slab);
        } else {
            freer_step_a2(whole.set, &whole.freers[actor], whole.slab);
        }
        whole_check(&whole);
    }
    whole_return_all(&whole);
    hak__slab_drain(whole.set);
    assert_false(whole_is_alive(&whole)); /* nothing is stranded */
    unit_set_destroy(whole.set);
}

TEST(every_order_of_the_whole)
{
    unsigned char order[WHOLE_STEPS];
    size_t programs = 1;
    for (uint32_t i = 0; i < OWNER_STEPS; i++) {
        programs *= OWNER_KINDS;
    }
    for (whole_carved = 4; whole_carved <= SMALL_SLAB_OBJECTS; whole_carved += 2) {
        for (size_t program = 0; program < programs; program++) {
            size_t rest = program;
            for (uint32_t i = 0; i < OWNER_STEPS; i++, rest /= OWNER_KINDS) {
                whole_program[i] = (unsigned char)(rest % OWNER_KINDS);
            }
            for_every_order((uint32_t[]){2, 2, OWNER_STEPS}, order, 0, whole_run);
        }
    }
}

/* --- single cases --- */

static void return_too_many(void *argument)
{
    struct slab_set *set = unit_set_create();
    void *objects[2] = {refill_one(set), NULL};
    for (int i = 0; i < SMALL_SLAB_OBJECTS + 1; i++) {
        unit_return_remote(objects, 1);
    }
}

TEST(too_many_objects)
{
    REQUIRE_DEATH(return_too_many, NULL,
                  "double free .more objects freed than the slab holds.*size class");
}

/* The slab has remote objects and N is clear (drained), then a refill takes its free list. */
TEST(remote_objects_are_not_stranded)
{
    void *objects[SMALL_SLAB_OBJECTS];
    struct slab_set *set = unit_set_create();
    for (uint32_t i = 0; i < SMALL_SLAB_OBJECTS; i++) {
        objects[i] = refill_one(set);
    }
    struct slab *slab = unit_slab_of(objects[0]);
    assert_false(slab->listed);
    unit_return_remote(objects, 3);
    assert_int_equal(hak__slab_drain(set), 1);
    assert_true(slab->listed && !is_notified(slab));
    unit_return(objects + 3, 2);
    struct object_list list = unit_slab_refill(set, slab->class_index, UINT32_MAX);
    assert_int_equal(list.count, 2); /* the free list */
    assert_true(slab->listed);       /* for the remote objects, of which nobody will tell again */
    assert_ptr_equal(set->partial[slab->class_index], slab);
    list = unit_slab_refill(set, slab->class_index, UINT32_MAX);
    assert_int_equal(list.count, 3);
    assert_ptr_equal(unit_slab_of(list.head), slab);
    assert_true(set->counters.values[COUNTER_REFILL_REMOTE] == 1);
    assert_false(slab->listed);
    unit_return(objects, SMALL_SLAB_OBJECTS);
    unit_set_destroy(set);
}

/* Between A1 and A2 the owner gets the objects and all others back: the slab must wait for A2. */
TEST(a_slab_waits_for_its_freer)
{
    struct freer freer = {.count = 0};
    struct slab_set *set = unit_set_create();
    void *others[2] = {refill_one(set), refill_one(set)};
    struct slab *slab = unit_slab_of(others[0]);
    freer.objects[freer.count++] = refill_one(set);
    freer_step_a1(set, &freer, slab);
    assert_true(freer.owes_push);
    unit_return(others, 2);
    assert_int_equal(hak__slab_free_objects(slab), slab->carved_count);
    assert_false(hak__slab_is_idle(slab));
    assert_int_equal(hak__slab_drain(set), 0);
    assert_int_equal(window_owner(slab_slice(slab)),
                     set->key | owner_code_of_class(slab->class_index));
    freer_step_a2(set, &freer, slab);
    assert_int_equal(hak__slab_drain(set), 1);
    assert_int_equal(window_owner(slab_slice(slab)), OWNER_NOBODY);
    assert_true(set->counters.values[COUNTER_REMOTE_NOTIFIED] == 1);
    unit_set_destroy(set);
}

TESTS(unit_start)
