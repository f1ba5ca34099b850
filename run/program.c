/* SPDX-License-Identifier: MIT */
/* program.c: see launch.h. What the loader would not load a library into, as the headers of an ELF
 * file say, is refused with the reason; of a script, its interpreter is looked at. */
#include <elf.h>
#include <errno.h>
#include <fcntl.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/stat.h>
#include <sys/utsname.h>
#include <sys/xattr.h>
#include <unistd.h>

#include "launch.h"

#define DEFAULT_PATH "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

enum {
    SCRIPTS_MAX = 5, /* the kernel follows as many */
    LINE_SIZE = 4096,
};

static _Noreturn void refuse(const char *file, const char *why)
{
    words_die(STATUS_CANNOT_RUN, "%s %s, so hakmem cannot serve it", file, why);
}

/* --- where it is --- */

static bool may_execute(const char *file)
{
    return euidaccess(file, X_OK) == 0;
}

static bool is_file(const char *file)
{
    struct stat status;
    return stat(file, &status) == 0 && S_ISREG(status.st_mode);
}

/* The file of that name in the caller's PATH, as a new string, or NULL. */
static char *find_in_path(const char *name)
{
    const char *folder = getenv("PATH");
    folder = folder != NULL ? folder : DEFAULT_PATH;
    if (strchr(name, '/') != NULL) {
        return is_file(name) && may_execute(name) ? words_join("%s", name) : NULL;
    }
    while (folder != NULL && name[0] != 0) {
        int length = (int)strcspn(folder, ":");
        char *file =
            words_join("%.*s/%s", length != 0 ? length : 1, length != 0 ? folder : ".", name);
        if (is_file(file) && may_execute(file)) {
            return file;
        }
        folder = folder[length] != 0 ? folder + length + 1 : NULL;
    }
    return NULL;
}

static char *find(const char *word)
{
    struct stat status;
    char *path;
    if (strchr(word, '/') == NULL) {
        path = find_in_path(word);
        if (path == NULL) {
            words_die(STATUS_NOT_FOUND, "there is no program '%s' in PATH", word);
        }
        return path;
    }
    if (stat(word, &status) != 0) {
        words_die(STATUS_NOT_FOUND, "there is no program '%s'", word);
    }
    if (S_ISDIR(status.st_mode)) {
        words_die(STATUS_CANNOT_RUN, "%s is a directory", word);
    }
    if (!may_execute(word)) {
        words_die(STATUS_CANNOT_RUN, "%s is not executable", word);
    }
    return words_join("%s", word);
}

/* --- ELF files --- */

static void check_machine(const char *file, unsigned machine)
{
    struct utsname system;
    if (uname(&system) != 0) {
        return;
    }
    bool is_x86 = strcmp(system.machine, "x86_64") == 0;
    bool is_arm = strcmp(system.machine, "aarch64") == 0;
    if ((is_x86 && machine != EM_X86_64) || (is_arm && machine != EM_AARCH64)) {
        refuse(file, "is made for another processor");
    }
}

/* PT_INTERP names the loader; without one nothing is ever preloaded. */
static void check_loader(const char *file, int descriptor, const Elf64_Ehdr *header)
{
    char loader[LINE_SIZE] = "";
    for (unsigned i = 0; i < header->e_phnum; i++) {
        Elf64_Phdr entry;
        off_t at = (off_t)(header->e_phoff + i * sizeof entry);
        if (pread(descriptor, &entry, sizeof entry, at) != sizeof entry) {
            break;
        }
        if (entry.p_type == PT_INTERP && entry.p_filesz < sizeof loader &&
            pread(descriptor, loader, entry.p_filesz, (off_t)entry.p_offset) > 0) {
            loader[entry.p_filesz] = 0;
        }
    }
    if (loader[0] == 0) {
        refuse(file, "is statically linked");
    }
    if (access(loader, F_OK) != 0) {
        words_die(STATUS_CANNOT_RUN, "%s needs the loader %s, which is not there", file, loader);
    }
    if (strstr(loader, "ld-musl") != NULL) {
        refuse(file, "uses the C library musl");
    }
}

/* The loader takes no library into a program that has more rights than its caller. */
static void check_rights(const char *file)
{
    struct stat status;
    if (stat(file, &status) == 0 &&
        (((status.st_mode & S_ISUID) != 0 && status.st_uid != geteuid()) ||
         ((status.st_mode & S_ISGID) != 0 && status.st_gid != getegid()))) {
        refuse(file, "runs with another user's rights (setuid or setgid)");
    }
    if (geteuid() != 0 && getxattr(file, "security.capability", NULL, 0) > 0) {
        refuse(file, "has file capabilities");
    }
}

