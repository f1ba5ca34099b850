/* SPDX-License-Identifier: MIT */
/* guard_report.c: says what is wrong with a guarded block. See guard.h.
 *
 * It runs in a signal handler, or before abort: it takes no lock and allocates nothing. Each line
 * is one write. A second thread that comes here waits until the first one ends the process. */
#include "observe/guard.h"

#include "base/text.h"
#include "control/exit_file.h"
#include "core/diagnose.h"
#include "core/options.h"
#include "core/own_stack.h"
#include "observe/modules.h"
#include "observe/stacks.h"

#include <string.h>

/* The file that gets the lines, too; less than 0: none. Only the thread that reports uses it. */
static int guard_copy = -1;

static void guard_copy_open(void)
{
    char path[EXIT_PATH_SIZE];
    const char *name = hak__settings.guard_file;
    if (name != NULL && name[0] != '\0') {
        hak__exit_file_path(name, path);
        guard_copy = hak__os_open_append(path);
    }
}

static void guard_copy_line(const char *line, size_t size)
{
    const char *end = memchr(line, '\n', size);
    if (guard_copy >= 0 && end != NULL) {
        (void)hak__os_write(guard_copy, line, (size_t)(end - line) + 1);
    }
}

#define GUARD_SAY(...)                                                                             \
    do {                                                                                           \
        char line_[TEXT_LINE_SIZE];                                                                \
        hak__diagnose_line(line_, sizeof line_, __VA_ARGS__);                                      \
        guard_copy_line(line_, sizeof line_);                                                      \
    } while (0)

/* For %.*s. */
static int guard_path_length(const struct module_place *place)
{
    /* So that the rest of the line has room. */
    return place->path_length < TEXT_LINE_SIZE / 2 ? (int)place->path_length
                                                   : (int)TEXT_LINE_SIZE / 2;
}

/* `address` is a return address, and the byte before it belongs to the call. */
static void guard_report_frame(const struct modules *modules, uint32_t number, uintptr_t address)
{
    struct module_place place;
    address--;
    if (modules->text != NULL && hak__modules_find(modules, address, &place)) {
        GUARD_SAY("hakmem:     #%u %#lx %.*s+%#lx", number, address, guard_path_length(&place),
                  place.path, hak__module_address(&place));
    } else {
        GUARD_SAY("hakmem:     #%u %#lx", number, address);
    }
}

static void guard_report_event(const struct modules *modules, const char *what,
                               const struct guard_event *event)
{
    uint64_t now = hak__os_clock_us();
    uint64_t ms = now > event->time_us ? (now - event->time_us) / 1000 : 0;
    GUARD_SAY("hakmem:   %s by thread %u, %lu.%03lu s ago%s", what, event->thread, ms / 1000,
              ms % 1000, event->depth != 0 ? ":" : ", without a stack: see docs/guard.md");
    for (uint32_t i = 0; i < event->depth; i++) {
        guard_report_frame(modules, i, event->frames[i]);
    }
}

/* The files of one report. */
struct guard_files {
    uint32_t count;
    /* Files whose build ids a report names. Stacks go through some five. Half: some are missing. */
    uint64_t heads[16];
};

/* True: the file is new, and there is room for it. */
static bool guard_files_add(struct guard_files *files, uint64_t head)
{
    for (uint32_t i = 0; i < files->count; i++) {
        if (files->heads[i] == head) {
            return false;
        }
    }
    if (head == 0 || files->count == HAK_COUNT_OF(files->heads)) {
        return false;
    }
    files->heads[files->count++] = head;
    return true;
}

/* A line for each file of the event's stack: names are right only by the file with this id. */
static void guard_report_files(const struct modules *modules, struct guard_files *files,
                               const struct guard_event *event)
{
    struct build_id id = {.head = 0};
    struct module_place place;
    char digits[BUILD_ID_TEXT_SIZE];
    for (uint32_t i = 0; i < event->depth; i++) {
        if (hak__modules_find(modules, event->frames[i] - 1, &place) &&
            guard_files_add(files, place.head.start)) {
            hak__build_id_read(&id, &place);
            if (id.size != 0) {
                GUARD_SAY("hakmem:   build id %s %.*s", hak__build_id_text(&id, digits),
                          guard_path_length(&place), place.path);
            }
        }
    }
}

/* The first line, for the log, and the block: ", 3 bytes past the end of a block of 64 bytes
 * at". */
static void guard_report_head(const char *what, const char *access, uint32_t index,
                              uintptr_t address)
{
    char block[160] = "";
    const struct guard_slot *slot = &hak__guard.slots[index];
    uint64_t state = guard_state_of(index);
    const char *program = hak__os_program(), *where = "inside";
    uintptr_t end = slot->address + slot->size;
    size_t distance = address - slot->address;
    if (address < slot->address) {
        where = "before the start of";
        distance = slot->address - address;
    } else if (address >= end) {
        where = "past the end of";
        distance = address - end + 1;
    }
    if (state != GUARD_UNUSED) {
        hak__text_make(block, sizeof block, ", %zu byte%s %s a %sblock of %zu byte%s at %#lx",
                       distance, distance == 1 ? "" : "s", where,
                       state >= GUARD_FREED ? "freed " : "", slot->size, slot->size == 1 ? "" : "s",
                       slot->address);
    }
    GUARD_SAY("hakmem: fatal: %s%s: pointer %#lx%s, process %u%s%s", what, access, address, block,
              hak__os_process_id(), program != NULL ? ", program " : "",
              program != NULL ? program : "");
}

