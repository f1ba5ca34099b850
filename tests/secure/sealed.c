/* SPDX-License-Identifier: MIT */
/* sealed.c: the secure form's settings lie in read-only pages (src/core/seal.h), and can be changed
 * by hakmem's own functions all the same: in the process, in forked children, beside forks, and
 * where the kernel refuses to change pages. The library is preloaded, or linked with its symbols
 * exported. Run with HAKMEM_BIN_BYTES=8k. */
#include "../override/override.h"

#include <elf.h>
#include <linux/filter.h>
#include <linux/seccomp.h>

#define FORKS 200
#define SKIPPED 77

typedef int option_set(const char *name, const char *value);
typedef int option_get(const char *name, char *value, size_t size);
typedef void limit_set(size_t soft, size_t hard, void *callback, void *argument);
static option_set *set;
static option_get *get;
static limit_set *set_limit;

/* --- the sealed objects --- */

static const char *const names[] = {"hak__knobs", "hak__settings", "option_paths", "hak__secure"};
enum { SEALED = sizeof names / sizeof names[0], SETTINGS = SEALED - 1 /* all but the tables */ };
static char *sealed[SEALED];

/* Finds them in the symbol table of the file that hak_option_set is in. */
static void find_sealed(void)
{
    Dl_info own;
    struct stat status;
    CHECK(dladdr((const void *)(uintptr_t)set, &own) != 0);
    int file = open(own.dli_fname, O_RDONLY | O_CLOEXEC);
    CHECK(file >= 0 && fstat(file, &status) == 0);
    const char *data = mmap(NULL, (size_t)status.st_size, PROT_READ, MAP_PRIVATE, file, 0);
    CHECK(data != MAP_FAILED && close(file) == 0);
    const Elf64_Ehdr *head = (const void *)data;
    const Elf64_Shdr *sections = (const void *)(data + head->e_shoff);
    for (size_t i = 0; i < head->e_shnum; i++) {
        if (sections[i].sh_type != SHT_SYMTAB) {
            continue;
        }
        const Elf64_Sym *symbols = (const void *)(data + sections[i].sh_offset);
        const char *strings = data + sections[sections[i].sh_link].sh_offset;
        for (size_t at = 0; at < sections[i].sh_size / sizeof *symbols; at++) {
            for (size_t j = 0; j < SEALED; j++) {
                if (strcmp(strings + symbols[at].st_name, names[j]) == 0) {
                    sealed[j] = (char *)own.dli_fbase + symbols[at].st_value;
                }
            }
        }
    }
    munmap((void *)(uintptr_t)data, (size_t)status.st_size);
    for (size_t i = 0; i < SEALED; i++) {
        CHECK(sealed[i] != NULL);
    }
}

/* True if the page of the address can be written. */
static bool is_open(const void *address)
{
    char line[512], access[8] = "";
    FILE *maps = fopen("/proc/self/maps", "re");
    CHECK(maps != NULL);
    while (fgets(line, sizeof line, maps) != NULL) {
        unsigned long from, to;
        CHECK(sscanf(line, "%lx-%lx %7s", &from, &to, access) == 3);
        if ((uintptr_t)address >= from && (uintptr_t)address < to) {
            fclose(maps);
            return access[1] == 'w';
        }
    }
    CHECK(!"an address of a mapping");
    return false;
}

static bool all_closed(void)
{
    bool open = false;
    for (size_t i = 0; i < SEALED; i++) {
        open = open || is_open(sealed[i]);
    }
    return !open;
}

static bool has_value(const char *name, const char *wanted)
{
    char value[64];
    return get(name, value, sizeof value) == 0 && strcmp(value, wanted) == 0;
}

/* --- what ends a child, and how --- */

/* The wait status of a child that runs `function`. */
static int status_in_child(void (*function)(void))
{
    pid_t pid = fork();
    CHECK(pid >= 0);
    if (pid == 0) {
        alarm(240);
        function();
        _exit(0);
    }
    return status_of(pid);
}

static size_t written;

static void write_sealed(void)
{
    struct rlimit none = {0, 0};
    setrlimit(RLIMIT_CORE, &none);
    volatile char *at = sealed[written];
    *at = *at;
}

/* The ways to change an option. */
static void change_options(void)
{
    CHECK(set("purge_delay_ms", "77") == 0 && has_value("purge_delay_ms", "77"));
    CHECK(set("purge_delay_ms", "often") == EINVAL && has_value("purge_delay_ms", "77"));
    CHECK(set("keep_deepbind", "1") == 0 && has_value("keep_deepbind", "1"));
    CHECK(set("limit", "3t") == 0 && has_value("limit", "3t"));
    CHECK(set("sample_bytes", "64m") == 0 && has_value("sample_bytes", "64m"));
    CHECK(set("sample_bytes", "never") == 0 && has_value("sample_bytes", "never"));
    set_limit((size_t)4 << 40, (size_t)5 << 40, NULL, NULL);
    CHECK(has_value("limit", "4t") && has_value("limit_hard", "5t"));
#if defined(__GLIBC__)
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1 && has_value("purge_delay_ms", "never"));
#endif
    CHECK(all_closed());
}

static void change_in_grandchild(void)
{
    CHECK(all_closed());
    CHECK(set("purge_delay_ms", "5") == 0 && has_value("purge_delay_ms", "5"));
    CHECK(all_closed());
    CHECK(status_in_child(change_options) == 0);
    CHECK(has_value("purge_delay_ms", "5"));
}

