/* SPDX-License-Identifier: MIT */
/* plugin_tls.c: takes a large part of the loader's small reserve of static TLS (1664 bytes in
 * glibc), as libraries with initial-exec variables do. */
#define EXPORT __attribute__((visibility("default")))

EXPORT char *plugin_tls_touch(void);

static __thread char reserve[1024] __attribute__((tls_model("initial-exec")));

EXPORT char *plugin_tls_touch(void)
{
    reserve[0]++;
    return reserve;
}
