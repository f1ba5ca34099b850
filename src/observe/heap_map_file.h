/* heap_map_file.h: a name by which the linker finds heap_map_file.c, as in control/life.h. */
#ifndef HAK_OBSERVE_HEAP_MAP_FILE_H
#define HAK_OBSERVE_HEAP_MAP_FILE_H

#include "base/compiler.h"

HAK_HIDDEN extern const bool hak__heap_map_file_linked;

#endif
