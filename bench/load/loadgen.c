/* A load generator for RocketMQ's wire protocol: C connections, D requests in flight on each, one thread, epoll.
 *
 *   loadgen --ports 10911 --connections 8 --depth 128 --body 128 --seconds 3 --pids 4711
 *   loadgen --pull 1 --messages 100000 ...        pulls of the first that many messages of every queue, over and over
 *   loadgen --access-key k --secret-key s ...     the same, and every request is signed
 *   loadgen --delay-level 1 ...                   sends of messages that are delivered later
 *   loadgen --wide 1 ...                          sends with a property that is not ASCII
 *   loadgen --protocol nats|redis ...             the same sends as JetStream publishes or XADDs, for comparison
 *
 * All frames are built before the clock starts, so that the generator costs little beside the broker. Every answer is
 * taken apart as far as its code (and, for pulls, its records); one that says anything but success is an error and is
 * printed. The last line of the output is one JSON object.
 */
#define _GNU_SOURCE
#include <arpa/inet.h>
#include <dirent.h>
#include <errno.h>
#include <fcntl.h>
#include <getopt.h>
#include <netinet/tcp.h>
#include <stdarg.h>
#include <stdint.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/epoll.h>
#include <sys/socket.h>
#include <time.h>
#include <unistd.h>

#include "hmac_sha1.h"

enum { ROCKETMQ, NATS, REDIS };
enum { PORTS_MAX = 16, PIDS_MAX = 32, FRAMES_MIN = 512, RECEIVE_BYTES = 4 << 20, EVENTS = 256, ERRORS_SHOWN = 3 };
enum { FIELDS_MAX = 16 };

static struct {
    const char *host, *topic, *group;
    const char *access_key, *secret_key; /* both or neither */
    int ports[PORTS_MAX], port_count;
    long pids[PIDS_MAX];
    int pid_count;
    int protocol, connections, depth, body_bytes, batch, queues, topics, binary, pull, pull_count, delay_level, wide;
    long long messages; /* of a queue, for pulls */
    double seconds, warm_up_seconds;
} options = {.host = "127.0.0.1", .topic = "BenchTopic", .group = "BENCH_GROUP", .ports = {10911}, .port_count = 1,
             .connections = 8, .depth = 128, .body_bytes = 128, .batch = 1, .queues = 8, .topics = 1,
             .pull_count = 32, .messages = 100000, .seconds = 3, .warm_up_seconds = 0.5};

static void fail(const char *what) {
    fprintf(stderr, "loadgen: %s: %s\n", what, strerror(errno));
    exit(1);
}

static double now_s(void) {
    struct timespec t;
    clock_gettime(CLOCK_MONOTONIC, &t);
    return t.tv_sec + t.tv_nsec * 1e-9;
}

/* ---- bytes ---- */

typedef struct {
    char *at;
    size_t used, room;
} text;

static void put(text *out, const void *bytes, size_t count) {
    if (out->used + count > out->room) {
        out->room = (out->used + count) * 2 + 256;
        if (!(out->at = realloc(out->at, out->room))) fail("memory");
    }
    memcpy(out->at + out->used, bytes, count);
    out->used += count;
}

static void put_format(text *out, const char *format, ...) __attribute__((format(printf, 2, 3)));
static void put_format(text *out, const char *format, ...) {
    char line[4096];
    va_list arguments;
    va_start(arguments, format);
    int count = vsnprintf(line, sizeof line, format, arguments);
    va_end(arguments);
    put(out, line, count);
}

static void put_u16(text *out, unsigned value) {
    unsigned char bytes[2] = {value >> 8, value};
    put(out, bytes, 2);
}

static void put_u32(text *out, uint32_t value) {
    unsigned char bytes[4] = {value >> 24, value >> 16, value >> 8, value};
    put(out, bytes, 4);
}

static uint32_t get_u32(const char *p) {
    const unsigned char *u = (const unsigned char *)p;
    return (uint32_t)u[0] << 24 | u[1] << 16 | u[2] << 8 | u[3];
}

