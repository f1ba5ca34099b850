/* SPDX-License-Identifier: MIT */
/* json.c: documents of 64 KiB are read, parsed into trees, visited and dropped. The workload of
 * this name of hakmem's predecessor, with the tree that such a document becomes.
 *
 * Imitates: a server that takes JSON (RFC 8259) and answers from it. The document is an array of
 * records of eight members: strings, whole numbers, literals, a list of strings; blanks fill it up
 * to SIZE bytes. For each one a buffer of SIZE bytes is allocated and the text copied into it; the
 * parser allocates every string by itself and grows arrays and objects by realloc, from four
 * places on, doubling; the buffer is freed; the tree is summed up, compared with what the document
 * was written from, and freed from its leaves up. A malloc, realloc or free is one operation.
 *
 * Does not show: parsing as fast as can be (copying and scanning are part of the figure, the same
 * for every allocator), documents that live side by side. Whether an array can grow where it
 * stands is up to the allocator. --latency counts a realloc as allocating. Threads (--threads N)
 * share the text, which nobody writes.
 */
#include "harness.h"

#include <stdio.h>
#include <string.h>

enum { DOCUMENTS, SIZE, SEED, ARGUMENT_COUNT };
enum { RECORD_SIZE_MAX = 512, TAG_COUNT_MAX = 9, PLACES_FIRST = 4 };

enum value_kind { TEXT, NUMBER, LITERAL, CONTAINER };

struct value {
    enum value_kind kind;
    uint32_t count; /* bytes of a text, members of a container */
    union {
        uint64_t number;
        char *text;
        struct member *members;
    } is;
};

/* Of an object, or of an array: then `key` is NULL. */
struct member {
    char *key;
    struct value value;
};

struct parser {
    const char *at;
    const char *end;
    struct bench_latency *latency;
    uint64_t operation_count;
};

static struct bench_argument arguments[ARGUMENT_COUNT] = {
    BENCH_COUNT(DOCUMENTS, "documents of each thread", 2000, 20, 1, UINT64_C(1000000000)),
    BENCH_COUNT(SIZE, "bytes of a document", 65536, 65536, 1024, UINT32_C(1) << 30),
    BENCH_SEED,
};

BENCH_WORKLOAD("json", "Parses documents into trees of small objects, visits and frees them.");

/* Written once, before the threads start. */
static char *document;
static uint64_t document_sum; /* of the numbers and of the lengths of all strings, keys too */

/* ---- Writing the document. Each returns where the next piece goes. ---- */

static char *put_piece(char *at, const char *piece)
{
    for (; *piece != '\0'; piece++) {
        *at++ = *piece;
    }
    return at;
}

static char *put_key(char *at, const char *key)
{
    document_sum += strlen(key);
    at = put_piece(at, "\"");
    at = put_piece(at, key);
    return put_piece(at, "\":");
}

static char *put_number(char *at, uint32_t number)
{
    char digits[16];
    document_sum += number;
    (void)snprintf(digits, sizeof digits, "%u", (unsigned)number);
    return put_piece(at, digits);
}

static char *put_text(char *at, uint32_t length, uint32_t *state)
{
    document_sum += length;
    *at++ = '"';
    for (uint32_t i = 0; i < length; i++) {
        *at++ = (char)('a' + bench_random_below(state, 26));
    }
    *at++ = '"';
    return at;
}

/* At most RECORD_SIZE_MAX bytes. */
static char *put_record(char *at, uint32_t *state)
{
    uint32_t tag_count = bench_random_below(state, TAG_COUNT_MAX + 1);
    at = put_key(put_piece(at, "{"), "id");
    at = put_number(at, bench_random(state));
    at = put_key(put_piece(at, ", "), "name");
    at = put_text(at, 4 + bench_random_below(state, 16), state);
    at = put_key(put_piece(at, ", "), "mail");
    at = put_text(at, 12 + bench_random_below(state, 20), state);
    at = put_key(put_piece(at, ", "), "score");
    at = put_number(at, bench_random_below(state, 1000));
    at = put_key(put_piece(at, ", "), "active");
    at = put_piece(at, bench_random_below(state, 2) == 0 ? "true" : "false");
    at = put_key(put_piece(at, ", "), "manager");
    at = put_piece(at, "null");
    at = put_key(put_piece(at, ", "), "tags");
    at = put_piece(at, "[");
    for (uint32_t i = 0; i < tag_count; i++) {
        at = put_text(put_piece(at, i == 0 ? "" : ", "), 2 + bench_random_below(state, 8), state);
    }
    at = put_key(put_piece(at, "], "), "about");
    at = put_text(at, bench_random_below(state, 120), state);
    return put_piece(at, "}");
}

static void document_write(void)
{
    size_t size = arguments[SIZE].value;
    uint32_t state = (uint32_t)arguments[SEED].value;
    char *at;
    document = bench_map(size);
    at = put_record(put_piece(document, "["), &state);
    while ((size_t)(document + size - at) > RECORD_SIZE_MAX + 3) {
        at = put_record(put_piece(at, ",\n"), &state);
    }
    memset(at, ' ', (size_t)(document + size - at));
    document[size - 1] = ']';
}

/* ---- Parsing. ---- */

_Noreturn static void parser_fail(void)
{
    bench_fail_run("a document is not what was written: its text has changed.");
}

/* The next byte that is no blank; it stays. */
static char parser_peek(struct parser *parser)
{
    while (parser->at < parser->end && (*parser->at == ' ' || *parser->at == '\n')) {
        parser->at++;
    }
    if (parser->at == parser->end) {
        parser_fail();
    }
    return *parser->at;
}

