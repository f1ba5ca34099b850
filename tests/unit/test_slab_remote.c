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

/* --- every order of the pieces --- */

enum { PIECE_STEPS = 10 }; /* A1 A2 | A1 A2 | B1 B2 B3 B1 B2 B3 */

struct pieces {
    struct slab_set *set;
    struct slab *slab;
    struct freer freers[2];
    struct slab *chain; /* what B1 took and B2 has not seen */
    bool listed;        /* the owner knows that the slab may have objects */
    struct freer taken; /* by B3 */
};

static void pieces_check(const struct pieces *pieces)
{
    const struct slab *slab = pieces->slab;
    uint32_t in_word = hak__slab_remote_count(slab);
    uint32_t held = pieces->freers[0].count + pieces->freers[1].count;
    assert_int_equal(held + in_word + pieces->taken.count, 4);
    /* N has exactly one reason: a push owed, a place on the stack, or an owner about to clear it */
    uint32_t reasons = stack_count(pieces->set, slab) + (pieces->chain == slab) +
                       pieces->freers[0].owes_push + pieces->freers[1].owes_push;
    assert_int_equal(reasons, is_notified(slab));
    assert_true(in_word == 0 || is_notified(slab) || pieces->listed);
    assert_true(!is_notified(slab) || !hak__slab_is_idle(slab));
    assert_int_equal(hak__slab_is_idle(slab), !is_notified(slab) && in_word == slab->carved_count);
}

static void pieces_b1(struct pieces *pieces)
{
    REQUIRE(pieces->chain == NULL);
    pieces->chain = hak__slab_take_notified(pieces->set);
    REQUIRE(pieces->chain == NULL || pieces->chain == pieces->slab);
    REQUIRE(pieces->set->shared_notified == 0 && pieces->set->shared_pending == 0);
}

static void pieces_b2(struct pieces *pieces)
{
    if (pieces->chain != NULL) {
        REQUIRE(hak__slab_next_notified(pieces->chain) == NULL);
        hak__slab_clear_notified(pieces->chain);
        pieces->chain = NULL;
        pieces->listed = true;
    }
}

static void pieces_b3(struct pieces *pieces)
{
    struct object_list list = hak__slab_take_remote(pieces->slab);
    unit_list_tail(list);
    for (struct object *object = list.head; object != NULL; object = object->next) {
        pieces->taken.objects[pieces->taken.count++] = object;
    }
}

static struct pieces pieces_create(void)
{
    struct pieces pieces = {.set = unit_set_create()};
    for (uint32_t i = 0; i < 4; i++) { /* two objects for each freer */
        struct freer *freer = &pieces.freers[i % 2];
        freer->objects[freer->count++] = refill_one(pieces.set);
    }
    pieces.slab = unit_slab_of(pieces.freers[0].objects[0]);
    return pieces;
}

static void pieces_destroy(struct pieces *pieces)
{
    for (int round = 0; round < 2; round++) {
        pieces_b1(pieces);
        pieces_b2(pieces);
        pieces_b3(pieces);
        pieces_check(pieces);
    }
    assert_int_equal(pieces->taken.count, 4);
    size_t slice = slab_slice(pieces->slab);
    unit_return(pieces->taken.objects, 4);
    assert_int_equal(window_owner(slice), OWNER_NOBODY);
    unit_set_destroy(pieces->set);
}

/* `order` names whose turn it is: 0 and 1 the freers, 2 the owner. */
static void pieces_run(const unsigned char *order)
{
    struct pieces pieces = pieces_create();
    uint32_t done[3] = {0, 0, 0};
    pieces_check(&pieces);
    for (uint32_t i = 0; i < PIECE_STEPS; i++) {
        unsigned char actor = order[i];
        uint32_t step = done[actor]++;
        if (actor < 2 && step == 0) {
            freer_step_a1(pieces.set, &pieces.freers[actor], pieces.slab);
        } else if (actor < 2) {
            freer_step_a2(pieces.set, &pieces.freers[actor], pieces.slab);
        } else if (step % 3 == 0) {
            pieces_b1(&pieces);
        } else if (step % 3 == 1) {
            pieces_b2(&pieces);
        } else {
            pieces_b3(&pieces);
        }
        pieces_check(&pieces);
    }
    pieces_destroy(&pieces);
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

TEST(every_order_of_the_pieces)
{
    unsigned char order[PIECE_STEPS];
    assert_int_equal(for_every_order((uint32_t[]){2, 2, 6}, order, 0, pieces_run), 1260);
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

TEST(lists_are_joined_in_order)
{
    static const size_t sizes[] = {16, 112, 4096, 9216, 20480};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        void *objects[6];
        struct slab_set *set = unit_set_create();
        uint32_t class_index = size_class_of(sizes[i]), carved = 0;
        struct object *spare = NULL;
        while (carved < COUNT_OF(objects)) {
            struct object *object = unit_slab_refill(set, class_index, UINT32_MAX).head;
            for (struct object *next; object != NULL; object = next) {
                next = object->next;
                if (carved < COUNT_OF(objects)) {
                    objects[carved++] = object;
                } else {
                    object->next = spare;
                    spare = object;
                }
            }
        }
        struct slab *slab = unit_slab_of(objects[0]);
        assert_int_equal(hak__slab_take_remote(slab).count, 0);
        unit_return_remote(objects, 1);
        unit_return_remote(objects + 1, 3);
        unit_return_remote(objects + 4, 2);
        assert_int_equal(hak__slab_remote_count(slab), 6);
        assert_int_equal(stack_count(set, slab), 1);
        struct object_list list = hak__slab_take_remote(slab);
        static const uint32_t order[] = {4, 5, 1, 2, 3, 0};
        const struct object *object = list.head;
        for (size_t j = 0; j < COUNT_OF(order); j++, object = object->next) {
            assert_ptr_equal(object, objects[order[j]]);
        }
        assert_null(object);
        assert_int_equal(list.count, 6);
        assert_true(is_notified(slab)); /* B3 leaves N */
        assert_int_equal(hak__slab_take_remote(slab).count, 0);
        unit_return(objects, 6);
        for (struct object *next; spare != NULL; spare = next) {
            next = spare->next;
            void *one = spare;
            unit_return(&one, 1);
        }
        unit_set_destroy(set);
    }
}

TEST(lagging_owners_are_named)
{
    enum { PATIENCE = 3, SLABS = PATIENCE + 2 };
    void *objects[SLABS * SMALL_SLAB_OBJECTS];
    struct slab_set *set = unit_set_create();
    set->shared_patience = PATIENCE;
    for (uint32_t i = 0; i < COUNT_OF(objects); i++) {
        objects[i] = refill_one(set);
    }
    for (uint32_t i = 0; i < SLABS; i++) {
        struct slab_set *lagging = unit_return_remote(objects + i * SMALL_SLAB_OBJECTS, 1);
        assert_ptr_equal(lagging, i + 1 >= PATIENCE ? set : NULL);
        /* who does not notify hears nothing */
        assert_null(unit_return_remote(objects + i * SMALL_SLAB_OBJECTS + 1, 1));
    }
    assert_int_equal(hak__slab_drain(set), SLABS);
    assert_int_equal(hak__slab_drain(set), 0);
    assert_null(unit_return_remote(objects + 2, 1));
    for (uint32_t i = 0; i < SLABS; i++) {
        uint32_t given = i == 0 ? 3 : 2;
        unit_return(objects + i * SMALL_SLAB_OBJECTS + given, SMALL_SLAB_OBJECTS - given);
    }
    unit_set_destroy(set);
}

TESTS(unit_start)
