/* Leaves of the kernel that C does better: big-endian loads and stores, copies, CRC-32.
 * primitives.py says the same in Python; a differential test keeps the two equal. */
#ifndef ROCKETQ_PRIMITIVES_H
#define ROCKETQ_PRIMITIVES_H
#include <stddef.h>
#include <stdint.h>
#include <string.h>

typedef unsigned char rq_byte;
typedef ptrdiff_t rq_at;

#if defined(__BYTE_ORDER__) && __BYTE_ORDER__ == __ORDER_BIG_ENDIAN__
#define RQ_BE16(v) (v)
#define RQ_BE32(v) (v)
#define RQ_BE64(v) (v)
#else
#define RQ_BE16(v) __builtin_bswap16(v)
#define RQ_BE32(v) __builtin_bswap32(v)
#define RQ_BE64(v) __builtin_bswap64(v)
#endif

static inline int load_i16(const rq_byte *p, rq_at at) {
    uint16_t v; memcpy(&v, p + at, 2); return (int16_t)RQ_BE16(v);
}
static inline int load_i32(const rq_byte *p, rq_at at) {
    uint32_t v; memcpy(&v, p + at, 4); return (int32_t)RQ_BE32(v);
}
static inline long long load_i64(const rq_byte *p, rq_at at) {
    uint64_t v; memcpy(&v, p + at, 8); return (int64_t)RQ_BE64(v);
}
static inline void store_i16(rq_byte *p, rq_at at, int value) {
    uint16_t v = RQ_BE16((uint16_t)value); memcpy(p + at, &v, 2);
}
static inline void store_i32(rq_byte *p, rq_at at, int value) {
    uint32_t v = RQ_BE32((uint32_t)value); memcpy(p + at, &v, 4);
}
static inline void store_i64(rq_byte *p, rq_at at, long long value) {
    uint64_t v = RQ_BE64((uint64_t)value); memcpy(p + at, &v, 8);
}
/* Sixteen hex digits, in capitals: nibbles are spread over bytes, those above 9 are moved up to the letters. */
static inline uint64_t rq_hex_of(uint32_t half) {
    uint64_t v = half;
    v = ((v & 0xFFFF0000u) << 16) | (v & 0xFFFFu);
    v = ((v << 8) & 0x00FF000000FF0000u) | (v & 0x000000FF000000FFu);
    v = ((v << 4) & 0x0F000F000F000F00u) | (v & 0x000F000F000F000Fu);
    return v + 0x3030303030303030u + (((v + 0x0606060606060606u) >> 4) & 0x0101010101010101u) * 7;
}
static inline void store_hex(rq_byte *p, rq_at at, long long value) {
    store_i64(p, at, (long long)rq_hex_of((uint32_t)((uint64_t)value >> 32)));
    store_i64(p, at + 8, (long long)rq_hex_of((uint32_t)value));
}
/* Integers in C wrap by themselves; in Python this masks. */
static inline unsigned int wrap_u32(unsigned int value) { return value; }
static inline long long wrap_i64(long long value) { return value; }
static inline int signed_i32(unsigned int value) { return (int)value; }
/* A record's size and magic in one store that no earlier store may pass: from here on the record is there. */
static inline void publish(rq_byte *p, rq_at at, int size, int magic) {
    uint64_t v = RQ_BE64(((uint64_t)(uint32_t)size << 32) | (uint32_t)magic);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
    __atomic_thread_fence(__ATOMIC_RELEASE);
    memcpy(p + at, &v, 8);
    __atomic_signal_fence(__ATOMIC_SEQ_CST);
}
/* Most of what is copied and compared are names and numbers of a few bytes, for which a call would be the dearest part:
 * they are taken as two parts that may overlap. */