static char *text_parse(struct parser *parser, uint32_t *length)
{
    bool is_text = parser_peek(parser) == '"';
    const char *start = parser->at + 1;
    const char *close = is_text ? memchr(start, '"', (size_t)(parser->end - start)) : NULL;
    char *text;
    if (close == NULL) {
        parser_fail();
    }
    *length = (uint32_t)(close - start);
    text = bench_malloc(parser->latency, (size_t)*length + 1);
    parser->operation_count++;
    memcpy(text, start, *length);
    text[*length] = '\0';
    parser->at = close + 1;
    return text;
}

static uint64_t number_parse(struct parser *parser)
{
    uint64_t number = 0;
    for (; parser->at < parser->end && *parser->at >= '0' && *parser->at <= '9'; parser->at++) {
        number = number * 10 + (uint64_t)(*parser->at - '0');
    }
    return number;
}

static void literal_parse(struct parser *parser)
{
    static const char *const words[] = {"true", "false", "null"};
    for (size_t i = 0; i < sizeof words / sizeof words[0]; i++) {
        size_t length = strlen(words[i]);
        if ((size_t)(parser->end - parser->at) >= length &&
            memcmp(parser->at, words[i], length) == 0) {
            parser->at += length;
            return;
        }
    }
    parser_fail();
}

/* Room for one more member: there is none when their number is a power of two. */
static void container_grow(struct parser *parser, struct value *container)
{
    uint32_t count = container->count;
    size_t size = (count == 0 ? PLACES_FIRST : 2 * (size_t)count) * sizeof(struct member);
    if (count != 0 && (count < PLACES_FIRST || (count & (count - 1)) != 0)) {
        return;
    }
    parser->operation_count++;
    if (count == 0) {
        container->is.members = bench_malloc(parser->latency, size);
    } else {
        uint64_t start_ns = parser->latency == NULL ? 0 : bench_now_ns();
        struct member *members = realloc(container->is.members, size);
        if (members == NULL) {
            bench_fail_memory(size);
        }
        if (parser->latency != NULL) {
            bench_histogram_record(&parser->latency->allocate, bench_now_ns() - start_ns);
        }
        container->is.members = members;
    }
}

static void value_parse(struct parser *parser, struct value *value);

static void container_parse(struct parser *parser, struct value *container, char close)
{
    *container = (struct value){.kind = CONTAINER};
    parser->at++;
    if (parser_peek(parser) == close) {
        parser->at++;
        return;
    }
    for (;;) {
        struct member *member;
        uint32_t key_length;
        char c;
        container_grow(parser, container);
        member = &container->is.members[container->count++];
        member->key = NULL;
        if (close == '}') {
            member->key = text_parse(parser, &key_length);
            if (parser_peek(parser) != ':') {
                parser_fail();
            }
            parser->at++;
        }
        value_parse(parser, &member->value);
        c = parser_peek(parser);
        parser->at++;
        if (c == close) {
            return;
        }
        if (c != ',') {
            parser_fail();
        }
    }
}

static void value_parse(struct parser *parser, struct value *value)
{
    char c = parser_peek(parser);
    if (c == '"') {
        value->kind = TEXT;
        value->is.text = text_parse(parser, &value->count);
    } else if (c == '[' || c == '{') {
        container_parse(parser, value, c == '[' ? ']' : '}');
    } else if (c >= '0' && c <= '9') {
        *value = (struct value){.kind = NUMBER, .is = {.number = number_parse(parser)}};
    } else {
        *value = (struct value){.kind = LITERAL};
        literal_parse(parser);
    }
}

/* ---- What the program does with the tree. ---- */

static uint64_t value_sum(const struct value *value)
{
    uint64_t sum = value->kind == NUMBER ? value->is.number : 0;
    if (value->kind == TEXT) {
        sum = strlen(value->is.text);
    }
    for (uint32_t i = 0; value->kind == CONTAINER && i < value->count; i++) {
        const struct member *member = &value->is.members[i];
        sum += member->key == NULL ? 0 : strlen(member->key);
        sum += value_sum(&member->value);
    }
    return sum;
}

static void block_free(struct parser *parser, void *block)
{
    if (block != NULL) {
        parser->operation_count++;
        bench_free(parser->latency, block);
    }
}

static void value_free(struct parser *parser, struct value *value)
{
    if (value->kind == TEXT) {
        block_free(parser, value->is.text);
    } else if (value->kind == CONTAINER) {
        for (uint32_t i = 0; i < value->count; i++) {
            block_free(parser, value->is.members[i].key);
            value_free(parser, &value->is.members[i].value);
        }
        block_free(parser, value->is.members);
    }
}

/* Written once for both, with and without --latency: beside the scanning a test that always comes
 * out the same is nothing. */
static void documents_measure(struct bench_thread *thread)
{
    size_t size = arguments[SIZE].value;
    struct parser parser = {.latency = thread->latency};
    for (uint64_t i = 0; i < arguments[DOCUMENTS].value; i++) {
        char *text = bench_malloc(parser.latency, size);
        struct value root;
        parser.operation_count++;
        memcpy(text, document, size);
        parser.at = text;
        parser.end = text + size;
        value_parse(&parser, &root);
        block_free(&parser, text);
        if (value_sum(&root) != document_sum) {
            bench_fail_run("a tree is not what its document says.");
        }
        value_free(&parser, &root);
    }
    thread->operations = parser.operation_count;
}

int main(int argc, char **argv)
{
    static const struct bench_phases phases = {NULL, documents_measure, NULL};
    bench_start(&workload, argc, argv);
    document_write();
    bench_run(&phases);
    bench_report();
    return 0;
}