static void put_frame(text *out, const text *header, const text *body) {
    put_u32(out, 4 + header->used + body->used);
    put_u32(out, header->used | (options.binary ? 1u << 24 : 0));
    put(out, header->at, header->used);
    put(out, body->at, body->used);
}

/* ---- headers ---- */

typedef struct {
    const char *name, *value;
} field;

static int compare_fields(const void *one, const void *other) {
    return strcmp(((const field *)one)->name, ((const field *)other)->name);
}

/* Over the values in the order of their names, then the body. */
static void sign_fields(const field *fields, int count, const text *body, char signature[29]) {
    field sorted[FIELDS_MAX];
    text signed_text = {0};
    memcpy(sorted, fields, count * sizeof *fields);
    qsort(sorted, count, sizeof *sorted, compare_fields);
    for (int each = 0; each < count; each++) put(&signed_text, sorted[each].value, strlen(sorted[each].value));
    put(&signed_text, body->at, body->used);
    sign_text(options.secret_key, signed_text.at, signed_text.used, signature);
    free(signed_text.at);
}

/* Only control characters have to be escaped in what is sent here. */
static void put_json_text(text *out, const char *value) {
    put(out, "\"", 1);
    for (; *value; value++)
        if ((unsigned char)*value < 32) put_format(out, "\\u%04x", *value);
        else put(out, value, 1);
    put(out, "\"", 1);
}

static void put_json_header(text *out, int code, const field *fields, int count, int number) {
    put_format(out, "{\"code\":%d,\"extFields\":{", code);
    for (int each = 0; each < count; each++) {
        if (each) put(out, ",", 1);
        put_json_text(out, fields[each].name);
        put(out, ":", 1);
        put_json_text(out, fields[each].value);
    }
    put_format(out, "},\"flag\":0,\"language\":\"JAVA\",\"opaque\":%d,", number);
    put_format(out, "\"serializeTypeCurrentRPC\":\"JSON\",\"version\":453}");
}

static void put_binary_header(text *out, int code, const field *fields, int count, int number) {
    uint32_t bytes = 0;
    for (int each = 0; each < count; each++) bytes += 6 + strlen(fields[each].name) + strlen(fields[each].value);
    put_u16(out, code);
    put(out, "\0", 1); /* language: Java */
    put_u16(out, 453);
    put_u32(out, number);
    put_u32(out, 0);
    put_u32(out, 0);
    put_u32(out, bytes);
    for (int each = 0; each < count; each++) {
        put_u16(out, strlen(fields[each].name));
        put(out, fields[each].name, strlen(fields[each].name));
        put_u32(out, strlen(fields[each].value));
        put(out, fields[each].value, strlen(fields[each].value));
    }
}

/* `fields` has room for two more. */
static void put_request(text *out, int code, field *fields, int count, const text *body, int number) {
    char signature[29];
    text header = {0};
    if (options.access_key) {
        fields[count++] = (field){"AccessKey", options.access_key};
        sign_fields(fields, count, body, signature);
        fields[count++] = (field){"Signature", signature};
    }
    if (options.binary) put_binary_header(&header, code, fields, count, number);
    else put_json_header(&header, code, fields, count, number);
    put_frame(out, &header, body);
    free(header.at);
}

/* ---- requests ---- */

static void topic_of(char *name, size_t room, int number) {
    if (options.topics == 1) snprintf(name, room, "%s", options.topic);
    else snprintf(name, room, "%s%d", options.topic, number % options.topics);
}

static void unique_key(char *key, int connection, int number, int part) {
    snprintf(key, 33, "7F000001%08X%08X%08X", connection + 1, number, part);
}

static void put_body(text *out, int seed) {
    for (int each = 0; each < options.body_bytes; each++) {
        char letter = 'a' + (each * 7 + seed) % 26;
        put(out, &letter, 1);
    }
}

static void put_batch(text *out, int connection, int number) {
    for (int part = 0; part < options.batch; part++) {
        char key[33], properties[128];
        unique_key(key, connection, number, part);
        int count = snprintf(properties, sizeof properties, "UNIQ_KEY\x01%s\x02WAIT\x01true", key);
        put_u32(out, 22 + options.body_bytes + count);
        for (int zero = 0; zero < 3; zero++) put_u32(out, 0); /* magic, CRC, flag: the broker makes its own */
        put_u32(out, options.body_bytes);
        put_body(out, number + part);
        put_u16(out, count);
        put(out, properties, count);
    }
}

