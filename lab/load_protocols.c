/* SPDX-License-Identifier: MIT */
/* load_protocols.c: requests and answers of the protocols that the load generator speaks.
 *
 * A connection has one request under way, so an answer is whole when its last byte is the last one
 * that came. Values are between 16 bytes and 4 KiB, small ones more often, as in caches.
 */
#include "load.h"

#include <errno.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/socket.h>

enum { VALUE_MAX = 4096, BURST_FACTOR = 4, GREETING_MAX = 4096, MQTT_QOS_1 = 2, MQTT_RETAIN = 1 };

static const char *value_text(void)
{
    static char text[VALUE_MAX * BURST_FACTOR + 1];
    if (text[0] == '\0') {
        memset(text, 'v', sizeof text - 1);
    }
    return text;
}

static unsigned value_size(const struct recipe *recipe, struct draw *draw)
{
    unsigned octave = 16U << draw_below(draw, 8);
    unsigned size = octave + draw_below(draw, octave);
    return recipe->is_burst ? size * BURST_FACTOR : size;
}

/* Keys of a burst are others, so that they are what goes away afterwards. */
static unsigned key_of(const struct recipe *recipe, struct draw *draw)
{
    uint32_t keys = (uint32_t)recipe->keys;
    return draw_below(draw, keys) + (recipe->is_burst ? keys : 0);
}

static size_t length_of(int printed)
{
    if (printed < 0 || printed >= LOAD_REQUEST_MAX) {
        load_fail("a request is longer than %d bytes.", LOAD_REQUEST_MAX);
    }
    return (size_t)printed;
}

static bool send_all(int socket, const void *bytes, size_t length)
{
    return send(socket, bytes, length, MSG_NOSIGNAL) == (ssize_t)length;
}

/* Big-endian, as in most of these protocols. */
static uint32_t number_at(const char *bytes, size_t count)
{
    uint32_t number = 0;
    for (size_t i = 0; i < count; i++) {
        number = number << 8 | (unsigned char)bytes[i];
    }
    return number;
}

static void number_put(char *bytes, uint32_t number, size_t count)
{
    for (size_t i = count; i > 0; i--) {
        bytes[i - 1] = (char)(unsigned char)(number & 0xFF);
        number >>= 8;
    }
}

/* One of the targets with a drawn number for each {n}. */
static size_t target_fill(char *text, const struct recipe *recipe, struct draw *draw)
{
    const char *from = recipe->targets[draw_below(draw, recipe->target_count)];
    size_t length = 0;
    while (*from != '\0') {
        if (length + 32 > LOAD_REQUEST_MAX) {
            load_fail("a request is longer than %d bytes.", LOAD_REQUEST_MAX);
        }
        if (strncmp(from, "{n}", 3) == 0) {
            length += (size_t)snprintf(text + length, 16, "%u", key_of(recipe, draw));
            from += 3;
        } else {
            text[length++] = *from++;
        }
    }
    text[length] = '\0';
    return length;
}

/* Reads until the answer is whole; false if it is an error or does not come. */
static bool answer_await(int socket, int (*judge)(const char *, size_t))
{
    char text[GREETING_MAX];
    size_t length = 0;
    int verdict = 0;
    while (verdict == 0 && length < sizeof text) {
        ssize_t count = recv(socket, text + length, sizeof text - length, 0);
        if (count < 0 && errno == EINTR) {
            continue;
        }
        if (count <= 0) {
            return false;
        }
        length += (size_t)count;
        verdict = judge(text, length);
    }
    return verdict > 0;
}

static bool ends_with(const char *text, size_t length, const char *end)
{
    size_t count = strlen(end);
    return length >= count && memcmp(text + length - count, end, count) == 0;
}

/* ---- redis ---- */

static size_t redis_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    unsigned key = key_of(recipe, draw);
    unsigned kind = recipe->is_burst ? 9 : draw_below(draw, 10);
    if (kind < 5) {
        return length_of(snprintf(text, LOAD_REQUEST_MAX, "GET item:%u\r\n", key));
    }
    if (kind < 6) {
        return length_of(snprintf(text, LOAD_REQUEST_MAX, "DEL item:%u\r\n", key));
    }
    unsigned size = value_size(recipe, draw);
    const char *life = recipe->is_burst ? " PX 1000" : "";
    return length_of(snprintf(text, LOAD_REQUEST_MAX, "SET item:%u %.*s%s\r\n", key, (int)size,
                              value_text(), life));
}