static inline void copy_bytes(rq_byte *to, rq_at to_at, const rq_byte *from, rq_at from_at, rq_at count) {
    to += to_at; from += from_at;
    if (count > 16) {
        memcpy(to, from, (size_t)count);
    } else if (count >= 8) {
        uint64_t first, last;
        memcpy(&first, from, 8); memcpy(&last, from + count - 8, 8);
        memcpy(to, &first, 8); memcpy(to + count - 8, &last, 8);
    } else if (count >= 4) {
        uint32_t first, last;
        memcpy(&first, from, 4); memcpy(&last, from + count - 4, 4);
        memcpy(to, &first, 4); memcpy(to + count - 4, &last, 4);
    } else if (count > 0) {
        rq_byte first = from[0], middle = from[count >> 1], last = from[count - 1];
        to[0] = first; to[count >> 1] = middle; to[count - 1] = last;
    }
}
static inline int equal_bytes(const rq_byte *a, rq_at a_at, const rq_byte *b, rq_at b_at, rq_at count) {
    a += a_at; b += b_at;
    if (count > 16) return memcmp(a, b, (size_t)count) == 0;
    if (count >= 8) {
        uint64_t a_first, a_last, b_first, b_last;
        memcpy(&a_first, a, 8); memcpy(&a_last, a + count - 8, 8);
        memcpy(&b_first, b, 8); memcpy(&b_last, b + count - 8, 8);
        return ((a_first ^ b_first) | (a_last ^ b_last)) == 0;
    }
    if (count >= 4) {
        uint32_t a_first, a_last, b_first, b_last;
        memcpy(&a_first, a, 4); memcpy(&a_last, a + count - 4, 4);
        memcpy(&b_first, b, 4); memcpy(&b_last, b + count - 4, 4);
        return ((a_first ^ b_first) | (a_last ^ b_last)) == 0;
    }
    return count <= 0 || (a[0] == b[0] && a[count >> 1] == b[count >> 1] && a[count - 1] == b[count - 1]);
}
static inline void zero_bytes(rq_byte *p, rq_at at, rq_at end) {
    if (at < end) memset(p + at, 0, (size_t)(end - at));
}
#if defined(__SSE2__)
#include <emmintrin.h>
#endif
#if defined(__SSE2__)
static inline __m128i rq_two_parts_of_8(const rq_byte *low, const rq_byte *high) {
    return _mm_unpacklo_epi64(_mm_loadl_epi64((const __m128i *)low), _mm_loadl_epi64((const __m128i *)high));
}
static inline __m128i rq_two_parts_of_4(const rq_byte *low, const rq_byte *high) {
    uint32_t first, second;
    memcpy(&first, low, 4); memcpy(&second, high, 4);
    return _mm_cvtsi64_si128((long long)((uint64_t)second << 32 | first));
}
#endif
/* First position >= at that holds `value`, or end. Most of what is looked for is near. */
static inline rq_at find_byte(const rq_byte *p, rq_at at, rq_at end, int value) {
    const rq_byte *hit;
#if defined(__SSE2__)
    const __m128i wanted = _mm_set1_epi8((char)value);
    rq_at near_end = end - at > 64 ? at + 64 : end;
    for (; at + 16 <= near_end; at += 16) {
        int found = _mm_movemask_epi8(_mm_cmpeq_epi8(_mm_loadu_si128((const __m128i *)(p + at)), wanted));
        if (found) return at + __builtin_ctz((unsigned)found);
    }
    if (near_end == end) {
        int found = 0;
        rq_at half = end - at >= 8 ? 8 : 4; /* the rest as two parts that may overlap, one in each half of `found` */
        if (end - at >= 8)
            found = _mm_movemask_epi8(_mm_cmpeq_epi8(rq_two_parts_of_8(p + at, p + end - 8), wanted));
        else if (end - at >= 4)
            found = _mm_movemask_epi8(_mm_cmpeq_epi8(rq_two_parts_of_4(p + at, p + end - 4), wanted)) & 255;
        else
            while (at < end && p[at] != value) at++;
        if (end - at < 4) return at < end ? at : end;
        if (!found) return end;
        rq_at bit = __builtin_ctz((unsigned)found);
        return bit < half ? at + bit : end - 2 * half + bit;
    }
#endif
    hit = at < end ? (const rq_byte *)memchr(p + at, value, (size_t)(end - at)) : NULL;
    return hit ? hit - p : end;
}
/* An item of properties, `name 0x01 value`, and where it ends: the bytes of the name, and from bit 31 on
 * those of the whole item. Without a 0x01 both are the same. Most items are of a few bytes, and seen at one glance. */
