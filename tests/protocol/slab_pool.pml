/* slab_pool.pml: the lock-free pool of empty slabs, for spin. See remote_free.pml for how the source is quoted.
 *
 * THREADS threads take from and give to one pool, OPERATIONS times in all; SLICES slices, all pooled at the start. A
 * thread that has a slice uses its link for other things, as a slab does for the notify stack.
 */
#ifndef THREADS
#define THREADS 2
#endif
#ifndef SLICES
#define SLICES 3
#endif
#ifndef OPERATIONS
#define OPERATIONS 6
#endif
#define POOL_SLICES_MAX 2 /* as in the debug form; what is given beyond goes to the region */
#define POOL 0
#define REGION 255
#define LEFT_BEHIND 1 /* in a link, by the slab's next life */

/* Words of the source. A head in two parts that change in one step; a tag does not wrap here. */
byte pool_link, pool_tag; /* slice + 1, 0: empty */
byte pool_count;
byte shared_link[SLICES + 1]; /* by slice + 1 */

/* What only the check knows */
byte place[SLICES + 1]; /* POOL, REGION, or who has it: thread + 1 */
byte operations;
byte threads_left = THREADS;

#define IS_MINE(link, me) ((link) <= SLICES && place[link] == (me) + 1)

/* Walks the stack: each slice once, all in the pool, never more than counted. */
inline check_pool()
{
    atomic {
        at = pool_link;
        depth = 0;
        do
        :: at != 0 ->
            assert(at <= SLICES && place[at] == POOL); /* not in the pool and with a thread */
            depth++;
            assert(depth <= SLICES); /* no circle */
            at = shared_link[at]
        :: else -> break
        od;
        assert(depth <= pool_count && depth <= POOL_SLICES_MAX); /* "may be ahead of the stack by gives in progress, never behind" */
        depth = 0
    }
}

#ifdef BUG_NO_TAG
#define SAME_HEAD (pool_link == link)
#else
#define SAME_HEAD (pool_link == link && pool_tag == tag)
#endif

/*= slab/slab_pool.c pool_word: return ((old >> 32) + 1) << 32 | link; */
/*= slab/slab_pool.c hak__slab_pool_take: atomic_load_acquire(&shared_pool_head); */
/*= slab/slab_pool.c hak__slab_pool_take: while ((uint32_t)head != 0) */
inline take()
{
#ifdef BUG_LINK_READ_EARLY
    atomic { link = pool_link; next = shared_link[link] };
    atomic { if :: pool_link == link :: else -> link = pool_link; next = shared_link[link] fi; tag = pool_tag };
#else
    atomic { link = pool_link; tag = pool_tag };
#endif
    do
    :: link != 0 ->
        /*= slab/slab_pool.c hak__slab_pool_take: atomic_load_relaxed(&window_slab_metadata(slice)->shared_link); */
#ifndef BUG_LINK_READ_EARLY
        next = shared_link[link];
#endif
        /*= slab/slab_pool.c hak__slab_pool_take: atomic_cas_acq_rel(&shared_pool_head, &head, pool_word(head, next)) */
        atomic {
            if
#ifdef BUG_TAKE_STORE
            :: true ->
#else
            :: SAME_HEAD ->
#endif
                pool_link = next;
                pool_tag++;
                assert(place[link] == POOL); /* not handed out twice */
                place[link] = me + 1;
                break
#ifndef BUG_TAKE_STORE
            :: else -> link = pool_link; tag = pool_tag
#endif
            fi
        }
    :: else -> break
    od;
    if
    :: link != 0 ->
        check_pool();
        /*= slab/slab_pool.c hak__slab_pool_take: atomic_sub_relaxed(&shared_pool_count, 1u); */
        pool_count--;
        shared_link[link] = LEFT_BEHIND
    :: else
    fi;
    atomic { link = 0; next = 0; tag = 0 }
}

#ifdef BUG_GIVE_LINK_LATE
#define LINK_SLAB
#else
#define LINK_SLAB shared_link[given] = link /* the giver's own until the exchange */
#endif
#define LOOK_AT_HEAD link = pool_link; tag = pool_tag; LINK_SLAB

/*= slab/slab_pool.c hak__slab_pool_give: if (atomic_add_relaxed(&shared_pool_count, 1u) >= POOL_SLICES_MAX) */
/*= slab/slab_pool.c hak__slab_pool_give: atomic_sub_relaxed(&shared_pool_count, 1u); return false; */
inline give()
{
    atomic {
        if
        :: IS_MINE(1, me) -> given = 1
        :: IS_MINE(2, me) -> given = 2
        :: IS_MINE(3, me) -> given = 3
        fi
    }
#ifdef BUG_COUNT_AFTER
    if
    :: pool_count >= POOL_SLICES_MAX -> place[given] = REGION
#else
    atomic { refused = pool_count >= POOL_SLICES_MAX; pool_count++ };
    if
    :: refused -> atomic { pool_count--; place[given] = REGION }
#endif
    :: else ->
        /*= slab/slab_pool.c hak__slab_pool_give: atomic_load_relaxed(&shared_pool_head); */
        /*= slab/slab_pool.c hak__slab_pool_give: atomic_store_relaxed(&slab->shared_link, (uint32_t)head); */
        /*= slab/slab_pool.c hak__slab_pool_give: !atomic_cas_weak_release(&shared_pool_head, &head, pool_word(head, (uint32_t)slice + 1))); */
        atomic { LOOK_AT_HEAD };
        do
        :: atomic {
               if
#ifdef BUG_GIVE_STORE
               :: true ->
#else
               :: SAME_HEAD ->
#endif
                   pool_link = given;
                   pool_tag++;
                   place[given] = POOL;
                   break
#ifndef BUG_GIVE_STORE
               :: else -> LOOK_AT_HEAD
#endif
               fi
           }
        od;
#ifdef BUG_GIVE_LINK_LATE
        shared_link[given] = link;
#endif
#ifdef BUG_COUNT_AFTER
        check_pool();
        pool_count++;
#endif
        check_pool()
    fi;
    atomic { given = 0; link = 0; tag = 0; refused = false }
}

proctype Thread(byte me)
{
    byte link, tag, next, given, at, depth;
    bool refused;

    do
    :: atomic { operations < OPERATIONS -> operations++ }
        if
        :: take()
        :: IS_MINE(1, me) || IS_MINE(2, me) || IS_MINE(3, me) -> give()
        fi
    :: break
    od;
    threads_left--
}

init
{
    byte i, at, depth;
    atomic {
        i = 1;
        do
        :: i <= SLICES && i <= POOL_SLICES_MAX -> shared_link[i] = pool_link; pool_link = i; pool_count++; i++
        :: i <= SLICES && i > POOL_SLICES_MAX -> place[i] = 1; i++ /* the first thread's */
        :: else -> break
        od;
        i = 0;
        do
        :: i < THREADS -> run Thread(i); i++
        :: else -> break
        od
    }
    threads_left == 0;
    /* No slice is lost: each that no thread has is on the stack or in the region. */
    check_pool();
    atomic {
        at = pool_link;
        do
        :: at != 0 -> place[at] = REGION; depth++; at = shared_link[at]
        :: else -> break
        od;
        assert(depth == pool_count);
        i = 1;
        do
        :: i <= SLICES -> assert(place[i] != POOL); i++
        :: else -> break
        od
    }
}