static void check_elf(const char *file, int descriptor)
{
    Elf64_Ehdr header;
    if (pread(descriptor, &header, sizeof header, 0) != sizeof header ||
        header.e_ident[EI_CLASS] != ELFCLASS64 || header.e_ident[EI_DATA] != ELFDATA2LSB) {
        refuse(file, "is not a 64-bit program");
    }
    check_machine(file, header.e_machine);
    if (header.e_phentsize == sizeof(Elf64_Phdr) && header.e_phnum > 0) {
        check_loader(file, descriptor, &header);
        check_rights(file);
    }
}

/* --- scripts --- */

static const char blanks[] = " \t";

static bool check_file(const char *file, int depth);

/* The program among the words behind `env`. NULL: none, or the words before it may have values, or
 * change PATH. */
static char *env_program(char *rest)
{
    for (char *word; (word = strtok_r(NULL, blanks, &rest)) != NULL;) {
        if (strchr(word, '=') == NULL && word[0] != '-') {
            return word;
        }
        if (strncmp(word, "PATH=", 5) == 0 || (word[0] == '-' && strcmp(word, "-S") != 0)) {
            return NULL;
        }
    }
    return NULL;
}

/* `line` is behind the #! of the script. */
static void check_script(const char *file, char *line, int depth)
{
    char *rest, *word, *found;
    const char *base;
    line[strcspn(line, "\n")] = 0;
    if (line[0] != 0 && line[strlen(line) - 1] == '\r') {
        words_die(STATUS_CANNOT_RUN,
                  "the first line of %s ends with a carriage return, which Linux takes for a part "
                  "of a name",
                  file);
    }
    word = strtok_r(line, blanks, &rest);
    if (word == NULL) {
        return;
    }
    if (access(word, F_OK) != 0) {
        words_die(STATUS_CANNOT_RUN, "%s needs %s, which is not there", file, word);
    }
    if (!is_file(word) || !may_execute(word)) {
        words_die(STATUS_CANNOT_RUN, "%s needs %s, which is not an executable file", file, word);
    }
    base = strrchr(word, '/') != NULL ? strrchr(word, '/') + 1 : word;
    if (strcmp(base, "env") != 0) {
        check_file(word, depth + 1);
        return;
    }
    word = env_program(rest);
    if (word == NULL) {
        return;
    }
    found = find_in_path(word);
    if (found == NULL) {
        words_die(STATUS_NOT_FOUND, "%s needs %s, which is not in PATH", file, word);
    }
    check_file(found, depth + 1);
}

/* False: a text without a first line that names its interpreter. What cannot be read is none. */
static bool check_file(const char *file, int depth)
{
    char line[LINE_SIZE];
    ssize_t length;
    int descriptor = open(file, O_RDONLY | O_CLOEXEC | O_NONBLOCK);
    if (descriptor < 0) {
        return true;
    }
    length = read(descriptor, line, sizeof line - 1);
    line[length > 0 ? length : 0] = 0;
    if (length >= SELFMAG && memcmp(line, ELFMAG, SELFMAG) == 0) {
        check_elf(file, descriptor);
    } else if (strncmp(line, "#!", 2) == 0) {
        if (depth < SCRIPTS_MAX) {
            check_script(file, line + 2, depth);
        }
    } else {
        close(descriptor);
        return length < 0;
    }
    close(descriptor);
    return true;
}

struct program program_check(const char *word)
{
    struct program program;
    if (word == NULL || word[0] == 0) {
        words_misuse("which program?");
    }
    program.path = find(word);
    program.is_plain_script = !check_file(program.path, 0);
    return program;
}

/* --- becoming it --- */

/* As execvp does it: what is no program and no script with an interpreter is one of /bin/sh. */
void program_become(const struct program *program, char **words)
{
    if (program->is_plain_script) {
        size_t count = 0;
        while (words[count] != NULL) {
            count++;
        }
        char **shell = calloc(count + 2, sizeof *shell);
        if (shell != NULL) {
            shell[0] = words_join("/bin/sh");
            shell[1] = program->path;
            memcpy(shell + 2, words + 1, (count - 1) * sizeof *shell);
            execv(shell[0], shell);
        }
    } else {
        /* By its whole name, which reports then show. */
        const char *path = program->path;
        path += strncmp(path, "./", 2) == 0 ? 2 : 0;
        execv(words_absolute(path), words);
    }
    words_die(errno == ENOENT ? STATUS_NOT_FOUND : STATUS_CANNOT_RUN, "cannot start %s: %s",
              words[0], strerror(errno));
}
