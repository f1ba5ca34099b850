/* remote_free.pml: the remote-free protocol of a slab, and who drains an arena, for spin.
 *
 * One arena, SLABS slabs of CAPACITY objects. check.sh names the instances.
 *   Owner   draws from the arena: joins, refills, returns, parts       1 to 2, they share the arena and its lock
 *   Freer   frees what the owners hand it, by batches                 1 to 2, of another arena
 *   Purger  the purge pass of some other thread                       with -DPURGE
 * A line that starts with "/" "*=" quotes the source: file, function, and after the colon what must stand in
 * that function, after what was quoted of it before. check.sh holds these lines against src/.
 *
 * One step of the model is one access to a word that others write at the same time, together with what only its
 * thread can see. What the arena's lock guards is in several steps as well, so that a missing lock shows. Spin's
 * steps are sequentially consistent.
 * Left out: failures of a weak compare-and-swap without a cause (the loop only looks again), the order of the list
 * of partial slabs (any listed one is taken, which is more than the source does), reuse of a slab after it was
 * given back (nobody may hold it then; that is asserted).
 */
#ifndef SLABS
#define SLABS 2
#endif
#ifndef CAPACITY
#define CAPACITY 2
#endif
#ifndef OWNERS
#define OWNERS 1
#endif
#ifndef FREERS
#define FREERS 1
#endif
#ifndef REFILLS
#define REFILLS 3 /* of all owners together */
#endif
#define OBJECTS (SLABS * CAPACITY) /* numbered from 1, slabs from 0; at most 4 */

/* NOTIFIED_PENDING_MAX and NOTIFIED_PENDING_MAX / 2, as in the debug form */
#define PATIENCE 2
#define PATIENCE_PARKED 1

/* shared_remote:  | head | N 1 | count 3 |  */
#define N 8
#define HEAD(word) ((word) >> 4)
#define COUNT(word) ((word) & 7)

#define POISON 255 /* what the program writes into an object it has */
#define SLAB_OF(object) (((object) - 1) / CAPACITY)

/* Words of the source */
byte shared_remote[SLABS];
byte shared_link[SLABS]; /* slab + 1 */
byte free_list[SLABS], free_count[SLABS], carved_count[SLABS];
bool listed[SLABS], kept[SLABS];
byte next[5];          /* the first word of each object */
byte shared_notified;  /* slab + 1 */
byte shared_pending, shared_patience = PATIENCE_PARKED, threads_count;
bool arena_lock;

/* What only the check knows */
mtype = { UNTOUCHED, FREE, REMOTE, TAKEN, USED };
mtype place[5] = UNTOUCHED; /* FREE: in free_list, REMOTE: in the word, TAKEN: in a refill, USED: `holder` has it */
byte holder[5];             /* 0 to FREERS-1: a freer; from FREERS on: an owner */
byte slabs_made;
bool given_back[SLABS];
byte freers_inside[SLABS]; /* between the first look at the word and the last access */
bool notified[SLABS];      /* pushed, and not yet left behind by a drain */
bool excused;              /* somebody found the owner lagging and did not drain, after the last B1 */
byte refills, owners_left = OWNERS, freers_left = FREERS;

#define IS_MINE(object, me) ((object) <= OBJECTS && place[object] == USED && holder[object] == (me))
#define HAS_ONE(me) (IS_MINE(1, me) || IS_MINE(2, me) || IS_MINE(3, me) || IS_MINE(4, me))

inline lock_arena()
{
    atomic { !arena_lock -> arena_lock = true }
}

/* slab.h, Invariants: whatever is free is found again by whoever takes the lock next. */
inline unlock_arena()
{
    d_step {
        slab = 0;
        do
        :: slab < slabs_made ->
            assert(given_back[slab] || COUNT(shared_remote[slab]) == 0 || listed[slab] || kept[slab] || (shared_remote[slab] & N) != 0);
            assert(given_back[slab] || listed[slab] || kept[slab] || (free_count[slab] == 0 && carved_count[slab] == CAPACITY));
            slab++
        :: else -> break
        od;
        slab = 0;
        arena_lock = false
    }
}

/*= slab/slab.c hak__slab_give_back: slab_unlist(set, slab); */
inline give_back(s)
{
    d_step {
        assert(!given_back[s] && !kept[s]); /* not twice */
        assert(freers_inside[s] == 0);  /* not while a freer holds it */
        assert(!notified[s]);           /* not while it is on the stack */
        o = s * CAPACITY + 1;
        do
        :: o <= s * CAPACITY + carved_count[s] ->
            assert(place[o] == FREE || place[o] == REMOTE);
            o++
        :: else -> break
        od;
        o = 0;
        word = 0;
        listed[s] = false;
        given_back[s] = true
    }
}

