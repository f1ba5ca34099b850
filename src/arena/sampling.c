/* SPDX-License-Identifier: MIT */
/* sampling.c: chooses the allocations that are sampled, for profiles (src/observe/samples.h).
 *
 * Each thread draws the number of bytes to its next sample from an exponential distribution
 * (base/exponential.h). malloc's countdown of bytes ends there, so the fast path does not know of
 * samples. The request in which the bytes run out is the sample. With the default period, a thread
 * that takes more than 4,000 samples a second doubles its own period. Each sample notes the period
 * that it was drawn with, so its weight stays right. A period that the user chose is kept.
 *
 * It also chooses the allocations that are guarded (HAKMEM_GUARD=N, observe/guard.h): one of N,
 * whatever their sizes. The countdown counts bytes, so the thread draws points that are 16 * N
 * bytes apart on average. A large request has a point in it more often than a small one. So a
 * request with a point in it is guarded with the probability that gives each size the rate 1/N.
 *
 * State: the calling thread's struct. hak__sampling is read and written relaxed: a thread that sees
 * a change late only begins late. */
#include "arena/arena.h"

#include "base/exponential.h"
#include "os/os.h"

/* A thread that takes 32 samples in less than SAMPLES_FAST_MS milliseconds doubles its
 * distance; one that needs more than four times as long halves it, down to the period that was
 * asked for. A sample takes about 2 microseconds, so samples take about a percent of the time at
 * most. Half the milliseconds: twice that. Twice as many: fewer samples of fast threads. */
#define SAMPLES_FAST_MS 8u

struct sampling hak__sampling;

/* By side: twice the period, and 1 if it adapts. */
static uint64_t shared_sampling_wishes[2];

uint64_t hak__sampling_of(enum sampling_side side)
{
    return atomic_load_relaxed(&shared_sampling_wishes[side]) / 2;
}

/* True: the wish is for samples, and for more than the other one is. What adapts may give fewer. */
static bool sampling_is_finer(uint64_t wish, uint64_t other)
{
    return wish / 2 != 0 && (other / 2 == 0 || wish / 2 < other / 2);
}

void hak__sampling_set(enum sampling_side side, uint64_t period, bool adapts)
{
    uint32_t turn;
    period = period < SAMPLE_PERIOD_MAX ? period : SAMPLE_PERIOD_MAX;
    atomic_store_relaxed(&shared_sampling_wishes[side], 2 * period + adapts);
    do {
        /* acq_rel: pairs with itself in another thread: the later one sees both wishes, and the
         * earlier one sees that there was a later one */
        turn = atomic_add_acq_rel(&hak__sampling.epoch, 1u) + 1;
        uint64_t own = atomic_load_relaxed(&shared_sampling_wishes[SAMPLING_OWN]);
        uint64_t tools = atomic_load_relaxed(&shared_sampling_wishes[SAMPLING_TOOLS]);
        bool both_adapt = (own / 2 == 0 || own % 2 != 0) && (tools / 2 == 0 || tools % 2 != 0);
        uint64_t finer = sampling_is_finer(tools, own) ? tools : own;
        atomic_store_relaxed(&hak__sampling.adapts, both_adapt);
        atomic_store_relaxed(&hak__sampling.period, finer / 2);
    } while (atomic_add_acq_rel(&hak__sampling.epoch, 1u) != turn);
}

/* xorshift64* (S. Vigna, "An experimental exploration of Marsaglia's xorshift generators", 2016).
 */
static uint64_t sampler_random(struct thread *thread)
{
    uint64_t state = thread->sampler.random;
    if (state == 0) {
        state =
            hak__os_random_seed() ^ ((uint64_t)(uintptr_t)thread * UINT64_C(0x9e3779b97f4a7c15));
        state = state == 0 ? 1 : state;
    }
    state ^= state >> 12;
    state ^= state << 25;
    state ^= state >> 27;
    thread->sampler.random = state;
    return state * UINT64_C(0x2545f4914f6cdd1d);
}

/* Changes the distance to the next sample. The difference to bytes_from, the bytes allocated since
 * hak__sampling_take_bytes, stays. */
static void sampler_set_left(struct sampler *sampler, int64_t bytes)
{
    uint64_t taken = (uint64_t)sampler->bytes_from - (uint64_t)sampler->bytes_left;
    sampler->bytes_left = bytes;
    sampler->bytes_from = (int64_t)((uint64_t)bytes + taken);
}

static void sampler_draw(struct thread *thread)
{
    struct sampler *sampler = &thread->sampler;
    sampler_set_left(sampler, hak__exponential_draw(sampler_random(thread), sampler->period));
}

/* Sampling was switched on or off, or this is the thread's first look. */
static HAK_COLD void sampler_begin(struct thread *thread)
{
    struct sampler *sampler = &thread->sampler;
    sampler->epoch = atomic_load_relaxed(&hak__sampling.epoch);
    sampler->period = atomic_load_relaxed(&hak__sampling.period);
    sampler->count = 0;
    sampler->started_ms = hak__os_clock_ms();
    if (sampler->period == 0) {
        sampler_set_left(sampler, INT64_MAX);
    } else {
        sampler_draw(thread);
    }
}

