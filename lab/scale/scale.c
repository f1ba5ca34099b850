/* SPDX-License-Identifier: MIT */
/* scale.c: threads that allocate in turns, to be traced by lackey for model.cc.
 *
 * Exactly one thread runs at a time: a baton goes round, and whoever has it makes TURN steps. So
 * the library sees the same calls in the same order in each run, on any machine. Stores to `marks`
 * tell the model in the trace whose turn begins, where it ends, and when the counting begins. Of
 * this program's own instructions the model counts the lines of blocks that move, since an
 * allocator that hands out another thread's block leaves that to the program.
 *
 * With "time" for the time of a turn there is no baton: the threads run at the same time, wait for
 * each other only where larson's lanes change hands, and the program prints nanoseconds. */
#define _GNU_SOURCE 1
#include <dlfcn.h>
#include <link.h>
#include <linux/futex.h>
#include <pthread.h>
#include <stdarg.h>
#include <stdbool.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

#define THREADS_MAX 512
#define TURN 8     /* steps of a thread before the next one's */
#define BLOCKS 128 /* larson, server: live blocks of a lane */
#define HAND_ON 64 /* larson: turns after which each lane goes to the next thread */
#define QUEUE 4096 /* blocks under way to another thread */
#define LINE 128

struct worker {
    uint32_t baton;
    uint32_t random;
    uint64_t operations;
    uint32_t head, tail; /* of the queue */
    void *blocks[BLOCKS];
    void *queue[QUEUE];
} __attribute__((aligned(LINE)));

struct mark {
    volatile uint32_t word;
} __attribute__((aligned(LINE)));

static struct mark marks[THREADS_MAX + 2]; /* a turn's begin for each thread, end, counting */
static struct worker *workers;
static uint32_t thread_count, turns_before, turns_counted;
static uint64_t turn_ns, now_ns, began_ns;
static bool counting, timed;
static pthread_barrier_t barrier;

static uint32_t random_below(uint32_t *state, uint32_t limit)
{
    *state ^= *state << 13;
    *state ^= *state >> 17;
    *state ^= *state << 5;
    return *state % limit;
}

static void *allocate(struct worker *worker, size_t size)
{
    char *block = malloc(size);
    if (block == NULL) {
        fputs("scale: no memory\n", stderr);
        _exit(1);
    }
    *block = 1;
    worker->operations += counting;
    return block;
}

static void release(struct worker *worker, void *block)
{
    if (block != NULL) {
        free(block);
        worker->operations += counting;
    }
}

static void replace(struct worker *worker, void **place, size_t size)
{
    release(worker, *place);
    *place = allocate(worker, size);
}

/* At its first turn a thread fills its lane, so that the library grows no more for long. */
static void replace_some(struct worker *worker, struct worker *lane, uint32_t turn, uint32_t count,
                         size_t (*size)(struct worker *worker))
{
    for (uint32_t i = 0; turn == 0 && i < BLOCKS; i++) {
        lane->blocks[i] = allocate(worker, size(worker));
    }
    for (uint32_t i = 0; i < count; i++) {
        uint32_t victim = random_below(&worker->random, BLOCKS);
        replace(worker, &lane->blocks[victim], size(worker));
    }
}

static bool send_block(struct worker *to, void *block)
{
    uint32_t tail = to->tail; /* each queue has one sender */
    if (tail - __atomic_load_n(&to->head, __ATOMIC_ACQUIRE) == QUEUE) {
        return false;
    }
    to->queue[tail % QUEUE] = block;
    __atomic_store_n(&to->tail, tail + 1, __ATOMIC_RELEASE);
    return true;
}

static void receive_blocks(struct worker *worker, uint32_t most)
{
    uint32_t head = worker->head;
    for (; most-- != 0 && head != __atomic_load_n(&worker->tail, __ATOMIC_ACQUIRE); head++) {
        release(worker, worker->queue[head % QUEUE]);
        __atomic_store_n(&worker->head, head + 1, __ATOMIC_RELEASE);
    }
}