/* An idle slab that stays with an arena that has threads. It is given back or listed again under the lock. Whether there
 * is room for it is anything. */
/*= slab/slab_kept.c slab_may_keep: atomic_load_relaxed(&set->shared_threads) != 0 */
/*= slab/slab_kept.c hak__slab_keep: if (!slab_may_keep(set, slab)) { hak__slab_give_back(set, slab); return; } */
/*= slab/slab_kept.c hak__slab_keep: slab_unlist(set, slab); */
inline keep_or_give_back(s)
{
    if
    :: threads_count != 0 ->
        d_step { /* keeps it */
            assert(freers_inside[s] == 0 && !notified[s]);
            word = 0;
            listed[s] = false;
            kept[s] = true
        }
    :: give_back(s)
    fi
}

/*= slab/slab_kept.c hak__slab_give_kept: hak__slab_give_back(set, hak__slab_take_kept(set, class_index)); */
inline give_kept(s)
{
    if
    :: kept[s] -> kept[s] = false; give_back(s)
    :: else
    fi
}

/*= slab/slab.c hak__slab_put_if_idle: if (hak__slab_is_idle(slab)) { hak__slab_keep(set, slab); } */
/*= slab/slab_remote.c hak__slab_is_idle: atomic_load_acquire(&slab->shared_remote); */
/*= slab/slab_remote.c hak__slab_is_idle: (word & REMOTE_NOTIFIED) == 0 && */
/*= slab/slab_remote.c hak__slab_is_idle: free_count + (word & REMOTE_COUNT_MASK) == slab_cut_count(slab); */
inline put_if_idle(s)
{
    if
    :: (word & N) == 0 && free_count[s] + COUNT(word) == carved_count[s] -> keep_or_give_back(s)
    :: else -> word = 0
    fi
}

/*= slab/slab.c hak__slab_drain: hak__slab_take_notified(set); */
inline drain()
{
    /*= slab/slab_remote.c hak__slab_take_notified: if (atomic_load_relaxed(&set->shared_notified) == 0) */
    if
    :: shared_notified == 0
    :: else ->
        /*= slab/slab_remote.c hak__slab_take_notified: atomic_store_relaxed(&set->shared_pending, 0u); */
        shared_pending = 0;
        /*= slab/slab_remote.c hak__slab_take_notified: B1, acquire */
        /*= slab/slab_remote.c hak__slab_take_notified: atomic_exchange_acquire(&set->shared_notified, 0u); */
        d_step { at = shared_notified; shared_notified = 0; excused = false }
        do
        :: at != 0 ->
            /*= slab/slab.c hak__slab_drain: hak__slab_next_notified(slab); */
            /*= slab/slab_remote.c hak__slab_next_notified: atomic_load_relaxed(&slab->shared_link); */
            after = shared_link[at - 1];
            /*= slab/slab.c hak__slab_drain: hak__slab_next_notified(slab); hak__slab_clear_notified(slab); slab->look_at = 0; */
            /*= slab/slab_remote.c hak__slab_clear_notified: B2, acquire */
            /*= slab/slab_remote.c hak__slab_clear_notified: atomic_and_acq_rel(&slab->shared_remote, ~REMOTE_NOTIFIED); */
            d_step { shared_remote[at - 1] = shared_remote[at - 1] & ~N; notified[at - 1] = false };
            /*= slab/slab.c hak__slab_drain: if (!slab->listed) { slab_list(set, slab); } hak__slab_put_if_idle(set, slab); slab = next; */
            atomic {
                assert(!kept[at - 1]); /* a double free, which the source reports */
                listed[at - 1] = true;
                word = shared_remote[at - 1]
            };
            put_if_idle((at - 1));
            d_step { at = after; after = 0 }
        :: else -> break
        od
    fi
}

