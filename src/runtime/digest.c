/* SPDX-License-Identifier: Apache-2.0 */
/* The text form of a callable's digest. Pure. */
#include <string.h>

#include "echelon/worker.h"
#include "src/base/error.h"

static const char prefix[] = "sha256:";

#define PREFIX_LEN (sizeof prefix - 1)

void ech_digest_format(const uint8_t digest[32], char out[ECH_DIGEST_TEXT])
{
    static const char hex[] = "0123456789abcdef";
    memcpy(out, prefix, PREFIX_LEN);
    for (int i = 0; i < 32; i++) {
        out[PREFIX_LEN + 2 * i] = hex[digest[i] >> 4];
        out[PREFIX_LEN + 2 * i + 1] = hex[digest[i] & 15];
    }
    out[PREFIX_LEN + 64] = '\0';
}

static int digit(const char c)
{
    if (c >= '0' && c <= '9') return c - '0';
    return c >= 'a' && c <= 'f' ? c - 'a' + 10 : -1;
}

ech_status ech_digest_parse(const char *const text, uint8_t ret_digest[32], ech_error *const err)
{
    uint8_t out[32];
    if (strncmp(text, prefix, PREFIX_LEN) != 0)
        return ech_fail_at(err, ECH_EFORMAT, 0, 0, 0,
                           "reading a digest: it doesn't begin with '%s'", prefix);
    const size_t len = strlen(text);
    if (len != PREFIX_LEN + 64)
        return ech_fail_at(err, ECH_EFORMAT, 0, 0, (int64_t)len,
                           "reading a digest: its length is %zu, must be %zu", len,
                           PREFIX_LEN + 64);
    for (int i = 0; i < 64; i++) {
        const int d = digit(text[PREFIX_LEN + i]);
        if (d < 0)
            return ech_fail_at(err, ECH_EFORMAT, 0, 0, (int64_t)PREFIX_LEN + i,
                               "reading a digest: character %d is not a lower-case hex digit", i);
        out[i / 2] = (uint8_t)(i % 2 ? out[i / 2] | d : d << 4);
    }
    memcpy(ret_digest, out, sizeof out);
    return ECH_OK;
}