static void send_properties(char *out, size_t room, int connection, int number) {
    char key[33];
    int used;
    unique_key(key, connection, number, 0);
    if (options.batch > 1) {
        snprintf(out, room, "WAIT\x01true");
        return;
    }
    used = snprintf(out, room, "KEYS\x01k%d\x02UNIQ_KEY\x01%s\x02WAIT\x01true\x02TAGS\x01Tag%c",
                    connection * 100 + number, key, 'A' + number % 5);
    if (options.delay_level)
        used += snprintf(out + used, room - used, "\x02" "DELAY\x01%d", options.delay_level);
    if (options.wide) snprintf(out + used, room - used, "\x02" "note\x01" "caf\xc3\xa9");
}

static void put_send(text *out, int connection, int number) {
    text body = {0};
    char topic[160], queue[16], born[32], properties[512];
    topic_of(topic, sizeof topic, connection * 131 + number);
    int turn = options.topics > 1 ? number / options.topics : number; /* so that every queue of every topic is met */
    snprintf(queue, sizeof queue, "%d", (connection + turn) % options.queues);
    snprintf(born, sizeof born, "1700000000%03d", number % 1000);
    send_properties(properties, sizeof properties, connection, number);
    field fields[FIELDS_MAX] = {{"a", options.group}, {"b", topic}, {"c", "TBW102"}, {"d", "4"}, {"e", queue},
                                {"f", "0"}, {"g", born}, {"h", "0"}, {"i", properties}, {"j", "0"}, {"k", "false"},
                                {"m", options.batch > 1 ? "true" : "false"}};
    if (options.batch > 1) put_batch(&body, connection, number);
    else put_body(&body, number);
    put_request(out, options.batch > 1 ? 320 : 310, fields, 12, &body, number);
    free(body.at);
}

/* The same message for others: its body and its key. */
static void put_foreign_send(text *out, int connection, int number) {
    text body = {0};
    char key[33];
    unique_key(key, connection, number, 0);
    put_body(&body, number);
    if (options.protocol == NATS) {
        size_t header_bytes = 10 + 5 + 32 + 4;
        put_format(out, "HPUB %s.%d _INBOX.bench.%d %zu %zu\r\n", options.topic, (connection + number) % options.queues,
                   connection, header_bytes, header_bytes + body.used);
        put_format(out, "NATS/1.0\r\nKey: %s\r\n\r\n", key);
    } else {
        char stream[160];
        int count = snprintf(stream, sizeof stream, "%s.%d", options.topic, (connection + number) % options.queues);
        put_format(out, "*7\r\n$4\r\nXADD\r\n$%d\r\n%s\r\n$1\r\n*\r\n", count, stream);
        put_format(out, "$1\r\nk\r\n$32\r\n%s\r\n$1\r\nb\r\n$%zu\r\n", key, body.used);
    }
    put(out, body.at, body.used);
    put(out, "\r\n", 2);
    free(body.at);
}

static void put_pull(text *out, int connection, int number, long long queue_offset) {
    text body = {0};
    char queue[16], first[24], count[16];
    snprintf(queue, sizeof queue, "%d", connection % options.queues);
    snprintf(first, sizeof first, "%lld", queue_offset);
    snprintf(count, sizeof count, "%d", options.pull_count);
    field fields[FIELDS_MAX] = {{"consumerGroup", options.group}, {"topic", options.topic}, {"queueId", queue},
                                {"queueOffset", first}, {"maxMsgNums", count}, {"sysFlag", "6"}, {"commitOffset", "0"},
                                {"suspendTimeoutMillis", "15000"}, {"subscription", "*"},
                                {"subVersion", "1700000000000"}, {"expressionType", "TAG"}};
    put_request(out, 11, fields, 11, &body, number);
}

/* ---- connections ---- */