/* A list of `count` objects of `slab`, from its free list or its word: the first `most` are taken, the others stay. */
/*= slab/slab.c slab_take_part: slab->free_count = 0; if (list.count > most) { slab->free_count = (uint16_t)(list.count - most); */
/*= slab/slab.c slab_take_part: if (list.count > most) */
/*= slab/slab.c slab_take_part: slab->free_list = slab_follow(slab, last); object_link(last, NULL); */
inline take_part(from)
{
    d_step {
        free_list[slab] = 0;
        free_count[slab] = 0;
        o = list;
        i = 0;
        do
        :: i < count ->
            assert(o != 0 && o <= OBJECTS && SLAB_OF(o) == slab && place[o] == from);
            place[o] = (i < most -> TAKEN : FREE);
            last = o;
            o = next[o];
            i++;
            if
            :: i == most && i < count ->
                next[last] = 0;
                free_list[slab] = o;
                free_count[slab] = count - most
            :: else
            fi
        :: else -> break
        od;
        assert(o == 0); /* as many as the count says */
        count = (count > most -> most : count);
        o = 0; i = 0; last = 0
    }
}

/*= slab/slab.c hak__slab_refill: hak__slab_drain(set); */
/*= slab/slab.c slab_more: if (slab_list_kept(set, class_index)) { return set->partial[class_index]; } */
/*= slab/slab.c slab_more: return slab_new(set, class_index); */
/*= slab/slab.c hak__slab_refill: slab = slab_more(set, class_index); */
/*= slab/slab.c hak__slab_refill: slab_take_objects(set, slab, most); */
/* Lending is a refill by another arena's thread that holds this arena's lock, without the carving:
 * OWNERS=2. */
/*= slab/slab.c hak__slab_lend: hak__slab_drain(set); */
/*= slab/slab.c hak__slab_lend: list = slab_take_remote(slab); */
/*= slab/slab.c hak__slab_lend: slab_unlist_used_up(set, slab); */
inline refill()
{
    lock_arena();
    drain();
    do
    :: count == 0 ->
        atomic {
            if
            :: listed[0] -> slab = 0
            :: listed[SLABS - 1] -> slab = SLABS - 1
            :: else ->
                if
                :: kept[0] -> slab = 0; kept[0] = false; listed[0] = true
                :: !kept[0] && kept[SLABS - 1] -> slab = SLABS - 1; kept[slab] = false; listed[slab] = true
                :: !kept[0] && !kept[SLABS - 1] && slabs_made < SLABS -> slab = slabs_made; slabs_made++; listed[slab] = true
                :: else -> break /* no memory */
                fi
            fi;
            assert(!given_back[slab])
        }
        /*= slab/slab.c slab_take_objects: slab_take_part(slab, refill.list, most); counter_add(&set->counters, COUNTER_REFILL_FREE_LIST, 1); */
        /*= slab/slab.c slab_take_objects: else if ((refill.list = slab_take_remote(slab)).count != 0) */
        /*= slab/slab.c slab_take_objects: slab_take_part(slab, refill.list, most); */
        /*= slab/slab.c slab_take_objects: else if (slab->carved_count < slab->capacity) { refill = slab_carve(set, slab, most); */
        if
        :: atomic { free_count[slab] != 0 -> list = free_list[slab]; count = free_count[slab] }
            take_part(FREE)
        :: else ->
            if
            /*= slab/slab_remote.c hak__slab_take_remote: if (slab_remote_count(slab) == 0) */
            :: COUNT(shared_remote[slab]) != 0 ->
                /*= slab/slab_remote.c hak__slab_take_remote: B3, acquire */
                /*= slab/slab_remote.c hak__slab_take_remote: atomic_and_acq_rel(&slab->shared_remote, REMOTE_NOTIFIED); */
                d_step {
                    list = HEAD(shared_remote[slab]);
                    count = COUNT(shared_remote[slab]);
                    shared_remote[slab] = shared_remote[slab] & N
                };
                take_part(REMOTE)
            :: else ->
                if
                :: atomic {
                        carved_count[slab] < CAPACITY ->
                        list = slab * CAPACITY + carved_count[slab] + 1;
                        count = CAPACITY - carved_count[slab];
                        count = (count > most -> most : count);
                        carved_count[slab] = carved_count[slab] + count;
                        o = list;
                        do
                        :: o < list + count ->
                            assert(place[o] == UNTOUCHED);
                            place[o] = TAKEN;
                            next[o] = (o + 1 < list + count -> o + 1 : 0);
                            o++
                        :: else -> break
                        od;
                        o = 0
                   }
                :: else
                fi
            fi
        fi;
        /*= slab/slab.c slab_unlist_used_up: slab_cut_count(slab) == slab->capacity && slab_free_objects(slab) == 0) { */
        /*= slab/slab.h slab_free_objects: return slab->free_count + slab_remote_count(slab); */
        if
        :: carved_count[slab] == CAPACITY && free_count[slab] + COUNT(shared_remote[slab]) == 0 -> listed[slab] = false
        :: else
        fi
        /*= slab/slab.c slab_unlist_used_up: slab_unlist(set, slab); */
    :: else -> break
    od;
    unlock_arena();
    /* The program: each object goes to a freer or stays with the thread. */
    atomic {
        do
        :: list != 0 ->
            o = list;
            list = next[o];
            next[o] = POISON;
            assert(place[o] == TAKEN); /* not handed out twice */
            place[o] = USED;
            if
            :: holder[o] = 0
            :: FREERS > 1 -> holder[o] = FREERS - 1
            :: holder[o] = me
            fi
        :: else -> break
        od;
        o = 0; count = 0
    }
}

