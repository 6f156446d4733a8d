/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Reading with numbers of any size; see json_read.h. jansson reads first: only where it stumbles
 * over a number is the text copied, and the numbers that are too large are written anew in their
 * own place, no byte longer, so that the place of a later error is right. What is no JSON stays as
 * it is, for jansson to refuse.
 */
#include "src/text/json_read.h"

#include <errno.h>
#include <math.h>
#include <stdbool.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>

#include "src/text/json_scan.h"

#define MANTISSA 17 /* digits that give back every double */

/*
 * Seventeen digits and an exponent: at least as short as the nineteen digits and more of what is
 * beyond int64. -2^63 is also the nearest double of integers below it, which must not come into
 * int64's range by it.
 */
static void write_integer(double v, char out[32])
{
    char text[32];
    if (v == -0x1p63) v = nextafter(v, -INFINITY);
    (void)snprintf(text, sizeof text, "%.*e", MANTISSA - 1, v);
    char *const e = strchr(text, 'e');
    const int exponent = atoi(e + 1) - (MANTISSA - 1);
    char *const point = strchr(text, '.');
    memmove(point, point + 1, (size_t)(e - point - 1));
    (void)snprintf(out, 32, "%.*se%d", (int)(e - 1 - text), text, exponent);
}

/* What stands for a number of n bytes, a NUL behind it; "": itself. */
static void replacement(const char *const at, const size_t n, char out[32])
{
    const size_t sign = at[0] == '-';
    const double v = strtod(at, NULL);
    out[0] = '\0';
    errno = 0;
    if (isinf(v)) {
        (void)strcpy(out, v < 0 ? "-9e307" : "9e307");
    } else if (sign + strspn(at + sign, "0123456789") == n && strtoll(at, NULL, 10) != 0 &&
               errno == ERANGE) {
        write_integer(v, out);
    }
}

/* A number of a copy that ends in a NUL, or something like one; how long it is. */
static size_t mend_number(char *const at)
{
    char text[32];
    const size_t n = strspn(at, "+-.0123456789eE");
    if (!ech_json_scan_whole(at, n)) return n;
    const char after = at[n];
    at[n] = '\0';
    replacement(at, n, text);
    at[n] = after;
    const size_t len = strlen(text);
    if (len == 0) return n;
    memcpy(at, text, len);
    memset(at + len, ' ', n - len);
    return n;
}

/* Strings are passed over; outside them a digit or a sign can only begin a number. */
static void mend(char *const s, const size_t len)
{
    bool in_string = false;
    for (size_t i = 0; i < len; i++) {
        if (in_string && s[i] == '\\') {
            i++;
        } else if (s[i] == '"') {
            in_string = !in_string;
        } else if (!in_string && (s[i] == '-' || (s[i] >= '0' && s[i] <= '9'))) {
            i += mend_number(s + i) - 1;
        }
    }
}

json_t *ech_json_read(const char *const text, const size_t len, const size_t flags,
                      json_error_t *const why)
{
    json_t *v = json_loadb(text, len, flags, why);
    if (v != NULL || json_error_code(why) != json_error_numeric_overflow) return v;
    char *const copy = malloc(len + 1);
    if (copy == NULL) return NULL;
    memcpy(copy, text, len);
    copy[len] = '\0';
    mend(copy, len);
    v = json_loadb(copy, len, flags, why);
    free(copy);
    return v;
}
