// SPDX-License-Identifier: MIT
package main

// #define _GNU_SOURCE
// #include <dlfcn.h>
// #include <stdio.h>
// #include <stdlib.h>
// #include <string.h>
//
// static void say(const char *text)
// {
//     printf("%zu %s\n", strlen(text), dlsym(RTLD_DEFAULT, "hak_version") != NULL ? "on hakmem" : "alone");
//     fflush(stdout);
// }
import "C"

import "unsafe"

// What C allocates is malloc's. No other packages, so that it builds quickly.
func main() {
	text := C.CString("some text")
	C.say(text)
	C.free(unsafe.Pointer(text))
}