/* Under the lock. Lists of one object, those that a bin holds. */
/* The condition of `looks` is not modelled. While N is clear the remote count does not change, and the drain that clears N
 * clears look_at, so the condition only saves calls that would find N set or too few objects. */
/*= slab/slab.h slab_return: bool looks = HAK_UNLIKELY(free_count >= slab->look_at || list.head == slab->free_list); */
/*= slab/slab.h slab_return: object_link(tail, slab->free_list); slab->free_list = list.head; */
/*= slab/slab.h slab_return: if (looks) { hak__slab_put_if_idle(slab->owner, slab); } */
/*= slab/slab.c hak__slab_check_return: if (!slab->listed) { slab_list(slab->owner, slab); } */
/*= slab/slab.c hak__slab_check_return: slab->look_at = always ? 0 : (uint16_t)(slab->carved_count - remote_count); */
inline return_one()
{
    atomic {
        if
        :: IS_MINE(1, me) -> o = 1
        :: IS_MINE(2, me) -> o = 2
        :: IS_MINE(3, me) -> o = 3
        :: IS_MINE(4, me) -> o = 4
        fi;
        slab = SLAB_OF(o);
        assert(!given_back[slab]);
        place[o] = FREE;
        holder[o] = 0;
        next[o] = free_list[slab];
        free_list[slab] = o;
        free_count[slab] = free_count[slab] + 1;
        listed[slab] = true;
        o = 0;
        word = shared_remote[slab]
    }
    put_if_idle(slab)
}

/* A lock that a stopped thread has is not taken: the next collection does the work. */
/*= arena/collect.c collect_from: if (!lock_acquire_soon(&arena->lock)) { return; } hak__slab_drain(&arena->slabs); */
/*= arena/collect.c collect_from: if (slabs) { hak__slab_give_kept(&arena->slabs, UINT32_MAX); */
inline collect()
{
    lock_arena();
    drain();
    give_kept(0);
    if :: SLABS == 2 -> give_kept((SLABS - 1)) :: else fi;
    unlock_arena()
}

#define COUNT_THREADS(count) \
    threads_count = count; \
    shared_patience = (threads_count == 0 -> PATIENCE_PARKED : PATIENCE)

proctype Owner(byte me)
{
    byte at, after, word, slab, list, count, most, o, i, last;

    /*= arena/arena.c hak__arena_add_thread: arena_set_threads(arena, arena->threads_count + 1); */
    /*= arena/arena.c arena_set_threads: count == 0 ? NOTIFIED_PENDING_MAX / 2 : NOTIFIED_PENDING_MAX; */
    d_step { COUNT_THREADS(threads_count + 1) }
    do
    :: atomic { refills < REFILLS -> refills++; if :: most = 1 :: most = CAPACITY fi }
        refill();
        most = 0
    :: HAS_ONE(me) -> /* a full bin */
        lock_arena();
        return_one();
        unlock_arena()
    :: break
    od;
    /* A thread that cannot have the lock keeps its lists and parks later (thread_leave_behind). */
    /*= arena/thread.c hak__thread_park: if (!hak__thread_flush(thread)) { */
    /*= arena/thread.c hak__thread_flush: if (!lock_acquire_soon(&thread->arena->lock)) { return false; } hak__cache_flush(&thread->cache); lock_release(&thread->arena->lock); */
    if
    :: HAS_ONE(me) ->
        lock_arena();
        do
        :: HAS_ONE(me) -> return_one()
        :: else -> break
        od;
        unlock_arena()
    :: else
    fi;
    /*= arena/thread.c hak__thread_park: hak__arena_part(arena); */
    /*= arena/arena.c hak__arena_part: arena_set_threads(arena, left); */
    d_step { COUNT_THREADS(threads_count - 1); i = threads_count }
    /*= arena/arena.c hak__arena_part: if (left == 0) { hak__arena_rest(arena); } */
    if
    :: i == 0 -> collect()
    :: else
    fi;
    owners_left--
}

