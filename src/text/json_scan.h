/* SPDX-License-Identifier: Apache-2.0 */
/*
 * Checks one JSON value (RFC 8259) a byte at a time, without building anything: what a parser of
 * model output needs to know where the value ends and whether it is one. White space before the
 * value is skipped. Bytes must be UTF-8 already. Plain data, copyable; no memory.
 */
#ifndef ECH_TEXT_JSON_SCAN_H
#define ECH_TEXT_JSON_SCAN_H

#include <stdbool.h>
#include <stddef.h>
#include <stdint.h>

#define ECH_JSON_SCAN_DEPTH 256

typedef enum ech_json_result {
    ECH_JSON_MORE, /* fine so far */
    ECH_JSON_END,  /* this byte ended the value */
    ECH_JSON_PAST, /* the value, a number, had ended before this byte, which isn't part of it */
    ECH_JSON_BAD,  /* no JSON; the scan is over */
} ech_json_result;

/* What is expected next. */
typedef enum ech_json_state {
    ECH_JSON_VALUE,
    ECH_JSON_VALUE_OR_END, /* after '[' */
    ECH_JSON_KEY_OR_END,   /* after '{' */
    ECH_JSON_KEY,
    ECH_JSON_COLON,
    ECH_JSON_COMMA_OR_END,
    ECH_JSON_STRING,
    ECH_JSON_ESCAPE,
    ECH_JSON_HEX,
    ECH_JSON_LITERAL,
    ECH_JSON_MINUS, /* number: digits needed */
    ECH_JSON_ZERO,
    ECH_JSON_INT,
    ECH_JSON_POINT, /* digits needed */
    ECH_JSON_FRACTION,
    ECH_JSON_E, /* sign or digits needed */
    ECH_JSON_E_SIGN,
    ECH_JSON_EXPONENT,
    ECH_JSON_DONE,
} ech_json_state;

typedef struct ech_json_scan {
    ech_json_state state;
    uint32_t depth;   /* open arrays and objects */
    bool in_key;      /* the string is a key */
    uint8_t n_hex;    /* hex digits left */
    const char *rest; /* of a literal */
    uint64_t is_object[ECH_JSON_SCAN_DEPTH / 64];
} ech_json_scan;

/* {0} is a scan that awaits a value. */
ech_json_result ech_json_scan_push(ech_json_scan *s, char byte);
/* Inside a string, its closing quote not seen: any character may come. */
bool ech_json_scan_in_string(const ech_json_scan *s);
/* Whether text is one JSON value with nothing but white space around it. */
bool ech_json_scan_whole(const char *text, size_t len);

static inline bool ech_json_is_space(const char c)
{
    return c == ' ' || c == '\t' || c == '\n' || c == '\r';
}

#endif