static int redis_judge(const char *text, size_t length)
{
    if (text[0] == '-') {
        return -1;
    }
    const char *line = memmem(text, length, "\r\n", 2);
    if (line == NULL) {
        return 0;
    }
    long size = text[0] == '$' ? strtol(text + 1, NULL, 10) : -1;
    return size < 0 || length >= (size_t)(line - text) + 2 + (size_t)size + 2;
}

/* ---- memcached ---- */

static size_t memcached_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    unsigned key = key_of(recipe, draw);
    if (!recipe->is_burst && draw_below(draw, 10) < 6) {
        return length_of(snprintf(text, LOAD_REQUEST_MAX, "get item:%u\r\n", key));
    }
    unsigned size = value_size(recipe, draw);
    return length_of(snprintf(text, LOAD_REQUEST_MAX, "set item:%u 0 %d %u\r\n%.*s\r\n", key,
                              recipe->is_burst ? 1 : 0, size, (int)size, value_text()));
}

static int memcached_judge(const char *text, size_t length)
{
    if (text[0] == 'V' || text[0] == 'E') { /* VALUE, END or ERROR */
        return length > 1 && text[1] == 'R' ? -1 : ends_with(text, length, "END\r\n");
    }
    if (!ends_with(text, length, "\r\n")) {
        return 0;
    }
    return length == strlen("STORED\r\n") && text[0] == 'S' && text[1] == 'T' ? 1 : -1;
}

/* ---- HTTP ---- */

static size_t http_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    static char path[LOAD_REQUEST_MAX];
    (void)target_fill(path, recipe, draw);
    return length_of(
        snprintf(text, LOAD_REQUEST_MAX, "GET %s HTTP/1.1\r\nHost: localhost\r\n\r\n", path));
}

static int http_judge(const char *text, size_t length)
{
    static const char size_name[] = "\r\ncontent-length:";
    char head[8192];
    const char *end = memmem(text, length, "\r\n\r\n", 4);
    if (end == NULL) {
        return length < sizeof head ? 0 : -1;
    }
    size_t count = (size_t)(end - text);
    if (count >= sizeof head || count < 12 || text[9] != '2') {
        return -1;
    }
    memcpy(head, text, count);
    head[count] = '\0';
    const char *size = strcasestr(head, size_name);
    bool is_whole = size != NULL ? length >= count + 4 + strtoul(size + strlen(size_name), NULL, 10)
                                 : ends_with(text, length, "\r\n0\r\n\r\n");
    if (size == NULL && strcasestr(head, "\r\ntransfer-encoding:") == NULL) {
        return -1;
    }
    if (!is_whole) {
        return 0;
    }
    return strcasestr(head, "\r\nconnection: close") == NULL ? 1 : LOAD_CLOSES;
}

/* ---- MQTT 3.1.1 ---- */

static int mqtt_judge(const char *text, size_t length)
{
    /* CONNACK, whose last byte is 0 if it accepts, and PUBACK: four bytes each. */
    return length < 4 ? 0 : (text[0] == 0x20 && text[3] != 0) ? -1 : 1;
}

static bool mqtt_greet(int socket, unsigned number)
{
    char text[64] = "\x10\x00\x00\x04MQTT\x04\x02\x00\x00\x00\x08";
    (void)snprintf(text + 14, sizeof text - 14, "c%07u", number);
    text[1] = 20;
    return send_all(socket, text, 22) && answer_await(socket, mqtt_judge);
}

/* Retained messages: the server keeps the last one of each topic, and an empty one removes it. */
static size_t mqtt_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    char topic[32];
    size_t topic_length =
        (size_t)snprintf(topic, sizeof topic, "room/%u", draw_below(draw, (uint32_t)recipe->keys));
    size_t size = draw_below(draw, 3) == 0 ? 0 : value_size(recipe, draw);
    size_t rest = 2 + topic_length + 2 + size;
    size_t at = 0;
    text[at++] = 0x30 | MQTT_QOS_1 | MQTT_RETAIN;
    for (size_t left = rest; left > 0 || at == 1; left /= 128) {
        text[at++] = (char)(unsigned char)(left % 128 | (left >= 128 ? 128U : 0U));
    }
    number_put(text + at, (uint32_t)topic_length, 2);
    memcpy(text + at + 2, topic, topic_length);
    number_put(text + at + 2 + topic_length, 1, 2);
    memcpy(text + at + 4 + topic_length, value_text(), size);
    return at + rest;
}

/* ---- DNS, over UDP ---- */