#define LINK_TAIL next[tail] = HEAD(seen);
/* The link is the freer's own until A1, the count is a double free's proof. */
#define LOOK_AT_WORD \
    assert(!given_back[mine]); \
    seen = shared_remote[mine]; \
    LINK_TAIL \
    assert(COUNT(seen) + count <= CAPACITY)

#define LINK_SLAB shared_link[mine] = top
/* So is the slab's link until A2. */
#define LOOK_AT_STACK \
    assert(!given_back[mine]); \
    top = shared_notified; \
    LINK_SLAB

/* Who finds N set does not touch the slab again. */
#define LEAVE_IF_TOLD freers_inside[mine] = freers_inside[mine] - ((old & N) != 0);

/* Frees a batch of `count` objects from `head` to `tail`, all of `mine`. */
inline return_remote()
{
    /*= slab/slab_remote.c hak__slab_return_remote: atomic_load_relaxed(&slab->shared_remote); */
    /*= slab/slab_remote.c hak__slab_return_remote: object_link(tail, remote_head(slab, word)); */
    /*= slab/slab_remote.c hak__slab_return_remote: granule << REMOTE_HEAD_SHIFT | REMOTE_NOTIFIED | count; */
    /*= slab/slab_remote.c hak__slab_return_remote: A1, release */
    /*= slab/slab_remote.c hak__slab_return_remote: while (!atomic_cas_weak_release(&slab->shared_remote, &word, joined)); */
    /*= slab/slab_remote.c hak__slab_return_remote: if ((word & REMOTE_NOTIFIED) != 0) { return NULL; } */
    d_step { freers_inside[mine]++; LOOK_AT_WORD }
    do
    :: atomic {
           assert(!given_back[mine]);
           if
           :: shared_remote[mine] == seen ->
               old = seen;
               shared_remote[mine] = (head << 4) + N + COUNT(seen) + count;
               o = head;
               i = 0;
               do
               :: i < count -> assert(place[o] == TAKEN); place[o] = REMOTE; i++; o = (i < count -> next[o] : 0)
               :: else -> break
               od;
               i = 0; seen = 0; head = 0; count = 0;
               LEAVE_IF_TOLD
               break
           :: else -> LOOK_AT_WORD
           fi
       }
    od;
    tail = 0;
    if
    :: (old & N) != 0
    :: else ->
        /*= slab/slab_remote.c hak__slab_return_remote: slab_notify_owner(owner, slab); */
        /*= slab/slab_remote.c slab_notify_owner: atomic_load_relaxed(stack); */
        /*= slab/slab_remote.c slab_notify_owner: atomic_store_relaxed(&slab->shared_link, head); */
        /*= slab/slab_remote.c slab_notify_owner: A2, release */
        /*= slab/slab_remote.c slab_notify_owner: while (!atomic_cas_weak_release(stack, &head, link)); */
        atomic { LOOK_AT_STACK };
        do
        :: atomic {
               if
               :: shared_notified == top ->
                   shared_notified = mine + 1;
                   assert(!notified[mine]); /* not on the stack twice */
                   notified[mine] = true;
                   freers_inside[mine]--;
                   top = 0;
                   break
               :: else -> LOOK_AT_STACK
               fi
           }
        od;
        /*= slab/slab_remote.c slab_notify_owner: atomic_add_relaxed(&owner->shared_pending, 1u); */
#ifdef HELP
        shared_pending++;
        /*= slab/slab_remote.c hak__slab_return_remote: atomic_load_relaxed(&owner->shared_patience); */
        seen = shared_patience;
        /*= slab/slab_remote.c hak__slab_return_remote: atomic_load_relaxed(&owner->shared_pending) >= patience */
        d_step { lagging = shared_pending >= seen; seen = 0 }
#endif
    fi;
    atomic { old = 0; mine = 0 }
}

/* Refused at the gate while a fork is under way, it helps after its next batch. */
/*= arena/heartbeat.c hak__thread_count_batch: if (HAK_UNLIKELY(thread->cache.lagging != NULL)) { thread_tidy(thread, true); */
/*= arena/heartbeat.c thread_do_what_is_due: if (thread->cache.lagging != NULL) { hak__arena_help(thread); */
/*= arena/collect.c hak__arena_help: if (lock_try(&owner->lock)) { */
/*= arena/collect.c hak__arena_help: hak__slab_drain(set); lock_release(&owner->lock); */
inline help()
{
    lagging = false;
    if
    :: atomic { !arena_lock -> arena_lock = true }
        drain();
        unlock_arena()
    :: atomic { arena_lock -> excused = true } /* else somebody is at it */
    fi
}