/* Adapts the period to the rate of samples. */
static void sampler_adapt(struct sampler *sampler)
{
    if (++sampler->count < 32 || !atomic_load_relaxed(&hak__sampling.adapts)) {
        return;
    }
    uint32_t now_ms = hak__os_clock_ms(), elapsed_ms = now_ms - sampler->started_ms;
    sampler->count = 0;
    sampler->started_ms = now_ms;
    if (elapsed_ms < SAMPLES_FAST_MS && sampler->period < SAMPLE_PERIOD_MAX / 2) {
        sampler->period *= 2;
    } else if (elapsed_ms > 4 * SAMPLES_FAST_MS &&
               sampler->period / 2 >= atomic_load_relaxed(&hak__sampling.period)) {
        sampler->period /= 2;
    }
}

/* The bytes have run out. Returns the period of the sample, and draws the next distance; 0:
 * sampling is off. */
static HAK_COLD uint64_t sampler_end(struct thread *thread)
{
    struct sampler *sampler = &thread->sampler;
    if (sampler->period == 0) {
        sampler_set_left(sampler, INT64_MAX);
        return 0;
    }
    uint64_t period = sampler->period;
    sampler_adapt(sampler);
    sampler_draw(thread);
    return period;
}

/* Subtracts the bytes of the countdown so far. */
static void sampler_take(struct thread *thread)
{
    struct sampler *sampler = &thread->sampler;
    int64_t taken = (int64_t)sampler->countdown_from - thread->cache.countdown;
    sampler->bytes_left -= taken;
    sampler->guard_left -= taken;
    thread->cache.bytes.asked += taken;
    sampler->countdown_from = thread->cache.countdown;
}

/* Bytes to the next sample or point of guarding. */
static int64_t sampler_nearest(const struct sampler *sampler)
{
    return sampler->guard_left < sampler->bytes_left ? sampler->guard_left : sampler->bytes_left;
}

/* The bytes to the next point of guarding have run out, or this is the thread's first look. */
static HAK_COLD void sampler_end_guard(struct thread *thread)
{
    struct sampler *sampler = &thread->sampler;
    uint32_t rate = hak__knobs.guard;
    sampler->guard_due = sampler->guard_drawn;
    sampler->guard_drawn = rate != 0;
    if (rate == 0) {
        sampler->guard_left = INT64_MAX;
    } else {
        /* Bytes from one point of guarding to the next on average, for each of the N of
         * HAKMEM_GUARD=N. Twice: half as many slow exits, and objects of 16 bytes are guarded at
         * half the rate. Half: twice as many exits, and objects of 8 bytes are guarded at the full
         * rate. */
        uint64_t period = rate == 1 ? 0 : (uint64_t)OBJECT_ALIGNMENT * rate;
        sampler->guard_left = hak__exponential_draw(sampler_random(thread), period);
    }
}

bool hak__sampling_guards(struct thread *thread, size_t size)
{
    uint32_t rate = hak__knobs.guard;
    if (rate == 1) {
        return true;
    }
    if (!thread->sampler.guard_due) {
        return false;
    }
    thread->sampler.guard_due = false;
    double kept = hak__exponential_weight(size, (uint64_t)OBJECT_ALIGNMENT * rate) / rate;
    double uniform = (double)(sampler_random(thread) >> 11) / (double)(UINT64_C(1) << 53);
    return uniform < kept;
}

uint64_t hak__sampling_count(struct thread *thread, size_t size)
{
    struct sampler *sampler = &thread->sampler;
    uint64_t period = 0;
    sampler_take(thread);
    if (HAK_UNLIKELY(sampler->epoch != atomic_load_relaxed(&hak__sampling.epoch))) {
        sampler_begin(thread);
    }
    /* A thread's first request counts, too: it may be the only large one. */
    sampler->bytes_left -= (int64_t)size;
    sampler->guard_left -= (int64_t)size;
    sampler->guard_due = false;
    if (HAK_UNLIKELY(sampler->bytes_left < 0)) {
        period = sampler_end(thread);
    }
    if (HAK_UNLIKELY(sampler->guard_left < 0)) {
        sampler_end_guard(thread);
    }
    int64_t nearest = sampler_nearest(sampler);
    if (nearest < thread->cache.countdown) {
        sampler->countdown_from = (int32_t)nearest;
        thread->cache.countdown = (int32_t)nearest;
    }
    return period;
}

void hak__sampling_set_countdown(struct thread *thread, uint32_t interval)
{
    struct sampler *sampler = &thread->sampler;
    sampler_take(thread);
    int64_t nearest = sampler_nearest(sampler);
    int64_t most = nearest > 0 ? nearest : 0;
    sampler->countdown_from = (int32_t)(interval < most ? interval : most);
    thread->cache.countdown = sampler->countdown_from;
}

uint64_t hak__sampling_take_bytes(struct thread *thread)
{
    struct sampler *sampler = &thread->sampler;
    uint64_t taken = (uint64_t)sampler->bytes_from - (uint64_t)sampler->bytes_left;
    sampler->bytes_from = sampler->bytes_left;
    return taken;
}