static inline long long cut_item(const rq_byte *p, rq_at at, rq_at end) {
    rq_at item_end = at, name_end = end;
#if defined(__SSE2__)
    if (at + 16 <= end) {
        __m128i v = _mm_loadu_si128((const __m128i *)(p + at));
        unsigned ends = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(2)));
        unsigned names = (unsigned)_mm_movemask_epi8(_mm_cmpeq_epi8(v, _mm_set1_epi8(1))) | ends;
        if (ends) return (long long)__builtin_ctz(ends) << 31 | __builtin_ctz(names);
        item_end = at + 16;
        if (names) name_end = at + __builtin_ctz(names);
    }
#endif
    item_end = find_byte(p, item_end, end, 2);
    if (name_end == end) name_end = find_byte(p, at, item_end, 1);
    return (long long)(item_end - at) << 31 | (name_end - at);
}
/* First position >= at whose byte cannot stand for itself in a JSON text, or ends it: a quote, a backslash, a control
 * character, a byte above 127; or end. */
static inline rq_at end_of_plain(const rq_byte *p, rq_at at, rq_at end) {
#if defined(__SSE2__)
    const __m128i quote = _mm_set1_epi8(34), backslash = _mm_set1_epi8(92), blank = _mm_set1_epi8(32);
    for (; at + 16 <= end; at += 16) {
        __m128i v = _mm_loadu_si128((const __m128i *)(p + at)); /* as signed bytes: those above 127 are below 32 */
        __m128i ends = _mm_or_si128(_mm_cmpeq_epi8(v, quote), _mm_cmpeq_epi8(v, backslash));
        int found = _mm_movemask_epi8(_mm_or_si128(ends, _mm_cmplt_epi8(v, blank)));
        if (found) return at + __builtin_ctz((unsigned)found);
    }
#endif
    while (at < end && p[at] != 34 && p[at] != 92 && p[at] >= 32 && p[at] <= 127) at++;
    return at;
}
/* The cache line of a byte that will be written soon. */
static inline void prefetch(const rq_byte *p, rq_at at) {
#if defined(__GNUC__)
    __builtin_prefetch(p + at, 1, 3);
#else
    (void)p; (void)at;
#endif
}
/* All lines of a thing that will be needed soon; it is not looked at. */
static inline void prefetch_thing(const void *thing, rq_at count) {
    for (rq_at at = 0; at < count; at += 64) prefetch((const rq_byte *)thing, at);
}
/* Bytes and a number, spread over 64 bits: for tables in memory, never stored. */
static inline unsigned long long place_hash(const rq_byte *p, rq_at at, rq_at count, long long number) {
    const uint64_t odd = 0x9E3779B97F4A7C15u;
    uint64_t hashed = ((uint64_t)number << 8 ^ (uint64_t)count) * 0xD6E8FEB86659FD93u, v;
    for (; count >= 8; at += 8, count -= 8) {
        memcpy(&v, p + at, 8);
        hashed = (hashed ^ v) * odd;
        hashed ^= hashed >> 32;
    }
    for (v = 0; count > 0; at++, count--) v = v << 8 | p[at];
    hashed = (hashed ^ v) * odd;
    return hashed ^ hashed >> 32;
}
/* First position >= at whose byte is not zero, or end. */
static inline rq_at skip_zeros(const rq_byte *p, rq_at at, rq_at end) {
    while (at < end && (at & 7)) { if (p[at]) return at; at++; }
    while (at + 8 <= end) { uint64_t v; memcpy(&v, p + at, 8); if (v) break; at += 8; }
    while (at < end && !p[at]) at++;
    return at;
}
/* First position >= at where the four bytes of `value` (big-endian) stand, or -1. */
static inline rq_at find_i32(const rq_byte *p, rq_at at, rq_at end, int value) {
    uint32_t wanted = RQ_BE32((uint32_t)value); rq_byte first; memcpy(&first, &wanted, 1);
    while (at + 4 <= end) {
        const rq_byte *hit = (const rq_byte *)memchr(p + at, first, (size_t)(end - at - 3));
        uint32_t v;
        if (!hit) return -1;
        memcpy(&v, hit, 4);
        if (v == wanted) return hit - p;
        at = (hit - p) + 1;
    }
    return -1;
}