/* The clock of the program and the allocator: a turn takes turn_ns. These two, in the program, come
 * before those of the C library; hakmem is bound to this syscall by bind_calls. */
int clock_gettime(clockid_t clock, struct timespec *now)
{
    if (timed) {
        static int (*next)(clockid_t, struct timespec *);
        if (next == NULL) {
            *(void **)&next = dlsym(RTLD_NEXT, "clock_gettime");
        }
        return next(clock, now);
    }
    uint64_t ns = UINT64_C(1000000000000) + now_ns;
    *now = (struct timespec){(time_t)(ns / 1000000000), (long)(ns % 1000000000)};
    return 0;
}

long syscall(long number, ...)
{
    static long (*next)(long, long, long, long, long, long, long);
    long words[6];
    va_list list;
    va_start(list, number);
    for (int i = 0; i < 6; i++) {
        words[i] = va_arg(list, long);
    }
    va_end(list);
    if (number == SYS_clock_gettime && !timed) {
        return clock_gettime((clockid_t)words[0], (struct timespec *)words[1]);
    }
    if (next == NULL) {
        *(void **)&next = dlsym(RTLD_NEXT, "syscall");
    }
    return next(number, words[0], words[1], words[2], words[3], words[4], words[5]);
}

/* Callback of dl_iterate_phdr: hakmem's calls reach the C library whatever a program puts before it
 * (src/override/direct.c), so its reference to syscall is bound here. */
static int bind_calls(struct dl_phdr_info *object, size_t size, void *argument)
{
    const ElfW(Dyn) *entry = NULL;
    const ElfW(Sym) *symbols = NULL;
    const ElfW(Rela) *references = NULL;
    const char *strings = NULL;
    size_t count = 0, page = (size_t)sysconf(_SC_PAGESIZE);
    (void)size;
    (void)argument;
    for (size_t i = 0; i < object->dlpi_phnum && strstr(object->dlpi_name, "libhakmem") != NULL;
         i++) {
        if (object->dlpi_phdr[i].p_type == PT_DYNAMIC) {
            entry = (const void *)(object->dlpi_addr + object->dlpi_phdr[i].p_vaddr);
        }
    }
    for (; entry != NULL && entry->d_tag != DT_NULL; entry++) {
        const void *at = (const void *)entry->d_un.d_ptr;
        symbols = entry->d_tag == DT_SYMTAB ? at : symbols;
        strings = entry->d_tag == DT_STRTAB ? at : strings;
        references = entry->d_tag == DT_RELA ? at : references;
        count = entry->d_tag == DT_RELASZ ? entry->d_un.d_val / sizeof *references : count;
    }
    for (size_t i = 0; i < count; i++) {
        size_t symbol = ELF64_R_SYM(references[i].r_info);
        uintptr_t place = object->dlpi_addr + references[i].r_offset;
        if (symbol != 0 && strcmp(strings + symbols[symbol].st_name, "syscall") == 0) {
            (void)mprotect((void *)(place & ~(page - 1)), page, PROT_READ | PROT_WRITE);
            *(long (**)(long, ...))place = syscall;
        }
    }
    return 0;
}

static size_t size_larson(struct worker *worker)
{
    return 8 + random_below(&worker->random, 1016);
}

/* Random blocks are replaced; every HAND_ON turns each thread gets another thread's blocks. */
static void turn_larson(uint32_t me, uint32_t turn)
{
    struct worker *lane = &workers[(me + turn / HAND_ON) % thread_count];
    replace_some(&workers[me], lane, turn, TURN, size_larson);
}

/* Even threads allocate, each for the odd one behind it, which frees. */
static void turn_pairs(uint32_t me, uint32_t turn)
{
    struct worker *worker = &workers[me];
    (void)turn;
    for (int i = 0; i < TURN && me % 2 == 0 && me + 1 < thread_count; i++) {
        if (worker[1].tail - __atomic_load_n(&worker[1].head, __ATOMIC_ACQUIRE) < QUEUE) {
            (void)send_block(&worker[1],
                             allocate(worker, 64 + random_below(&worker->random, 8) * 64));
        }
    }
    receive_blocks(worker, TURN);
}

