/* SPDX-License-Identifier: MIT */
/* options_view.c: shows the options in reports. See options.h. */
#include "core/options.h"

#include "base/atomics.h"
#include "base/text.h"
#include "core/option_table.h"

/* Writes bytes as a user would write them: 8m, not 8388608. */
static void option_put_bytes(struct text *text, uint64_t bytes)
{
    const char *const suffixes[] = {"", "k", "m", "g", "t"};
    unsigned unit = 0;
    while (bytes != 0 && bytes % 1024 == 0 && unit + 1 < sizeof suffixes / sizeof suffixes[0]) {
        bytes /= 1024;
        unit++;
    }
    hak__text_format(text, "%lu%s", bytes, suffixes[unit]);
}

void hak__option_put_value(struct text *text, const struct option *option)
{
    const char *string = NULL;
    switch (option->kind) {
    case KIND_PROFILE:
    case KIND_PATH:
    case KIND_INPUT:
    case KIND_DUMP:
        string = *(const char *const *)option->place;
        hak__text_put(text, string != NULL ? string : "");
        break;
    case KIND_MILLISECONDS: {
        uint32_t ms = atomic_load_relaxed((const uint32_t *)option->place);
        if (ms == UINT32_MAX) {
            hak__text_put(text, "never");
        } else {
            hak__text_format(text, "%u", ms);
        }
        break;
    }
    case KIND_NUMBER:
    case KIND_SIGNAL:
        hak__text_format(text, "%u", *(const uint32_t *)option->place);
        break;
    case KIND_BYTES_32:
        option_put_bytes(text, atomic_load_relaxed((const uint32_t *)option->place));
        break;
    case KIND_BYTES:
    case KIND_BYTES_OR_NEVER: {
        uint64_t bytes = atomic_load_relaxed((const uint64_t *)option->place);
        if (bytes == UINT64_MAX) {
            hak__text_put(text, "never");
        } else {
            option_put_bytes(text, bytes);
        }
        break;
    }
    case KIND_SWITCH:
        hak__text_put(text, atomic_load_relaxed((const bool *)option->place) ? "1" : "0");
        break;
    case KIND_STATS:
        hak__text_put(text, hak__option_stats_names[*(const uint32_t *)option->place]);
        break;
    case KIND_PROCESS:
        hak__text_format(text, "%lu", *(const uint64_t *)option->place);
        break;
    }
}

bool hak__options_view(uint32_t index, struct option_view *view)
{
    if (index >= hak__option_count) {
        return false;
    }
    view->name = hak__option_table[index].name;
    view->help = hak__option_table[index].help;
    struct text text = {view->value, sizeof view->value - 1, 0};
    hak__option_put_value(&text, &hak__option_table[index]);
    view->value[text.length] = '\0';
    return true;
}
