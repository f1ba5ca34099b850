/* SPDX-License-Identifier: MIT */
/* test_unready.c: a program that has functions of its own under all names that hakmem refers to, as
 * sanitizers and profilers do. They work from the program's last constructor on; before that,
 * hakmem must not call them, though malloc is used. Those that map memory are called after it.
 * ctest: preload-only secure-too exports no-qemu */
#include "override.h"

#if defined(__GLIBC__) && (defined(__x86_64__) || defined(__aarch64__))

extern unsigned char unready_ready;
unsigned char unready_ready;

/* By the kernel alone: all else may be one of the functions below. */
__attribute__((used)) void unready_early(const char *name);
__attribute__((used)) void unready_early(const char *name)
{
    static const char text[] = "called before its constructor: ";
    const char *parts[] = {text, name, "\n"};
    for (size_t i = 0; i < COUNT_OF(parts); i++) {
        size_t length = 0;
        while (parts[i][length] != '\0') {
            length++;
        }
#if defined(__x86_64__)
        long number = SYS_write;
        __asm__ volatile("syscall"
                         : "+a"(number)
                         : "D"(2L), "S"(parts[i]), "d"(length)
                         : "rcx", "r11", "memory");
#endif
    }
    __builtin_trap();
}

/* Each function jumps to the next one of its name, with all arguments as they are. */
#if defined(__x86_64__)
#define FORWARD_CODE(name)                                                                         \
    "cmpb $0, unready_ready(%rip)\n je 1f\n jmp *next_" #name "(%rip)\n"                           \
    "1: leaq text_" #name "(%rip), %rdi\n andq $-16, %rsp\n call unready_early\n"
#else
#define FORWARD_CODE(name)                                                                         \
    "adrp x16, unready_ready\n ldrb w16, [x16, :lo12:unready_ready]\n cbz w16, 1f\n"               \
    "adrp x16, next_" #name "\n ldr x16, [x16, :lo12:next_" #name "]\n br x16\n"                   \
    "1: adrp x0, text_" #name "\n add x0, x0, :lo12:text_" #name "\n b unready_early\n"
#endif
#define FORWARD(name)                                                                              \
    __asm__(".pushsection .rodata\n text_" #name ": .asciz \"" #name "\"\n .popsection\n"          \
            ".pushsection forwards, \"aw\"\n .balign 8\n .quad text_" #name "\n next_" #name       \
            ": .quad 0\n .popsection\n"                                                            \
            ".pushsection .text\n .globl " #name "\n .type " #name ", %function\n" #name           \
            ":\n" FORWARD_CODE(name) " .size " #name ", . - " #name "\n .popsection\n");

/* tools/check_library.sh has the list of names. Left out are those that nobody replaces:
 * __register_atfork, __cxa_at_quick_exit and __cxa_finalize. mmap is below. */
FORWARD(__errno_location)
FORWARD(abort)
FORWARD(close)
FORWARD(dl_iterate_phdr)
FORWARD(dlsym)
FORWARD(fflush)
FORWARD(fputs)
FORWARD(fwrite)
FORWARD(getauxval)
FORWARD(madvise)
FORWARD(memchr)
FORWARD(memcmp)
FORWARD(memcpy)
FORWARD(memmove)
FORWARD(memset)
FORWARD(mincore)
FORWARD(mremap)
FORWARD(munmap)
FORWARD(open)
FORWARD(pthread_attr_destroy)
FORWARD(pthread_attr_init)
FORWARD(pthread_attr_setstacksize)
FORWARD(pthread_create)
FORWARD(pthread_detach)
FORWARD(pthread_key_create)
FORWARD(pthread_self)
FORWARD(pthread_setcancelstate)
FORWARD(pthread_setspecific)
FORWARD(pthread_sigmask)
FORWARD(raise)
FORWARD(sigaction)
FORWARD(sigaddset)
FORWARD(sigemptyset)
FORWARD(sigfillset)
FORWARD(strchr)
FORWARD(strchrnul)
FORWARD(strlen)
FORWARD(strncmp)
FORWARD(strrchr)
FORWARD(strstr)
FORWARD(syscall)

struct forward {
    const char *name;
    void *next;
};
extern struct forward forwards_first[] __asm__("__start_forwards");
extern struct forward forwards_end[] __asm__("__stop_forwards");

static size_t maps_count;
static void *(*next_map)(void *, size_t, int, int, int, off_t);

void *mmap(void *address, size_t size, int protection, int flags, int file, off_t offset)
{
    if (unready_ready == 0) {
        unready_early("mmap");
    }
    maps_count++;
    return next_map(address, size, protection, flags, file, offset);
}

/* Blocks of all kinds: objects, spans, blocks with mappings of their own. */
static void use_memory(void)
{
    static const size_t sizes[] = {1, 100, 5000, 100000, 3000000, 70000000};
    for (size_t i = 0; i < COUNT_OF(sizes); i++) {
        char *block = malloc(sizes[i]), *zeroed = calloc(1, sizes[i]);
        if (block == NULL || zeroed == NULL || zeroed[sizes[i] - 1] != 0) {
            unready_early("no memory, or it is not zeroed");
        }
        block[0] = 1;
        block = realloc(block, 2 * sizes[i]);
        block[2 * sizes[i] - 1] = 1;
        free(realloc(block, sizes[i] / 2 + 1));
        free(zeroed);
        void *aligned = aligned_alloc(4096, sizes[i]);
        free(aligned);
    }
}

__attribute__((constructor(200))) static void begin_early(void)
{
    use_memory();
}

/* The last one. */
__attribute__((constructor)) static void begin(void)
{
    static const char *const versions[] = {"GLIBC_2.34", "GLIBC_2.17", "GLIBC_2.2.5"};
    void *(*find)(void *, const char *) = NULL;
    for (size_t i = 0; i < COUNT_OF(versions) && find == NULL; i++) {
        *(void **)&find = dlvsym(RTLD_NEXT, "dlsym", versions[i]);
    }
    for (struct forward *forward = forwards_first; forward < forwards_end; forward++) {
        forward->next = find(RTLD_NEXT, forward->name);
    }
    *(void **)&next_map = find(RTLD_NEXT, "mmap");
    use_memory();
    unready_ready = 1;
}

static void *run_thread(void *argument)
{
    use_memory();
    return argument;
}

int main(int count, char **arguments)
{
    prove_served();
    size_t before = maps_count;
    free(get_memory((size_t)3 << 30)); /* more than is kept */
    CHECK(maps_count > before);
    pthread_t threads[4];
    start_all(threads, 4, run_thread, NULL);
    join_all(threads, 4);
    if (count == 1) { /* what starts before main if it is asked for */
        static const char *const settings[][2] = {{"HAKMEM_SAMPLE_BYTES", "4096"},
                                                  {"HAKMEM_GUARD", "1"},
                                                  {"HAKMEM_OBSERVE", "1"},
                                                  {"HAKMEM_PROFILE_FILE", "/dev/null"},
                                                  {"HAKMEM_SCAVENGER", "1"}};
        for (size_t i = 0; i < COUNT_OF(settings); i++) {
            IN_CHILD(settings[i][0]) {
                int quiet = open("/dev/null", O_WRONLY);
                CHECK(quiet >= 0 && dup2(quiet, 1) == 1);
                setenv(settings[i][0], settings[i][1], 1);
                execl(arguments[0], arguments[0], "again", (char *)NULL);
                FAIL("execl");
            }
        }
    }
    return 0;
}

#else
int main(void)
{
    return TEST_SKIPPED;
}
#endif