/* --- forks beside a thread that changes options --- */

static bool shared_stops;

static void *change_always(void *argument)
{
    while (!__atomic_load_n(&shared_stops, __ATOMIC_RELAXED)) {
        CHECK(set("cache_bytes", "1m") == 0);
    }
    return argument;
}

static void change_once(void)
{
    CHECK(all_closed());
    CHECK(set("cache_bytes", "2m") == 0 && has_value("cache_bytes", "2m"));
    CHECK(all_closed());
}

static void fork_often(void)
{
    pthread_t thread;
    CHECK(pthread_create(&thread, NULL, change_always, NULL) == 0);
    for (int i = 0; i < FORKS; i++) {
        CHECK(status_in_child(change_once) == 0);
    }
    __atomic_store_n(&shared_stops, true, __ATOMIC_RELAXED);
    CHECK(pthread_join(thread, NULL) == 0 && has_value("cache_bytes", "1m"));
    CHECK(all_closed());
}

/* --- a kernel that refuses --- */

/* From now on mprotect fails if it would close pages, and if `opens` also if it would open them.
 * Ends the child if filters are not to be had. */
static void refuse_mprotect(bool opens)
{
    struct sock_filter code[] = {
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, nr)),
        BPF_JUMP(BPF_JMP | BPF_JEQ | BPF_K, SYS_mprotect, 0, 3),
        BPF_STMT(BPF_LD | BPF_W | BPF_ABS, offsetof(struct seccomp_data, args[2])),
        BPF_JUMP(BPF_JMP | BPF_JSET | BPF_K, PROT_WRITE, opens ? 0 : 1, 0),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ERRNO | ENOMEM),
        BPF_STMT(BPF_RET | BPF_K, SECCOMP_RET_ALLOW),
    };
    struct sock_fprog program = {sizeof code / sizeof code[0], code};
    if (prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) != 0 ||
        prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, &program) != 0) {
        dprintf(2, "left out: the kernel that refuses, because it has no seccomp\n");
        _exit(SKIPPED);
    }
}

static void refuse_all(void)
{
    refuse_mprotect(true);
    CHECK(mprotect(sealed[0], 1, PROT_READ) != 0 && errno == ENOMEM);
    CHECK(set("purge_delay_ms", "66") == EAGAIN && has_value("purge_delay_ms", "1000"));
    CHECK(set("limit", "6t") == EAGAIN && has_value("limit", "never"));
    set_limit((size_t)4 << 40, (size_t)5 << 40, NULL, NULL);
    CHECK(has_value("limit", "never") && has_value("limit_hard", "never"));
    CHECK(set("keep_deepbind", "1") == EAGAIN && has_value("keep_deepbind", "0"));
    CHECK(mallopt(M_TRIM_THRESHOLD, -1) == 1 && has_value("purge_delay_ms", "1000"));
    CHECK(all_closed());
}

static void refuse_closed(void)
{
    refuse_mprotect(false);
    for (int i = 1; i <= 3; i++) {
        char value[] = {(char)('0' + i), '\0'};
        CHECK(set("purge_delay_ms", value) == 0 && has_value("purge_delay_ms", value));
        CHECK(is_open(sealed[0]));
    }
    CHECK(!is_open(sealed[SETTINGS]));
    CHECK(set("limit", "6t") == 0 && has_value("limit", "6t"));
}

static void refuse_then_all(void)
{
    refuse_closed();
    refuse_mprotect(true);
    CHECK(set("purge_delay_ms", "66") == 0 && has_value("purge_delay_ms", "66"));
}

int main(void)
{
    set = (option_set *)(uintptr_t)dlsym(RTLD_DEFAULT, "hak_option_set");
    get = (option_get *)(uintptr_t)dlsym(RTLD_DEFAULT, "hak_option_get");
    set_limit = (limit_set *)(uintptr_t)dlsym(RTLD_DEFAULT, "hak_limit_set");
    CHECK(set != NULL && get != NULL && set_limit != NULL);
    CHECK(has_value("bin_bytes", "8k"));
    find_sealed();
    CHECK(all_closed());
    /* Canaries begin with an odd byte, so the end of a string that is one byte too long is always
     * noticed. (Whether it was would be random, so it is looked at.) */
    unsigned char *block = get_memory(24);
    CHECK(block != NULL && block[24] % 2 == 1);
    free(block);
    for (written = 0; written < SEALED; written++) {
        int status = status_in_child(write_sealed);
        CHECK(WIFSIGNALED(status) && WTERMSIG(status) == SIGSEGV);
    }
    CHECK(set("purge_delay_ms", "1000") == 0); /* each form has a default of its own */
    void (*const refusals[])(void) = {refuse_all, refuse_closed, refuse_then_all};
    for (size_t i = 0; i < sizeof refusals / sizeof refusals[0]; i++) {
        int status = status_in_child(refusals[i]);
        CHECK(status == 0 || (WIFEXITED(status) && WEXITSTATUS(status) == SKIPPED));
    }
    CHECK(status_in_child(change_in_grandchild) == 0);
    CHECK(has_value("purge_delay_ms", "1000") && all_closed());
    fork_often();
    change_options();
    puts("sealed");
    return 0;
}