#define CAN_GATHER(object) (IS_MINE(object, me) && (count == 0 || SLAB_OF(object) == mine))

/* Its remote buffer has one entry: objects of another slab have to wait until it is sent. */
proctype Freer(byte me)
{
    byte head, tail, count, mine, seen, old, top, o, i;
    byte at, after, word, slab;
    bool lagging;

    do
    :: atomic {
        /*= cache/remote.c hak__remote_free: object_set_free(object, entry->head, object_mark_of(window_owner(slice))); entry->head = object; */
        if
        :: CAN_GATHER(1) -> o = 1
        :: CAN_GATHER(2) -> o = 2
        :: CAN_GATHER(3) -> o = 3
        :: CAN_GATHER(4) -> o = 4
        fi;
        place[o] = TAKEN;
        holder[o] = 0;
        mine = SLAB_OF(o);
        next[o] = head;
        head = o;
        tail = (count == 0 -> o : tail);
        count++;
        o = 0
       }
    /*= cache/remote.c hak__remote_free: remote_send(cache, entry); */
    /*= cache/remote.c remote_send: hak__slab_return_remote(slab, list, (struct object *)(void *)tail); */
    :: count != 0 ->
        return_remote();
        if
        :: lagging -> help()
        :: else
        fi
    :: owners_left == 0 && !HAS_ONE(me) -> break
    od;
    /* Its end: the batch that waits is sent, with what its bins kept of others' objects. */
    /*= cache/remote.c hak__remote_flush: remote_send(cache, entry); */
    /*= cache/flush.c cache_return_kept: hak__remote_free(cache, slice, object); */
    /*= arena/thread.c hak__thread_flush: hak__cache_flush(&thread->cache); lock_release(&thread->arena->lock); hak__remote_flush(&thread->cache); */
    /*= arena/thread.c hak__thread_flush: if (HAK_UNLIKELY(thread->cache.lagging != NULL)) { hak__arena_help(thread); */
    if
    :: count != 0 ->
        return_remote();
        if
        :: lagging -> help()
        :: else
        fi
    :: else
    fi;
    freers_left--
}

/*= arena/collect.c collect_arenas: bool has = atomic_load_relaxed(&arena->slabs.shared_notified) != 0 || */
/*= arena/collect.c collect_arenas: lock_try(&arena->lock)) */
/*= arena/collect.c collect_arenas: hak__slab_drain(&arena->slabs); if (everything) { hak__slab_give_kept(&arena->slabs, UINT32_MAX); */
/*= arena/collect.c collect_arenas: hak__slab_trim_kept(&arena->slabs); lock_release(&arena->lock); */
inline purge_pass()
{
    if
    :: shared_notified != 0 ->
        if
        :: atomic { !arena_lock -> arena_lock = true }
            drain();
            give_kept(0);
            unlock_arena()
        :: arena_lock
        fi
    :: else
    fi
}

proctype Purger()
{
    byte at, after, word, slab, o;
end:
    do
    :: shared_notified != 0 -> purge_pass()
    od
}

init
{
    byte at, after, word, slab, o, i;
    atomic {
        do
        :: i < FREERS -> run Freer(i); i++
        :: i >= FREERS && i < FREERS + OWNERS -> run Owner(i); i++
        :: else -> break
        od;
        i = 0;
#ifdef PURGE
        run Purger()
#endif
    }
    owners_left == 0 && freers_left == 0;
#if defined HELP && !defined PURGE
    /* An arena without a thread is drained at once, but for those who left it to others. */
    assert(shared_notified == 0 || excused);
#endif
    /* The next pass finds the rest; with -DPURGE one may be under way. */
    do
    :: shared_notified != 0 -> purge_pass()
    :: else -> break
    od;
    !arena_lock;
    slab = 0;
    do
    :: slab < slabs_made ->
        assert(given_back[slab]); /* and by give_back not twice */
        slab++
    :: else -> break
    od;
    atomic {
        o = 1;
        do
        :: o <= OBJECTS ->
            assert(place[o] == UNTOUCHED || place[o] == FREE || place[o] == REMOTE);
            o++
        :: else -> break
        od;
        assert(shared_notified == 0)
    }
}