/* Have the pages of [at, at + count) of a shared mapping in memory, ready to be written; 0 where that cannot be asked. */
#if defined(__linux__)
#include <sys/mman.h>
#include <unistd.h>
#ifndef MADV_POPULATE_WRITE
#define MADV_POPULATE_WRITE 23
#endif
static inline int populate_pages(rq_byte *p, rq_at at, rq_at count) {
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), from = (uintptr_t)(p + at) & ~(page - 1);
    return count > 0 && madvise((void *)from, (uintptr_t)(p + at + count) - from, MADV_POPULATE_WRITE) == 0;
}
/* Which of up to eight pages from that of `at` to that of `end` - 1 are in the page cache, the first one in bit 0; none
 * where that is unknown. Pages count as 4 KiB. */
static inline int resident_mask(const rq_byte *p, rq_at at, rq_at end) {
    unsigned char resident[9];
    uintptr_t page = (uintptr_t)sysconf(_SC_PAGESIZE), first = (uintptr_t)(p + at) & ~(uintptr_t)4095;
    uintptr_t from = first & ~(page - 1), stop = (uintptr_t)(p + end);
    int mask = 0;
    if (stop - first > 8 * 4096) stop = first + 8 * 4096;
    if (at >= end || mincore((void *)from, stop - from, resident) != 0) return 0;
    for (int index = 0; first + (uintptr_t)index * 4096 < stop; index++)
        mask |= (resident[(first + (uintptr_t)index * 4096 - from) / page] & 1) << index;
    return mask;
}
#else
static inline int populate_pages(rq_byte *p, rq_at at, rq_at count) { (void)p; (void)at; (void)count; return 0; }
static inline int resident_mask(const rq_byte *p, rq_at at, rq_at end) { (void)p; (void)at; (void)end; return 0; }
#endif

/* As much as a socket takes at once; 0 as well when there is an error, which whoever goes on will meet. */
#if defined(__linux__)
#include <sys/socket.h>
static inline rq_at send_now(int fd, const rq_byte *p, rq_at count) {
    ssize_t sent = send(fd, p, (size_t)count, MSG_DONTWAIT | MSG_NOSIGNAL);
    return sent < 0 ? 0 : (rq_at)sent;
}
#else
static inline rq_at send_now(int fd, const rq_byte *p, rq_at count) { (void)fd; (void)p; (void)count; return 0; }
#endif

static uint32_t rq_crc_table[8][256];
static int rq_crc_ready = 0;

static void rq_crc_prepare(void) {
    for (int byte = 0; byte < 256; byte++) {
        uint32_t c = (uint32_t)byte;
        for (int bit = 0; bit < 8; bit++) c = (c & 1) ? 0xEDB88320u ^ (c >> 1) : c >> 1;
        rq_crc_table[0][byte] = c;
    }
    for (int byte = 0; byte < 256; byte++)
        for (int k = 1; k < 8; k++)
            rq_crc_table[k][byte] = rq_crc_table[0][rq_crc_table[k - 1][byte] & 255] ^ (rq_crc_table[k - 1][byte] >> 8);
    rq_crc_ready = 1;
}