typedef struct {
    int socket;
    text frames;          /* all requests, back to back */
    size_t *starts;       /* of each, and one more */
    int count;            /* how many there are; they are sent round and round */
    int next;             /* the next one to be sent */
    size_t sent_bytes;    /* of the run [next, until) that is being sent */
    int until;
    int in_flight;
    double *began;        /* when each in flight was sent: answers are matched in order */
    int oldest, newest;
    char *received;
    size_t received_bytes;
} connection;

static struct {
    int on;
    long long answers, messages, bytes, errors, samples;
    double latency_max_us;
} measured;

enum { FINE = 10000, COARSE = 40000 }; /* tenths of a microsecond up to 1 ms, then tens of microseconds */
static unsigned histogram[FINE + COARSE];

static void add_latency(double us) {
    int slot = us < 1000 ? (int)(us * 10) : FINE + (int)((us - 1000) / 10);
    histogram[slot < FINE + COARSE ? slot : FINE + COARSE - 1]++;
    measured.samples++;
    if (us > measured.latency_max_us) measured.latency_max_us = us;
}

static double percentile_us(double part) {
    long long wanted = (long long)(measured.samples * part), seen = 0;
    for (int slot = 0; slot < FINE + COARSE; slot++)
        if ((seen += histogram[slot]) > wanted) return slot < FINE ? slot / 10.0 : 1000 + (slot - FINE) * 10.0;
    return measured.latency_max_us;
}

static void build(connection *c, int number) {
    long long steps = options.messages / options.pull_count;
    c->count = options.depth * 2 > FRAMES_MIN ? options.depth * 2 : FRAMES_MIN;
    if (options.topics > 1 && c->count < options.topics * options.queues / options.connections)
        c->count = options.topics * options.queues / options.connections;
    if (options.pull && steps > c->count) c->count = steps < 4096 ? steps : 4096;
    c->starts = calloc(c->count + 1, sizeof *c->starts);
    for (int each = 0; each < c->count; each++) {
        c->starts[each] = c->frames.used;
        if (options.protocol != ROCKETMQ) put_foreign_send(&c->frames, number, each);
        else if (options.pull) put_pull(&c->frames, number, each, steps ? each % steps * options.pull_count : 0);
        else put_send(&c->frames, number, each);
    }
    c->starts[c->count] = c->frames.used;
    c->began = calloc(options.depth + 1, sizeof *c->began);
    c->received = malloc(RECEIVE_BYTES);
}

/* A NATS client says who it is and where answers go before it publishes. */
static void greet_nats(connection *c, int number) {
    text hello = {0};
    char said[8192];
    size_t used = 0;
    put_format(&hello, "CONNECT {\"verbose\":false,\"pedantic\":false,\"headers\":true}\r\n");
    put_format(&hello, "SUB _INBOX.bench.%d 1\r\nPING\r\n", number);
    if (send(c->socket, hello.at, hello.used, MSG_NOSIGNAL) != (ssize_t)hello.used) fail("greeting");
    free(hello.at);
    do {
        ssize_t got = recv(c->socket, said + used, sizeof said - 1 - used, 0);
        if (got <= 0) fail("greeting");
        said[used += got] = 0;
    } while (!strstr(said, "PONG\r\n") && used < sizeof said - 1);
}

