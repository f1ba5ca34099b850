/* charge.h: the count of mapped bytes, and the hard limit on it. For the files of os/ only. */
#ifndef HAK_OS_CHARGE_H
#define HAK_OS_CHARGE_H

#include "base/compiler.h"

/* Counts bytes that are about to be mapped. False: they would exceed the limit, nothing is counted.
 */
HAK_HIDDEN bool hak__os_charge(size_t size);
HAK_HIDDEN void hak__os_uncharge(size_t size);

#endif