/* The first thread frees what all others allocate. */
static void turn_many(uint32_t me, uint32_t turn)
{
    struct worker *worker = &workers[me];
    (void)turn;
    for (int i = 0; i < TURN && me != 0; i++) {
        if (workers->tail - workers->head < QUEUE) {
            (void)send_block(workers, allocate(worker, 64 + random_below(&worker->random, 8) * 64));
        }
    }
    receive_blocks(worker, QUEUE);
}

static size_t size_server(struct worker *worker)
{
    bool large = random_below(&worker->random, 64) == 0;
    return large ? 100000 : 32 + random_below(&worker->random, 4000);
}

/* A request: twenty small blocks, a buffer and an answer, which a neighbour frees one time in
 * eight; a connection's state is replaced, seldom by a buffer above 64 KiB. */
static void turn_server(uint32_t me, uint32_t turn)
{
    struct worker *worker = &workers[me];
    void *parts[20], *buffer = allocate(worker, 16384), *answer;
    for (int i = 0; i < 20; i++) {
        parts[i] = allocate(worker, 16 + random_below(&worker->random, 500));
    }
    answer = allocate(worker, 1024 + random_below(&worker->random, 7000));
    if (random_below(&worker->random, 8) != 0 ||
        !send_block(&workers[(me + 1) % thread_count], answer)) {
        release(worker, answer);
    }
    for (int i = 0; i < 20; i++) {
        release(worker, parts[i]);
    }
    release(worker, buffer);
    replace_some(worker, worker, turn, 1, size_server);
    receive_blocks(worker, QUEUE);
}

/* Paths whose lines can be counted by hand (python/tests/lab/test_scale.py), with pairs. */
static void turn_own(uint32_t me, uint32_t turn)
{
    (void)turn;
    release(&workers[me], allocate(&workers[me], 64));
}

static void turn_large(uint32_t me, uint32_t turn)
{
    (void)turn;
    release(&workers[me], allocate(&workers[me], 100000));
}

/* The next thread replaces each block of 64 bytes. */
static void turn_swap(uint32_t me, uint32_t turn)
{
    for (int i = 0; i < TURN; i++) {
        replace(&workers[me], &workers[(me + turn) % thread_count].blocks[i], 64);
    }
}

static const struct {
    const char *name;
    void (*turn)(uint32_t me, uint32_t turn);
} workloads[] = {{"larson", turn_larson}, {"pairs", turn_pairs}, {"many", turn_many},
                 {"server", turn_server}, {"own", turn_own},     {"large", turn_large},
                 {"swap", turn_swap}};
static void (*workload)(uint32_t me, uint32_t turn);

static void pass_baton(uint32_t to)
{
    __atomic_store_n(&workers[to].baton, 1, __ATOMIC_RELEASE);
    (void)syscall(SYS_futex, &workers[to].baton, FUTEX_WAKE_PRIVATE, 1, NULL, NULL, 0);
}

static uint64_t clock_ns(void)
{
    struct timespec now;
    clock_gettime(CLOCK_MONOTONIC, &now);
    return (uint64_t)now.tv_sec * 1000000000 + (uint64_t)now.tv_nsec;
}

static void *run_timed(void *argument)
{
    uint32_t me = (uint32_t)(uintptr_t)argument;
    for (uint32_t turn = 0; turn < turns_before + turns_counted; turn++) {
        if (turn % HAND_ON == 0 || turn == turns_before) {
            (void)pthread_barrier_wait(&barrier);
        }
        if (me == 0 && turn == turns_before) {
            began_ns = clock_ns();
        }
        workload(me, turn);
        workers[me].operations = turn < turns_before ? 0 : workers[me].operations;
    }
    return NULL;
}

