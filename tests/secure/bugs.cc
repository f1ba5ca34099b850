/* SPDX-License-Identifier: MIT */
/* bugs.cc: programs with one bug each, and the sentence with which the secure form of hakmem ends
 * each of them. The first sentence before a bug is its title in tables.
 *
 *   bugs LIBRARY NAME   runs itself with LIBRARY preloaded; passes if that ends by a signal with
 *                       the bug's report
 *   bugs --bug NAME     only has the bug, under whatever allocator serves it: the lab compares
 *                       allocators in this way. Status 0: nothing has happened; 3: harm was done,
 *                       as it noticed itself; 4: it had no memory.
 *
 * Only memory tags (src/base/tags.h) notice the bugs whose names begin with "tags_". */
#include <new>

#include "child.h"

namespace
{

struct bug {
    const char *name, *report;
    void (*run)();
    const bug *next;
};
const bug *bugs;

struct entry : bug {
    entry(const char *name, const char *report, void (*run)()) : bug{name, report, run, bugs}
    {
        bugs = this;
    }
};

/* The bug is the third argument, or what stands in braces behind. */
#define BUG(name, report, ...)                                                                     \
    void name();                                                                                   \
    const entry name##_entry(#name, report, name);                                                 \
    void name() __VA_OPT__({ __VA_ARGS__; })

/* Memory of the size, all of it written. */
unsigned char *make(size_t size)
{
    unsigned char *block = static_cast<unsigned char *>(hide(malloc(size)));
    if (block == nullptr) {
        exit(4);
    }
    memset(block, 'm', size);
    return static_cast<unsigned char *>(hide(block));
}

/* Other work of the program between two steps: allocations of many sizes, and their frees. */
void work(size_t size)
{
    void *blocks[600];
    for (size_t i = 0; i < 600; i++) {
        blocks[i] = hide(malloc(i % 2 == 0 ? size : i * 7));
    }
    for (void *block : blocks) {
        free(block);
    }
}

/* The program notices that it was harmed. */
void harmed()
{
    exit(3);
}

void *free_it(void *block)
{
    free(block);
    return nullptr;
}

void free_in_a_thread(void *block)
{
    pthread_t thread;
    pthread_create(&thread, nullptr, free_it, hide(block));
    pthread_join(thread, nullptr);
}

void free_twice(size_t size)
{
    unsigned char *block = make(size);
    free(block);
    free(hide(block));
}

void write_behind(size_t size, size_t count, int byte)
{
    unsigned char *block = make(size);
    for (size_t i = 0; i < count; i++) {
        block[size + i] = static_cast<unsigned char>(byte);
    }
    free(hide(block));
}

void read_after_free(size_t size)
{
    unsigned char *block = make(size);
    free(block);
    if (static_cast<volatile unsigned char *>(hide(block))[size / 2] == 'm') {
        harmed();
    }
}

/* The program overwrites the first word of a freed block with an address of its own. */
BUG(corrupted_link, "corrupted free list")
{
    static unsigned char target[4096] __attribute__((aligned(4096)));
    void *blocks[3000];
    for (void *&block : blocks) {
        block = make(80);
    }
    for (void *block : blocks) {
        free(block);
    }
    for (void *block : blocks) {
        void *address = target;
        memcpy(hide(block), &address, sizeof address);
    }
    for (size_t i = 0; i < 3000; i++) {
        if (malloc(80) == target) {
            harmed();
        }
    }
}

/* One object is deleted as an array. */
BUG(delete_array_of_new, "delete[] of memory from new",
    delete[] static_cast<long *>(hide(new long(1))))

/* An array is deleted as one object. */
BUG(delete_of_array, "delete of memory from new[]", delete static_cast<long *>(hide(new long[10])))

/* Memory from malloc is deleted. */
BUG(delete_of_malloc, "delete of memory from malloc", delete static_cast<long *>(hide(make(40))))

/* An object is deleted as one of another type, which is larger. */
BUG(delete_wrong_size, "delete with another size than that of new")
{
    void *block = hide(::operator new(40));
    ::operator delete(block, static_cast<size_t>(400));
}

/* A block is freed twice in a row. */
BUG(double_free, "double free")
{
    free_twice(100);
    if (malloc(100) == malloc(100)) {
        harmed();
    }
}

/* Both frees find the block alone in its slab, which is emptied and used anew between them. */
BUG(double_free_emptied, "double free")
{
    unsigned char *block = make(3000);
    free(block);
    free_in_a_thread(block);
    unsigned char *first = make(3000), *second = make(3000);
    if (first == second) {
        harmed();
    }
}

/* The parent frees a block, and its child does so again. */
BUG(double_free_fork, "double free")
{
    unsigned char *block = make(64);
    int status = 0;
    free(block);
    pid_t pid = fork();
    if (pid == 0) {
        free(hide(block));
        _exit(0);
    }
    waitpid(pid, &status, 0);
    if (WIFSIGNALED(status)) {
        abort();
    }
}

/* A block of 5 MiB is freed twice. */
BUG(double_free_huge, "double free", free_twice(5 << 20))

/* A block of 200,000 bytes is freed twice. */
BUG(double_free_large, "no allocation starts here", free_twice(200000))

/* A block is freed, then much else, then the block again. */
BUG(double_free_later, "double free")
{
    unsigned char *keep = make(48), *block = make(48);
    free(block);
    for (int i = 0; i < 20; i++) {
        unsigned char *others[200];
        for (size_t k = 0; k < 200; k++) {
            others[k] = make(16 * (k % 60 + 4));
        }
        for (size_t k = 0; k < 200; k++) {
            if (others[k] == block) {
                return; /* it has a new owner */
            }
        }
        for (size_t k = 0; k < 200; k += 2) {
            free(others[k]);
        }
    }
    free(hide(block));
    free(keep);
}

/* A thread frees a block, and then another thread does. */
BUG(double_free_thread, "double free")
{
    unsigned char *block = make(200);
    free_in_a_thread(block);
    free(hide(block));
    work(200);
}

/* Memory from new is freed. */
BUG(free_of_new, "free or realloc of memory from new", free(hide(new long(1))))

/* A pointer into a block of 5 MiB is freed. */
BUG(invalid_free_huge, "inside an allocation", free(hide(make(5 << 20) + 4096)))

/* A pointer into a block is freed. */
BUG(invalid_free_inside, "invalid free (no object starts here)")
{
    free(hide(make(100) + 16));
    work(100);
}

/* A pointer into a block of 200,000 bytes is freed. */
BUG(invalid_free_large, "no allocation starts here", free(hide(make(200000) + 64)))

/* A pointer that is no multiple of 16 is freed. */
BUG(invalid_free_misaligned, "invalid free (no object starts here)")
{
    free(hide(make(100) + 8));
    work(100);
}

/* A pointer to memory that was never handed out is freed. */
BUG(invalid_free_never, "invalid free")
{
    uintptr_t block = reinterpret_cast<uintptr_t>(make(100));
    free(hide(reinterpret_cast<void *>(block / 32768 * 32768 + 32768 - 112 * 2)));
    work(100);
}

/* A variable is freed. */
BUG(invalid_free_stack, "foreign pointer")
{
    long variable[4] = {1, 2, 3, 4};
    work(32);
    free(hide(variable));
}

/* The program writes 1 byte beyond a block of 24. It is even, which the canary's first byte never
 * is. */
BUG(overflow_1, "overflow", write_behind(24, 1, 'n'))

/* The program writes 16 bytes beyond a block of 24. */
BUG(overflow_16, "overflow", write_behind(24, 16, 'o'))

/* The program writes 64 bytes beyond a block of 24. */
BUG(overflow_64, "overflow", write_behind(24, 64, 'o'))

/* The program writes 8 bytes beyond a block of 24. */
BUG(overflow_8, "overflow", write_behind(24, 8, 'o'))

/* The program writes beyond a block of 5 MiB. */
BUG(overflow_huge, "access beyond the end of a block", write_behind(5 << 20, 1, 'o'))

/* The program writes beyond a block of 200,000 bytes. */
BUG(overflow_large, "access beyond the end of a block", write_behind(200000, 1, 'o'))

/* The program writes a byte beyond a block of 5,112. */
BUG(overflow_mid, "overflow", write_behind(5112, 1, 'n'))

/* A string of 24 bytes is ended behind its block. */
BUG(overflow_zero, "overflow", write_behind(24, 1, '\0'))

/* The program reads a block of 5 MiB that it has freed. */
BUG(read_after_free_huge, "use after free", read_after_free(5 << 20))

/* The program reads a block of 200,000 bytes that it has freed. */
BUG(read_after_free_large, "use after free", read_after_free(200000))

/* A freed block is given to realloc. */
BUG(realloc_freed, "double free")
{
    unsigned char *block = make(100);
    free(block);
    free(realloc(hide(block), 1000));
}

/* A pointer into a block is given to realloc. */
BUG(realloc_inside, "invalid free (no object starts here)",
    hide(realloc(hide(make(100) + 16), 1000)))

/* A block that was just allocated still holds what another one held. There is nothing to report:
 * the secure form has cleared it, so the program sees zeroes and ends itself. */
BUG(secrets, "the secret is gone")
{
    for (int round = 0; round < 200; round++) {
        unsigned char *block = make(200);
        memset(block, 's', 200);
        free(block);
        unsigned char *other = static_cast<unsigned char *>(hide(malloc(200)));
        if (memchr(other, 's', 200) != nullptr) {
            harmed();
        }
        free(other);
    }
    fputs("the secret is gone\n", stderr);
    abort();
}

/* The program writes the 8 bytes before a block. */
BUG(underflow, "overflow")
{
    unsigned char *blocks[64];
    for (unsigned char *&block : blocks) {
        block = make(40);
    }
    memset(hide(blocks[32] - 8), 'u', 8);
    for (unsigned char *block : blocks) {
        free(block);
    }
    work(40);
}

/* The program writes to a block that it has freed. */
BUG(write_after_free, "freed object was written")
{
    unsigned char *block = make(80);
    free(block);
    static_cast<unsigned char *>(hide(block))[40] = 'w';
    for (int i = 0; i < 100; i++) {
        work(80);
    }
    for (int i = 0; i < 5000; i++) { /* whichever free object it is now, it is handed out */
        make(80);
    }
}

/* A block is freed, has a new owner, and is freed again through the old pointer. It came back
 * within 335 rounds in 30 runs. Above the 56 bits of an address stands the tag. */
BUG(tags_free_of_new_owner, "its memory tag has changed")
{
    unsigned char *old = make(80);
    free(old);
    uintptr_t dangling = reinterpret_cast<uintptr_t>(hide(old));
    for (int i = 0; i < 1000000; i++) {
        uintptr_t now = reinterpret_cast<uintptr_t>(make(80));
        if (now != dangling && (now ^ dangling) << (64 - 56) == 0) {
            break;
        }
        free(reinterpret_cast<void *>(now));
    }
    free(reinterpret_cast<void *>(dangling));
}

/* The program reads a small block that it has freed. */
BUG(tags_read_after_free, "memory tag", read_after_free(80))

/* The program reads 8 bytes behind a cleared block of 3,000 bytes. */
BUG(tags_read_behind_calloc, "memory tag")
{
    volatile unsigned char *block = static_cast<unsigned char *>(hide(calloc(1, 3000)));
    for (size_t i = 0; i < 3000; i++) {
        block[i] = 1;
    }
    (void)block[3080];
}

/* --- how a bug ends --- */

const char *program, *library;

void run_preloaded(const void *name)
{
    setenv("LD_PRELOAD", library, 1);
    execl(program, program, "--bug", static_cast<const char *>(name), static_cast<char *>(nullptr));
}

int look(const bug &one)
{
    const struct child child = run_child(run_preloaded, one.name);
    if (!WIFSIGNALED(child.status) ||
        (WTERMSIG(child.status) != SIGABRT && WTERMSIG(child.status) != SIGSEGV) ||
        strstr(child.text, one.report) == nullptr) {
        fprintf(stderr, "expected a signal and the report \"%s\"; wait status %#x, and\n%s\n",
                one.report, static_cast<unsigned>(child.status), child.text);
        return 1;
    }
    printf("%s\n", one.report);
    return 0;
}

} // namespace

int main(int count, char **arguments)
{
    const bug *one = count == 3 ? bugs : nullptr;
    while (one != nullptr && strcmp(one->name, arguments[2]) != 0) {
        one = one->next;
    }
    if (one == nullptr) {
        fprintf(stderr, "usage: %s --bug NAME, or %s LIBRARY NAME\n", arguments[0], arguments[0]);
        return 2;
    }
    if (strcmp(arguments[1], "--bug") == 0) {
        one->run();
        return dprintf(1, "returned\n") > 0 ? 0 : 2; /* what comes now is late */
    }
    program = arguments[0];
    library = arguments[1];
    return look(*one);
}
