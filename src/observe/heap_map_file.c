/* heap_map_file.c: writes the heap map to the file of HAKMEM_HEAP_MAP_FILE when the process exits.
 *
 * "%p" in the name becomes the process id, so that each process of a tree has a file of its own.
 * Without it, HAKMEM_STATS_PID may name the only process that writes. */
#include "observe/heap_map_file.h"

#include "base/text.h"
#include "core/options.h"
#include "hakmem/stats.h"
#include "os/os.h"

const bool hak__heap_map_file_linked = true;

struct map_file {
    int descriptor;
    int error; /* of the first write that failed; 0: all is written */
};

static void map_file_write(void *argument, const char *piece, size_t size)
{
    struct map_file *file = argument;
    if (file->error == 0) {
        file->error = hak__os_write(file->descriptor, piece, size);
    }
}

/* Appends the name with the process id for each "%p". Returns whether there was one. */
static bool map_file_put_name(struct text *text, const char *name)
{
    bool own = false;
    while (*name != '\0') {
        const char *after = hak__text_after(name, "%p");
        if (after != NULL) {
            hak__text_put_unsigned(text, hak__os_process_id());
            own = true;
        } else {
            hak__text_put_part(text, name, 1);
            after = name + 1;
        }
        name = after;
    }
    return own;
}

static void map_file_complain(const char *name, int error)
{
    char line[2048]; /* a name, cut if it is longer, and a sentence */
    struct text text = {line, sizeof line - 1, 0};
    hak__text_put(&text, "hakmem: cannot write the heap map to ");
    hak__text_put(&text, name);
    hak__text_put(&text, ": ");
    hak__text_put(&text, hak__os_file_error(error));
    line[text.length++] = '\n';
    hak__os_write_error(line, text.length);
}

__attribute__((destructor)) static void map_file_end(void)
{
    char name[1280]; /* the longest path of an option, with some process ids */
    struct text text = {name, sizeof name - 1, 0};
    uint64_t process = hak__settings.stats_process;
    if (hak__settings.heap_map_file == NULL) {
        return;
    }
    bool own = map_file_put_name(&text, hak__settings.heap_map_file);
    name[text.length] = '\0';
    if (!own && process != 0 && process != hak__os_process_id()) {
        return;
    }
    int descriptor = hak__os_open_new(name);
    struct map_file file = {descriptor, descriptor < 0 ? descriptor : 0};
    if (file.error == 0) {
        hak_heap_map(map_file_write, &file);
        hak__os_close(descriptor);
    }
    if (file.error != 0) {
        map_file_complain(name, file.error);
    }
}