static void open_connection(connection *c, int port, int number) {
    struct sockaddr_in address = {.sin_family = AF_INET, .sin_port = htons(port)};
    int on = 1;
    if (inet_pton(AF_INET, options.host, &address.sin_addr) != 1) fail("host");
    if ((c->socket = socket(AF_INET, SOCK_STREAM, 0)) < 0) fail("socket");
    if (connect(c->socket, (void *)&address, sizeof address)) fail("connect");
    setsockopt(c->socket, IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    if (options.protocol == NATS) greet_nats(c, number);
    fcntl(c->socket, F_SETFL, O_NONBLOCK);
}

static void begin_run(connection *c) {
    int more = options.depth - c->in_flight;
    if (more > c->count - c->next) more = c->count - c->next;
    double now = now_s();
    for (int each = 0; each < more; each++) {
        c->began[c->newest] = now;
        c->newest = (c->newest + 1) % (options.depth + 1);
    }
    c->until = c->next + more;
    c->sent_bytes = 0;
    c->in_flight += more;
}

static void write_requests(connection *c) {
    for (;;) {
        if (c->until == c->next) {
            if (c->in_flight >= options.depth) return;
            begin_run(c);
        }
        size_t from = c->starts[c->next], to = c->starts[c->until];
        ssize_t sent = send(c->socket, c->frames.at + from + c->sent_bytes, to - from - c->sent_bytes, MSG_NOSIGNAL);
        if (sent < 0 && errno == EAGAIN) return;
        if (sent < 0) fail("send");
        c->sent_bytes += sent;
        if (c->sent_bytes == to - from) c->next = c->until = c->until % c->count;
    }
}

static int is_success(const char *frame, size_t header_bytes, int form) {
    if (form == 1) return frame[0] == 0 && frame[1] == 0;
    const char *code = memmem(frame, header_bytes < 400 ? header_bytes : 400, "\"code\":", 7);
    return code && code[7] == '0' && (code[8] == ',' || code[8] == '}');
}

static long count_records(const char *body, size_t bytes) {
    size_t at = 0;
    long count = 0;
    while (at + 4 <= bytes) {
        uint32_t size = get_u32(body + at);
        if (size < 60 || at + size > bytes) return -1;
        at += size, count++;
    }
    return at == bytes ? count : -1;
}

/* An answer as far as it is told apart: what it takes of the stream (0: it is not whole), how many messages it is good
 * for (0: it says no), and whether it is one at all. */
typedef struct {
    size_t bytes;
    long messages;
    int counts;
} answer;

static answer read_frame(const char *p, size_t have) {
    answer found = {0, options.batch, 1};
    if (have < 4 || have < 4 + (size_t)get_u32(p)) return found;
    uint32_t length = get_u32(p), mark = get_u32(p + 4), header_bytes = mark & 0xFFFFFF;
    found.bytes = 4 + (size_t)length;
    if (!is_success(p + 8, header_bytes, mark >> 24)) found.messages = 0;
    else if (options.pull) found.messages = count_records(p + 8 + header_bytes, length - 4 - header_bytes);
    return found;
}

/* MSG subject sid bytes, then a JSON object; everything else of the server is one line. */
static answer read_nats(const char *p, size_t have) {
    answer found = {0, 1, 1};
    const char *end = memmem(p, have, "\r\n", 2);
    if (!end) return found;
    size_t line = end + 2 - p;
    if (have < 4 || memcmp(p, "MSG ", 4)) {
        found.bytes = line, found.counts = p[0] == '-', found.messages = 0;
        return found;
    }
    const char *last = end;
    while (last[-1] != ' ') last--;
    size_t body = strtoul(last, NULL, 10);
    if (have < line + body + 2) return found;
    found.bytes = line + body + 2;
    found.messages = memmem(p + line, body, "\"seq\":", 6) != NULL;
    return found;
}

/* $bytes, then the id; an error is one line. */
static answer read_redis(const char *p, size_t have) {
    answer found = {0, 1, 1};
    const char *end = memmem(p, have, "\r\n", 2);
    if (!end) return found;
    size_t line = end + 2 - p, body = p[0] == '$' ? strtoul(p + 1, NULL, 10) + 2 : 0;
    if (have >= line + body) found.bytes = line + body;
    found.messages = p[0] == '$';
    return found;
}

static answer read_answer(const char *p, size_t have) {
    return options.protocol == NATS ? read_nats(p, have) : options.protocol == REDIS ? read_redis(p, have) : read_frame(p, have);
}

static void take_answer(connection *c, const char *p, answer found, double now) {
    long messages = found.messages > 0 ? found.messages : 0;
    size_t head = options.protocol == ROCKETMQ ? 8 : 0; /* lengths are no text */
    if (!messages && measured.errors++ < ERRORS_SHOWN)
        fprintf(stderr, "answer: %.*s\n", (int)(found.bytes < 400 ? found.bytes - head : 400), p + head);
    double began = c->began[c->oldest];
    c->oldest = (c->oldest + 1) % (options.depth + 1);
    c->in_flight--;
    if (measured.on) {
        measured.answers++, measured.messages += messages;
        add_latency((now - began) * 1e6);
    }
}

static void read_answers(connection *c) {
    for (;;) {
        ssize_t got = recv(c->socket, c->received + c->received_bytes, RECEIVE_BYTES - c->received_bytes, 0);
        if (got < 0 && errno == EAGAIN) break;
        if (got < 0) fail("receive");
        if (got == 0) {
            fprintf(stderr, "loadgen: the broker closed a connection\n");
            exit(1);
        }
        c->received_bytes += got;
        if (measured.on) measured.bytes += got;
        size_t at = 0;
        double now = now_s();
        for (;;) {
            answer found = read_answer(c->received + at, c->received_bytes - at);
            if (!found.bytes) break;
            if (found.counts) take_answer(c, c->received + at, found, now);
            at += found.bytes;
        }
        memmove(c->received, c->received + at, c->received_bytes - at);
        c->received_bytes -= at;
    }
    write_requests(c);
}

/* ---- what the broker's processes used ---- */

static double cpu_seconds(long pid) {
    char path[300];
    double total = 0;
    snprintf(path, sizeof path, "/proc/%ld/task", pid);
    DIR *tasks = opendir(path);
    if (!tasks) return 0;
    for (struct dirent *each; (each = readdir(tasks));) {
        unsigned long long nanoseconds;
        snprintf(path, sizeof path, "/proc/%ld/task/%s/schedstat", pid, each->d_name);
        FILE *file = each->d_name[0] == '.' ? NULL : fopen(path, "r");
        if (!file) continue;
        if (fscanf(file, "%llu", &nanoseconds) == 1) total += nanoseconds * 1e-9;
        fclose(file);
    }
    closedir(tasks);
    return total;
}

static double all_cpu_seconds(void) {
    double total = 0;
    for (int each = 0; each < options.pid_count; each++) total += cpu_seconds(options.pids[each]);
    return total;
}

static long anonymous_kib(long pid) {
    char path[64], line[256];
    long kib = 0;
    snprintf(path, sizeof path, "/proc/%ld/status", pid);
    FILE *file = fopen(path, "r");
    while (file && fgets(line, sizeof line, file)) sscanf(line, "RssAnon: %ld", &kib);
    if (file) fclose(file);
    return kib;
}

/* ---- the run ---- */

static void take_options(int count, char **words) {
    static const struct option known[] = {
        {"host", 1, 0, 'h'}, {"ports", 1, 0, 'P'}, {"pids", 1, 0, 'p'}, {"connections", 1, 0, 'c'},
        {"depth", 1, 0, 'd'}, {"body", 1, 0, 'b'}, {"batch", 1, 0, 'n'}, {"queues", 1, 0, 'q'},
        {"topic", 1, 0, 't'}, {"topics", 1, 0, 'T'}, {"group", 1, 0, 'g'}, {"binary", 1, 0, 'B'},
        {"pull", 1, 0, 'l'}, {"pull-count", 1, 0, 'L'}, {"messages", 1, 0, 'm'}, {"seconds", 1, 0, 's'},
        {"warm-up", 1, 0, 'w'}, {"protocol", 1, 0, 'o'}, {"access-key", 1, 0, 'a'}, {"secret-key", 1, 0, 'k'},
        {"delay-level", 1, 0, 'y'}, {"wide", 1, 0, 'z'}, {0}};
    for (int name; (name = getopt_long(count, words, "", known, NULL)) != -1;) switch (name) {
        case 'h': options.host = optarg; break;
        case 'P':
            options.port_count = 0;
            for (char *each = strtok(optarg, ","); each && options.port_count < PORTS_MAX; each = strtok(NULL, ","))
                options.ports[options.port_count++] = atoi(each);
            break;
        case 'p':
            for (char *each = strtok(optarg, ","); each && options.pid_count < PIDS_MAX; each = strtok(NULL, ","))
                options.pids[options.pid_count++] = atol(each);
            break;
        case 'c': options.connections = atoi(optarg); break;
        case 'd': options.depth = atoi(optarg); break;
        case 'b': options.body_bytes = atoi(optarg); break;
        case 'n': options.batch = atoi(optarg); break;
        case 'q': options.queues = atoi(optarg); break;
        case 't': options.topic = optarg; break;
        case 'T': options.topics = atoi(optarg); break;
        case 'g': options.group = optarg; break;
        case 'B': options.binary = atoi(optarg); break;
        case 'l': options.pull = atoi(optarg); break;
        case 'L': options.pull_count = atoi(optarg); break;
        case 'm': options.messages = atoll(optarg); break;
        case 's': options.seconds = atof(optarg); break;
        case 'w': options.warm_up_seconds = atof(optarg); break;
        case 'a': options.access_key = optarg; break;
        case 'k': options.secret_key = optarg; break;
        case 'y': options.delay_level = atoi(optarg); break;
        case 'z': options.wide = atoi(optarg); break;
        case 'o': options.protocol = !strcmp(optarg, "nats") ? NATS : !strcmp(optarg, "redis") ? REDIS : ROCKETMQ; break;
        default: exit(2);
    }
    if (options.connections < 1 || options.depth < 1 || options.batch < 1 || options.queues < 1 || options.topics < 1) {
        fprintf(stderr, "loadgen: counts must be positive\n");
        exit(2);
    }
    if (!options.access_key != !options.secret_key) {
        fprintf(stderr, "loadgen: --access-key and --secret-key need each other\n");
        exit(2);
    }
}

int main(int count, char **words) {
    take_options(count, words);
    connection *all = calloc(options.connections, sizeof *all);
    int poll = epoll_create1(0);
    for (int each = 0; each < options.connections; each++) {
        build(&all[each], each);
        open_connection(&all[each], options.ports[each % options.port_count], each);
        struct epoll_event event = {.events = EPOLLIN | EPOLLOUT | EPOLLET, .data.ptr = &all[each]};
        epoll_ctl(poll, EPOLL_CTL_ADD, all[each].socket, &event);
    }
    double began = now_s(), measuring_from = 0, own_cpu = 0, cpu = 0, ended;
    for (;;) {
        struct epoll_event events[EVENTS];
        int ready = epoll_wait(poll, events, EVENTS, 100);
        double now = now_s();
        if (!measured.on && now >= began + options.warm_up_seconds) {
            measured.on = 1;
            cpu = all_cpu_seconds(), own_cpu = cpu_seconds(getpid());
            measuring_from = now_s();
        }
        for (int each = 0; each < ready; each++) {
            if (events[each].events & EPOLLIN) read_answers(events[each].data.ptr);
            if (events[each].events & EPOLLOUT) write_requests(events[each].data.ptr);
        }
        if (measured.on && (ended = now_s()) >= measuring_from + options.seconds) break;
    }
    cpu = all_cpu_seconds() - cpu, own_cpu = cpu_seconds(getpid()) - own_cpu;
    double elapsed = ended - measuring_from, messages = measured.messages ? measured.messages : 1;
    long anonymous = 0;
    for (int each = 0; each < options.pid_count; each++) anonymous += anonymous_kib(options.pids[each]);
    printf("{\"messages_per_s\": %.1f, \"requests_per_s\": %.1f, \"cpu_us_per_message\": %.4f, \"mb_per_s\": %.2f, "
           "\"p50_us\": %.1f, \"p99_us\": %.1f, \"max_us\": %.1f, \"errors\": %lld, \"messages\": %lld, "
           "\"generator_cpu_share\": %.3f, \"broker_cpu_share\": %.3f, \"anonymous_mib\": %.1f}\n",
           measured.messages / elapsed, measured.answers / elapsed, cpu * 1e6 / messages, measured.bytes / elapsed / 1e6,
           percentile_us(0.5), percentile_us(0.99), measured.latency_max_us, measured.errors, measured.messages,
           own_cpu / elapsed, cpu / elapsed, anonymous / 1024.0);
    return measured.errors ? 3 : 0;
}