static void *run(void *argument)
{
    uint32_t me = (uint32_t)(uintptr_t)argument;
    for (uint32_t turn = 0; turn < turns_before + turns_counted; turn++) {
        while (__atomic_load_n(&workers[me].baton, __ATOMIC_ACQUIRE) == 0) {
            (void)syscall(SYS_futex, &workers[me].baton, FUTEX_WAIT_PRIVATE, 0, NULL, NULL, 0);
        }
        workers[me].baton = 0;
        now_ns += me == 0 ? turn_ns : 0;
        if (me == 0 && turn == turns_before) {
            counting = true;
            marks[THREADS_MAX + 1].word = 1;
        }
        marks[me].word = 1;
        workload(me, turn);
        marks[THREADS_MAX].word = 1;
        pass_baton((me + 1) % thread_count);
    }
    return NULL;
}

/* Where each file's instructions are: "map NAME LOW HIGH OFFSET-IN-FILE BASE", and this program's
 * data, "own LOW HIGH". */
static int print_map(struct dl_phdr_info *info, size_t size, void *argument)
{
    (void)size, (void)argument;
    for (int i = 0; i < info->dlpi_phnum; i++) {
        const ElfW(Phdr) *part = &info->dlpi_phdr[i];
        uintptr_t low = info->dlpi_addr + part->p_vaddr, high = low + part->p_memsz;
        if (part->p_type == PT_LOAD && info->dlpi_name[0] == 0) {
            dprintf(1, "own %lx %lx\n", (unsigned long)low, (unsigned long)high);
        }
        if (part->p_type == PT_LOAD && (part->p_flags & PF_X) != 0) {
            dprintf(1, "map %s %lx %lx %lx %lx\n", info->dlpi_name[0] != 0 ? info->dlpi_name : "-",
                    (unsigned long)low, (unsigned long)high, (unsigned long)part->p_offset,
                    (unsigned long)info->dlpi_addr);
        }
    }
    return 0;
}

int main(int argc, char **argv)
{
    static pthread_t threads[THREADS_MAX];
    uint64_t operations = 0;
    for (size_t i = 0; argc == 6 && i < sizeof workloads / sizeof workloads[0]; i++) {
        workload = strcmp(argv[1], workloads[i].name) == 0 ? workloads[i].turn : workload;
    }
    thread_count = argc == 6 ? (uint32_t)strtoul(argv[2], NULL, 10) : 0;
    if (workload == NULL || thread_count == 0 || thread_count > THREADS_MAX) {
        fputs("usage: scale larson|pairs|many|server|own|large|swap THREADS TURNS-BEFORE "
              "TURNS-COUNTED NS-OF-A-TURN|time\n",
              stderr);
        return 2;
    }
    turns_before = (uint32_t)strtoul(argv[3], NULL, 10);
    turns_counted = (uint32_t)strtoul(argv[4], NULL, 10);
    turn_ns = strtoull(argv[5], NULL, 10);
    timed = counting = strcmp(argv[5], "time") == 0;
    (void)dl_iterate_phdr(bind_calls, NULL);
    (void)pthread_barrier_init(&barrier, NULL, thread_count);
    workers = mmap(NULL, thread_count * sizeof *workers, PROT_READ | PROT_WRITE,
                   MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
    dprintf(1, "own %lx %lx\n", (unsigned long)workers, (unsigned long)(workers + thread_count));
    (void)dl_iterate_phdr(print_map, NULL);
    dprintf(1, "marks %lx %d %d\n", (unsigned long)marks, LINE, THREADS_MAX);
    for (uint32_t i = 0; i < thread_count; i++) {
        workers[i].random = 4141 + i * 7919;
        if (pthread_create(&threads[i], NULL, timed ? run_timed : run, (void *)(uintptr_t)i) != 0) {
            fputs("scale: no thread\n", stderr);
            return 1;
        }
    }
    if (!timed) {
        pass_baton(0);
    }
    for (uint32_t i = 0; i < thread_count; i++) {
        (void)pthread_join(threads[i], NULL);
        operations += workers[i].operations;
    }
    if (timed) {
        dprintf(1, "ns %.2f\n",
                (double)(clock_ns() - began_ns) * thread_count / (double)operations);
    }
    dprintf(1, "operations %lu\n", (unsigned long)operations);
    return 0;
}
