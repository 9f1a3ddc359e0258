/* HMAC-SHA1 as Base64, for signatures of requests. Short, not fast: frames are signed before the clock starts. */
#ifndef HMAC_SHA1_H
#define HMAC_SHA1_H
#include <stdint.h>
#include <string.h>

typedef struct {
    uint32_t state[5];
    uint64_t bytes;
    unsigned char block[64];
} sha1;

static void sha1_start(sha1 *hash) {
    *hash = (sha1){.state = {0x67452301, 0xEFCDAB89, 0x98BADCFE, 0x10325476, 0xC3D2E1F0}};
}

static uint32_t turn_left(uint32_t value, int bits) { return value << bits | value >> (32 - bits); }

static void sha1_block(sha1 *hash) {
    uint32_t w[80], v[5];
    memcpy(v, hash->state, sizeof v);
    for (int t = 0; t < 80; t++) {
        const unsigned char *p = hash->block + 4 * t;
        w[t] = t < 16 ? (uint32_t)p[0] << 24 | p[1] << 16 | p[2] << 8 | p[3]
                      : turn_left(w[t - 3] ^ w[t - 8] ^ w[t - 14] ^ w[t - 16], 1);
        uint32_t f = t < 20 ? 0x5A827999 + ((v[1] & v[2]) | (~v[1] & v[3]))
                   : t < 40 ? 0x6ED9EBA1 + (v[1] ^ v[2] ^ v[3])
                   : t < 60 ? 0x8F1BBCDC + ((v[1] & v[2]) | (v[1] & v[3]) | (v[2] & v[3]))
                            : 0xCA62C1D6 + (v[1] ^ v[2] ^ v[3]);
        uint32_t next = turn_left(v[0], 5) + f + v[4] + w[t];
        v[4] = v[3], v[3] = v[2], v[2] = turn_left(v[1], 30), v[1] = v[0], v[0] = next;
    }
    for (int each = 0; each < 5; each++) hash->state[each] += v[each];
}

static void sha1_add(sha1 *hash, const void *data, size_t count) {
    const unsigned char *p = data;
    for (size_t each = 0; each < count; each++) {
        hash->block[hash->bytes++ % 64] = p[each];
        if (hash->bytes % 64 == 0) sha1_block(hash);
    }
}

static void sha1_end(sha1 *hash, unsigned char digest[20]) {
    uint64_t bits = hash->bytes * 8;
    sha1_add(hash, "\x80", 1);
    while (hash->bytes % 64 != 56) sha1_add(hash, "", 1);
    for (int shift = 56; shift >= 0; shift -= 8) sha1_add(hash, &(unsigned char){bits >> shift}, 1);
    for (int each = 0; each < 20; each++) digest[each] = hash->state[each / 4] >> (24 - each % 4 * 8);
}

/* Writes 28 characters and a zero. */
static void sign_text(const char *secret, const void *data, size_t count, char out[29]) {
    static const char letters[] = "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    unsigned char key[64] = {0}, padded[64], digest[21] = {0};
    sha1 hash;
    sha1_start(&hash);
    if (strlen(secret) > 64) sha1_add(&hash, secret, strlen(secret)), sha1_end(&hash, key);
    else memcpy(key, secret, strlen(secret));
    for (int outer = 0; outer < 2; outer++) {
        for (int each = 0; each < 64; each++) padded[each] = key[each] ^ (outer ? 0x5C : 0x36);
        sha1_start(&hash);
        sha1_add(&hash, padded, 64);
        if (outer) sha1_add(&hash, digest, 20);
        else sha1_add(&hash, data, count);
        sha1_end(&hash, digest);
    }
    for (int each = 0; each < 7; each++) {
        uint32_t three = (uint32_t)digest[3 * each] << 16 | digest[3 * each + 1] << 8 | digest[3 * each + 2];
        for (int letter = 0; letter < 4; letter++) out[4 * each + letter] = letters[three >> (18 - 6 * letter) & 63];
    }
    out[27] = '=', out[28] = 0;
}
#endif
