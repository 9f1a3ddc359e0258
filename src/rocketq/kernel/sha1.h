/* HMAC-SHA1 with prepared keys, for the signatures of requests. primitives.py has the same leaves over hashlib.
 *
 * A prepared key is 64 bytes that only these functions read: here the SHA-1 states after the inner and the outer padded
 * key, so that a signature costs the blocks of its text and one more. */
#ifndef ROCKETQ_SHA1_H
#define ROCKETQ_SHA1_H
#include <stdint.h>
#include <string.h>
#include "primitives.h"

static inline uint32_t rq_rotate_left(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

/* FIPS 180-4, section 6.1.3: the schedule is a ring of 16 words. */
static void rq_sha1_portable(uint32_t state[5], const rq_byte *p, size_t blocks) {
    for (; blocks > 0; blocks--, p += 64) {
        uint32_t words[16], a = state[0], b = state[1], c = state[2], d = state[3], e = state[4];
        for (int round = 0; round < 80; round++) {
            uint32_t mixed, constant, word;
            int slot = round & 15;
            if (round < 16) {
                words[slot] = (uint32_t)load_i32(p, 4 * round);
            } else {
                word = words[(slot + 13) & 15] ^ words[(slot + 8) & 15] ^ words[(slot + 2) & 15] ^ words[slot];
                words[slot] = rq_rotate_left(word, 1);
            }
            if (round < 20) mixed = (b & c) | (~b & d), constant = 0x5A827999u;
            else if (round < 40) mixed = b ^ c ^ d, constant = 0x6ED9EBA1u;
            else if (round < 60) mixed = (b & c) | (b & d) | (c & d), constant = 0x8F1BBCDCu;
            else mixed = b ^ c ^ d, constant = 0xCA62C1D6u;
            word = rq_rotate_left(a, 5) + mixed + e + constant + words[slot];
            e = d, d = c, c = rq_rotate_left(b, 30), b = a, a = word;
        }
        state[0] += a, state[1] += b, state[2] += c, state[3] += d, state[4] += e;
    }
}

#if defined(__x86_64__) && defined(__GNUC__)
#include <cpuid.h>
#include <immintrin.h>
/* Four rounds with the processor's SHA instructions. `w` is a ring of the last 16 words of the schedule; `e` is a, b, c
 * and d of four rounds ago, of which sha1nexte makes the e of these. All rounds are unrolled: their kind must be an
 * immediate, and the ring stays in registers. */
#define RQ_SHA1_MIXED(g) _mm_xor_si128(_mm_sha1msg1_epu32(w[(g) & 3], w[((g) + 1) & 3]), w[((g) + 2) & 3])
#define RQ_SHA1_ROUNDS(g)                                                                             \
    do {                                                                                              \
        if ((g) >= 4) w[(g) & 3] = _mm_sha1msg2_epu32(RQ_SHA1_MIXED(g), w[((g) + 3) & 3]);            \
        added = (g) > 0 ? _mm_sha1nexte_epu32(e, w[(g) & 3]) : _mm_add_epi32(e, w[0]);                \
        e = abcd;                                                                                     \
        abcd = _mm_sha1rnds4_epu32(abcd, added, (g) / 5);                                             \
    } while (0)
#define RQ_SHA1_TWENTY_ROUNDS(g)                                                                      \
    do {                                                                                              \
        RQ_SHA1_ROUNDS(g);                                                                            \
        RQ_SHA1_ROUNDS((g) + 1);                                                                      \
        RQ_SHA1_ROUNDS((g) + 2);                                                                      \
        RQ_SHA1_ROUNDS((g) + 3);                                                                      \
        RQ_SHA1_ROUNDS((g) + 4);                                                                      \
    } while (0)
__attribute__((target("sha,sse4.1")))
static void rq_sha1_extended(uint32_t state[5], const rq_byte *p, size_t blocks) {
    const __m128i big_endian = _mm_set_epi64x(0x0001020304050607LL, 0x08090A0B0C0D0E0FLL);
    __m128i abcd = _mm_shuffle_epi32(_mm_loadu_si128((const __m128i *)state), 0x1B); /* a in the highest lane */
    __m128i e = _mm_set_epi32((int)state[4], 0, 0, 0), w[4], added;
    for (; blocks > 0; blocks--, p += 64) {
        const __m128i abcd_before = abcd, e_before = e;
        for (int each = 0; each < 4; each++)
            w[each] = _mm_shuffle_epi8(_mm_loadu_si128((const __m128i *)(p + 16 * each)), big_endian);
        RQ_SHA1_TWENTY_ROUNDS(0);
        RQ_SHA1_TWENTY_ROUNDS(5);
        RQ_SHA1_TWENTY_ROUNDS(10);
        RQ_SHA1_TWENTY_ROUNDS(15);
        e = _mm_sha1nexte_epu32(e, e_before);
        abcd = _mm_add_epi32(abcd, abcd_before);
    }
    _mm_storeu_si128((__m128i *)state, _mm_shuffle_epi32(abcd, 0x1B));
    state[4] = (uint32_t)_mm_extract_epi32(e, 3);
}
/* Leaf 7 of cpuid says SHA in bit 29 of ebx, leaf 1 SSE4.1 in bit 19 of ecx. */
static int rq_has_sha(void) {
    static int known = -1;
    unsigned a, b, c, d, features, extended;
    if (known < 0) {
        features = __get_cpuid(1, &a, &b, &c, &d) ? c : 0;
        extended = __get_cpuid_count(7, 0, &a, &b, &c, &d) ? b : 0;
        known = (features >> 19 & 1) && (extended >> 29 & 1);
    }
    return known;
}
#else
static void rq_sha1_extended(uint32_t state[5], const rq_byte *p, size_t blocks) { rq_sha1_portable(state, p, blocks); }
static int rq_has_sha(void) { return 0; }
#endif

static void rq_sha1_blocks(uint32_t state[5], const rq_byte *p, size_t blocks) {
    if (rq_has_sha()) rq_sha1_extended(state, p, blocks);
    else rq_sha1_portable(state, p, blocks);
}

/* The end of a message: its last two parts, padding and length. `before` is how many bytes `state` has seen already. */
static void rq_sha1_finish(uint32_t state[5], size_t before, const rq_byte *head, size_t head_len, const rq_byte *rest,
                           size_t rest_len) {
    rq_byte block[128];
    size_t bytes = before + head_len + rest_len, held = head_len & 63, missing, padded;
    rq_sha1_blocks(state, head, head_len >> 6);
    memcpy(block, head + head_len - held, held);
    missing = (64 - held) & 63;
    if (missing && rest_len >= missing) {
        memcpy(block + held, rest, missing);
        rq_sha1_blocks(state, block, 1);
        rest += missing, rest_len -= missing, held = 0;
    }
    if (!held) {
        rq_sha1_blocks(state, rest, rest_len >> 6);
        rest += rest_len & ~(size_t)63, rest_len &= 63;
    }
    memcpy(block + held, rest, rest_len);
    held += rest_len;
    padded = held < 56 ? 64 : 128;
    block[held++] = 0x80;
    memset(block + held, 0, padded - 8 - held);
    store_i64(block, (rq_at)padded - 8, (long long)((uint64_t)bytes << 3));
    rq_sha1_blocks(state, block, padded >> 6);
}
static const uint32_t rq_sha1_start[5] = {0x67452301u, 0xEFCDAB89u, 0x98BADCFEu, 0x10325476u, 0xC3D2E1F0u};
static inline void rq_sha1_store(const uint32_t state[5], rq_byte *out) {
    for (int word = 0; word < 5; word++) store_i32(out, 4 * word, (int)state[word]);
}

/* Prepare a secret: RFC 2104 pads it to a block, and one that is longer is replaced by its hash. */
static inline void prepare_hmac(rq_byte *keys, rq_at at, const rq_byte *secret, rq_at count) {
    uint32_t states[10];
    rq_byte key[64] = {0}, padded[64];
    memcpy(states, rq_sha1_start, 20);
    if (count > 64) {
        rq_sha1_finish(states, 0, secret, (size_t)count, secret, 0);
        rq_sha1_store(states, key);
    } else {
        memcpy(key, secret, (size_t)count);
    }
    for (int outer = 0; outer < 2; outer++) {
        for (int each = 0; each < 64; each++) padded[each] = key[each] ^ (outer ? 0x5C : 0x36);
        memcpy(states + 5 * outer, rq_sha1_start, 20);
        rq_sha1_blocks(states + 5 * outer, padded, 1);
    }
    memset(keys + at, 0, 64);
    memcpy(keys + at, states, sizeof states);
}
/* The 20 bytes of HMAC-SHA1 over `text` and then `count` bytes of `p`. */
static inline void hmac_sha1(rq_byte *out, const rq_byte *keys, rq_at key_at, const rq_byte *text, rq_at text_len,
                             const rq_byte *p, rq_at at, rq_at count) {
    uint32_t states[10];
    rq_byte digest[20];
    memcpy(states, keys + key_at, sizeof states);
    rq_sha1_finish(states, 64, text, (size_t)text_len, p + at, (size_t)count);
    rq_sha1_store(states, digest);
    rq_sha1_finish(states + 5, 64, digest, 20, digest, 0);
    rq_sha1_store(states + 5, out);
}
/* Whether `p` has the Base64 text of these 20 bytes, 28 characters. It takes as long whatever they are. */
static inline int is_base64_of(const rq_byte *digest, const rq_byte *p, rq_at at) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned differs = p[at + 27] ^ '=';
    for (int each = 0; each < 27; each++) {
        int bit = 6 * each, byte = bit >> 3;
        unsigned pair = (unsigned)digest[byte] << 8 | (byte < 19 ? digest[byte + 1] : 0u);
        differs |= p[at + each] ^ (unsigned char)letters[pair >> (10 - (bit & 7)) & 63];
    }
    return differs == 0;
}
#endif