static uint32_t rq_crc_tables(uint32_t c, const rq_byte *p, size_t count) {
    if (!rq_crc_ready) rq_crc_prepare();
#if !defined(__BYTE_ORDER__) || __BYTE_ORDER__ != __ORDER_BIG_ENDIAN__
    while (count >= 8) {
        uint32_t low, high;
        memcpy(&low, p, 4); memcpy(&high, p + 4, 4);
        low ^= c;
        c = rq_crc_table[7][low & 255] ^ rq_crc_table[6][(low >> 8) & 255] ^ rq_crc_table[5][(low >> 16) & 255]
          ^ rq_crc_table[4][low >> 24] ^ rq_crc_table[3][high & 255] ^ rq_crc_table[2][(high >> 8) & 255]
          ^ rq_crc_table[1][(high >> 16) & 255] ^ rq_crc_table[0][high >> 24];
        p += 8; count -= 8;
    }
#endif
    while (count--) c = rq_crc_table[0][(c ^ *p++) & 255] ^ (c >> 8);
    return c;
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <immintrin.h>
/* Carry-less multiplication folds 64 bytes a step. The constants are powers of x modulo the reflected CRC-32
 * polynomial, as in Intel's paper on CRC by PCLMULQDQ. `count` is >= 64 and a multiple of 16. */
#define RQ_FOLD(lane, key) _mm_xor_si128(_mm_clmulepi64_si128(lane, key, 0x00), _mm_clmulepi64_si128(lane, key, 0x11))
__attribute__((target("sse4.1,pclmul")))
static uint32_t rq_crc_folded(uint32_t c, const rq_byte *p, size_t count) {
    const __m128i by_64 = _mm_set_epi64x(0x01c6e41596LL, 0x0154442bd4LL);
    const __m128i by_16 = _mm_set_epi64x(0x00ccaa009eLL, 0x01751997d0LL);
    const __m128i by_8 = _mm_set_epi64x(0, 0x0163cd6124LL);
    const __m128i barrett = _mm_set_epi64x(0x01f7011641LL, 0x01db710641LL);
    const __m128i low_words = _mm_setr_epi32(~0, 0, ~0, 0);
    __m128i lane[4], t;
    for (int k = 0; k < 4; k++) lane[k] = _mm_loadu_si128((const __m128i *)(p + 16 * k));
    lane[0] = _mm_xor_si128(lane[0], _mm_cvtsi32_si128((int)c));
    for (p += 64, count -= 64; count >= 64; p += 64, count -= 64)
        for (int k = 0; k < 4; k++)
            lane[k] = _mm_xor_si128(RQ_FOLD(lane[k], by_64), _mm_loadu_si128((const __m128i *)(p + 16 * k)));
    for (int k = 1; k < 4; k++) lane[0] = _mm_xor_si128(RQ_FOLD(lane[0], by_16), lane[k]);
    for (; count >= 16; p += 16, count -= 16)
        lane[0] = _mm_xor_si128(RQ_FOLD(lane[0], by_16), _mm_loadu_si128((const __m128i *)p));
    t = _mm_xor_si128(_mm_srli_si128(lane[0], 8), _mm_clmulepi64_si128(lane[0], by_16, 0x10));
    t = _mm_xor_si128(_mm_srli_si128(t, 4), _mm_clmulepi64_si128(_mm_and_si128(t, low_words), by_8, 0x00));
    lane[1] = _mm_clmulepi64_si128(_mm_and_si128(t, low_words), barrett, 0x10);
    lane[1] = _mm_clmulepi64_si128(_mm_and_si128(lane[1], low_words), barrett, 0x00);
    return (uint32_t)_mm_extract_epi32(_mm_xor_si128(t, lane[1]), 1);
}
static int rq_can_fold(void) {
    static int known = -1;
    if (known < 0) { __builtin_cpu_init(); known = __builtin_cpu_supports("pclmul") && __builtin_cpu_supports("sse4.1"); }
    return known;
}
#else
static uint32_t rq_crc_folded(uint32_t c, const rq_byte *p, size_t count) { return rq_crc_tables(c, p, count); }
static int rq_can_fold(void) { return 0; }
#endif

/* CRC-32 of bytes that follow others whose CRC-32 is `crc`. */
static inline unsigned int crc32_more(unsigned int crc, const rq_byte *p, rq_at at, rq_at count) {
    uint32_t c = ~crc;
    size_t folded = 0;
    if (count <= 0) return crc;
    if (count >= 64 && rq_can_fold()) {
        folded = (size_t)count & ~(size_t)15;
        c = rq_crc_folded(c, p + at, folded);
    }
    return ~rq_crc_tables(c, p + at + folded, (size_t)count - folded);
}
/* CRC-32 of a body as records hold it: without the sign bit, 0 for no body. */
static inline int body_crc(const rq_byte *p, rq_at at, rq_at count) {
    return (int)(crc32_more(0, p, at, count) & 0x7FFFFFFFu);
}
#endif
