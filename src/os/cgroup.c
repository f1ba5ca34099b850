/* cgroup.c: the processor quota of a container, from the files of cgroup v2. */
#include "base/text.h"
#include "os/os.h"

#define CGROUP_PATH_SIZE 4096u
#define CGROUP_LINE "0::" /* of version 2 in /proc/self/cgroup; the group's path follows */
#define CGROUP_FILE "/cpu.max"

/* "QUOTA PERIOD" in microseconds, as whole processors; UINT32_MAX: "max", or something else. */
static uint32_t cgroup_parse_quota(const char *text)
{
    uint64_t numbers[2] = {0, 0};
    for (size_t i = 0; i < 2; i++) {
        for (; *text >= '0' && *text <= '9'; text++) {
            uint64_t number = numbers[i] * 10 + (uint64_t)(*text - '0');
            numbers[i] = number < UINT32_MAX ? number : UINT32_MAX;
        }
        text += *text == ' ';
    }
    if (numbers[0] == 0 || numbers[1] == 0) {
        return UINT32_MAX;
    }
    return (uint32_t)((numbers[0] + numbers[1] - 1) / numbers[1]);
}

static uint32_t cgroup_quota_of(const char *root, const char *group, size_t length)
{
    char path[2 * CGROUP_PATH_SIZE];
    char line[64];
    struct text text = {path, sizeof path - 1, 0};
    hak__text_put(&text, root);
    hak__text_put_part(&text, group, length);
    hak__text_put(&text, CGROUP_FILE);
    path[text.length] = '\0';
    long read = hak__os_read_file(path, line, sizeof line - 1);
    if (read <= 0) {
        return UINT32_MAX;
    }
    line[read] = '\0';
    return cgroup_parse_quota(line);
}

/* The group's path in `text`, or NULL. */
static char *cgroup_find_path(char *text)
{
    for (char *line = text; *line != '\0';) {
        size_t same = 0;
        while (CGROUP_LINE[same] != '\0' && line[same] == CGROUP_LINE[same]) {
            same++;
        }
        if (CGROUP_LINE[same] == '\0') {
            return line + same;
        }
        while (*line != '\0' && *line++ != '\n') {
        }
    }
    return NULL;
}

uint32_t hak__os_cgroup_processors(const char *membership, const char *root)
{
    char text[CGROUP_PATH_SIZE];
    long read = hak__os_read_file(membership, text, sizeof text - 1);
    if (read <= 0) {
        return UINT32_MAX;
    }
    text[read] = '\0';
    const char *group = cgroup_find_path(text);
    if (group == NULL) {
        return UINT32_MAX;
    }
    size_t length = 0;
    while (group[length] != '\0' && group[length] != '\n') {
        length++;
    }
    uint32_t least = UINT32_MAX; /* every group above may set one, too */
    for (;;) {
        uint32_t quota = cgroup_quota_of(root, group, length);
        least = quota < least ? quota : least;
        if (length == 0) {
            return least;
        }
        while (length != 0 && group[--length] != '/') {
        }
    }
}
