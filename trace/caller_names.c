/* SPDX-License-Identifier: MIT */
/* caller_names.c: see caller_names.h. */
#include "caller_names.h"

#include <stddef.h>
#include <string.h>

#define WORDS_MAX 16
#define WORD_SIZE 24

/* The lists of owners.py, with a space on each side of a word. */
static const char allocate_words[] =
    " malloc calloc zalloc realloc reallocf reallocarray recallocarray memalign valloc pvalloc "
    "strdup strndup wcsdup memdup asprintf vasprintf ";
static const char before_words[] = " je tc mi rp kv try ztry safe fast ";
static const char behind_words[] =
    " 0 2 16 32 64 z n nn f x array zero zeroed raw usable size sized aligned atomic num "
    "internal impl body default base real ex ext extended func fn wrapper hook flags safe "
    "unsafe checked debug dbg with or on die abort fail failure error null exit no throw "
    "nothrow noexcept warn printf vprintf finish uncollectable pointerless plt ";
static const char uses_words[] =
    " test tests testing bench benchmark stress leak leaks leaky leaked leaking use uses using "
    "by via ";

static bool has_word(const char *list, const char *word, size_t length)
{
    for (const char *at = list; (at = strchr(at, ' ')) != NULL && *++at != 0;) {
        if (strncmp(at, word, length) == 0 && at[length] == ' ') {
            return true;
        }
    }
    return false;
}

static bool is_upper(char sign)
{
    return sign >= 'A' && sign <= 'Z';
}

static bool is_lower(char sign)
{
    return sign >= 'a' && sign <= 'z';
}

static bool is_digit(char sign)
{
    return sign >= '0' && sign <= '9';
}

/* The length of the word that the name begins with: small letters, perhaps behind a capital, or
 * capitals, or digits. 0: with none. */
static size_t word_length(const char *name)
{
    size_t length = 0;
    if (is_digit(name[0])) {
        while (is_digit(name[length])) {
            length++;
        }
        return length;
    }
    while (is_upper(name[length])) {
        length++;
    }
    if (length > 1) {
        return is_lower(name[length]) ? length - 1 : length;
    }
    while (is_lower(name[length])) {
        length++;
    }
    return length;
}

/* The words in small letters; how many. A longer one is cut, and then is none that is known. Behind
 * a point stands what a compiler has made of the function. */
static size_t split(const char *name, char words[WORDS_MAX][WORD_SIZE])
{
    size_t count = 0;
    while (*name != 0 && *name != '.' && count < WORDS_MAX) {
        size_t length = word_length(name), kept = length < WORD_SIZE ? length : WORD_SIZE - 1;
        for (size_t i = 0; i < kept; i++) {
            words[count][i] = (char)(is_upper(name[i]) ? name[i] - 'A' + 'a' : name[i]);
        }
        words[count][kept] = 0;
        count += length != 0;
        name += length != 0 ? length : 1;
    }
    return count;
}

/* Such as malloc, mallocz, xmalloc and jemalloc; prealloc has another meaning. */
static bool is_allocating_word(const char *word)
{
    size_t length = strlen(word);
    for (size_t before = 0; before <= 4 && before < length; before++) {
        bool known = before == 0 || has_word(before_words, word, before) ||
                     (before == 1 && is_lower(word[0]) && strncmp(word, "pre", 3) != 0);
        const char *rest = word + before;
        size_t left = length - before;
        if (known && (has_word(allocate_words, rest, left) ||
                      ((rest[left - 1] == 'z' || rest[left - 1] == 'x') &&
                       has_word(allocate_words, rest, left - 1)))) {
            return true;
        }
    }
    return false;
}

static bool is_allocating(const char *name)
{
    char words[WORDS_MAX][WORD_SIZE];
    size_t count = split(name, words);
    for (size_t i = 0; i < count; i++) {
        bool is_pair =
            i + 1 < count && strcmp(words[i], "aligned") == 0 && strcmp(words[i + 1], "alloc") == 0;
        if (!is_pair && !is_allocating_word(words[i])) {
            continue;
        }
        for (size_t k = i + 1 + is_pair; k < count; k++) {
            if (!has_word(behind_words, words[k], strlen(words[k]))) {
                return false;
            }
        }
        for (size_t k = 0; k < i; k++) {
            if (has_word(uses_words, words[k], strlen(words[k]))) {
                return false;
            }
        }
        return true;
    }
    return false;
}

static bool begins(const char *name, const char *with)
{
    return strncmp(name, with, strlen(with)) == 0;
}

static bool begins_as_one(const char *name, const char *const *beginnings)
{
    while (*beginnings != NULL && !begins(name, *beginnings)) {
        beginnings++;
    }
    return *beginnings != NULL;
}

/* Rust's names have a hash, or begin with _R; and the crate first: of a function, of the type of a
 * method, or behind "Cs", a number and "_". C++ may have namespaces of these names. */
static bool is_of_rust(const char *name)
{
    static const char *const crates[] = {"5alloc", "4core", "3std", "9hashbrown", NULL};
    static const char *const types[] = {"alloc..", "core..", "std..", "hashbrown..", NULL};
    const char *crate;
    if (begins(name, "_R")) {
        crate = strstr(name, "Cs");
        crate = crate != NULL ? strchr(crate, '_') : NULL;
        return crate != NULL && begins_as_one(crate + 1, crates);
    }
    if (!begins(name, "_ZN") || strstr(name, "17h") == NULL) {
        return false;
    }
    crate = strstr(name, "$LT$");
    return begins_as_one(name + 3, crates) ||
           (crate != NULL && crate < name + 8 && begins_as_one(crate + 4, types));
}

bool caller_name_passes(const char *name)
{
    static const char *const beginnings[] = {
        "_ZSt",           "_ZNSt",   "_ZNKSt",    "_ZNSa",      "_ZNKSa", "_ZNSs", "_ZNKSs",
        "_ZNSb",          "_ZNKSb",  "_ZN5boost", "_ZNK5boost", "_Znw",   "_Zna",  "_ZN9__gnu_cxx",
        "_ZNK9__gnu_cxx", "__rust_", "__rdl_",    "__rg_",      NULL};
    return begins_as_one(name, beginnings) || is_of_rust(name) ||
           (!begins(name, "_Z") && !begins(name, "_R") && is_allocating(name));
}