/* False: another thread reports, and has had time to. */
static bool guard_report_may_begin(void)
{
    uint32_t none = 0;
    if (atomic_cas_acquire(&hak__guard.reported, &none, 1u)) {
        return true;
    }
    /* Longest wait for the thread that reports, milliseconds: then the process ends anyway. */
    for (uint32_t i = 0; i < 5000 && atomic_load_acquire(&hak__guard.reported) == 1; i++) {
        hak__os_sleep_ms(1);
    }
    return false;
}

/* `event`: what the calling thread does now, called `action`. */
static void guard_report(const char *what, const char *access, uint32_t index, uintptr_t address,
                         const char *action, const struct guard_event *event)
{
    struct modules modules;
    const struct guard_slot *slot = &hak__guard.slots[index];
    uint64_t state = guard_state_of(index);
    struct guard_files files = {.count = 0};
    guard_copy_open();
    guard_report_head(what, access, index, address);
    hak__modules_open(&modules);
    const struct guard_event *const events[] = {event, &slot->allocated, &slot->freed};
    static const char *const words[] = {NULL, "allocated", "freed"};
    uint32_t count = state >= GUARD_FREED ? 3 : state != GUARD_UNUSED ? 2 : 1;
    for (uint32_t i = 0; i < count; i++) {
        guard_report_event(&modules, i == 0 ? action : words[i], events[i]);
    }
    for (uint32_t i = 0; i < count; i++) {
        guard_report_files(&modules, &files, events[i]);
    }
    hak__modules_close(&modules);
    /* release: pairs with the acquire in guard_report_may_begin */
    atomic_store_release(&hak__guard.reported, 2u);
}

struct guard_finding {
    const char *what;
    uint32_t slot;
    uintptr_t address;
    const void *caller;
};

static void guard_report_finding(void *argument)
{
    const struct guard_finding *finding = argument;
    struct guard_event event;
    hak__guard_note(&event, finding->caller);
    guard_report(finding->what, "", finding->slot, finding->address, "found", &event);
}

void hak__guard_fatal(const char *what, uint32_t slot, uintptr_t address, const void *caller)
{
    struct guard_finding finding = {what, slot, address, caller};
    if (guard_report_may_begin()) {
        hak__own_stack_try(guard_report_finding, &finding);
    }
    hak__diagnose_abort();
}

/* The frames from the faulting instruction on: those before it are the handler's. Its frame has 1
 * more than its address (hak__stack_capture). The report takes 1 from each, as from a return
 * address. */
static void guard_note_fault(struct guard_event *event, uintptr_t code)
{
    uintptr_t frames[2 * GUARD_DEPTH_MAX];
    uint32_t depth = hak__stack_capture(frames, 2 * GUARD_DEPTH_MAX), first = 0;
    depth -= depth != 0 && frames[depth - 1] == STACK_CUT;
    event->time_us = hak__os_clock_us();
    event->thread = hak__os_thread_id();
    event->depth = 0;
    while (first < depth && frames[first] != code + 1) {
        first++;
    }
    event->frames[event->depth++] = code + 1;
    for (first++; first < depth && event->depth < GUARD_DEPTH_MAX; first++) {
        event->frames[event->depth++] = frames[first];
    }
}

static void guard_report_fault(void *argument)
{
    static const char *const accesses[] = {
        [OS_ACCESS_UNKNOWN] = "", [OS_ACCESS_READ] = " (read)", [OS_ACCESS_WRITE] = " (write)"};
    const struct os_fault *fault = argument;
    struct guard_event event;
    uint32_t index = hak__guard_nearest(fault->address);
    uint64_t state = guard_state_of(index);
    const char *what = state >= GUARD_FREED    ? "use after free"
                       : state == GUARD_UNUSED ? "access to memory that was never allocated"
                       : fault->address < hak__guard.slots[index].address ? "underflow"
                                                                          : "overflow";
    guard_note_fault(&event, fault->code);
    guard_report(what, accesses[fault->access], index, fault->address, "accessed", &event);
}

/* The handler may have an alternate stack of 8 KiB, of which the kernel has taken a half. */
void hak__guard_fault(const struct os_fault *fault)
{
    struct os_fault copy = *fault;
    if (HAK_SECURE && !guard_contains((const void *)fault->address)) {
        hak__secure_fault(fault);
    } else if (guard_contains((const void *)fault->address) && guard_report_may_begin()) {
        hak__own_stack_try(guard_report_fault, &copy);
    }
}