static size_t dns_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    char name[32];
    size_t length = (size_t)snprintf(name, sizeof name, "h%u", key_of(recipe, draw));
    static const char rest[] = "\x04test\x00\x00\x01\x00\x01";
    memcpy(text, "\x12\x34\x01\x00\x00\x01\x00\x00\x00\x00\x00\x00", 12);
    text[12] = (char)length;
    memcpy(text + 13, name, length);
    memcpy(text + 13 + length, rest, 10);
    return 13 + length + 10;
}

/* An address was found: no error, one answer. */
static int dns_judge(const char *text, size_t length)
{
    return length >= 12 && (text[3] & 0x0F) == 0 && number_at(text + 6, 2) >= 1 ? 1 : -1;
}

/* ---- PostgreSQL ---- */

static int pgsql_judge(const char *text, size_t length)
{
    size_t at = 0;
    while (at + 5 <= length) {
        if (text[at] == 'E') {
            return -1;
        }
        size_t next = at + 1 + number_at(text + at + 1, 4);
        if (text[at] == 'Z') {
            return next <= length;
        }
        at = next;
    }
    return 0;
}

static bool pgsql_greet(int socket, unsigned number)
{
    static const char text[] = "\0\0\0\x26\0\x03\0\0user\0bench\0database\0postgres\0";
    (void)number;
    _Static_assert(sizeof text == 0x26, "its length is in its first bytes");
    return send_all(socket, text, sizeof text) && answer_await(socket, pgsql_judge);
}

static size_t pgsql_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    size_t length = target_fill(text + 5, recipe, draw) + 1;
    text[0] = 'Q';
    number_put(text + 1, (uint32_t)length + 4, 4);
    return length + 5;
}

/* ---- MySQL and MariaDB ---- */

static size_t mysql_length(const char *packet)
{
    return (unsigned char)packet[0] | (size_t)(unsigned char)packet[1] << 8 |
           (size_t)(unsigned char)packet[2] << 16;
}

/* Columns and rows each end with a packet that begins with 0xFE. */
static int mysql_judge(const char *text, size_t length)
{
    unsigned ends = 0;
    for (size_t at = 0; at + 5 <= length; at += 4 + mysql_length(text + at)) {
        unsigned char first = (unsigned char)text[at + 4];
        if (at + 4 + mysql_length(text + at) > length) {
            return 0;
        }
        if (first == 0xFF) {
            return -1;
        }
        if (at == 0 && first == 0) {
            return 1;
        }
        ends += first == 0xFE && mysql_length(text + at) < 9;
        if (ends == 2) {
            return 1;
        }
    }
    return 0;
}

static int mysql_judge_packet(const char *text, size_t length)
{
    if (length < 5 || length < 4 + mysql_length(text)) {
        return 0;
    }
    return (unsigned char)text[4] == 0xFF ? -1 : 1;
}

/* The server was told to ask for no password. */
static bool mysql_greet(int socket, unsigned number)
{
    /* protocol 4.1, secure connection; packets of 16 MiB; utf8; 23 zeros; name; no password */
    static const char text[4 + 32 + sizeof "bench" + 1] = "\x27\0\0\x01\0\x82\0\0\0\0\0\x01\x21";
    char reply[sizeof text];
    (void)number;
    memcpy(reply, text, sizeof text);
    reply[0] = (char)(sizeof text - 4);
    memcpy(reply + 36, "bench", sizeof "bench");
    return answer_await(socket, mysql_judge_packet) && send_all(socket, reply, sizeof reply) &&
           answer_await(socket, mysql_judge_packet);
}

static size_t mysql_ask(char *text, const struct recipe *recipe, struct draw *draw)
{
    size_t length = target_fill(text + 5, recipe, draw) + 1;
    memcpy(text, "\0\0\0\0\x03", 5);
    text[0] = (char)(unsigned char)(length & 0xFF);
    text[1] = (char)(unsigned char)(length >> 8);
    return length + 4;
}

const struct protocol *protocol_find(const char *name)
{
    static const struct protocol protocols[] = {
        {"redis", false, NULL, redis_ask, redis_judge},
        {"memcached", false, NULL, memcached_ask, memcached_judge},
        {"http", false, NULL, http_ask, http_judge},
        {"mqtt", false, mqtt_greet, mqtt_ask, mqtt_judge},
        {"dns", true, NULL, dns_ask, dns_judge},
        {"pgsql", false, pgsql_greet, pgsql_ask, pgsql_judge},
        {"mysql", false, mysql_greet, mysql_ask, mysql_judge},
    };
    for (size_t i = 0; i < sizeof protocols / sizeof *protocols; i++) {
        if (strcmp(protocols[i].name, name) == 0) {
            return &protocols[i];
        }
    }
    return NULL;
}
